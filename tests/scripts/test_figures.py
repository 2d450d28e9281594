"""python scripts/figures.py: from the folder of a run to files, and what it says of a folder or word it cannot use."""

import dataclasses
import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch

from scripts import figures
from scripts.drawing import attention, canvas, entity_types, nearest
from scripts.drawing.options import FigureOptions
from scripts.trained import load, read_run, read_runs
from tasks.entity_typing.toy import ToyTypingData
from tasks.errors import UserError
from tests.scripts.drawn import draw, error_of, left_out, train


@pytest.fixture(scope="module")
def poincare(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("poincare"), "geometry.c=0.5")


@pytest.fixture(scope="module")
def euclidean(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("euclidean"), "geometry=euclidean", "trainer.precision=64-true", "seed=3")


@pytest.fixture
def copied(poincare, tmp_path) -> Path:
    """A copy of a run's folder that a test may damage."""
    return Path(shutil.copytree(poincare, tmp_path / "toy" / "run"))


@pytest.mark.long
def test_every_figure_of_two_runs(poincare, euclidean, tmp_path, capsys):
    assert draw(tmp_path, "all", poincare, euclidean) == 0
    output = capsys.readouterr()
    others = ["entities", "nodes", "lengths", "accumulation", "factors", "classes", "separation", "tree", "trees"]
    assert left_out(output.err) == others
    files = sorted(file.name for file in tmp_path.iterdir())
    first, second = "entity_typing_toy-poincare-gru-seed0", "entity_typing_toy-euclidean-gru-seed3"
    both = f"{first}-vs-{second}"
    expected = [f"{name}-{both}.png" for name in ("attention", "boundaries", "curves", "granularity", "norms")]
    expected += [f"granularity-{both}.md", *(f"nearest-{one}.{kind}" for one in (first, second) for kind in ("md", "png"))]
    assert files == sorted(expected)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in tmp_path.glob("*.png"))
    printed = [line.removeprefix("figure: ") for line in output.out.splitlines() if line.startswith("figure: ")]
    assert sorted(Path(line).name for line in printed) == files


@pytest.mark.long
def test_a_table_has_the_distances_of_the_checkpoint(poincare, tmp_path):
    assert draw(tmp_path, "nearest", poincare, "--labels", "thing,place_a_b", "--name", "x") == 0
    trained = load(read_run(poincare))
    manifold, points = trained.model.class_points
    index = {name: k for k, name in enumerate(trained.data.types.names)}
    distances = manifold.dist(points[index["thing"]].double(), points.double()).tolist()
    first = min((d, name) for name, d in zip(index, distances, strict=True) if name != "thing")
    text = (tmp_path / "nearest-x.md").read_text()
    assert "| thing | d | place_a_b | d |" in text
    assert f"\n| {first[1]} | {first[0]:.2f} |" in text
    assert "entity_typing_toy-poincare-gru, seed 0; poincare, c = 0.5, epoch" in text


def test_the_model_is_that_of_the_record(poincare):
    """The rebuilt model scores what the run wrote down."""
    run = read_run(poincare)
    record = json.loads((poincare / "record.json").read_text())
    trained = load(run)
    task, data = trained.task, trained.data
    sums: dict = {}
    for batch in data.test_dataloader():
        with torch.no_grad():
            batch_sums = task.step(batch).sums
        for name, value in batch_sums.items():
            sums[name] = sums.get(name, 0) + float(value)
    assert task.summary(sums)["loss"] == pytest.approx(record["metrics"]["test/loss"], rel=1e-5)
    assert trained.epoch == record["selection"]["epoch"]


@pytest.mark.long
def test_the_last_state_and_the_precision_of_the_run(euclidean):
    last = load(read_run(euclidean), "last")
    assert last.epoch == 2
    assert {p.dtype for p in last.model.parameters()} == {torch.float64}
    assert last.about(last.model.manifold) == "euclidean, c = 0, epoch 2"


@pytest.mark.parametrize(("what", "change"), [("types", "names"), ("vectors", "sha256")])
def test_other_data_than_the_model_was_trained_with_are_refused(poincare, tmp_path, capsys, monkeypatch, what, change):
    """As many types or words, of which figures would show the wrong ones."""
    plain = ToyTypingData.types if what == "types" else ToyTypingData.words

    def other(self):
        inventory = plain.func(self)
        value = getattr(inventory, change)
        return dataclasses.replace(inventory, **{change: value[::-1]})

    monkeypatch.setattr(ToyTypingData, "types" if what == "types" else "words", property(other))
    assert draw(tmp_path / "out", "nearest", poincare) == 1
    message = error_of(capsys)
    assert f"was trained with data.{what}='" in message
    assert "names would be wrong. Put back the data" in message
    assert not list(tmp_path.rglob("*.png"))


def test_padding_is_not_drawn(poincare):
    trained = load(read_run(poincare))
    clouds = attention.queries_and_keys(trained)
    batches = list(trained.data.val_dataloader())
    for name in ("mention", "context"):
        assert len(clouds[name][1]) == sum(int(batch[f"{name}_length"].sum()) for batch in batches)
    inside = sum(int((batch["positions"] == 1).sum()) for batch in batches)
    assert int(clouds["context"][3].sum()) == inside > 0


def test_an_interrupted_run_has_curves(copied, tmp_path, capsys):
    (copied / "record.json").unlink()
    assert draw(tmp_path / "out", "curves", "norms", copied, "--format", "svg") == 0
    text = (tmp_path / "out" / "norms-toy-seed0.svg").read_text()
    assert "toy, seed 0 (poincare, c = 0.5)" in text


def test_the_epochs_of_a_history(copied):
    run = read_run(copied)
    assert [x for x, _ in run.column("val/loss")] == [1, 2]
    assert run.best_epoch in (1, 2)
    assert run.column("no/such") == []


def variant(copied, name, **settings):
    """A copy of the run in a folder of this name, with other settings in its record."""
    folder = copied.parent / name
    shutil.copytree(copied, folder)
    record = json.loads((folder / "record.json").read_text())
    record["config"]["trainer"].update(settings)
    (folder / "record.json").write_text(json.dumps(record))
    return folder


@pytest.mark.long
def test_runs_of_one_name_have_titles_with_the_settings_that_differ(copied, euclidean, tmp_path, capsys):
    runs = [variant(copied, "a", max_epochs=7), variant(copied, "b", patience=9), euclidean]
    assert [run.title for run in read_runs(runs)] == [
        "toy, trainer.max_epochs=7, trainer.patience=null, seed 0",
        "toy, trainer.max_epochs=2, trainer.patience=9, seed 0",
        "entity_typing_toy-euclidean-gru, seed 3",
    ]
    assert draw(tmp_path / "out", "curves", *runs[:2], "--format", "svg") == 0
    (file,) = (tmp_path / "out").iterdir()
    assert all(part in file.name for part in ("trainer.max_epochs=7_", "-vs-", "trainer.patience=9-seed0"))
    assert all(f"toy, {part}" in file.read_text() for part in ("trainer.max_epochs=7", "trainer.max_epochs=2"))


def test_a_component_with_the_geometry_of_a_file_is_shown_by_its_name(copied):
    run = read_run(copied)
    pair = {"name": "poincare_tangent_2", "manifold": "PoincareBall", "layers": "tangent"}
    settings = {k: v for k, v in run.settings.items() if not k.startswith("geometry.parts")}
    settings |= {"geometry.name": "euclidean", **{f"geometry.parts.attention.{k}": v for k, v in pair.items()}}
    settings["geometry.parts.classifier"] = "euclidean"
    run = dataclasses.replace(run, settings=settings)
    assert run.space == "euclidean (attention: poincare_tangent_2, classifier: euclidean), c = 0.5"
    pair["manifold"] = "Euclidean"
    settings |= {f"geometry.parts.attention.{k}": v for k, v in pair.items()}
    assert run.space.endswith("c = 0")


def test_the_name_of_a_geometry_stands_for_its_settings(copied, tmp_path):
    folders = [tmp_path / "runs" / name / copied.parent.name / "run" for name in ("ball", "wide", "flat")]
    geometries = [("poincare", "PoincareBall", 0.5), ("poincare", "PoincareBall", 2.0), ("euclidean", "Euclidean", None)]
    for folder, (name, manifold, c) in zip(folders, geometries, strict=True):
        shutil.copytree(copied, folder)
        record = json.loads((folder / "record.json").read_text())
        record["config"]["geometry"] |= {"name": name, "manifold": manifold, "c": c}
        (folder / "record.json").write_text(json.dumps(record))
    ball, _, flat = folders
    assert [run.note for run in read_runs([ball, flat])] == ["geometry=poincare", "geometry=euclidean"]
    notes = ["geometry=poincare, geometry.c=0.5", "geometry=poincare, geometry.c=2.0", "geometry=euclidean"]
    assert [run.note for run in read_runs(folders)] == notes


def test_runs_with_the_same_settings_have_titles_with_their_folders(copied):
    runs = [variant(copied, "a"), variant(copied, "b"), variant(copied, "c", max_epochs=7)]
    notes = [run.note for run in read_runs([*runs, runs[0]])]
    assert notes == ["trainer.max_epochs=2, a", "trainer.max_epochs=2, b", "trainer.max_epochs=7", "trainer.max_epochs=2, a"]
    assert [run.note for run in read_runs([runs[0], runs[0]])] == ["", ""]


def test_settings_without_an_effect_and_those_that_older_runs_lack_are_in_no_title(copied):
    other = variant(copied, "b", max_epochs=7, devices=2, log_every_n_steps=3)
    record = json.loads((other / "record.json").read_text())
    record["config"]["task"]["data"] |= {"cache": "elsewhere", "drop_last": False}
    (other / "record.json").write_text(json.dumps(record))
    assert [run.note for run in read_runs([copied, other])] == ["trainer.max_epochs=2", "trainer.max_epochs=7"]
    record["config"]["task"]["data"] |= {"drop_last": True, "held_out_seed": 3}
    record["config"]["trainer"]["max_epochs"] = 2
    (other / "record.json").write_text(json.dumps(record))
    drawn = variant(copied, "c")
    record["config"]["task"]["data"]["held_out_seed"] = 4
    (drawn / "record.json").write_text(json.dumps(record))
    notes = [run.note for run in read_runs([copied, other, drawn])]
    assert notes[0].startswith("task.data.drop_last=false, task.data.held_out_seed=")  # what older runs did
    assert notes[1:] == [f"task.data.drop_last=true, task.data.held_out_seed={k}" for k in (3, 4)]


def test_titles_have_the_settings_of_runs_with_other_seeds_too(copied):
    folder = variant(copied, "a", max_epochs=7, resume="outputs/x")
    record = json.loads((folder / "record.json").read_text())
    record["config"]["seed"] = record["config"]["task"]["data"]["seed"] = 5
    (folder / "record.json").write_text(json.dumps(record))
    assert [run.title for run in read_runs([copied, folder])] == [
        "toy, trainer.max_epochs=2, seed 0",
        "toy, trainer.max_epochs=7, seed 5",
    ]


def test_many_settings_that_differ_are_cut_short_and_titles_differ_all_the_same(copied):
    others = {"max_epochs": 7, "patience": 9, "min_epochs": 3, "devices": 3}
    steps = [{"val_check_interval": k} for k in (5, 6)]
    folders = [copied, *(variant(copied, name, **others, **own) for name, own in zip("bc", steps, strict=True))]
    _, one, other = read_runs(folders)
    assert one.note == "trainer.max_epochs=7, trainer.min_epochs=3, trainer.patience=9, ..., b"
    assert other.note.endswith("..., c")


def test_names_of_files_are_no_longer_than_names_may_be(copied, tmp_path):
    long = {"gradient_clip": "norm" * 60, "precision": "32" * 90}
    runs = [variant(copied, "a", **long), variant(copied, "b", **(long | {"precision": "64" * 100}))]
    stems = [run.stem for run in read_runs(runs)]
    assert stems[0] != stems[1]
    assert draw(tmp_path / "out", "curves", *runs) == 0
    assert max(len(file.name) for file in (tmp_path / "out").iterdir()) < 250


@pytest.mark.long
def test_other_runs_have_other_files(copied, tmp_path):
    a, b, c, d = (variant(copied, name, max_epochs=k) for k, name in enumerate("abcd"))
    assert draw(tmp_path / "out", "curves", a, b, c) == draw(tmp_path / "out", "curves", a, b, d) == 0
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_figures_lie_with_their_run_unless_a_folder_is_named(copied, tmp_path, capsys):
    a, b = (variant(copied, name, max_epochs=k) for k, name in enumerate("ab"))
    assert figures.main(["curves", str(a), str(b)]) == 0
    (path,) = [Path(line.removeprefix("figure: ")) for line in capsys.readouterr().out.splitlines()]
    assert (path.parent, path.is_file()) == (a / "figures", True)
    assert figures.main(["curves", str(a), "--out", str(tmp_path / "named")]) == 0
    assert capsys.readouterr().out.startswith(f"figure: {tmp_path / 'named'}")


@pytest.mark.long
def test_other_names_for_two_runs_that_are_called_alike(poincare, copied, tmp_path):
    renamed = copied.parent.parent / poincare.parent.name / "run"
    renamed.parent.mkdir()
    copied.rename(renamed)
    assert draw(tmp_path / "out", "nearest", poincare, renamed) == 0
    assert len(list((tmp_path / "out").glob("*.png"))) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "No figure is named. Figures: nearest,"),
        (("norm", "RUN"), "'norm' is no figure. Did you mean norms?"),
        (("norms",), "Name the folder of a run after norms"),
        (("norms", "curvs"), "'curvs' is neither a figure nor a folder"),
        (("norms", "RUN/.."), "It holds 1 run(s), as "),
        (("norms", "no/where"), "There is no folder no/where."),
        (("norms", "RUN/record.json"), "is a file; name the folder of a run"),
        (("nearest", "RUN", "--labels", "persn"), "'persn' is none of the 39 types of entity_typing_toy-poincare-gru, seed 0. Did you mean 'person'"),
        (("boundaries", "RUN", "--labels", "person,xyzzy"), "'xyzzy' is none of the 39 types"),
        (("boundaries", "RUN", "--labels", "a,b,c,d,e,f,g"), "at most 6 types"),
        (("nearest", "RUN", "--labels", " , "), "--labels names nothing"),
        (("curves", "RUN", "--name", "../../x"), "--name ../../x: it is a part of the files' names; --out names the folder."),
        (("attention", "RUN", "--words", "0"), "--words must be a whole number of at least 1, and it is 0."),
    ],
)  # fmt: skip
def test_a_wrong_word_is_an_error_of_one_line(poincare, tmp_path, capsys, words, message):
    assert draw(tmp_path, *(word.replace("RUN", str(poincare)) for word in words)) == 1
    assert message in error_of(capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("checkpoints/best.ckpt", "Draw its last state: --state last."),
        ("checkpoints", "the run has no checkpoint checkpoints/best.ckpt. Run it again"),
    ],
)
def test_a_folder_that_lacks_a_part(copied, tmp_path, capsys, missing, message):
    path = copied / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert draw(tmp_path / "out", "nearest", copied) == 1
    assert message in error_of(capsys)
    assert draw(tmp_path / "out", "all", copied) == 0  # its curves
    err = capsys.readouterr().err
    assert "nearest" in left_out(err)
    assert message in err
    assert draw(tmp_path / "named", "nearest", "curves", copied) == 1
    assert error_of(capsys) == "error: Not drawn: nearest; the reasons are above."
    assert [file.name.partition("-")[0] for file in (tmp_path / "named").iterdir()] == ["curves"]


def test_the_error_of_a_run_of_predictions_names_the_one_that_trained(copied, tmp_path, capsys):
    shutil.rmtree(copied / "checkpoints")
    record = json.loads((copied / "record.json").read_text())
    record["config"] |= {"mode": "predict", "checkpoint": "outputs/trained"}
    (copied / "record.json").write_text(json.dumps(record))
    assert draw(tmp_path / "out", "nearest", copied) == 1
    assert "It is one of mode=predict; name the run that trained the model: outputs/trained." in error_of(capsys)


def test_a_run_may_have_been_moved_into_a_folder_of_any_name(copied, tmp_path):
    record = json.loads((copied / "record.json").read_text()) | {"experiment": None}
    place = tmp_path / "(moved) $x" / "r1"
    shutil.copytree(copied, place)
    (place / "record.json").write_text(json.dumps(record))
    assert draw(tmp_path / "out", "curves", place) == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("record.json", "{", "is not the record of a run"),
        ("history.csv", "epoch,step,val/loss\n1,2,many\n", "history.csv, line 2: no row of a run's history"),
        ("history.csv", "epoch,step,val/loss\n1,0,1\n", "history.csv is damaged"),
        ("history.csv", "epoch,step,val/loss\ninf,inf,1\n", "history.csv is damaged"),
        ("history.csv", "epoch,step,val/loss\n", "its history.csv has no column diagnostics/texts/dist0_mean"),
        ("checkpoints/best.ckpt", "nothing", "is damaged or no checkpoint"),
    ],
)
def test_a_damaged_file_is_named(copied, tmp_path, capsys, name, text, message):
    (copied / name).write_text(text)
    assert draw(tmp_path / "out", "norms", "granularity", copied) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize("seed", ["/../../../escaped", "7", 1.5, None, True])
def test_a_seed_that_is_no_whole_number_leads_nowhere(copied, tmp_path, capsys, seed):
    """It is part of the names of files."""
    record = json.loads((copied / "record.json").read_text())
    record["config"]["seed"] = seed
    (copied / "record.json").write_text(json.dumps(record))
    assert figures.main(["curves", str(copied)]) == 1
    assert "is not the record of a run" in error_of(capsys)
    assert not list(tmp_path.rglob("escaped*"))


def test_the_name_of_a_file_has_no_folder(poincare):
    run = dataclasses.replace(read_run(poincare), name="../a b")
    assert run.stem == ".._a b-seed0"


def test_a_model_without_class_points_or_types(poincare, tmp_path):
    trained = load(read_run(poincare))

    class Bare:
        class_points = None

    with pytest.raises(UserError, match=r"the classifier of Bare has no class points"):
        entity_types.class_points(trained._replace(model=Bare()))
    with pytest.raises(UserError, match=r"Bare has no attention by distances"):
        attention.queries_and_keys(trained._replace(model=Bare()))


@pytest.mark.long
def test_the_paper_s_types_give_both_tables(poincare, tmp_path):
    """With the names of Ultra-Fine in the place of the toy's: Table 2's columns and a chain for each other coarse type."""
    trained = load(read_run(poincare))
    types = trained.data.types
    names = ["person", "location", "time", "artist", "musician", *types.names[5:]]
    object.__setattr__(types, "names", tuple(names))

    class Data:
        model_sizes = {"types": types}  # noqa: RUF012

    options = FigureOptions(tmp_path, "png", None, "x", 10, "best")
    files = nearest.draw([trained.run], lambda run: trained._replace(data=Data()), options)
    assert [path.name for path in files] == [
        "nearest-x.md", "nearest-x.png", "nearest-coarse-x.md", "nearest-coarse-x.png"
    ]  # fmt: skip
    assert "| person | d | artist | d | musician | d |" in files[0].read_text()
    heads = [line.split(" | ")[0] for line in files[2].read_text().splitlines() if " | d |" in line]
    assert heads == ["| location", "| time"]
    with mock.patch.object(nearest, "CHAINS", 1):
        files = nearest.draw([trained.run], lambda run: trained._replace(data=Data()), options)
    assert "in chains from 1 of 2 coarse types on" in files[2].read_text()
    assert sum(" | d |" in line for line in files[2].read_text().splitlines()) == 1


def test_the_list(capsys):
    assert figures.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*figures.FIGURES, figures.SEARCH]


def test_labels_in_quotes_may_have_commas(tmp_path):
    options = figures._parser().parse_args(["entities", "--labels", 'a b, "city, K\u00f6ln",\n c'])
    assert figures._figure_options(options).labels == ("a b", "city, K\u00f6ln", "c")


def test_characters_that_no_font_has_are_named_once(tmp_path, capsys):
    with canvas.canvas(2.0, 1.0, "\U00012000\U00012000 a\x1b", "small") as body:
        canvas.save(body.figure, tmp_path / "a.png")
    err = capsys.readouterr().err
    assert err.startswith("note: a.png: no font here has ")
    assert err.count("note") == 1
    assert "\x1b" not in err
