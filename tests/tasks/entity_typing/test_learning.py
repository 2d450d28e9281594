"""The toy split is learnt in every geometry, beyond what a guess that is the same for all mentions reaches."""

import pytest
import torch

from configs import checks, composing
from configs.build import build
from hyperbolic.geometry import GEOMETRIES
from tasks.entity_typing.types import GRANULARITIES
from tasks.metrics import typing_scores, typing_sums

MARGIN = 0.1  # of macro F1
STEPS = 20
SLOW_STEPS = 80  # of HyboNet: its logits, distances to points of the types, begin far from the right scale
GEOMETRIES_OF_TRANSFORMERS = ("euclidean", "lorentz", "lorentz_tangent")


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def built(tmp_path, *words: str):
    values = checks.check(
        composing.composed(
            "task=entity_typing_toy", "optim.lr=0.03", f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}",
            "task.data.sizes={train: 1920, dev: 20, test: 200}", "task.data.batch_size=24",
            "task.data.limits.context=8", *words,
        )
    )  # fmt: skip
    return build(values)


def train(task, data, steps: int) -> None:
    optimizer = task.configure_optimizers()
    task.train()
    for batch, _ in zip(data.train_dataloader(), range(steps), strict=False):
        optimizer.zero_grad()
        task.step(batch).loss.backward()
        optimizer.step()


def evaluated(task, data) -> dict[str, float]:
    task.eval()
    total: dict[str, float] = {}
    with torch.no_grad():
        for batch in data.test_dataloader():
            for name, value in task.step(batch).sums.items():
                total[name] = total.get(name, 0.0) + float(value)
    return task.summary(total)


def guess(data, groups) -> float:
    """The best macro F1 of a set of types that is predicted for every mention: of the k most frequent ones, any k."""
    split = data.splits()["test"]
    targets = split[torch.arange(len(split))]["targets"]
    counts = torch.bincount(targets[targets >= 0], minlength=len(groups))
    best = 0.0
    for k in range(1, len(groups) + 1):
        same = torch.zeros(len(groups), dtype=torch.bool)
        same[counts.topk(k).indices] = True
        sums = typing_sums(same.expand(len(targets), -1), targets, groups, GRANULARITIES)
        best = max(best, typing_scores({n: float(v) for n, v in sums.items()}, GRANULARITIES)["macro_f1"])
    return best


PAIRS = [("gru", g) for g in GEOMETRIES] + [
    pytest.param("transformer", g, marks=[pytest.mark.slow] if g == "euclidean" else [])
    for g in GEOMETRIES_OF_TRANSFORMERS
]


@pytest.mark.parametrize(("encoder", "geometry"), PAIRS)
def test_the_toy_split_is_learnt_beyond_a_guess(tmp_path, encoder, geometry):
    task, data = built(tmp_path, f"encoder={encoder}", f"geometry={geometry}")
    baseline = guess(data, task.model.groups)
    assert 0.25 < baseline < 0.4, "saying all three coarse types is right for a third of them"
    before = evaluated(task, data)
    train(task, data, SLOW_STEPS if (encoder, geometry) == ("transformer", "lorentz") else STEPS)
    after = evaluated(task, data)
    assert after["macro_f1"] >= baseline + MARGIN
    assert after["loss"] < before["loss"] / 2
