"""On made-up trees probes of every kind recover the layer that has the tree, by far more than the order of words tells."""

import numpy as np
import pytest

from tasks.probing.toy import toy_sentence
from tasks.probing.trees import measure, spanning_trees
from tests.cli import QUIET, call, places

FAST = ("optim.lr=0.02", "trainer.max_steps=200", "task.data.sizes={train: 300, dev: 50, test: 50}")


def linear_order(sentences) -> float:
    """UUAS of the tree that joins each word to the next one."""
    shared = total = 0
    for sentence in sentences:
        n = len(sentence.words)
        order = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        counted = ~np.array([sentence.punctuation] * 2)
        chain, gold = spanning_trees(np.stack([order, measure(sentence.heads)[0]]), counted)
        shared, total = shared + (chain & gold).sum(), total + gold.sum()
    return shared / total


POINCARE = ("geometry=poincare", "task.model.distance=geodesic")


@pytest.mark.parametrize("words", [
    (), pytest.param(("geometry=euclidean",), marks=pytest.mark.long), pytest.param(POINCARE, marks=pytest.mark.slow),
])
def test_a_probe_recovers_the_trees_of_the_layer_that_has_them(tmp_path, words):
    draw = np.random.default_rng([0, 2])
    baseline = linear_order([toy_sentence(draw, 5, 14) for _ in range(50)])
    assert 0.4 < baseline < 0.7
    result = call("task=probing_toy", *FAST, *words, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    metrics = result.record["metrics"]
    assert metrics["test/uuas"] == metrics["test/layer_2/uuas"] > baseline + 0.2
    assert metrics["test/layer_0/uuas"] < baseline + 0.1, "positions know the order alone"
    assert metrics["test/distance_spearman"] > metrics["test/layer_0/distance_spearman"] + 0.15
    assert metrics["test/root"] > metrics["test/layer_0/root"] + 0.2
    assert metrics["test/layer_1/uuas"] > metrics["test/layer_0/uuas"]
    again = call("mode=test", f"checkpoint={result.record_path.parent}", *QUIET, *places(tmp_path))
    assert again.code == 0, again.err
    assert again.record["metrics"]["test/uuas"] == metrics["test/uuas"], "the checkpoint keeps the layer"


def test_one_layer_has_metrics_without_groups(tmp_path):
    words = ("task=probing_toy", "task.layer=1", "trainer.max_steps=5", *QUIET, *places(tmp_path))
    result = call(*words, "task.data.sizes={train: 20, dev: 10, test: 10}")
    assert result.code == 0, result.err
    names = ("uuas", "distance_spearman", "root", "depth_spearman")
    assert {name for name in result.record["metrics"] if name.startswith("test/")} == {
        "test/loss", *(f"test/{group}{name}" for group in ("", "word_order/") for name in names)
    }


def test_a_run_that_is_probed_is_for_probing(tmp_path):
    result = call("task=prefix_toy", "probe.checkpoint=outputs/run", *QUIET, *places(tmp_path))
    assert result.code == 1
    assert "probe.checkpoint=outputs/run is for task=probing, and the task is prefix_toy" in result.err


@pytest.mark.slow
def test_the_encoder_of_a_translation_is_probed(tmp_path, treebank):
    small = ("task.data.toy.sizes={train: 20, dev: 5, test: 5}", "trainer.max_steps=1")
    run = call("task=translation_toy", "geometry=lorentz", *small, *QUIET, *places(tmp_path))
    assert run.code == 0, run.err
    folder = run.record_path.parent
    words = ("task=probing", f"task.data.folder={treebank}", "trainer.max_steps=2", *QUIET, *places(tmp_path))
    result = call(*words, f"probe.checkpoint={folder}", "task.states=lorentz")
    assert result.code == 0, result.err
    assert {f"test/layer_{k}/uuas" for k in (0, 1)} <= result.record["metrics"].keys()
    assert result.record["data"]["probed"]["geometry"] == "lorentz"
    again = call("mode=test", f"checkpoint={result.record_path.parent}", *QUIET, *places(tmp_path))
    assert again.code == 0, again.err
    assert again.record["metrics"]["test/loss"] == result.record["metrics"]["test/loss"]
    (folder / "checkpoints" / "best.ckpt").unlink()
    gone = call("mode=test", f"checkpoint={result.record_path.parent}", f"probe.checkpoint={tmp_path}", *QUIET, *places(tmp_path))
    assert (gone.code, gone.err.count("\n")) == (1, 1)
    assert f"probe.checkpoint={tmp_path}: there is no checkpoint" in gone.err
    wrong = call(*words, f"probe.checkpoint={result.record_path.parent}")
    assert "is of a probe, and what it probes has to be another model" in wrong.err
