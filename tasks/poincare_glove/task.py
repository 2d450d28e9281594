"""Training GloVe, its loss and what part of the counts it explains, and the file of vectors at the end."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from hyperbolic.manifolds import PoincareBall
from hyperbolic.manifolds.charts import convert
from tasks.base import NamedPoints, Points, Step, Task, TaskData
from tasks.errors import positive, whole
from tasks.names import NO_NAME
from tasks.outputs import rounded
from tasks.poincare_glove.data import PoincareGloveData
from tasks.poincare_glove.model import PoincareGlove
from tasks.vector_files import write_vectors


def weight(counts: Tensor, x_max: float, alpha: float) -> Tensor:
    """f(X) = min(1, (X / x_max)^alpha) (Pennington et al. 2014, Eq. 9)."""
    return (counts / x_max).clamp_max(1).pow(alpha)


class PoincareGloveTask(Task):
    """The mean over pairs of f(X_ij) (-h(d(w_i, w~_j)) + b_i + b~_j - log X_ij)^2 (Tifrea et al. 2019, Eq. 3).

    Metrics, on pairs that are not trained on: loss, the same mean; explained, the share of the variance of log X, pairs
    weighted with f, that the model explains: 1 is perfect, 0 is what a constant does.

    x_max, alpha: of f. lazy: the optimiser moves only the rows that a batch uses. top_k: how many of the nearest words
    `predict` names.
    """

    learns_from = PoincareGloveData
    metric_names = ("loss", "explained")
    model: PoincareGlove

    def __init__(
        self,
        model: PoincareGlove,
        optimizer: Callable[..., Optimizer],
        select: str,
        select_mode: str,
        x_max: float,
        alpha: float,
        lazy: bool,
        top_k: int,
    ):
        super().__init__(model, functools.partial(optimizer, lazy=lazy), select, select_mode)
        self.top_k = whole("task.module.top_k", top_k, 1)
        self.x_max, self.alpha = positive("task.module.x_max", x_max), positive("task.module.alpha", alpha)

    def step(self, batch: dict[str, Tensor]) -> Step:
        counts = batch["counts"].double()
        logs, f = counts.log(), weight(counts, self.x_max, self.alpha)
        errors = f * (self.model(batch["words"], batch["contexts"]) - logs).square()
        sums = {
            "loss": errors.detach().sum(),
            "f": f.sum(),
            "logs": (f * logs).sum(),
            "squares": (f * logs * logs).sum(),
        }
        return Step(errors.mean(), {"examples": len(counts), **sums})

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        variance = sums["squares"] - sums["logs"] ** 2 / sums["f"]
        explained = 1 - sums["loss"] / variance if variance > 0 else 0.0
        return {"loss": sums["loss"] / sums["examples"], "explained": explained}

    def predict(self, batch: dict[str, Tensor]) -> list[dict[str, Any]]:
        """Of a word {"nearest": [{"word": name, "distance": d}, ...]}; of a pair {"log_count": of how often they stand
        together, "distance": d of the two words}. Distances are at curvature -1, as the model's are."""
        words, contexts, manifold = batch["words"], batch["contexts"], self.model.manifold
        points, root = self.model.points(), float(manifold.c.sqrt()) if manifold.is_curved else 1.0
        predictions: list[dict[str, Any]] = []
        for word, context in zip(words, contexts, strict=True):
            if context != NO_NAME:
                log_count = float(self.model(word.view(1), context.view(1)))
                distance = root * float(manifold.dist(points[word], points[context]))
                predictions.append({"log_count": rounded(log_count), "distance": rounded(distance)})
                continue
            distances = root * manifold.dist(points[word], points)
            distances[word] = torch.inf
            near = distances.topk(min(self.top_k, len(points) - 1), largest=False)
            pairs = zip(near.indices.tolist(), near.values.tolist(), strict=True)
            nearest = [{"word": self.model.words[k], "distance": rounded(d)} for k, d in pairs]
            predictions.append({"nearest": nearest})
        return predictions

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        return {"words": Points(self.model.manifold, self.model.word(batch["words"]))}

    def remarks(self) -> list[str]:
        """That the model explains less than a constant does."""
        explained = self.metrics.get("test/explained", 0.0)
        if explained >= 0:
            return []
        return [
            f"nothing was learned of words together: test/explained is {explained:.2f}, and a constant has 0. Try more "
            "epochs, another optim.lr or a larger text; a smaller task.data.min_count keeps more words of a small one."
        ]

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        return {"words": NamedPoints(self.model.words, self.model.manifold, self.model.points())}

    @torch.no_grad()
    def export(self, folder: Path) -> dict[str, Path]:
        """Write the vectors in the format that `tasks.word_vectors.read_vectors` reads, words by falling frequency:
        vectors.poincare.<d>d.txt, points of the ball of curvature -1, or vectors.euclidean.<d>d.txt."""
        model, manifold, points = self.model, self.model.manifold, self.model.points()
        space = "euclidean"
        if manifold.is_curved:
            space = "poincare"
            points = convert(points, manifold, manifold.twin(PoincareBall)).double() * manifold.c.detach().sqrt()
        path = folder / f"vectors.{space}.{model.d}d.txt"
        write_vectors(path, model.words, np.asarray(points.cpu()))
        return {"vectors": path}
