"""The loss and the metrics are their formulas sentence by sentence, and the best layer is the best on the validation split."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from configs import checks, composing
from configs.build import build
from tasks.errors import UserError
from tasks.probing.trees import spanning_trees
from tests.tolerances import tolerance

CLOSE = tolerance(torch.float32, "model")


@pytest.fixture(scope="module")
def toy():
    composing.register()
    words = ("task=probing_toy", "task.data.sizes={train: 20, dev: 20, test: 20}")
    task, data = build(checks.check(composing.composed(*words)))
    return task, data.splits()["test"]


def test_the_loss_is_that_of_each_sentence_alone(toy):
    task, split = toy
    batch = split[torch.arange(20)]
    task.train()
    step = task.step(batch)
    losses = []
    for k in range(20):
        one = split[torch.tensor([k])]
        length = int(split.sizes[k])
        total = 0.0
        for pairs, depths in task.model(one["states"]):
            apart = sum(abs(one["distances"][0, i, j] - pairs[0, i, j]) for i in range(length) for j in range(length))
            total += apart / length**2 + sum(abs(one["depths"][0, i] - depths[0, i]) for i in range(length)) / length
        losses.append(total)
    torch.testing.assert_close(step.loss, torch.stack(losses).mean(), **CLOSE)
    assert set(step.sums) == {"examples", "loss_0", "loss_1", "loss_2"}
    assert float(sum(step.sums[f"loss_{k}"] for k in range(3))) == pytest.approx(20 * float(step.loss.detach()), rel=1e-5)


def test_metrics_are_those_of_each_sentence(toy):
    task, split = toy
    task.eval()
    with torch.no_grad():
        every = task.summary(task.step(split[torch.arange(20)]).sums)
        halves = [task.step(split[half]).sums for half in torch.arange(20).chunk(2)]
        assert task.summary({k: halves[0][k] + halves[1][k] for k in halves[0]}) == pytest.approx(every)
        ((pairs, depths),) = [task.model(split[torch.arange(20)]["states"])[1]]
    by_length, roots, shared, edges = {}, 0, 0, 0
    for k in range(20):
        gold, n = split[torch.tensor([k])], int(split.sizes[k])
        distance = gold["distances"][0].numpy()
        rows = [spearmanr(pairs[k, i, :n], distance[i]).statistic for i in range(n)]
        order = spearmanr(depths[k, :n], gold["depths"][0]).statistic
        by_length.setdefault(n, []).append((np.mean(rows), order))
        words = np.flatnonzero(~gold["punctuation"][0].numpy())
        trees = [spanning_trees(d, ~gold["punctuation"][0].numpy()) for d in (pairs[k, :n, :n].double().numpy(), distance)]
        shared, edges = shared + (trees[0] & trees[1]).sum(), edges + len(words) - 1
        roots += words[depths[k, :n].numpy()[words].argmin()] == int(gold["depths"][0].argmin())
    means = np.mean([np.mean(values, 0) for values in by_length.values()], 0)
    assert every["layer_1/distance_spearman"] == pytest.approx(means[0], abs=1e-6)
    assert every["layer_1/depth_spearman"] == pytest.approx(means[1], abs=1e-6)
    assert every["layer_1/root"] == roots / 20
    assert every["layer_1/uuas"] == pytest.approx(shared / edges), "words alone have edges"


def test_a_probe_that_knows_the_tree_recovers_it(toy):
    """Distances and depths of the gold trees as predictions: every metric is 1, and the loss 0."""
    task, split = toy
    batch = split[torch.arange(20)]
    task.eval()
    exact = [(batch["distances"], batch["depths"])] * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task.model, "forward", lambda states: exact)
        metrics = task.summary(task.step(batch).sums)
    order = {k: metrics.pop(f"word_order/{k}") for k in ("uuas", "root", "distance_spearman", "depth_spearman")}
    assert metrics == pytest.approx({k: 0.0 if k.endswith("loss") else 1.0 for k in metrics})
    assert len(metrics) == 4 * 5
    assert max(order.values()) < 1, "of a chain, which is not the tree"


def test_trees_have_one_root_and_no_punctuation(toy):
    task, split = toy
    task.eval()
    batch = split[torch.arange(3)]
    batch["punctuation"][0], batch["punctuation"][1] = True, False
    batch["punctuation"][1, 1] = True
    marks_alone, one_mark, _ = (each["heads"] for each in task.predict(batch))
    assert marks_alone == [None] * int(split.sizes[0])
    assert one_mark[1] is None
    assert one_mark.count(None) == one_mark.count(0) == 1


def test_padding_changes_nothing(toy):
    task, split = toy
    short = int(split.sizes.argmin())
    task.eval()
    with torch.no_grad():
        alone = task.model(split[torch.tensor([short])]["states"])
        padded = task.model(split[torch.arange(20)]["states"])
    n = int(split.sizes[short])
    for (pairs, depths), (pairs_, depths_) in zip(alone, padded, strict=True):
        torch.testing.assert_close(pairs[0], pairs_[short, :n, :n], **CLOSE)
        torch.testing.assert_close(depths[0], depths_[short, :n], **CLOSE)


@pytest.mark.parametrize(("select", "mode", "best"), [("uuas", "max", 2), ("loss", "min", 1), ("root", "max", 0)])
def test_the_best_layer_is_that_of_the_metric_that_selects(toy, select, mode, best):
    task, _ = toy
    lengths = torch.zeros(46)
    sums = {
        "examples": 10, "loss_0": 9.0, "loss_1": 5.0, "loss_2": 7.0, "edges": 100,
        "shared": torch.tensor([10.0, 20.0, 30.0]), "roots": torch.tensor([3.0, 2.0, 3.0]), "lengths": lengths,
        "distance_spearman": torch.zeros(3, 46), "depth_spearman": torch.zeros(3, 46),
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "select", f"val/{select}")
        patch.setattr(task, "select_mode", mode)
        patch.setattr(task, "chooses", True)
        metrics = task.summary(sums)
        assert metrics[select] == metrics[f"layer_{best}/{select}"]
        patch.setattr(task, "chooses", False)
        later = task.summary({**sums, "shared": torch.tensor([90.0, 80.0, 70.0])})
        assert later["uuas"] == later[f"layer_{best}/uuas"], "a test has the layer that a validation chose"


def test_a_metric_that_is_none_cannot_select():
    composing.register()
    with pytest.raises(UserError, match="task.module.select must be one of val/uuas"):
        build(checks.check(composing.composed("task=probing_toy", "task.module.select=val/accuracy")))


def test_layers_below_a_chain_of_the_words_are_noted(toy):
    task, _ = toy
    before = dict(task.metrics)
    try:
        task.metrics |= {"test/uuas": 0.18, "test/word_order/uuas": 0.4}
        (line,) = task.remarks()
        assert "test/uuas is 0.180, and a chain of the words (word_order) has 0.400" in line
        task.metrics |= {"test/uuas": 0.41}
        assert task.remarks() == []
    finally:
        task.metrics.clear()
        task.metrics.update(before)
