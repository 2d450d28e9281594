"""python scripts/export.py: points with names in the formats and coordinates that are asked for."""

import importlib
import json
import os
import shutil
import sys
from unittest import mock

import numpy as np
import pytest
import torch

from configs import composing, own
from configs.build import build, rebuild
from hyperbolic.manifolds import MANIFOLDS, Euclidean, Lorentz, PoincareBall
from scripts import export, figures
from scripts.export import MODELS, in_model
from scripts.exports.card import card, licence
from scripts.exports.formats import FORMATS, Table, write
from scripts.trained import load, read_run
from tasks import exported, resume
from tasks.base import NamedPoints
from tasks.errors import UserError
from tasks.vector_files import parse
from tests import cli
from tests.configurations import CONFIGS, TOYS, checked

# What models that are not trained yet have points of: a task with more words, and the kinds.
KINDS = {
    "document_classification_toy": ["words", "classes"],
    "document_classification_toy task/model=bag_of_words": [],
    "entity_typing_toy": ["classes"],
    "graph_nc_toy": ["nodes", "classes"],
    "graph_toy": ["nodes"],
    "kg_completion_toy": ["entities"],
    "kg_completion_toy encoder=murp": ["entities", "relations"],
    "kg_completion_toy encoder=roth geometry.c=0.5": ["entities", "relations"],
    "kg_completion_toy encoder=rotate": ["entities"],
    "kg_completion_toy encoder=transe": ["entities", "relations"],
    "kg_completion_toy encoder=distmult": ["entities", "relations"],
    "nli_toy geometry=lorentz": ["words", "classes"],
    "poincare_embeddings_toy": ["nodes"],
    "poincare_glove_toy": ["words"],
    "prefix_toy geometry=poincare_tangent": ["words", "classes"],
    "probing_toy": [],
    "translation_toy": ["source_pieces", "target_pieces"],
    "translation_toy geometry=euclidean encoder=conv_seq2seq": ["source_pieces", "target_pieces"],
    "translation_toy geometry=hatt": ["source_pieces", "target_pieces"],
    "translation_toy geometry=poincare_pp geometry.parts.decoder=euclidean": ["source_pieces", "target_pieces"],
    "wordnet_subtree_toy": ["nodes", "classes"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained model of a knowledge graph, with curvature -1/2."""
    words = ("task=kg_completion_toy", "encoder=murp", "geometry.c=0.5", "trainer.max_epochs=1", *cli.QUIET)
    result = cli.call(*words, *cli.places(tmp_path_factory.mktemp("export")))
    assert result.code == 0, result.err
    return result.record_path.parent


@pytest.mark.long
def test_weights_that_were_not_tested_are_told_apart(run, tmp_path, capsys):
    unfinished = tmp_path / "unfinished"
    (unfinished / "checkpoints").mkdir(parents=True)
    shutil.copy(run / "checkpoints" / "last.ckpt", unfinished / "checkpoints")
    note = "note: the run was not at its end: these are the weights of its last state, not tested."
    for folder, said in ((run, ""), (unfinished, note)):
        assert export.main([str(folder), "--format", "tsv", "--out", str(tmp_path / "points.tsv")]) == 0
        assert capsys.readouterr().err.strip() == said


@pytest.fixture
def table():
    return Table("words", ["an", "ear"], np.array([[0.1, 1 / 3], [-1e-12, 0.0]]), "poincare", 0.5, "a run")


def command(*words: object) -> int:
    return export.main([str(word) for word in words])


def error_of(capsys) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_every_toy_is_listed():
    assert {words.split()[0] for words in KINDS} >= set(TOYS)


@pytest.mark.long
@pytest.mark.parametrize("words", KINDS)
def test_points_of_a_model(words, tmp_path):
    composing.register()
    first, *others = words.split()
    task, data = build(checked(f"task={first}", *others, *cli.places(tmp_path)))
    with torch.no_grad():
        kinds = task.eval().named_points(data)
    assert list(kinds) == KINDS[words]
    for names, manifold, x in kinds.values():
        assert len(names) == len(set(names)) == len(x) > 0
        assert manifold.check_point_on_manifold(x)


def test_names_go_with_their_points(run, tmp_path):
    """The file has each entity where the checkpoint has it."""
    file = tmp_path / "entities.npz"
    assert command(run, "--format", "npz", "--out", file) == 0
    trained = load(read_run(run))
    manifold, points = trained.model.scorer.points()
    with np.load(file, allow_pickle=False) as stored:
        assert stored["names"].tolist() == list(trained.data.graph.entities)
        np.testing.assert_allclose(stored["points"], points.numpy(), atol=1e-7)
        assert (str(stored["model"]), float(stored["c"])) == ("poincare", 0.5)
    assert float(manifold.c) == 0.5, "the run's own"


@pytest.mark.long
def test_relations_of_a_reciprocal_are_named(run, tmp_path):
    file = tmp_path / "relations.tsv"
    assert command(run, "--format", "tsv", "--what", "relations", "--model", "klein", "--out", file) == 0
    header, *rows = [line.split("\t") for line in file.read_text().splitlines()]
    assert header[:3] == ["name", "x1", "x2"]
    assert command(run, "--format", "tsv", "--what", "relations", "--model", "lorentz", "--out", file) == 0
    assert file.read_text().startswith("name\tx0\tx1\t")
    trained = load(read_run(run))
    relations = list(trained.data.graph.relations)
    scorer = trained.model.scorer
    assert [row[0] for row in rows] == relations + [f"{name}^-1" for name in relations][
        : scorer.n_relations - len(relations)
    ]
    ball, points = scorer.relation_points()
    distance = torch.tensor([[float(value) for value in row[1:]] for row in rows], dtype=torch.float64)
    expected = MODELS["klein"](c=0.5).dist0(distance)
    torch.testing.assert_close(expected, ball.dist0(points.double()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("source", [name for name, manifold in MANIFOLDS.items() if manifold.is_hyperbolic])
@pytest.mark.parametrize("model", [*MODELS, "euclidean"])
def test_coordinates_of_other_models_are_those_of_the_same_points(source, model):
    manifold = MANIFOLDS[source](c=0.4)
    x = manifold.random(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    table = in_model("words", NamedPoints(list("abcdef"), manifold, x), model, "a run")
    y = torch.from_numpy(table.coordinates)
    assert (table.model, table.c) == (model, 0.4)
    if model == "euclidean":
        torch.testing.assert_close(y.norm(dim=-1), manifold.dist0(x))
        return
    space = MODELS[model](c=0.4)
    pairs = torch.combinations(torch.arange(6)).unbind(-1)
    torch.testing.assert_close(space.dist(*(y[k] for k in pairs)), manifold.dist(*(x[k] for k in pairs)))


def test_points_of_float32_lie_on_the_sheet_in_float64():
    manifold = Lorentz(c=2.0)
    x = manifold.random(50, 4, std=0.5, generator=torch.Generator().manual_seed(0))
    y = in_model("nodes", NamedPoints([""] * 50, manifold, x), None, "a run").coordinates
    np.testing.assert_allclose(y[:, 0] ** 2 - (y[:, 1:] ** 2).sum(1), 0.5, rtol=1e-9)


def test_points_beyond_the_numbers_of_a_model_are_said(capsys):
    manifold = Lorentz()
    x = manifold.expmap0(torch.tensor([[5.0, 0.0], [20.0, 0.0]], dtype=torch.float64))
    in_model("nodes", NamedPoints(["a", "b"], manifold, x), "poincare", "a run")
    assert capsys.readouterr().err == ""
    in_model("nodes", NamedPoints(["a", "b"], manifold, x), "klein", "a run")
    assert "note: 1 of 2 nodes lie further out than coordinates of the klein model can hold" in capsys.readouterr().err


def test_flat_space_has_no_other_model():
    points = NamedPoints(["a"], Euclidean(), torch.ones(1, 2))
    assert in_model("words", points, None, "a run").model == "euclidean"
    assert in_model("words", points, "euclidean", "a run").c == 0
    with pytest.raises(UserError, match="--model lorentz: the words of a run lie in flat space; leave it out"):
        in_model("words", points, "lorentz", "a run")


def test_the_curvature_that_was_learned_is_written():
    ball = PoincareBall(c=1.0, learn_c=True)
    with torch.no_grad():
        ball.free_c.fill_(3.0)
    table = in_model("words", NamedPoints(["a"], ball, torch.full((1, 2), 0.1)), "lorentz", "a run")
    assert table.c == pytest.approx(float(ball.c.detach()))
    assert table.c > 3


def test_word2vec_opens_in_gensim(table, tmp_path):
    vectors = importlib.import_module("gensim.models").KeyedVectors
    file = write(table, "word2vec", tmp_path / "words.txt")
    opened = vectors.load_word2vec_format(file, datatype=np.float64)
    assert opened.index_to_key == ["an", "ear"]
    np.testing.assert_array_equal(opened.vectors, table.coordinates)


def test_word2vec_is_what_our_own_tasks_read(table, tmp_path):
    file = parse(write(table, "word2vec", tmp_path / "words.txt"), "fail")
    assert file.words == ["an", "ear"]
    np.testing.assert_array_equal(file.vectors, table.coordinates.astype(np.float32))


def test_tsv_keeps_every_bit(table, tmp_path):
    lines = write(table, "tsv", tmp_path / "words.tsv").read_text().splitlines()
    assert lines == ["name\tx1\tx2", f"an\t0.1\t{1 / 3!r}", "ear\t-1e-12\t0.0"]


def test_parquet_has_names_vectors_and_what_they_mean(table, tmp_path):
    parquet = importlib.import_module("pyarrow.parquet")
    read = parquet.read_table(write(table, "parquet", tmp_path / "words.parquet"))
    assert read.column("name").to_pylist() == ["an", "ear"]
    np.testing.assert_array_equal(read.column("vector").to_pylist(), table.coordinates)
    facts = {key.decode(): value.decode() for key, value in read.schema.metadata.items()}
    assert facts == {"kind": "words", "model": "poincare", "c": "0.5", "run": "a run"}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("New York", ["word2vec"]),
        ("a\u00a0b", ["word2vec"]),
        ("", ["word2vec"]),
        ("a\tb", ["word2vec", "tsv"]),
        ("a\nb", ["word2vec", "tsv"]),
        ("a,\"b'", []),
    ],
)
def test_a_format_that_cannot_hold_a_name_says_so(table, tmp_path, name, refused):
    named = Table("words", ["an", name], table.coordinates, "poincare", 0.5, "a run")
    for form in FORMATS:
        file = tmp_path / form
        if form not in refused:
            assert write(named, form, file).is_file()
            continue
        with pytest.raises(
            UserError, match=r"1 of the 2 words cannot stand in it, the first is .*Take --format .*npz or parquet"
        ):
            write(named, form, file)
        assert not file.exists()


def test_numbers_that_are_not_finite_are_no_export(table, tmp_path):
    table.coordinates[1, 0] = np.inf
    with pytest.raises(UserError, match="a run: the point of 'ear' has coordinates that are not finite"):
        write(table, "npz", tmp_path / "x.npz")


def test_the_file_lies_in_the_run_and_other_kinds_are_told(run, capsys):
    assert command(run, "--format", "word2vec", "--model", "euclidean") == 0
    file = run / "entities.euclidean.txt"
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2].startswith(f"entities: {file} (")
    assert printed[-2].endswith("euclidean, c = 0.5)")
    assert printed[-1] == "also: --what relations"
    file.unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--what", "entitys"], "has no points of them. Did you mean entities? It has entities, relations."),
        (["--what", "words"], "has no points of them. It has entities, relations."),
        (["--out", "."], "--out . is a folder; name a file."),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_paragraph(run, words, message, capsys):
    assert command(run, "--format", "npz", *words) == 1
    line = error_of(capsys)
    assert line.startswith("error: ")
    assert message in line


def test_a_model_without_points_is_said(run, monkeypatch, capsys):
    monkeypatch.setattr("tasks.kg_completion.task.LinkPredictionTask.named_points", lambda self, data: {})
    assert command(run, "--format", "npz") == 1
    line = error_of(capsys)
    assert "its model has no points with names, so there is nothing to export as a table. --format folder" in line
    text = card(read_run(run), {}, predicts=False)
    assert "It has no points by name: the folder has the weights" in text
    assert "mode=predict" not in text


def test_the_card_says_under_which_licence_data_are_where_that_is_known():
    named = {f"task.data.files.{split}.all": f"snli_1.0_{split}" for split in ("train", "dev", "test")}
    snli = {"task.name": "snli", "task.data.folder": "elsewhere/snli", **named}
    assert licence(snli).startswith("CC BY-SA 4.0")
    assert licence(snli | {"task.data.folder": "my_pairs"}).startswith("not stated: ask the publisher")
    assert licence(snli | {"task.data.files.train.all": "my_pairs"}).startswith("not stated: ask the publisher")
    wordnet = {"task.name": "poincare_embeddings", "task.data.wordnet": "<paths.data_dir>/wordnet30", "task.data.file": None}
    assert licence(wordnet).startswith("WordNet's own")
    assert licence(wordnet | {"task.data.file": "edges.tsv"}).startswith("not stated: ask the publisher")
    assert licence({"task.name": "kg"}).startswith("not stated: ask the publisher")
    assert licence({"task.name": "prefix10", "task.data._target_": "tasks.prefix.data.PrefixData"}).startswith("they are gen")


def test_a_folder_without_a_run_is_said(tmp_path, capsys):
    assert command(tmp_path, "--format", "npz") == 1
    assert "is not the folder of a run" in error_of(capsys)


def test_parquet_without_pyarrow_names_what_adds_it(table, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"--format parquet needs pyarrow; pip install '.\[export\]' adds it"):
        write(table, "parquet", tmp_path / "x.parquet")


def test_a_folder_is_the_model_that_was_tested(run, tmp_path, capsys):
    """What is loaded scores as the run did, and the card has the metrics of the record."""
    folder = tmp_path / "model"
    assert command(run, "--format", "folder", "--out", folder) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"model: {folder}"
    model = exported.load(folder)
    task, data = rebuild(model.checkpoint)
    resume.load_weights(task, model.checkpoint, "the folder")
    manifold, points = task.model.scorer.points()
    names, space, x = model.points["entities"]
    assert list(names) == list(data.graph.entities)
    torch.testing.assert_close(space.dist0(x), manifold.dist0(points.double()), rtol=1e-5, atol=1e-6)
    record = json.loads((run / "record.json").read_text())
    text = (folder / "README.md").read_text()
    assert f"| test/mrr | {record['metrics']['test/mrr']:.4f} |" in text
    assert record["data"]["sha256"]["train"] in text
    assert "python run.py task=kg_completion_toy encoder=murp geometry.c=0.5" in text
    assert "Licence of the data: they are generated" in text
    assert "python run.py mode=predict checkpoint=FOLDER" in text
    assert str(tmp_path) not in text + (folder / "config.json").read_text()


def test_a_folder_takes_no_kind_and_no_model(run, capsys):
    assert command(run, "--format", "folder", "--what", "entities") == 1
    assert "--what and --model are for files of points" in error_of(capsys)


@pytest.mark.long
@pytest.mark.parametrize("named", [True, False])
def test_a_run_of_the_users_own_configurations(named, tmp_path, monkeypatch, capsys):
    """Export and figures take the folder as run.py does: --config-dir, else ./configs."""
    (folder := tmp_path / "configs" / "encoder").mkdir(parents=True)
    (tmp_path / f"own_encoder_{named}.py").write_text("from hyperbolic.encoders.relational.mur import MuR")
    murp = (CONFIGS / "encoder" / "murp.yaml").read_text(encoding="utf-8")
    (folder / "mine.yaml").write_text(murp.replace("hyperbolic.encoders.relational.mur", f"own_encoder_{named}"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path.parent if named else tmp_path)
    words = ["--config-dir", str(folder.parent)] if named else []
    with mock.patch.dict("os.environ"):
        os.environ.pop(own.VARIABLE, None)
        toy = ("task=kg_completion_toy", "encoder=mine", "trainer.max_epochs=1", *cli.QUIET, *cli.places(tmp_path))
        result = cli.call(*toy, *words)
        assert result.code == 0, result.err
        run = result.record_path.parent
        for each, one in ((export, [str(run), "--format", "tsv"]), (figures, ["entities", str(run)])):
            os.environ.pop(own.VARIABLE, None)
            assert each.main([*one, *words]) == 0, capsys.readouterr().err
    assert "figure: " in capsys.readouterr().out
