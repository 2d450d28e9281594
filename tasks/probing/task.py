"""Training and evaluation of structural probes: L1 on distances and depths, four metrics for each layer."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from tasks.base import Step, Task
from tasks.errors import UserError
from tasks.outputs import rounded
from tasks.probing.data import ProbingData
from tasks.probing.metrics import LENGTHS, mean_over_lengths, root, spearman
from tasks.probing.model import LayerProbes
from tasks.probing.trees import heads_of, spanning_trees

ORDER = "word_order"  # the group of metrics of a chain of the words, each at its place: what a probe must be above


def probe_loss(distances: Tensor, depths: Tensor, batch: dict[str, Any]) -> Tensor:
    """``sum_ij |d_T(i, j) - distances_ij| / l^2 + sum_i |depth_T(i) - depths_i| / l`` for sentences of l words
    (Hewitt & Manning 2019; Chen et al., HyboNet, C.4).

    distances (B, W, W), depths (B, W): of a probe. batch: of the data, with the gold ones. Returns (B,).
    """
    inside = batch["mask"].to(distances.dtype)
    pairs = inside.unsqueeze(-1) * inside.unsqueeze(-2)
    length = inside.sum(-1)
    apart = ((distances - batch["distances"]).abs() * pairs).sum((-2, -1)) / length.square()
    return apart + ((depths - batch["depths"]).abs() * inside).sum(-1) / length


class ProbingTask(Task):
    """How well are dependency trees recovered from the states of an encoder's layers?

    Metrics of each layer (val/layer_3/uuas): uuas, the share of the gold tree's edges that the minimum spanning tree of
    the probe's distances has; distance_spearman; root, the share of sentences whose root is the word nearest to the
    origin; depth_spearman; loss. Without a layer (val/uuas) they are those of the layer that was best on the validation
    split by the metric that selects. Words that are punctuation have no edges and are no roots; they count in
    correlations. `tasks.probing.metrics` has the definitions.

    layers: the numbers of the layers, from the data.
    """

    learns_from = ProbingData
    metric_names = ("uuas", "distance_spearman", "root", "depth_spearman", "loss")
    model: LayerProbes
    best: Tensor  # which of the layers was best on the validation split

    def __init__(
        self,
        model: LayerProbes,
        optimizer: Callable[..., Optimizer],
        layers: Sequence[int],
        select: str,
        select_mode: str,
    ):
        super().__init__(model=model, optimizer=optimizer, select=select, select_mode=select_mode)
        self.layers = tuple(layers)
        self.chooses = False  # whether metrics are those of a validation, which says which layer is best
        self.register_buffer("best", torch.zeros((), dtype=torch.long))

    def step(self, batch: dict[str, Any]) -> Step:
        predictions = self.model(batch["states"])
        losses = torch.stack([probe_loss(pairs, depths, batch) for pairs, depths in predictions])  # (L, B)
        count = losses.shape[1]
        sums: dict[str, Any] = {"examples": count}
        sums |= {f"loss_{k}": loss for k, loss in zip(self.layers, losses.detach().sum(1), strict=True)}
        if not self.training:
            distances, depths = (_array(each) for each in zip(*predictions, strict=True))
            places = np.broadcast_to(np.arange(depths.shape[-1], dtype=float), depths.shape[1:])
            chains = np.abs(places[..., None] - places[..., None, :])
            counted = _sums(np.append(distances, chains[None], 0), np.append(depths, places[None], 0), batch)
            sums |= {name: torch.as_tensor(value, device=losses.device) for name, value in counted.items()}
        return Step(losses.sum(0).mean(), sums)

    def predict(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        """The tree of each sentence by the layer that was best: {"heads": of each word the number of its head, from 1,
        0 of the root, null of punctuation, "depths": squared distances from the origin, "layer": its number}. The
        edges are those of the minimum spanning tree of the distances; they hang below the root."""
        best = self._best_layer()
        distances, depths = (_array([each])[0] for each in self.model(batch["states"])[best])
        mask, punctuation = (batch[name].cpu().numpy() for name in ("mask", "punctuation"))
        counted = mask & ~punctuation
        trees = spanning_trees(distances, counted)
        predictions = []
        for k, n in enumerate(mask.sum(-1)):
            top = root(depths[k, :n], counted[k, :n])
            rounded_depths = [rounded(depth) for depth in depths[k, :n].tolist()]
            tree = zip(heads_of(trees[k, :n, :n], top), counted[k, :n], strict=True)
            heads = [head if counts else None for head, counts in tree]  # of punctuation alone there is no root either
            predictions.append({"heads": heads, "depths": rounded_depths, "layer": self.layers[best]})
        return predictions

    def remarks(self) -> list[str]:
        """That the best layer finds fewer edges than who joins each word with the next."""
        own, chain = self.metrics.get("test/uuas", 1.0), self.metrics.get(f"test/{ORDER}/uuas", 0.0)
        if own >= chain:
            return []
        return [
            f"little of trees was found: test/uuas is {own:.3f}, and a chain of the words ({ORDER}) has {chain:.3f}. "
            "Try more epochs, another optim.lr, or a checkpoint of a model that was trained for longer."
        ]

    def _best_layer(self) -> int:
        """The place of the best layer among `layers`. Raises UserError where a checkpoint names none of them."""
        if not 0 <= (best := int(self.best)) < len(self.layers):
            raise UserError(
                f"The checkpoint names layer {best} of {len(self.layers)} as the best one, so it is damaged. Use "
                "another one."
            )
        return best

    def on_validation_epoch_end(self) -> None:
        self.chooses = True
        super().on_validation_epoch_end()
        self.chooses = False

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        metrics = {"loss": [float(sums[f"loss_{k}"]) / sums["examples"] for k in self.layers]}
        if "edges" in sums:
            counts = sums["lengths"].numpy()
            metrics |= {
                "uuas": (sums["shared"] / max(sums["edges"], 1)).tolist(),
                "root": (sums["roots"] / sums["examples"]).tolist(),
                "distance_spearman": mean_over_lengths(sums["distance_spearman"].numpy(), counts).tolist(),
                "depth_spearman": mean_over_lengths(sums["depth_spearman"].numpy(), counts).tolist(),
            }
        order = {f"{ORDER}/{name}": values.pop() for name, values in metrics.items() if len(values) > len(self.layers)}
        if self.chooses:
            values = metrics[self.select.partition("/")[2]]
            self.best.fill_(values.index(max(values) if self.select_mode == "max" else min(values)))
        best = self._best_layer()
        chosen = {name: metrics[name][best] for name in self.metric_names if name in metrics}
        if len(self.layers) == 1:
            return chosen | order
        each = {f"layer_{k}/{name}": metrics[name][at] for at, k in enumerate(self.layers) for name in chosen}
        return each | (chosen | order if "edges" in sums else {})  # in training none is chosen


def _array(predictions: Sequence[Tensor]) -> np.ndarray:
    return torch.stack(list(predictions)).detach().double().cpu().numpy()


def _sums(distances: np.ndarray, depths: np.ndarray, batch: dict[str, Any]) -> dict[str, Any]:
    """Over the sentences of a batch, what the metrics are made from; arrays for L layers.

    distances (L, B, W, W), depths (L, B, W): of the probes.
    """
    mask, punctuation, gold, gold_depths = (
        batch[name].cpu().numpy() for name in ("mask", "punctuation", "distances", "depths")
    )
    counted = mask & ~punctuation
    every = np.concatenate([distances, gold[None]])
    trees = spanning_trees(every, np.broadcast_to(counted, every.shape[:-1]))
    roots = np.zeros(len(depths))
    correlations = np.zeros((2, len(depths), len(LENGTHS)))
    lengths = np.zeros(len(LENGTHS))
    for k, n in enumerate(mask.sum(-1)):
        right = int(gold_depths[k, :n].argmin())
        roots += [root(own[k, :n], counted[k, :n]) == right for own in depths]
        if n in LENGTHS:
            lengths[n - LENGTHS.start] += 1
            rows = spearman(distances[:, k, :n, :n], gold[k, :n, :n]).mean(-1)
            correlations[:, :, n - LENGTHS.start] += rows, spearman(depths[:, k, :n], gold_depths[k, :n])
    return {
        "shared": (trees[:-1] & trees[-1]).sum((1, 2, 3)),
        "edges": int(trees[-1].sum()),
        "roots": roots,
        "lengths": lengths,
        "distance_spearman": correlations[0],
        "depth_spearman": correlations[1],
    }
