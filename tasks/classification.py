"""Tasks with one right class for each example: cross-entropy, scores of a confusion matrix, tables, predictions."""

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from hyperbolic.layers.classes import ClassLogits
from tasks.base import NamedPoints, Step, Task
from tasks.errors import UserError, one_of, rate
from tasks.folders import write_table
from tasks.outputs import rounded

WEIGHTS = ("equal", "balanced")


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


class ClassificationTask(Task):
    """Cross-entropy over K classes, and scores of the likeliest one. A task says what its `logits` are.

    Metrics: loss, the mean cross-entropy, of examples that weigh as `class_weights` says; accuracy; macro_f1, the mean
    of F1 = 2 P R / (P + R) over the classes that are there or predicted (scikit-learn's f1_score with average="macro"),
    of evaluated splits only; and <group>/accuracy, of those with examples of the group. A subclass may name fewer in
    `metric_names`. `export` writes classes.csv and confusion.csv of the test.

    Batches are dictionaries with "labels" (B,) int64 and, where there are several groups, "group" (B,) int64. A
    training step adds up three numbers, an evaluated batch G K K of them.

    classes: their names. groups: of each of G groups of examples the names that its metrics have. dev_groups: numbers
    of those that dev has, whose metrics may select; None: all. class_weights: of examples in the loss: None or "equal",
    1; "balanced", such that the classes weigh the same and the mean is 1, where class_counts are the training examples
    of each. label_smoothing: of the training loss, from 0 to less than 1. The others are Task's.
    """

    metric_names: tuple[str, ...] = ("accuracy", "macro_f1", "loss")
    weights: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[nn.Module], Optimizer],
        classes: Sequence[str],
        select: str,
        select_mode: str,
        groups: Sequence[Sequence[str]] = ((),),
        dev_groups: Sequence[int] | None = None,
        class_weights: str | None = None,
        class_counts: Sequence[int] = (),
        label_smoothing: float = 0.0,
    ):
        self.classes, self.groups = tuple(classes), groups
        self.dev_groups = range(len(groups)) if dev_groups is None else dev_groups
        self.group_names = _distinct(groups)
        self.metric_names = (*type(self).metric_names, *(f"{name}/accuracy" for name in self.group_names))
        super().__init__(model, optimizer, select, select_mode)
        self.class_weights, weights = class_weights, None
        if class_weights is not None:
            one_of("task.module.class_weights", class_weights, WEIGHTS)
            if class_weights == "balanced" and len(class_counts) != len(self.classes):
                raise UserError("task.module.class_weights=balanced: this task's data do not count their classes.")
            balanced = [sum(class_counts) / (len(class_counts) * max(count, 1)) for count in class_counts]
            weights = torch.tensor(balanced if class_weights == "balanced" else [1.0] * len(self.classes))
        self.register_buffer("weights", weights, persistent=False)
        self.label_smoothing = rate("task.module.label_smoothing", label_smoothing)
        self.confusion: dict[str, Tensor] = {}  # by split: examples (right class, predicted class), newest evaluation
        self._newest: Tensor | None = None

    @property
    def validated(self) -> tuple[str, ...]:
        names = _distinct(self.groups[k] for k in self.dev_groups)
        return (*type(self).metric_names, *(f"{name}/accuracy" for name in names))

    @abc.abstractmethod
    def logits(self, batch: dict[str, Any]) -> Tensor:
        """Logits (B, K) of the examples of a batch."""

    def step(self, batch: dict[str, Any]) -> Step:
        labels = batch["labels"]
        logits = self.logits(batch)
        loss, predicted = self._loss(logits, labels), logits.argmax(-1)
        sums = {"examples": len(labels), "loss": loss.detach() * len(labels)}
        return Step(loss, sums | self.count(batch, predicted))

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        smoothing = self.label_smoothing if self.training else 0.0
        if self.weights is None:
            return F.cross_entropy(logits, labels, label_smoothing=smoothing)
        losses = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        return (losses * self.weights[labels]).mean()

    def count(self, batch: dict[str, Any], predicted: Tensor) -> dict[str, Tensor]:
        """Sums besides the loss, from the predicted classes (B,): in training single numbers, else "confusion", counts
        (group, right class, predicted class)."""
        if self.training:
            return {"correct": (predicted == batch["labels"]).sum()}
        n, cell = len(self.classes), batch["labels"] * len(self.classes) + predicted
        if len(self.groups) > 1:
            cell = cell + batch["group"] * n * n
        return {"confusion": torch.bincount(cell, minlength=len(self.groups) * n * n).double().view(-1, n, n)}

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        loss = {"loss": sums["loss"] / sums["examples"]}
        if "confusion" not in sums:
            return loss | {"accuracy": sums["correct"] / sums["examples"]}
        tables = sums["confusion"]
        self._newest = tables.sum(0)
        metrics = loss | class_scores(self._newest)
        metrics = {name: metrics[name] for name in type(self).metric_names if name in metrics}
        for name in self.group_names:
            part = tables[[name in names for names in self.groups]].sum(0)
            if part.sum():
                metrics[f"{name}/accuracy"] = float(part.diagonal().sum() / part.sum())
        return metrics

    def _finish(self, split: str) -> None:
        self._newest = None
        super()._finish(split)
        if self._newest is not None:
            self.confusion[split] = self._newest

    def named_classes(self, classifier: nn.Module) -> dict[str, NamedPoints]:
        """The points of the classes in a layer of logits, for `named_points`; of one logit for two classes that of the
        second; none where the layer has no points."""
        if not isinstance(classifier, ClassLogits):
            return {}
        points = classifier.class_points.detach()
        return {"classes": NamedPoints(self.classes[-len(points) :], classifier.manifold, points)}

    def export(self, folder: Path) -> dict[str, Path]:
        """Write classes.csv, for each class of the test its examples, how many were predicted, and how many rightly;
        and confusion.csv, a row for each right class and a column for each predicted one."""
        if "test" not in self.confusion:
            return {}
        table = self.confusion["test"].long()
        counts = torch.stack([table.sum(1), table.sum(0), table.diagonal()], -1).tolist()
        rows = [["test", name, *row] for name, row in zip(self.classes, counts, strict=True)]
        matrix = [[name, *row] for name, row in zip(self.classes, table.tolist(), strict=True)]
        header = ["split", "label", "gold", "predicted", "true_positives"]
        return {
            "classes": write_table(folder / "classes.csv", header, rows),
            "confusion": write_table(folder / "confusion.csv", ["gold", *self.classes], matrix),
        }

    def predict(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        return class_predictions(self.logits(batch), self.classes)


def class_scores(confusion: Tensor) -> dict[str, float]:
    """accuracy and macro_f1, as `ClassificationTask` defines them, of counts (K right classes, K predicted ones), of
    which at least one is not 0."""
    correct = confusion.diagonal()
    wrong = confusion.sum(0) + confusion.sum(1) - 2 * correct
    counted = 2 * correct + wrong
    f1 = (2 * correct / counted)[counted > 0]
    return {"accuracy": float(correct.sum() / confusion.sum()), "macro_f1": float(f1.mean())}


def class_predictions(logits: Tensor, classes: Sequence[str]) -> list[dict[str, Any]]:
    """{"label": name, "probabilities": {name: p}} of each row of logits (B, K); p has six digits."""
    predictions = []
    for row, best in zip(logits.softmax(-1).tolist(), logits.argmax(-1).tolist(), strict=True):
        probabilities = {name: rounded(p) for name, p in zip(classes, row, strict=True)}
        predictions.append({"label": classes[best], "probabilities": probabilities})
    return predictions


def _distinct(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The names of some groups, each once."""
    return tuple(sorted({name for names in groups for name in names}))
