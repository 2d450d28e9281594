"""Scores of the positive class in closed form; the loss and its class weights; predictions."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tasks.classification import positive_scores
from tasks.errors import UserError
from tasks.optimizers import make_optimizer
from tasks.wordnet_subtree.task import SubtreeTask

RADAM = functools.partial(make_optimizer, embeddings={}, biases={}, matrices={}, rule="adam", lr=0.1)
MODULE = {"classes": ("rest", "subtree"), "class_counts": (6, 2), "select": "val/loss", "select_mode": "min", "class_weights": "equal"}
LOGITS = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 1.0], [3.0, 0.0], [2.0, 1.5]])
LABELS = torch.tensor([1, 1, 0, 0, 1])


class Given(nn.Module):
    """Logits that are given, whatever the rows are."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(LOGITS.clone())

    def forward(self, rows):
        return self.table[rows]


def task(**settings) -> SubtreeTask:
    return SubtreeTask(Given(), RADAM, **{**MODULE, **settings})


BATCH = {"rows": torch.arange(5), "labels": LABELS}


@pytest.mark.parametrize(
    ("right", "predicted", "gold", "expected"),
    [
        (1, 2, 3, (0.4, 0.5, 1 / 3)),
        (3, 3, 3, (1, 1, 1)),
        (0, 0, 3, (0, 0, 0)),
        (0, 4, 0, (0, 0, 0)),
        (0, 0, 0, (0, 0, 0)),
        (0, 2, 2, (0, 0, 0)),
    ],
)
def test_f1_is_the_harmonic_mean_and_0_where_nothing_is_predicted(right, predicted, gold, expected):
    scores = positive_scores({"right": right, "predicted": predicted, "gold": gold})
    assert (scores["f1"], scores["precision"], scores["recall"]) == pytest.approx(expected)
    p, r = scores["precision"], scores["recall"]
    assert scores["f1"] == pytest.approx(2 * p * r / (p + r) if p + r else 0)


def test_scores_agree_with_scikit_learn():
    from sklearn.metrics import precision_recall_fscore_support

    gold, predicted = (torch.rand(2, 500, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    sums = {"right": (gold * predicted).sum(), "predicted": predicted.sum(), "gold": gold.sum()}
    p, r, f1, _ = precision_recall_fscore_support(gold, predicted, average="binary")
    assert positive_scores(sums) == pytest.approx({"precision": p, "recall": r, "f1": f1})


def test_a_step_and_its_metrics():
    step = task().step(BATCH)
    assert float(step.loss.detach()) == pytest.approx(float(F.cross_entropy(LOGITS, LABELS)))
    sums = {name: float(value) for name, value in step.sums.items()}
    # predicted are 0 and 2; right is 0; 0 and 3 are correct
    assert {k: sums[k] for k in ("examples", "right", "predicted", "gold", "correct")} == {
        "examples": 5, "right": 1, "predicted": 2, "gold": 3, "correct": 2,
    }  # fmt: skip
    scores = task().summary(sums)
    assert set(scores) == set(SubtreeTask.metric_names)
    assert scores == pytest.approx(
        {"f1": 0.4, "precision": 0.5, "recall": 1 / 3, "accuracy": 0.4, "loss": float(step.loss.detach())}
    )


def test_balanced_classes_count_the_same():
    # 6 and 2 training nodes: weights 8 / 12 and 8 / 4
    balanced = task(class_weights="balanced").step(BATCH).loss.detach()
    each = F.cross_entropy(LOGITS, LABELS, reduction="none")
    weights = torch.tensor([2.0, 2.0, 2 / 3, 2 / 3, 2.0])
    assert float(balanced) == pytest.approx(float((each * weights).mean()))
    with pytest.raises(UserError, match="task.module.class_weights must be one of equal, balanced"):
        task(class_weights="heavy")


def test_predictions():
    predictions = task().predict(BATCH)
    assert [one["label"] for one in predictions] == ["subtree", "rest", "subtree", "rest", "rest"]
    probabilities = [one["probabilities"]["subtree"] for one in predictions]
    assert probabilities == pytest.approx(LOGITS.softmax(-1)[:, 1].tolist(), rel=1e-5)
