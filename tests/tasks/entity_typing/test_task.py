"""Objectives against dense references, evaluation that depends on no batches, and predictions that are the evaluated ones."""

import copy
import functools
import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hyperbolic.geometry import make_geometry
from hyperbolic.optim import RiemannianOptimizer
from tasks.batches import Share
from tasks.entity_typing.task import EntityTypingTask
from tasks.entity_typing.types import GRANULARITIES, TypeInventory
from tasks.errors import UserError
from tests.collectives import in_processes
from tests.tolerances import tolerance

NAMES = ("person", "place", "artist", "city", "painter", "river", "poet")
LEVELS = torch.tensor([0, 0, 1, 1, 2, 2, 2])
D, K = 4, len(NAMES)
close = functools.partial(torch.testing.assert_close, **tolerance(torch.float64, "identity"))
SETTINGS = {
    "objective": "multitask", "threshold": 0.5, "strict": "set", "top_k": None, "select": "val/macro_f1",
    "select_mode": "max",
}  # fmt: skip


@pytest.fixture(autouse=True)
def float64():
    """As trainer.precision=64-true has it."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Given(nn.Module):
    """The points of a batch, and the classifier of a geometry on them."""

    def __init__(self, geometry):
        super().__init__()
        self.manifold = geometry.manifold
        self.classifier = geometry.logits(D, K)
        for p in self.classifier.parameters():
            p.data = p.data + 0.1 * torch.rand_like(p) if p.shape[-1] == D else p.data
        self.register_buffer("groups", LEVELS)

    def features(self, batch):
        return batch["x"]

    def forward(self, batch):
        return self.classifier(self.features(batch))


@pytest.fixture
def types():
    return TypeInventory(NAMES, LEVELS, lambda: torch.zeros(0, 3, dtype=torch.long))


def make(types, geometry="poincare", manifold="PoincareBall", layers="mobius", **settings) -> EntityTypingTask:
    model = Given(make_geometry(geometry, manifold, layers, c=None if manifold == "Euclidean" else 0.7))
    optimizer = functools.partial(RiemannianOptimizer, lr=0.1)
    return EntityTypingTask(model, optimizer, types, **{**SETTINGS, **settings})


def batch_of(task, lists, width=None):
    width = width or max(map(len, lists))
    targets = torch.tensor([types + [-1] * (width - len(types)) for types in lists])
    return {"x": task.model.manifold.random(len(lists), D), "targets": targets}


def some_lists(n):
    draw = random.Random(n)
    return [draw.sample(range(K), draw.randint(1, 4)) for _ in range(n)]


def dense(logits, lists, objective):
    """The objective by its definition, from the matrix of right types."""
    y = torch.zeros_like(logits)
    for row, types in enumerate(lists):
        y[row, types] = 1
    each = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    if objective == "bce":
        return each.mean()
    total = logits.new_zeros(())
    for k in range(len(GRANULARITIES)):
        rows = y[:, LEVELS.eq(k)].sum(-1) > 0
        if rows.any():
            total = total + each[rows][:, LEVELS.eq(k)].mean()
    return total


SPACES = [("euclidean", "Euclidean", "euclidean"), ("poincare", "PoincareBall", "mobius"), ("lorentz", "Lorentz", "lorentz")]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s[0])
@pytest.mark.parametrize("objective", ["multitask", "bce"])
@pytest.mark.parametrize("lists", [some_lists(12), [[0], [4, 2]], [[1]]], ids=["many", "no second", "one"])
def test_the_loss_is_the_dense_one(types, space, objective, lists):
    task = make(types, *space, objective=objective)
    batch = batch_of(task, lists)
    x = batch["x"] = batch["x"].requires_grad_()
    parameters = list(task.model.classifier.parameters())
    loss = task.train().step(batch).loss
    expected = dense(task.model(batch), lists, objective)
    close(loss, expected)
    for one, other in zip(
        torch.autograd.grad(loss, [x, *parameters]), torch.autograd.grad(expected, [x, *parameters]), strict=True
    ):
        close(one, other)
    with torch.no_grad():
        step = task.eval().step(batch)
    close(step.loss, expected.detach())
    metrics = task.summary({k: float(v) for k, v in step.sums.items()})
    assert metrics["loss"] == pytest.approx(float(expected.detach()))
    assert set(metrics) == set(task.metric_names)


def test_types_of_one_granularity_have_no_metrics_of_it(types):
    """Which would be those of all types."""
    model = Given(make_geometry("poincare", "PoincareBall", "mobius", c=0.7))
    model.groups = torch.zeros_like(model.groups)
    task = EntityTypingTask(model, functools.partial(RiemannianOptimizer, lr=0.1), types, **SETTINGS).eval()
    with torch.no_grad():
        step = task.step(batch_of(task, some_lists(5)))
    metrics = task.summary({k: float(v) for k, v in step.sums.items()})
    assert set(metrics) == set(task.metric_names)
    assert not any("/" in name for name in metrics)
    assert "coarse/macro_f1" in make(types).metric_names


def test_training_makes_no_logits_and_no_scores(types, monkeypatch):
    task = make(types).train()
    monkeypatch.setattr(type(task.model.classifier), "forward", None)
    step = task.step(batch_of(task, some_lists(5)))
    assert set(step.sums) == {"examples", "loss"}
    assert set(task.summary({k: float(v) for k, v in step.sums.items()})) == {"loss"}


@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("objective", ["multitask", "bce"])
def test_the_mean_loss_of_several_processes_is_that_of_the_whole_batch(types, objective, sizes):
    """The second share has no coarse type and the first no ultra-fine one, where they are equal."""
    task = make(types, objective=objective).train()
    lists = [[0, 2], [1], [3, 0], [4, 2], [3], [5]]
    whole = batch_of(task, lists)
    expected = task.step(whole).loss
    processes = [copy.copy(task) for _ in sizes]

    def weighted(rank: int):
        process, share = processes[rank], Share(rank, sizes)
        process.share = share
        return share.weight * process.step({k: v[share.place] for k, v in whole.items()}).loss

    close(sum(in_processes(2, weighted)) / 2, expected)


@pytest.mark.parametrize("objective", ["multitask", "bce"])
def test_an_evaluation_does_not_depend_on_the_batches(types, objective):
    task = make(types, objective=objective).eval()
    lists = some_lists(40)
    whole = batch_of(task, lists)

    def evaluated(*indices):
        total: dict[str, float] = {}
        for index in indices:
            part = {k: v[index] for k, v in whole.items()}
            for name, value in task.step(part).sums.items():
                total[name] = total.get(name, 0.0) + float(value)
        return task.summary(total)

    with torch.no_grad():
        order = torch.randperm(40)
        expected = evaluated(torch.arange(40))
        assert evaluated(*order.split(7)) == pytest.approx(expected, rel=1e-12)
        assert evaluated(*order.split(1)) == pytest.approx(expected, rel=1e-12)
    assert 0 < expected["macro_f1"] < 1


def test_the_likeliest_type_is_predicted_where_none_is_likely(types):
    task = make(types)
    p = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.0, 0.0, 0.0], [0.5, 0.6, 0.1, 0.4999, 0.0, 0.0, 0.0]])
    assert task.predictions(p).int().tolist() == [[0, 0, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]]
    assert make(types, threshold=1.0).predictions(p).sum(-1).tolist() == [1, 1]
    assert make(types, threshold=0.0).predictions(p).all()


def test_predictions_are_those_that_are_evaluated(types):
    task = make(types).eval()
    lists = some_lists(30)
    batch = batch_of(task, lists)
    with torch.no_grad():
        said = task.predict(batch)
        sums = {k: float(v) for k, v in task.step(batch).sums.items()}
        logits = task.model(batch)
    right = total = exact = 0
    for row, (one, gold) in enumerate(zip(said, lists, strict=True)):
        ids = [NAMES.index(entry["type"]) for entry in one["types"]]
        chances = [entry["probability"] for entry in one["types"]]
        assert chances == sorted(chances, reverse=True)
        assert chances == pytest.approx([1 / (1 + math.exp(-logits[row, k])) for k in ids])
        assert len(ids) >= 1
        right, total, exact = right + len(set(ids) & set(gold)), total + len(ids), exact + (set(ids) == set(gold))
    assert (sums["right"], sums["predicted"], sums["exact"]) == (right, total, exact)


def test_a_prediction_can_be_cut_off(types):
    task = make(types, threshold=0.0, top_k=2).eval()
    batch = batch_of(task, some_lists(3))
    with torch.no_grad():
        said, logits = task.predict(batch), task.model(batch)
    for one, row in zip(said, logits, strict=True):
        assert [entry["type"] for entry in one["types"]] == [NAMES[k] for k in row.topk(2).indices]


def test_accuracy_counts_sets_or_as_the_authors_do(types):
    metrics = {}
    for strict in ("set", "ordered"):
        task = make(types, strict=strict).eval()
        batch = {"x": torch.zeros(2, D), "targets": torch.tensor([[0, 2], [2, 0]])}
        task.model.classifier = nn.Module()
        logits = torch.tensor([[1.0, -1, 1, -1, -1, -1, -1]] * 2)
        object.__setattr__(task.model, "classifier", lambda x, y=logits: y)
        sums = {k: float(v) for k, v in task.step(batch).sums.items()}
        metrics[strict] = task.summary(sums)["accuracy"]
    assert metrics == {"set": 1.0, "ordered": 0.5}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"objective": "hinge"}, "task.module.objective must be one of multitask, bce"),
        ({"threshold": 1.5}, "threshold must be from 0 to 1, and it is 1.5"),
        ({"strict": "list"}, "task.module.strict must be one of set, ordered"),
        ({"top_k": 0}, "task.module.top_k must be a whole number of at least 1"),
        ({"select": "val/f1"}, "task.module.select must be one of val/loss, val/accuracy, val/macro_precision"),
    ],
)
def test_mistakes_in_settings_are_named(types, setting, said):
    with pytest.raises(UserError, match=said):
        make(types, **setting)


def test_texts_are_watched(types):
    task = make(types)
    points = task.points(batch_of(task, some_lists(3)))["texts"]
    assert points.manifold is task.model.manifold
    assert points.x.shape == (3, D)
