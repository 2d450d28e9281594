"""Training and evaluation on pairs of sentences: accuracy by group, scores and a table by class, predictions."""

import csv
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tasks.sentence_pairs import PairTask


def _names(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The names of some groups, each once."""
    return tuple(sorted({name for several in groups for name in several}))


def _metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    """The metrics of a split with groups of these names."""
    return ("accuracy", "macro_f1", "loss", *(f"{name}/accuracy" for name in names))


class NliTask(PairTask):
    """Cross-entropy and accuracy; of dev and test also macro_f1, the mean over the classes of the harmonic mean of
    precision and recall (0 for a class that is neither there nor predicted), and the accuracy of each group,
    matched/accuracy. `export` writes how many pairs of each class the test has and how many were found.

    labels: names of the classes. groups: of each group the names that its metrics have, see `NliData.groups`.
    dev_groups: numbers of those that dev has, whose metrics may select. The others are Task's.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[nn.Module], Optimizer],
        labels: tuple[str, ...],
        groups: tuple[tuple[str, ...], ...],
        dev_groups: tuple[int, ...],
        select: str,
        select_mode: str,
    ):
        self.labels, self.groups, self.dev_groups = labels, groups, dev_groups
        self.names = _names(groups)
        self.metric_names = _metrics(self.names)
        super().__init__(model, optimizer, select, select_mode)
        self.confusion: dict[str, Tensor] = {}  # by split: pairs (gold class, predicted class) of its newest evaluation
        self._newest: Tensor | None = None

    @property
    def validated(self) -> tuple[str, ...]:
        return _metrics(_names([self.groups[k] for k in self.dev_groups]))

    def counted(self, batch: dict[str, Any], found: Tensor) -> dict[str, Tensor]:
        """Of dev and test the table of groups, gold classes and found classes."""
        if self.training:
            return super().counted(batch, found)
        n = len(self.labels)
        cell = (batch["group"] * n + batch["labels"]) * n + found
        table = torch.bincount(cell, minlength=len(self.groups) * n * n).double()
        return {"table": table.view(-1, n, n)}

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        if "table" not in sums:
            return super().summary(sums)
        table = sums["table"]
        self._newest = every = table.sum(0)
        correct, wrong = every.diagonal(), every.sum(0) + every.sum(1) - 2 * every.diagonal()
        f1 = 2 * correct / (2 * correct + wrong).clamp_min(1)
        found = {
            "loss": sums["loss"] / sums["examples"],
            "accuracy": float(correct.sum() / every.sum()),
            "macro_f1": float(f1.mean()),
        }
        for name in self.names:
            part = table[[name in several for several in self.groups]].sum(0)
            if part.sum():
                found[f"{name}/accuracy"] = float(part.diagonal().sum() / part.sum())
        return found

    def _finish(self, split: str) -> None:
        self._newest = None
        super()._finish(split)
        if self._newest is not None:
            self.confusion[split] = self._newest

    def export(self, folder: Path) -> dict[str, Path]:
        """Write classes.csv: for each class of the test its pairs, how many were predicted, and how many rightly."""
        if "test" not in self.confusion:
            return {}
        path = folder / "classes.csv"
        part, table = path.with_suffix(".part"), self.confusion["test"]
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["split", "label", "gold", "predicted", "true_positives"])
            for label, *counts in zip(self.labels, table.sum(1), table.sum(0), table.diagonal(), strict=True):
                writer.writerow(["test", label, *(int(count) for count in counts)])
        os.replace(part, path)
        return {"classes": path}

    def predict(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        """{"label": name, "probabilities": {name: p}} of each pair; with an encoder that attends, also "attention",
        the premise's words as the model has them, each with its weight."""
        words, lengths = batch["words"], batch["lengths"]
        probabilities = self.model(words, lengths).softmax(-1).tolist()
        found = []
        for row in probabilities:
            said = {label: float(f"{p:.6g}") for label, p in zip(self.labels, row, strict=True)}
            found.append({"label": max(said, key=said.__getitem__), "probabilities": said})
        weights = self.model.attention(words, lengths)
        if weights is not None:
            for said, tokens, row in zip(found, batch["tokens"], weights.tolist(), strict=True):
                pairs = zip(tokens, row[: len(tokens)], strict=True)
                said["attention"] = [[token, float(f"{weight:.6g}")] for token, weight in pairs]
        return found
