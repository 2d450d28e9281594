"""Training and evaluation of subtree classification: cross-entropy; precision, recall and F1 of the subtree."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from tasks.base import Step, Task
from tasks.errors import one_of
from tasks.wordnet_subtree.model import SubtreeClassifier

WEIGHTS = ("equal", "balanced")
CLASSES = ("rest", "subtree")


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


class SubtreeTask(Task):
    """Two classes: 1 for nodes below the root.

    Metrics: loss, the mean cross-entropy; f1, precision and recall of class 1; accuracy.

    class_counts: training nodes of the two classes, from the data. class_weights: equal, or balanced, where a node
    weighs in the loss so that both classes together count the same and the mean weight is 1.
    """

    metric_names = ("f1", "precision", "recall", "accuracy", "loss")
    model: SubtreeClassifier

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[nn.Module], Optimizer],
        class_counts: tuple[int, int],
        select: str,
        select_mode: str,
        class_weights: str,
    ):
        one_of("task.module.class_weights", class_weights, WEIGHTS)
        super().__init__(model, optimizer, select, select_mode)
        balanced = class_weights == "balanced"
        weights = torch.tensor([sum(class_counts) / (2 * count) if balanced else 1.0 for count in class_counts])
        self.register_buffer("weights", weights, persistent=False)

    def step(self, batch: dict[str, Tensor]) -> Step:
        labels = batch["labels"]
        logits = self.model(batch["rows"])
        losses = F.cross_entropy(logits, labels, reduction="none") * self.weights[labels]
        said, loss = logits.argmax(-1), losses.mean()
        sums = {
            "loss": loss.detach() * len(labels),
            "right": (said * labels).sum(),
            "predicted": said.sum(),
            "gold": labels.sum(),
            "correct": (said == labels).sum(),
        }
        return Step(loss, {"examples": len(labels), **sums})

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        means = {name: sums[of] / sums["examples"] for name, of in (("loss", "loss"), ("accuracy", "correct"))}
        return positive_scores(sums) | means

    def predict(self, batch: dict[str, Tensor]) -> list[dict[str, Any]]:
        """label: subtree or rest. probability: of the subtree."""
        logits = self.model(batch["rows"])
        chosen, probabilities = logits.argmax(-1).tolist(), logits.softmax(-1)[:, 1].tolist()
        found = zip(chosen, probabilities, strict=True)
        return [{"label": CLASSES[k], "probability": float(f"{p:.6g}")} for k, p in found]
