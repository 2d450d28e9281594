"""Loss, perplexity and accuracy of translations; the toy tasks are learnt, and a training goes on where it stopped."""

import math

import pytest
import torch
from torch.nn import functional as F

from configs import composing
from configs.build import build
from tasks.errors import UserError
from tasks.text import PAD
from tests.cli import QUIET, call, places
from tests.configurations import checked
from tests.tasks.translation.files import TRAIN, aligned

composing.register()
BLIND = 0.3  # of knowing how long sentences are and no source: one word of ten, and the end of some
MARGIN = 0.4
LEARNT = {"euclidean", "hatt", "lorentz", "poincare_pp", "lorentz_tangent", "poincare_tangent", "klein_tangent"}
SMALL = "task.data.toy.sizes={train: 60, dev: 10, test: 10}"


def toy(*words: str):
    task, data = build(checked("task=translation_toy", SMALL, *words))
    return task, data.splits()["train"][torch.arange(20)]


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_the_training_loss_is_smoothed_by_the_formula(geometry, eps):
    task, batch = toy(f"geometry={geometry}", f"task.module.label_smoothing={eps}")
    step = task.train().step(batch)
    log_p = task.model(batch["source"], batch["source_lengths"], batch["target"]).log_softmax(-1)
    labels = batch["labels"]
    each = -(1 - eps) * log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - eps * log_p.mean(-1)
    inside = labels != PAD
    torch.testing.assert_close(step.loss, each[inside].mean(), rtol=1e-5, atol=1e-6)
    assert step.weight == step.sums["pieces"] == int(inside.sum())


@pytest.mark.long
def test_the_paper_smooths_and_its_code_does_not():
    assert toy()[0].label_smoothing == 0.1
    assert toy("fidelity=code")[0].label_smoothing == 0.0


def test_evaluated_metrics_are_of_pieces_without_padding_and_smoothing():
    task, batch = toy()
    sums: dict[str, float] = {}
    for part in (slice(0, 7), slice(7, 20)):
        for name, value in task.eval().step({k: v[part] for k, v in batch.items()}).sums.items():
            sums[name] = sums.get(name, 0.0) + float(torch.as_tensor(value).detach())
    metrics = task.summary(sums)
    with torch.no_grad():
        logits = task.model(batch["source"], batch["source_lengths"], batch["target"]).flatten(0, 1)
    labels = batch["labels"].flatten()
    nll = float(F.cross_entropy(logits, labels, ignore_index=PAD))
    right = (logits.argmax(-1) == labels)[labels != PAD].double().mean()
    assert metrics == pytest.approx({"loss": nll, "perplexity": math.exp(nll), "accuracy": float(right)}, rel=1e-5)
    assert (sums["examples"], sums["pieces"]) == (20, int((labels != PAD).sum()))


def test_watched_points_are_those_of_the_sources():
    task, batch = toy("geometry=lorentz")
    points = task.points(batch)["source"]
    assert points.x.shape == (int(batch["source_lengths"].sum()), 17)
    assert points.manifold.check_point_on_manifold(points.x.detach())


def learnt(tmp_path, geometry: str, translation: str, steps: int, *words: str) -> float:
    """The accuracy of the next piece on the test split."""
    result = call(
        "task=translation_toy", f"geometry={geometry}", f"task.data.toy.translation={translation}",
        f"trainer.max_steps={steps}", *words, *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "test/perplexity" in result.record["metrics"]
    return result.record["metrics"]["test/accuracy"]


@pytest.mark.parametrize("geometry", [pytest.param("euclidean", marks=pytest.mark.slow), "lorentz"])
def test_copies_are_learnt(tmp_path, geometry):
    assert learnt(tmp_path, geometry, "copy", 180) >= BLIND + MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("translation", ["copy", "reverse"])
@pytest.mark.parametrize("geometry", sorted(LEARNT))
def test_copies_and_reversals_are_learnt_in_each_geometry(tmp_path, geometry, translation):
    assert learnt(tmp_path, geometry, translation, 600) >= BLIND + MARGIN


@pytest.mark.long
def test_a_training_that_its_steps_ended_goes_on_as_if_they_had_not(tmp_path):
    """Where they ended it with an epoch, of 6 steps."""
    words = (
        "task=translation_toy", SMALL, "task.data.batch_size=10", "geometry=euclidean", "trainer.checkpoint_every_s=0",
        *QUIET, *places(tmp_path),
    )  # fmt: skip
    whole = call(*words, "trainer.max_steps=18").record["metrics"]
    first = call(*words, "trainer.max_steps=12")
    again = call(*words, "trainer.max_steps=18", f"trainer.resume={first.record_path.parent}")
    assert again.code == 0, again.err
    assert again.record["metrics"] == whole


@pytest.mark.long
def test_a_checkpoint_is_refused_with_other_pieces(tmp_path):
    def words(name: str) -> tuple[str, ...]:
        folder = aligned(
            tmp_path / name, **({"train_en": [*TRAIN[:5], "here runs a cat !"]} if name == "other" else {})
        )
        return (
            "task=translation", f"data.dir={folder}", "geometry=euclidean", "task.transformer.n_layers=1",
            "task.data.subwords=none", "task.data.held_out.shares={dev: 0.1, test: 0.1}", *QUIET, *places(tmp_path),
        )  # fmt: skip

    first = call(*words("one"), "trainer.max_steps=2")
    assert first.code == 0, first.err
    result = call(*words("other"), "mode=test", f"checkpoint={first.record_path.parent}")
    assert result.code == 1
    assert "source pieces" in result.err


@pytest.mark.parametrize("task", ["multi30k", "iwslt14", "wmt14", "tatoeba", "translation"])
def test_every_task_says_which_data_are_missing(tmp_path, task):
    words = ("data.dir=nowhere",) if task == "translation" else ()
    with pytest.raises(UserError, match="There is no folder"):
        build(checked(f"task={task}", *words, *places(tmp_path)))


@pytest.mark.long
def test_mixed_precision_is_for_flat_models_alone(tmp_path):
    words = (
        "task=translation_toy",
        SMALL,
        "trainer.precision=bf16-mixed",
        "trainer.max_steps=2",
        *QUIET,
        *places(tmp_path),
    )
    result = call(*words, "geometry=euclidean")
    assert result.code == 0, result.err
    assert math.isfinite(result.record["metrics"]["test/loss"])
    for geometry in ("lorentz", "hatt"):
        result = call(*words, f"geometry={geometry}")
        assert result.code == 1
        assert f"this one has geometry={geometry}, whose points need 32 bits or more" in " ".join(result.err.split())
