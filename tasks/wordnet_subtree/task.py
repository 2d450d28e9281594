"""Training and evaluation of subtree classification: cross-entropy; precision, recall and F1 of the subtree."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tasks.base import NamedPoints, TaskData
from tasks.classification import ClassificationTask
from tasks.wordnet_subtree.data import SubtreeData
from tasks.wordnet_subtree.model import SubtreeClassifier


def positive_scores(sums: Mapping[str, float]) -> dict[str, float]:
    """Precision, recall and F1 = 2 P R / (P + R) of the positive class; 0 each where its denominator is.

    sums: right, the positives that are predicted; predicted, all predicted positives; gold, all positives.
    """
    right, predicted, gold = (float(sums[name]) for name in ("right", "predicted", "gold"))
    return {
        "f1": 2 * right / (predicted + gold) if predicted + gold else 0.0,
        "precision": right / predicted if predicted else 0.0,
        "recall": right / gold if gold else 0.0,
    }


class SubtreeTask(ClassificationTask):
    """Two classes: 1 for nodes below the root. Metrics: f1, precision and recall of class 1; accuracy; loss."""

    metric_names = ("f1", "precision", "recall", "accuracy", "loss")

    model: SubtreeClassifier

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """The nodes lie where task.embeddings has them."""
        assert isinstance(data, SubtreeData)
        nodes = NamedPoints(data.names, self.model.manifold, self.model.points)
        return {"nodes": nodes} | self.named_classes(self.model.classifier)

    def logits(self, batch: dict[str, Any]) -> Tensor:
        return self.model(batch["rows"])

    def count(self, batch: dict[str, Any], predicted: Tensor) -> dict[str, Tensor]:
        labels = batch["labels"]
        sums = {"right": (predicted * labels).sum(), "predicted": predicted.sum(), "gold": labels.sum()}
        return super().count(batch, predicted) | sums

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        return positive_scores(sums) | super().summary(sums)
