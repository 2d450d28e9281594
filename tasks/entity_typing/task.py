"""Training, evaluation and prediction of types: Choi's multi-task objective or plain BCE, Choi's scores."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from hyperbolic.layers.classes import distinct, group_mean_weights
from tasks.base import NamedPoints, Points, Step, Task, TaskData
from tasks.entity_typing.points import TypingModel
from tasks.entity_typing.types import GRANULARITIES, TypeInventory
from tasks.entity_typing.typing_data import TypingData
from tasks.errors import one_of, share, whole
from tasks.metrics import TYPING_SCORES, typing_scores, typing_sums
from tasks.outputs import rounded

OBJECTIVES = ("multitask", "bce")
STRICT = ("set", "ordered")


def _metric_names(granularities: Sequence[str]) -> tuple[str, ...]:
    of = ("", *(f"{name}/" for name in granularities))
    return ("loss", "accuracy", *(at + score for at in of for score in TYPING_SCORES))


class EntityTypingTask(Task):
    """Any number of types for each mention: those with sigmoid(logit) >= threshold, or else the likeliest one.

    objective "multitask" (Choi et al. 2018, section 4.2): for each granularity the mean BCE over its types and the
    mentions with at least one right type in it, summed over the granularities; "bce": the mean BCE over all mentions
    and types (Lopez and Strube 2020, section 6.2, for OntoNotes). The loss of a batch is streamed over the types, so
    training never holds all logits; that of an evaluated split is the objective of the split as one batch, so it does
    not depend on the batches. Choi's program computes only the first 4,600 types of entity-linking examples; Lopez and
    Strube's does not, and neither does this one.

    types: names of the types, supplied by the data. threshold: of a probability, 0 to 1. strict: which mentions
    accuracy counts as right, "set": those whose predicted types are the right ones; "ordered": as Lopez and Strube's
    program, of those only the ones whose types stand in the file in the order of their numbers. top_k: how many types
    `predict` gives a mention, the likeliest, whatever their probability; None: those that are predicted. The others are
    Task's.

    """

    learns_from = TypingData
    model: TypingModel

    metric_names = _metric_names(GRANULARITIES)

    def __init__(
        self,
        model: TypingModel,
        optimizer: Callable[[nn.Module], Optimizer],
        types: TypeInventory,
        objective: str,
        threshold: float,
        strict: str,
        top_k: int | None,
        select: str,
        select_mode: str,
    ):
        sizes = torch.bincount(model.groups.cpu(), minlength=len(GRANULARITIES)).tolist()
        self.group_sizes: list[int] = sizes
        present = [name for name, size in zip(GRANULARITIES, sizes, strict=True) if size]
        self.present = present if len(present) > 1 else []  # one has the numbers of all types
        self.metric_names = _metric_names(self.present)
        super().__init__(model, optimizer, select, select_mode)
        self.objective = one_of("task.module.objective", objective, OBJECTIVES)
        self.strict = one_of("task.module.strict", strict, STRICT)
        self.threshold = share("task.module.threshold", threshold)
        self.top_k = None if top_k is None else whole("task.module.top_k", top_k, 1)
        self.names = tuple(types.names)

    def step(self, batch: dict[str, Tensor]) -> Step:
        x, targets = self.model.features(batch), batch["targets"]
        if self.training:
            loss = self.training_loss(x, targets)
            return Step(loss, {"examples": len(targets), "loss": loss.detach() * len(targets)})
        logits, groups = self.model.classifier(x), self.model.groups
        with torch.autocast(logits.device.type, enabled=False):  # half precision does not count beyond 256
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            sums = {"examples": len(targets), **self.loss_sums(logits, targets)}
            loss = self._loss(sums, len(targets))
            sums |= typing_sums(self.predictions(logits.sigmoid()), targets, groups, GRANULARITIES)
        return Step(loss, sums)

    def training_loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Loss of a batch of features (B, m) and right types (B, L), filled up with -1; streamed over the types."""
        if self.objective == "bce":
            return self.model.classifier.bce(x, targets)
        groups = self.model.groups
        weights = group_mean_weights(targets, groups, len(GRANULARITIES)).to(x.dtype)
        return self.model.classifier.bce(x, targets, row_weights=self._whole_batch_weights(weights), groups=groups)

    def _whole_batch_weights(self, weights: Tensor) -> Tensor:
        """Weights (B, G), not 0 for the mentions that count, by their number in the whole batch in the place of that in
        this process's share, which may have more or fewer of them than another."""
        if self.share is None:
            return weights
        rows = (weights[: self.share.size] > 0).sum(0).to(weights.dtype)
        total = rows.clone()
        distributed.all_reduce(total)
        return weights * (rows / total.clamp_min(1) * self.share.total / len(weights))

    def loss_sums(self, logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """By granularity, under bce/<name> the sum of the BCE of logits (B, K), under rows/<name> of how many mentions.

        BCE(z, y) = softplus(z) - y z.
        """
        member = F.one_hot(self.model.groups, len(GRANULARITIES)).to(logits.dtype)
        ids = distinct(targets)
        is_type, column = (ids >= 0).to(logits.dtype).unsqueeze(-1), ids.clamp_min(0)
        right = member[column] * is_type  # (B, L, G)
        losses = F.softplus(logits) @ member - (right * logits.gather(-1, column).unsqueeze(-1)).sum(-2)
        mask = (right.sum(-2) > 0) if self.objective == "multitask" else torch.ones_like(losses, dtype=torch.bool)
        totals, rows = (losses * mask).double().sum(0), mask.double().sum(0)
        return {
            f"{kind}/{name}": values[k]
            for kind, values in (("bce", totals), ("rows", rows))
            for k, name in enumerate(GRANULARITIES)
        }

    def predictions(self, probabilities: Tensor) -> Tensor:
        """(B, K), true where a type is predicted."""
        likely = probabilities >= self.threshold
        likeliest = probabilities.argmax(-1, keepdim=True)
        return likely.scatter(-1, likeliest, likely.gather(-1, likeliest) | ~likely.any(-1, keepdim=True))

    def predict(self, batch: dict[str, Tensor]) -> list[dict[str, Any]]:
        """{"types": [{"type": name, "probability": p}, ...]} of each mention, the likeliest first."""
        probabilities = self.model(batch).sigmoid()
        predictions = []
        for row, mask in zip(probabilities.cpu(), self.predictions(probabilities).cpu(), strict=True):
            index = mask.nonzero().squeeze(-1) if self.top_k is None else torch.arange(len(row))
            index = index[row[index].argsort(descending=True, stable=True)][: self.top_k]
            pairs = zip(index.tolist(), row[index].tolist(), strict=True)
            types = [{"type": self.names[k], "probability": rounded(p)} for k, p in pairs]
            predictions.append({"types": types})
        return predictions

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        if "exact" not in sums:  # of training batches, which have no metrics but the loss
            return {"loss": sums["loss"] / sums["examples"]}
        right = sums["exact"] if self.strict == "set" else sums["ordered"]
        metrics = {"loss": float(self._loss(sums, sums["examples"])), "accuracy": right / sums["examples"]}
        return metrics | typing_scores(sums, self.present)

    def _loss(self, sums: dict[str, Any], examples: float) -> Any:
        if self.objective == "bce":
            return sum(sums[f"bce/{name}"] for name in GRANULARITIES) / (examples * sum(self.group_sizes))
        parts = zip(GRANULARITIES, self.group_sizes, strict=True)
        entries = {name: sums[f"rows/{name}"] * size for name, size in parts}
        return sum(sums[f"bce/{name}"] / (n + (n == 0)) for name, n in entries.items())

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """Types, of models whose classifier has points for them."""
        points = getattr(self.model, "class_points", None)
        return {} if points is None or points.x is None else {"classes": NamedPoints(self.names, *points)}

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        return {"texts": Points(self.model.manifold, self.model.features(batch))}
