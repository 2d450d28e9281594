"""What a run says of a result that shows that little was learned."""

import pytest
import torch

from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from tasks.remarks import (
    is_perfect,
    on_auc,
    on_bleu,
    on_classes,
    on_curvature,
    on_fidelity,
    on_limits,
    on_min_epochs,
    on_optimizer,
    on_own_encoder,
    on_roles,
    on_selection,
    on_warmup,
    trend,
)
from tests.cli import SHORT, toy

CLASSES = ("entailment", "neutral", "contradiction")


def table(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_an_encoder_of_ones_own_that_learns_little_may_leave_its_space():
    assert on_own_encoder({"_target_": "hyperbolic.encoders.rnn.RecurrentEncoder"}) == []
    (line,) = on_own_encoder({"_target_": "mine.Encoder"})
    assert line == "check_points=true says whether what mine.Encoder returns are points of its space."


def test_an_accuracy_beside_the_largest_class_and_a_class_that_is_never_predicted_are_said():
    near, never = on_classes(CLASSES, table([15, 135, 0], [10, 275, 0], [5, 60, 0]), balance=True)
    assert "test/accuracy is 0.580" in near
    assert "always says neutral has 0.570" in near
    assert "never predicted in the test: contradiction (65 of 500)" in never
    assert "task.module.class_weights=balanced" in never
    assert "vectors" not in near
    assert "balanced" not in on_classes(CLASSES, table([0, 9, 0], [0, 9, 0], [0, 9, 0]))[1]
    assert "balanced" not in on_classes(CLASSES, table([0, 9, 0], [0, 9, 0], [0, 9, 0]), balance=True)[1]
    assert "12 examples of a test are too few" in on_classes(CLASSES, table([3, 2, 0], [0, 3, 1], [1, 0, 2]))[0]
    few = table([0, 9, 0]).expand(3, 3)
    assert "Try word vectors, more epochs" in on_classes(CLASSES, few, ["word vectors"])[0]
    assert "another optim.lr or encoder." in on_classes(CLASSES, few)[0]
    assert "another optim.lr." in on_classes(CLASSES, few, has_encoder=False)[0]


def test_nothing_is_said_of_a_result_that_is_well_above_it():
    assert on_classes(CLASSES, table([60, 40, 50], [40, 245, 0], [5, 10, 50])) == []


def test_a_class_that_the_test_does_not_have_need_not_be_predicted_and_is_named():
    (line,) = on_classes(CLASSES, table([50, 5, 0], [5, 40, 0], [0, 0, 0]))
    assert line == f"no example in the test: {CLASSES[2]}; the test says nothing of these."


def history(values: list[float], losses: list[float], select: str = "val/mrr") -> list[dict[str, float]]:
    return [{select: value, "train/loss": loss} for value, loss in zip(values, losses, strict=True)]


def test_a_metric_that_never_rose_is_said_with_what_the_loss_did():
    flat = on_selection("val/mrr", "max", history([0.2, 0.2, 0.19], [4.0, 4.0, 3.9]), 0.3)
    assert flat
    assert "nothing was learned" in flat
    assert "optim.lr=0.1 and optim.lr=0.9" in flat
    diverged = on_selection("val/mrr", "max", history([0.2, 0.2, 0.19], [4.0, 5.0, 3.9]), 0.3)
    assert diverged
    assert "train/loss rose from 4.000 to 5.000: it diverged. Try optim.lr=0.1, or larger batches." in diverged
    by_heart = on_selection("val/mrr", "max", history([0.2, 0.2, 0.19], [4.0, 2.0, 0.5]), 0.3)
    assert by_heart
    assert "from 4.000 to 0.500" in by_heart
    assert "by heart" in by_heart


@pytest.mark.parametrize(
    ("losses", "checks", "expected"),
    [
        ([4.0, 1.9], [], "by heart"),
        ([4.0, 2.1], [], "open"),
        ([4.0, 3.5], [0.5, 0.6], "by heart"),
        ([4.0, 3.5], [0.5, 0.5], "open"),
        ([4.0, 4.3, 3.9], [], "diverged"),
        ([], [], "open"),
    ],
)
def test_the_losses_say_whether_more_epochs_may_help(losses, checks, expected):
    rows = [{"train/loss": loss} for loss in losses] + [{"val/loss": loss} for loss in checks]
    assert trend(rows) == expected
    few = table([0, 9, 0], [0, 9, 0], [0, 4, 0])
    near, never = on_classes(CLASSES, few, longer=expected == "open")
    assert ("more epochs" in near) is ("more epochs" in never) is (expected == "open")
    assert ("more epochs" in on_auc(0.55, 40, expected == "open")) is (expected == "open")


def test_one_line_says_that_nothing_was_learned(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_epochs=4", "optim.lr=1e-9")
    assert "note: little was learned: test/accuracy" in result.out, result.err
    assert "was never better than at its first validation" not in result.out


def test_balanced_classes_need_numbers_of_examples(tmp_path):
    result = toy(tmp_path, *SHORT, "+task.module.class_weights=balanced")
    assert result.code == 1
    assert "task.module.class_weights=balanced: this task's data do not count their classes." in result.err


def test_a_metric_that_moved_or_was_measured_twice_is_not_spoken_of():
    assert on_selection("val/mrr", "max", history([0.2, 0.3, 0.1], [4, 4, 4]), 0.3) is None
    assert on_selection("val/loss", "min", history([0.2, 0.3, 0.1], [4, 4, 4], "val/loss"), 0.3) is None
    assert on_selection("val/mrr", "max", history([0.2, 0.1], [4, 4]), 0.3) is None
    assert on_selection("val/mrr", "max", [], 0.3) is None


def test_a_metric_that_stands_while_the_loss_of_the_validation_falls_is_not_spoken_of():
    rows = history([0.6, 0.6, 0.6], [4.0, 2.0, 0.5])
    for row, loss in zip(rows, [0.5, 0.3, 0.4], strict=True):
        row["val/loss"] = loss
    assert on_selection("val/mrr", "max", rows, 0.3) is None
    rows[-1]["val/loss"] = 0.9
    by_heart = on_selection("val/mrr", "max", rows, 0.3)
    assert by_heart
    assert "by heart" in by_heart


def test_a_metric_that_is_perfect_at_once_is_not_spoken_of():
    assert on_selection("val/f1", "max", history([1.0, 1.0, 1.0], [4.0, 2.0, 0.5], "val/f1"), 0.3) is None
    assert on_selection("val/f1", "max", history([0.9, 0.9, 0.9], [4.0, 2.0, 0.5], "val/f1"), 0.3)
    assert is_perfect("val/mean_rank", "min", 1.0)
    assert not is_perfect("val/loss", "min", 1.0)
    assert not is_perfect("val/bleu", "max", 1.2)


def test_what_is_advised_are_settings_that_the_task_has(tmp_path):
    """PREFIX has no weights of classes and no word vectors."""
    result = toy(tmp_path, *SHORT, "trainer.max_epochs=1", "optim.lr=50")
    assert "note: never predicted in the test" in result.out, result.err
    assert "class_weights" not in result.out
    assert "vectors" not in result.out


def test_an_area_that_a_guess_has_is_named():
    """The standard error over n edges: 0.5 / sqrt(3 n / 2) or so, 0.111 for 14."""
    assert "little was learned: test/auc is 0.423, and a guess has 0.5 ± 0.111 with 14 edges" in on_auc(0.4235, 14)
    assert "little was learned" in on_auc(0.55, 40)
    assert "worse than a guess: test/auc is 0.250" in on_auc(0.25, 14)
    assert "too few to tell the two apart" in on_auc(0.7, 14)
    assert on_auc(0.7, 140) is None
    assert on_auc(0.9, 14) is None


def test_useless_translations_have_smaller_batches_to_try_where_there_are_any():
    line = on_bleu(1.03, 20480, [{"step": 3.0}, {"step": 9.0}])
    assert line.startswith("little was learned: test/bleu is 1.0 of 100 after 9 steps. Try task.data.batch_tokens=2048 (it is 20480)")
    assert "batch_tokens" not in on_bleu(1.03, 2048, [])
    assert "batch_tokens" not in on_bleu(1.03, None, [])


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"limit_val_batches": 1, "limit_test_batches": 0.5}, "val/... of trainer.limit_val_batches=1 and test/... of trainer.limit_test_batches=0.5"),
        ({"limit_val_batches": 0, "limit_test_batches": 2}, "test/... of trainer.limit_test_batches=2"),
        ({"limit_val_batches": 1.0, "limit_test_batches": 1.0}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_metrics_of_the_first_batches_are_no_numbers_of_the_whole(limits, named):
    lines = on_limits(limits, {"val/loss": 0.5, "test/loss": 0.5})
    assert [line.split(" are of")[0] for line in lines] == ([named] if named else [])
    assert not on_limits({"limit_test_batches": 2}, {"val/loss": 0.5}), "nothing was tested"
    assert not on_limits({"limit_test_batches": 2}, {"test/loss": 0.5}, 1.0), "it has two batches"


def test_a_curvature_that_nothing_has():
    flat = {"name": "euclidean", "manifold": "Euclidean", "layers": "euclidean"}
    assert on_curvature(flat | {"c": 2.0}) == ["geometry.c=2 changed nothing: geometry=euclidean is flat, and has no curvature."]
    assert not on_curvature(flat | {"c": None})
    assert not on_curvature(flat | {"c": 2.0, "parts": {"classifier": "poincare"}})


def test_settings_of_parameters_that_there_are_not():
    model = torch.nn.Linear(2, 2)
    words = ["optim=hnn", "optim.embeddings.rule=sgd", "optim.matrices.lr=0.1", "optim.vectors.lr=0.1"]
    (line,) = on_roles(words, model)
    assert line.startswith("optim.embeddings.rule=sgd changed nothing")
    ball = PoincareBall(1.0)
    assert not on_roles(words, torch.nn.ModuleList([mobius.Embedding(ball, 3, 2), model]))
    assert not on_roles(["optim.matrices.lr=0.1"], torch.nn.LayerNorm(2)), "its vectors have the settings of matrices"


def test_settings_that_another_rule_or_schedule_has():
    words, sgd = ["optim.lr=1", "optim.plateau.factor=0.1"], {"rule": "sgd", "schedule": "linear"}
    (line,) = on_optimizer(words, sgd)
    assert line == "optim.plateau.factor=0.1 changed nothing: optim.schedule is linear, not plateau."
    assert not on_optimizer(words, {"rule": "sgd", "schedule": "plateau"})
    assert not on_optimizer(words[:1], sgd)
    words = ["optim.betas=[0.5,0.9]", "optim.eps=1", "optim.lbfgs.max_iter=3"]
    lbfgs, betas, eps = on_optimizer(words, {**sgd, "biases": {"rule": None}})
    assert betas == "optim.betas=[0.5,0.9] changed nothing: optim.rule is sgd, not adam."
    assert eps.endswith("not adam or adagrad.")
    assert lbfgs.endswith("not lbfgs.")
    (line,) = on_optimizer(words, {**sgd, "biases": {"rule": "adam"}})
    assert line == "optim.lbfgs.max_iter=3 changed nothing: optim.rule is sgd and adam, not lbfgs."


def test_a_warmup_that_the_run_did_not_outlast():
    history = [{"step": 5}, {"step": 10, "val/loss": 1.0}]
    (line,) = on_warmup({"warmup_steps": 50}, history)
    assert "rises for optim.warmup_steps=50 steps, and the run has 10" in line
    assert not on_warmup({"warmup_steps": 10}, history)
    assert not on_warmup({"warmup_steps": 50}, []), "a test"
    assert not on_warmup({}, history)


def test_epochs_that_bound_nothing():
    assert on_min_epochs(["trainer.min_epochs=5", "seed=1"], None) == [
        "trainer.min_epochs=5 changed nothing: without trainer.patience no run ends early."
    ]
    assert not on_min_epochs(["trainer.min_epochs=5"], 3)


def test_a_fidelity_that_changes_nothing():
    same, different = ({"name": "mine", "fidelity": {"paper": {"a": 1}, "code": {"a": a}}} for a in (1, 2))
    assert on_fidelity({"fidelity": "code", "task": same}) == ["fidelity=code changed nothing: task=mine is the same with fidelity=paper."]
    assert on_fidelity({"fidelity": "code", "task": {"name": "mine"}})
    assert not on_fidelity({"fidelity": "paper", "task": same})
    assert not on_fidelity({"fidelity": "code", "task": different})
