"""Training and evaluation of translations: loss a piece, perplexity, accuracy."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from tasks.base import Points, Step, Task
from tasks.errors import rate
from tasks.translation.model import Translator


class TranslationTask(Task):
    """The next piece of the target from the source and the target's pieces before it.

    The training loss is the mean over all pieces of a batch, with the end of each target, of
    ``-(1 - eps) log p_label - eps mean_k log p_k``, eps = label_smoothing (Szegedy et al. 2016; Vaswani et al. 2017,
    section 5.4). Metrics of evaluated splits: loss, the mean of ``-log p_label`` without smoothing; perplexity, its
    exponential; accuracy, the share of pieces that are the likeliest one. Of train: loss, as it is trained.

    label_smoothing: from 0 to less than 1. Batches are those of `data.PairSplit`. The others are Task's.
    """

    model: Translator
    metric_names = ("loss", "perplexity", "accuracy")

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[nn.Module], Optimizer],
        select: str,
        select_mode: str,
        label_smoothing: float,
    ):
        super().__init__(model, optimizer, select, select_mode)
        self.label_smoothing = rate("task.module.label_smoothing", label_smoothing)

    def step(self, batch: dict[str, Tensor]) -> Step:
        """Its weight is the number of pieces."""
        lengths = batch["source_lengths"]
        states = self.model.states(batch["target"], self.model.encode(batch["source"], lengths), lengths)
        place = torch.arange(batch["target"].shape[1], device=states.device)
        inside = place < batch["target_lengths"].unsqueeze(1)
        points, labels = states[inside], batch["labels"][inside]
        n = len(labels)
        sums: dict[str, Any] = {"examples": len(lengths), "pieces": n}
        if self.training:
            cross_entropy: Any = self.model.classifier.cross_entropy
            loss = cross_entropy(points, labels, self.label_smoothing)
        else:
            logits = self.model.classifier(points)
            loss = F.cross_entropy(logits, labels)
            sums["right"] = (logits.argmax(-1) == labels).sum()
        return Step(loss, sums | {"loss": loss * n}, weight=float(n))

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        loss = sums["loss"] / sums["pieces"]
        if "right" not in sums:
            return {"loss": loss}
        return {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": sums["right"] / sums["pieces"]}

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        """What the encoder makes of the sources, without padding."""
        lengths = batch["source_lengths"]
        memory = self.model.encode(batch["source"], lengths)
        inside = torch.arange(memory.shape[1], device=memory.device) < lengths.unsqueeze(1)
        return {"source": Points(self.model.decoder_manifold, memory[inside])}
