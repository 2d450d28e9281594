"""The four pages of CONTRIBUTING.md, followed word for word in a folder outside of the project."""

import contextlib
import json
import re
import shutil
import sys
from unittest import mock

import pytest

from configs import files, geometries
from hyperbolic.geometry import FAMILIES, GEOMETRIES, MANIFOLDS, make_geometry
from scripts import collect, tables
from tasks.errors import UserError
from tests.cli import QUIET, ROOT, SHORT, call, places
from tests.configurations import CONFIGS
from tests.manifolds.axioms import check_every_axiom

PAGES = dict(
    re.findall(r"^## (Add [^\n]+)\n(.*?)(?=^## |\Z)", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S)
)


def blocks(page: str) -> list[str]:
    """The YAML files that a page shows."""
    texts = re.findall(r"^( *)```yaml\n(.*?)^ *```", PAGES[page], re.M | re.S)
    return ["\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n" for indent, text in texts]


def block(page: str) -> str:
    """The one YAML file that a page shows."""
    (text,) = blocks(page)
    return text


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Writes files into a folder that Python and Hydra also look into, and runs a toy run from there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def follow(files: dict[str, str], *words: str):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        search = f"hydra.searchpath=[file://{tmp_path / 'configs'}]"
        result = call(search, *words, *QUIET, *places(tmp_path), "trainer.max_epochs=1")
        assert result.code == 0, result.err
        return result.record

    yield follow
    for name in set(sys.modules) - before:
        if name.startswith("mine_"):
            del sys.modules[name]


def test_there_are_four_pages():
    assert list(PAGES) == ["Add an encoder", "Add a geometry", "Add a task", "Add a table"]


@pytest.mark.long
def test_an_encoder_is_a_module_and_a_file(outside):
    module = '''
import torch
from torch import nn


class LinearMean(nn.Module):
    """A linear layer, then the centroid of each prefix of the sequence."""

    def __init__(self, geometry, d_in, d_hidden, streams, bias):
        super().__init__()
        self.layers = nn.ModuleList(geometry.linear(d_in, d_hidden, bias=bias) for _ in range(streams))
        self.centroid = geometry.centroid()
        self.d_out = d_hidden

    def forward(self, x, lengths=None):
        y = torch.stack([layer(part) for layer, part in zip(self.layers, x, strict=True)])
        states = torch.stack([self.centroid(y[..., : t + 1, :]) for t in range(y.shape[-2])], dim=-2)
        index = (lengths - 1)[..., None, None].expand(*lengths.shape, 1, states.shape[-1])
        return states, states.gather(-2, index).squeeze(-2)
'''
    config = re.sub(r"(?m)^(cell|nonlinearity|bidirectional):.*\n", "", block("Add an encoder"))
    config = config.replace("hyperbolic.encoders.rnn.RecurrentEncoder", "mine_encoder.LinearMean") + "bias: true\n"
    files = {"mine_encoder.py": module, "configs/encoder/mine.yaml": config}
    for geometry in ("euclidean", "poincare", "lorentz_tangent"):
        record = outside(files, "task=prefix_toy", "encoder=mine", f"geometry={geometry}", *SHORT)
        assert record["config"]["encoder"]["_target_"] == "mine_encoder.LinearMean"


def test_a_relational_encoder_is_a_module_and_a_file(outside):
    module = '''
import torch

from hyperbolic.encoders.relational.scorer import Scorer


class Midpoints(Scorer):
    """The distance of the tail from the point between head and relation."""

    def __init__(self, geometry, n_entities, n_relations, sparse, d):
        super().__init__(geometry, n_entities, n_relations, sparse)
        self.entity = geometry.embedding(n_entities, d, sparse=sparse)
        self.relation = geometry.embedding(n_relations, d, sparse=sparse)

    def query(self, h, r):
        return self.manifold.centroid(torch.stack([self.entity(h), self.relation(r)], -2))

    def compare(self, query, r, t):
        return -self.manifold.dist2(query.unsqueeze(1), self.entity(t))

    def compare_all(self, query, r, rows):
        index = torch.arange(self.n_entities)[rows] if isinstance(rows, slice) else rows
        return self.compare(query, r, index.expand(len(r), -1))

    def points(self):
        return self.manifold, self.entity(torch.arange(self.n_entities)).detach()

    def factors(self, h, r, t):
        return [self.entity(h), self.relation(r), self.entity(t)]
'''
    config = """
defaults:
  - override /geometry@_global_.geometry: lorentz
  - _self_
_target_: mine_relational.Midpoints
_partial_: true
d: 4
"""
    files = {"mine_relational.py": module, "configs/encoder/mine_relational.yaml": config}
    record = outside(files, "task=kg_completion_toy", "encoder=mine_relational", "trainer.limit_train_batches=2")
    assert record["config"]["geometry"]["name"] == "lorentz"
    assert 0 < record["metrics"]["test/mrr"] <= 1


@pytest.mark.long
def test_a_pairing_is_a_file(outside):
    """A pairing that no Python table has, alone and as the geometry of one component."""
    config = block("Add a geometry").replace("name: klein_tangent", "name: mine").replace("c: 1.0", "c: 0.5")
    files = {"configs/geometry/mine.yaml": config}
    record = outside(files, "task=prefix_toy", "geometry=mine", *SHORT)
    assert record["config"]["geometry"]["c"] == 0.5
    record = outside(files, "task=prefix_toy", "geometry=poincare", "geometry.parts.classifier=mine", *SHORT)
    part = {"name": "mine", "manifold": "Klein", "layers": "tangent"}
    assert record["config"]["geometry"]["parts"] == {"classifier": part}


@pytest.fixture
def registries():
    """The tables of geometries, as they were before the test once it is over."""
    with contextlib.ExitStack() as stack:
        for table in (FAMILIES, GEOMETRIES, MANIFOLDS):
            stack.enter_context(mock.patch.dict(table))
        yield


def test_a_manifold_and_a_family_are_a_module_and_a_file(outside, registries):
    config = block("Add a geometry").replace("hyperbolic.geometry.make_geometry", "mine_geometry.make_geometry")
    for old, new in (("klein_tangent", "halfspace"), ("manifold: Klein", "manifold: HalfSpace"), ("tangent", "halfspace")):
        config = config.replace(old, new)
    module = (ROOT / "tests" / "manifolds" / "half_space.py").read_text("utf-8")
    config = config.replace("settings: {}", "settings: {height: 2.0}")
    files = {"mine_geometry.py": module, "configs/geometry/halfspace.yaml": config}
    record = outside(files, "task=prefix_toy", "geometry=halfspace", *SHORT)
    assert record["config"]["geometry"]["settings"] == {"height": 2.0}
    assert 0 < record["metrics"]["test/accuracy"] <= 1
    check_every_axiom(MANIFOLDS["HalfSpace"])
    geometry = make_geometry("halfspace", "HalfSpace", "halfspace", c=0.5, settings={"height": 3.0})
    assert type(geometry.linear(2, 3)).__module__ == "mine_geometry"
    assert geometry.manifold.height == 3.0


def test_a_geometry_of_ones_own_may_be_that_of_one_component(outside, registries, tmp_path, monkeypatch):
    config = block("Add a geometry").replace("hyperbolic.geometry.make_geometry", "mine_space.make_geometry")
    for old, new in (("klein_tangent", "halfspace"), ("manifold: Klein", "manifold: HalfSpace"), ("tangent", "halfspace")):
        config = config.replace(old, new)
    module = (ROOT / "tests" / "manifolds" / "half_space.py").read_text("utf-8")
    texts = {"mine_space.py": module, "configs/geometry/halfspace.yaml": config}
    words = ("task=prefix_toy", "geometry=poincare", "geometry.parts.classifier=halfspace", *SHORT)
    part = outside(texts, *words)["config"]["geometry"]["parts"]["classifier"]
    assert part == {"name": "halfspace", "manifold": "HalfSpace", "layers": "halfspace"}
    del FAMILIES["halfspace"], MANIFOLDS["HalfSpace"], sys.modules["mine_space"]  # as in another process
    monkeypatch.setattr(geometries.files, "search_path", lambda: (tmp_path / "configs",))
    assert geometries.with_pairs({"classifier": part}) == {"classifier": part}, "of a checkpoint"
    assert "HalfSpace" in MANIFOLDS
    file = tmp_path / "configs" / "geometry" / "halfspace.yaml"
    file.write_text(config.replace("settings: {}", "settings: {height: 2.0}"))
    with pytest.raises(UserError, match=r"classifier=halfspace: halfspace\.yaml has settings, which the geometry of one"):
        geometries.with_pairs({"classifier": "halfspace"})
    file.write_text(config.replace("manifold: HalfSpace", ""))
    with pytest.raises(UserError, match=r"classifier=halfspace: halfspace\.yaml lacks manifold\."):
        geometries.with_pairs({"classifier": "halfspace"})


@pytest.mark.long
def test_a_task_is_a_folder_and_a_file(outside, tmp_path):
    """Classes of documents, which are read on three levels: documents of sentences of words."""
    data = '''
import hashlib
from pathlib import Path

import torch
from tasks.base import TaskData
from tasks.labels import Labels
from tasks.ragged import FIRST, TextStore, encode_texts
from tasks.reading import Fault, Faults
from tasks.rows import read_examples, read_records

FIELDS = {"label": ("label", "stars"), "text": ("text", "review")}
FORMS = 'JSON lines {"label": "...", "text": "..."}, or a table whose first line has these names'
SPLITS = ("train", "dev", "test")


class Reviews:
    def __init__(self, documents, rows, labels):
        self.documents, self.rows, self.labels, self.sizes = documents, rows, labels, documents.sizes[rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        words, lengths, sentences = self.documents.pad(self.rows[index])
        return {"words": words, "lengths": lengths, "sentences": sentences, "labels": self.labels[index]}


class ReviewData(TaskData):
    def __init__(self, folder, text, max_sentences, on_error, shuffle, batch_size, eval_batch_size, seed):
        super().__init__(shuffle, batch_size, eval_batch_size, seed)
        self.text, self.max_sentences, self.faults = text, max_sentences, Faults(on_error)
        self.files = {split: Path(folder) / f"{split}.csv" for split in SPLITS}
        self.splits()

    def cut(self, text):
        cut = self.text.cutter()
        sentences = [self.text.limit(cut(part)) for part in text.split(".") if part.strip()]
        if not sentences:
            raise Fault("its text is empty")
        return sentences[: self.max_sentences]

    def load(self):
        store, labels, numbers, places = TextStore(), Labels(None), [], []
        for split, path in self.files.items():
            parse = lambda record: (self.cut(record["text"]), labels.number(record["label"], split == "train"))
            for sentences, number in self.faults.parse(path, read_records(path, FIELDS, FORMS), parse):
                store.add(sentences)
                numbers.append(number)
                places.append(SPLITS.index(split))
        places = torch.tensor(places)
        documents, self.words = store.encode((places == 0).numpy(), self.text.min_count)
        self.classes, numbers = labels.finish(torch.tensor(numbers).numpy())
        rows = {split: (places == k).nonzero().flatten() for k, split in enumerate(SPLITS)}
        return {split: Reviews(documents, part, torch.from_numpy(numbers)[part]) for split, part in rows.items()}

    @property
    def model_sizes(self):
        return {"n_words": FIRST + len(self.words), "n_classes": len(self.classes), "classes": self.classes}

    def fingerprint(self):
        counts = {split: {"documents": len(part)} for split, part in self.splits().items()}
        digests = {split: hashlib.sha256(path.read_bytes()).hexdigest() for split, path in self.files.items()}
        return {"files": {split: path.name for split, path in self.files.items()}, "counts": counts, "sha256": digests}

    def read_inputs(self, lines, name):
        return read_examples(lines, name, lambda line: (line, self.cut(line)), "documents", "Each line is a document")

    def encode(self, inputs):
        documents = encode_texts([text for _, text in inputs], {w: k for k, w in enumerate(self.words, start=FIRST)})
        return Reviews(documents, torch.arange(len(inputs)), torch.zeros(len(inputs), dtype=torch.long))

    def describe(self, example):
        return {"text": example[0]}
'''
    model = """
from torch import nn
from hyperbolic.geometry import ChangeGeometry


class Hierarchical(nn.Module):
    components = ("document", "classifier")

    def __init__(self, geometry, encoder, n_words, n_classes, d):
        super().__init__()
        geometry.check_components(self.components)
        document, classifier = (geometry.part(name) for name in self.components)
        self.embedding = document.embedding(n_words, d)
        self.words, self.sentences = (encoder(geometry=document, d_in=d, d_hidden=d, streams=1) for _ in range(2))
        self.change = ChangeGeometry(document, classifier)
        self.logits = classifier.logits(d, n_classes)

    def forward(self, words, lengths, sentences):
        points = self.words(self.embedding(words.flatten(0, 1)), lengths.flatten().clamp_min(1))[1]
        return self.logits(self.change(self.sentences(points.unflatten(0, words.shape[:2]), sentences)[1]))
"""
    task = """
from tasks.classification import ClassificationTask


class ReviewTask(ClassificationTask):
    def logits(self, batch):
        return self.model(batch["words"], batch["lengths"], batch["sentences"])
"""
    config = """
name: mine
fidelity: {paper: {}, code: {}}
data:
  _target_: mine_task.data.ReviewData
  folder: ${data.dir}
  text: {_target_: tasks.tokens.TextOptions, tokenizer: words, lower: true, ends: false, max_length: 9,
         vocabulary: train, min_count: 1}
  max_sentences: 3
  on_error: skip
  shuffle: buckets
  batch_size: 16
  eval_batch_size: 32
  seed: ${seed}
model: {_target_: mine_task.model.Hierarchical, d: 5}
module: {_target_: mine_task.task.ReviewTask, select: val/macro_f1, select_mode: max}
"""
    files = {"mine_task/__init__.py": "", "mine_task/data.py": data, "mine_task/model.py": model}
    files |= {"mine_task/task.py": task, "configs/task/mine.yaml": config}
    assert sum(len(text.strip().splitlines()) for text in files.values()) <= 120
    rows = [f'{label},"{f"It is {label}. " * (1 + k % 3)}"' for k in range(300) for label in ("good", "bad")]
    for split in ("train", "dev", "test"):
        files[f"reviews/{split}.csv"] = "\n".join(["label,text", *rows, 'good,"."', "\n"])
    folder = f"data.dir={tmp_path / 'reviews'}"
    for words in (("geometry=poincare",), ("geometry=lorentz_tangent", "geometry.parts.classifier=euclidean")):
        record = outside(files, "task=mine", folder, "encoder=rnn", "optim.lr=0.05", *words)
        assert record["metrics"]["test/macro_f1"] > 0.9, "a third is that of one class"
        assert record["data"]["counts"]["train"] == {"documents": 600}, "the text of a row is empty"
    (tmp_path / "new.txt").write_text("It is good. It is good.\nbad\n", encoding="utf-8")
    newest = max((tmp_path / "out").rglob("record.json"), key=lambda path: path.stat().st_mtime).parent
    search, target = f"hydra.searchpath=[file://{tmp_path / 'configs'}]", tmp_path / "new.jsonl"
    words = ("mode=predict", f"checkpoint={newest}", f"input={tmp_path / 'new.txt'}", f"output={target}")
    result = call(search, *words, *places(tmp_path))
    assert result.code == 0, result.err
    predictions = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert [(one["text"], one["label"]) for one in predictions] == [("It is good. It is good.", "good"), ("bad", "bad")]
    assert set(predictions[0]["probabilities"]) == {"good", "bad"}
    assert {path.name for path in newest.glob("*.csv")} >= {"classes.csv", "confusion.csv"}


@pytest.mark.long
def test_a_table_of_twenty_cells_is_a_file_and_one_for_each_of_its_two_models(outside, tmp_path, monkeypatch, capsys):
    hyperbolic, table = blocks("Add a table")
    hyperbolic = hyperbolic.replace("override /task: prefix10", "override /task: prefix_toy")
    euclidean = hyperbolic.replace("override /geometry: poincare", "override /geometry: euclidean")
    assert hyperbolic != euclidean
    columns = "".join(f"  {n} %: {{overrides: [task.data.noise={n}]}}\n" for n in range(0, 50, 5))
    overrides = ", ".join(f"{word!r}" for word in (*SHORT, "trainer.max_epochs=1"))
    values = [round(0.9 - n / 100, 2) for n in range(10)]
    rows = f"overrides: [{overrides}]\nrows:\n" + "".join(
        f"  {row}: {{experiment: mine_{row}, published: {values}}}\n" for row in ("hyperbolic", "euclidean")
    )
    table = re.sub(r"(?ms)^columns:.*", f"columns:\n{columns}{rows}", table)
    texts = {"configs/experiment/mine_hyperbolic.yaml": hyperbolic, "configs/experiment/mine_euclidean.yaml": euclidean}
    shutil.copytree(CONFIGS, tmp_path / "configs", ignore=shutil.ignore_patterns("__pycache__"))
    record = outside({**texts, "published/mine.yaml": table}, "experiment=mine_euclidean", "task.data.noise=15", *SHORT)
    assert record["experiment"] == "mine_euclidean"
    monkeypatch.setattr(files, "FOLDER", tmp_path / "configs")
    folders = {"runs": tmp_path / "runs", "published": tmp_path / "published"}
    assert collect.main(["--allow-dirty", str(tmp_path / "out")], root=tmp_path, **folders) == 0
    assert "-noise=15-seed0-" in next((tmp_path / "runs").iterdir()).name
    capsys.readouterr()
    assert tables.main(["--missing"], tables=tmp_path / "tables", **folders) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("python run.py ")]
    assert len(commands) == 19
    assert tables.main([], tables=tmp_path / "tables", **folders) == 0
    text = (tmp_path / "tables" / "hnn.md").read_text(encoding="utf-8")
    assert f"published 87.00<br>**ours {100 * record['metrics']['test/accuracy']:.2f}** (1 seed)" in text
    assert text.count("not run") == 19
