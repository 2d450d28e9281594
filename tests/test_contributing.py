"""The four pages of CONTRIBUTING.md, followed word for word in a folder outside of the project."""

import contextlib
import re
import sys
from unittest import mock

import pytest

from hyperbolic.geometry import FAMILIES, GEOMETRIES, MANIFOLDS, make_geometry
from tests.cli import QUIET, ROOT, SHORT, call, places
from tests.manifolds.axioms import check_every_axiom

PAGES = dict(
    re.findall(r"^## (Add [^\n]+)\n(.*?)(?=^## |\Z)", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S)
)


def block(page: str) -> str:
    """The YAML file that a page shows."""
    (results,) = re.findall(r"^( *)```yaml\n(.*?)^ *```", PAGES[page], re.M | re.S)
    return "\n".join(line.removeprefix(results[0]) for line in results[1].splitlines()) + "\n"


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
    assert list(PAGES) == ["Add an encoder", "Add a geometry", "Add a task", "Add a row of a table"]


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


def test_a_task_is_a_folder_and_a_file(outside):
    data = '''
import torch
from tasks.base import TaskData


class Parity(torch.utils.data.Dataset):
    """Whether the sum of a sequence of words is even."""

    def __init__(self, n, seed):
        self.words = torch.randint(0, 4, (n, 3), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"words": self.words[index], "labels": self.words[index].sum(-1) % 2}


class ParityData(TaskData):
    model_sizes = {"n_words": 4, "n_classes": 2}

    def load(self):
        return {split: Parity(200, seed) for seed, split in enumerate(("train", "dev", "test"))}

    def fingerprint(self):
        return {"files": {}, "counts": {"train": 200, "dev": 200, "test": 200}, "sha256": {}}
'''
    model = """
from torch import nn
from hyperbolic.geometry import ChangeGeometry


class Classifier(nn.Module):
    components = ("sentence", "classifier")

    def __init__(self, geometry, encoder, n_words, n_classes, d):
        super().__init__()
        geometry.check_components(self.components)
        sentence, classifier = (geometry.part(name) for name in self.components)
        self.embedding = sentence.embedding(n_words, d)
        self.encoder = encoder(geometry=sentence, d_in=d, d_hidden=d, streams=1)
        self.change = ChangeGeometry(sentence, classifier)
        self.logits = classifier.logits(d, n_classes)

    def forward(self, words):
        return self.logits(self.change(self.encoder(self.embedding(words))[1]))
"""
    task = """
from torch.nn import functional as F
from tasks.base import Step, Task


class ParityTask(Task):
    metric_names = ("accuracy", "loss")

    def step(self, batch):
        logits = self.model(batch["words"])
        loss = F.cross_entropy(logits, batch["labels"])
        correct = (logits.argmax(-1) == batch["labels"]).sum()
        n = len(batch["labels"])
        return Step(loss, {"examples": n, "loss": loss.detach() * n, "correct": correct})

    def summary(self, sums):
        return {"loss": sums["loss"] / sums["examples"], "accuracy": sums["correct"] / sums["examples"]}
"""
    config = """
name: mine
fidelity: {paper: {}, code: {}}
data: {_target_: mine_task.data.ParityData, shuffle: examples, batch_size: 50, eval_batch_size: 100, seed: "${seed}"}
model: {_target_: mine_task.model.Classifier, d: 3}
module: {_target_: mine_task.task.ParityTask, select: val/accuracy, select_mode: max}
"""
    files = {"mine_task/__init__.py": "", "mine_task/data.py": data, "mine_task/model.py": model}
    files |= {"mine_task/task.py": task, "configs/task/mine.yaml": config}
    for words in (("geometry=poincare",), ("geometry=lorentz_tangent", "geometry.parts.classifier=euclidean")):
        record = outside(files, "task=mine", *words)
        assert 0 <= record["metrics"]["test/accuracy"] <= 1
        assert record["data"]["counts"]["train"] == 200


def test_a_row_is_a_file(outside):
    config = block("Add a row of a table").replace("override /task: prefix10", "override /task: prefix_toy")
    words = ("experiment=mine", "trainer.compile=false", *SHORT)
    record = outside({"configs/experiment/mine.yaml": config}, *words)
    assert record["experiment"] == "mine"
    assert record["paper"]["published"] == 0.9714
