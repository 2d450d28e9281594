"""Training on pairs and drawn nodes, and how well the hierarchy can be read off the distances."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR

from hyperbolic.manifolds import PoincareBall
from hyperbolic.manifolds.charts import convert
from tasks.base import NamedPoints, Points, Step, Task, TaskData
from tasks.errors import UserError, number, whole
from tasks.local_paths import user_path
from tasks.names import NO_NAME
from tasks.outputs import rounded
from tasks.poincare_embeddings.data import HierarchyData
from tasks.poincare_embeddings.model import NodeEmbeddings
from tasks.poincare_embeddings.pairs import Ancestors, excluded_pairs, ranks
from tasks.points_files import write_points
from tasks.schedules import FALLING

FARTHER_OUT = 0.05  # the share of pairs whose is-a scores have the wrong sign from which on a run says so


class EmbeddingTask(Task):
    """Reconstruction of a hierarchy: are the nodes above a node the nearest to it?

    Metrics (Nickel & Kiela 2017, Table 1): map, the mean over nodes of the average precision with which its ancestors
    are found by distance among all nodes; mean_rank, the mean over pairs of the place of the ancestor among itself and
    the nodes that are no ancestors.

    ancestors, source: from the data. negatives: nodes drawn for a batch, the same for all its pairs. dampening: they
    are drawn with probabilities (1 + pairs with this ancestor)^dampening; 0: uniformly. burn_in_epochs, burn_in_factor:
    at the start the learning rate is this part of itself. burn_in_dampening: that of these epochs; None: `dampening`.
    lazy: the optimiser moves only the rows that a batch uses.
    top_k: how many of the nearest nodes `predict` names.
    file: where the points are written at the end, besides the run's folder; {source} in it stands for the data's name;
    None: nowhere else.
    The others are Task's.
    """

    learns_from = HierarchyData
    metric_names = ("map", "mean_rank", "loss")
    reconstructs = True
    model: NodeEmbeddings

    def __init__(
        self,
        model: NodeEmbeddings,
        optimizer: Callable[..., Optimizer],
        ancestors: Ancestors,
        source: str,
        negatives: int,
        dampening: float,
        burn_in_epochs: int,
        burn_in_factor: float,
        burn_in_dampening: float | None,
        lazy: bool,
        file: str | None,
        select: str,
        select_mode: str,
        top_k: int,
    ):
        super().__init__(model, functools.partial(optimizer, lazy=lazy), select, select_mode)
        self.top_k = whole("task.module.top_k", top_k, 1)
        self.negatives = whole("task.module.negatives", negatives, 1)
        self.burn_in_epochs = whole("task.module.burn_in_epochs", burn_in_epochs, 0)
        if not 0 < burn_in_factor <= 1:
            raise UserError(f"task.module.burn_in_factor must be above 0 and at most 1, and it is {burn_in_factor}.")
        self.dampening = number("task.module.dampening", dampening)
        first = dampening if burn_in_dampening is None else burn_in_dampening
        self.burn_in_dampening = number("task.module.burn_in_dampening", first)
        self.burn_in_factor, self.ancestors = burn_in_factor, ancestors
        self.file = None if file is None else user_path(file.replace("{source}", source))
        counts = 1 + torch.bincount(ancestors.nodes, minlength=len(model.names)).double()
        self._cumulated = {a: counts.pow(a).cumsum(0) for a in {self.dampening, self.burn_in_dampening} if a}
        self._slots = torch.full((len(model.names),), -1)
        self._all: Tensor | None = None  # coordinates of all points, while they are measured

    @property
    def validated(self) -> tuple[str, ...]:
        return ("map", "mean_rank")

    def configure_optimizers(self) -> Any:
        configured = super().configure_optimizers()
        if not self.burn_in_epochs or self._trainer is None:
            return configured
        factors = ("constant", *FALLING)  # schedules that multiply the rate of the step before
        if self.schedule.name not in factors or self.schedule.warmup_steps:
            raise UserError(
                f"task.module.burn_in_epochs={self.burn_in_epochs} goes with optim.schedule={'|'.join(factors)} and "
                f"optim.warmup_steps=0; the schedule is {self.schedule.name} with {self.schedule.warmup_steps} steps. "
                "Set task.module.burn_in_epochs=0 to train with it."
            )
        has_schedule = isinstance(configured, dict)
        optimizer = configured["optimizer"] if has_schedule else configured
        schedulers = [configured["lr_scheduler"]["scheduler"]] if has_schedule else []
        self.trainer.fit_loop.setup_data()  # without it the batches of an epoch are not counted yet
        epoch = -(-int(self.trainer.num_training_batches) // self.trainer.accumulate_grad_batches)
        schedulers.append(ConstantLR(optimizer, self.burn_in_factor, total_iters=epoch * self.burn_in_epochs))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": ChainedScheduler(schedulers), "interval": "step"}}

    def step(self, batch: dict[str, Tensor]) -> Step:
        return self._training(batch) if "children" in batch else self._evaluation(batch)

    def _training(self, batch: dict[str, Tensor]) -> Step:
        children = batch["children"]
        self._move_to(children.device)
        negatives = self._draw_negatives()
        excluded = excluded_pairs(children, negatives, self.ancestors, self._slots)
        loss = self.model(children, batch["parents"], negatives, excluded)
        return Step(loss, {"examples": len(children), "loss": loss.detach() * len(children)})

    def _draw_negatives(self) -> Tensor:
        """Different nodes, at most `negatives`."""
        draws, device = self.draws, self._slots.device
        is_first = self.current_epoch < self.burn_in_epochs
        cumulated = self._cumulated.get(self.burn_in_dampening if is_first else self.dampening)
        if cumulated is not None:
            numbers = torch.rand(self.negatives, dtype=torch.float64, device=device, generator=draws)
            return torch.searchsorted(cumulated, numbers * cumulated[-1]).clamp_max(len(self._slots) - 1).unique()
        return torch.randint(len(self._slots), (self.negatives,), device=device, generator=draws).unique()

    def _move_to(self, device: torch.device) -> None:
        if self._slots.device != device:
            self._slots = self._slots.to(device)
            self._cumulated = {a: cumulated.to(device) for a, cumulated in self._cumulated.items()}
        self.ancestors = self.ancestors.to(device)

    def _evaluation(self, batch: dict[str, Tensor]) -> Step:
        nodes = batch["nodes"]
        self._move_to(nodes.device)
        self._all = self.model.all_coordinates() if self._all is None else self._all
        rank_sum, precision = ranks(self.model.order(nodes, self._all), nodes, self.ancestors)
        pairs = (self.ancestors.offsets[nodes + 1] - self.ancestors.offsets[nodes]).sum()
        sums = {"precision": precision.sum(), "ranks": rank_sum.sum(), "pairs": pairs}
        return Step(precision.new_zeros(()), {"examples": len(nodes), **sums})

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._all = None

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self._all = None

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        if "pairs" not in sums:
            return {"loss": sums["loss"] / sums["examples"]}
        return {"map": sums["precision"] / sums["examples"], "mean_rank": sums["ranks"] / sums["pairs"]}

    def remarks(self) -> list[str]:
        lines = [
            "val/... and test/... are of the pairs that were trained on: they say how well distances reconstruct the "
            "hierarchy, and nothing of pairs that it lacks."
        ]
        if (share := self.model.share_farther_out(self.ancestors)) > FARTHER_OUT:
            lines.append(
                f"{share:.0%} of what is above a node lies farther from the origin than the node itself, and is_a of "
                "such a pair (mode=predict) has the wrong sign. Try more epochs or dimensions (task.dim)."
            )
        return lines

    def predict(self, batch: dict[str, Tensor]) -> list[dict[str, Any]]:
        """Of a node {"nearest": [{"node": name, "distance": d}, ...]}; of a pair {"distance": d, "is_a": score}, see
        `NodeEmbeddings.is_a`."""
        nodes, others = batch["nodes"], batch["others"]
        predictions: list[dict[str, Any]] = [{}] * len(nodes)
        for row, answer in self._nearest(nodes, (others == NO_NAME).nonzero().squeeze(-1)):
            predictions[row] = {"nearest": answer}
        pairs = (others != NO_NAME).nonzero().squeeze(-1)
        if not len(pairs):
            return predictions
        columns = [column.tolist() for column in self.model.is_a(nodes[pairs], others[pairs])]
        for row, distance, score in zip(pairs.tolist(), *columns, strict=True):
            predictions[row] = {"distance": rounded(distance), "is_a": rounded(score)}
        return predictions

    def _nearest(self, nodes: Tensor, rows: Tensor) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Of some rows of a batch the nodes that are nearest, without the node itself."""
        if not len(rows):
            return
        queries, points = nodes[rows], self.model.points.double()
        order = self.model.order(queries, self.model.all_coordinates())
        order[torch.arange(len(queries), device=queries.device), queries] = torch.inf
        places = order.topk(min(self.top_k, order.shape[1] - 1), largest=False).indices
        distances = self.model.manifold.dist(points[queries].unsqueeze(1), points[places])
        for row, near, far in zip(rows.tolist(), places.tolist(), distances.tolist(), strict=True):
            names = (self.model.names[k] for k in near)
            pairs = zip(names, far, strict=True)
            yield row, [{"node": name, "distance": rounded(d)} for name, d in pairs]

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        nodes = batch["children" if "children" in batch else "nodes"]
        return {"nodes": Points(self.model.manifold, self.model.table(nodes))}

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        return {"nodes": NamedPoints(self.model.names, self.model.manifold, self.model.points)}

    @torch.no_grad()
    def export(self, folder: Path) -> dict[str, Path]:
        """Write the points by name, those of a curved space in the coordinates of the ball, into the run's folder and
        to `file` (see `tasks.points_files`), which all runs of one size share; a line says so where it is replaced."""
        manifold, points = self.model.manifold, self.model.points.double()
        name, c = type(manifold).__name__, 0.0
        if manifold.is_curved:
            points = convert(points, manifold, manifold.twin(PoincareBall))
            name, c = PoincareBall.__name__, float(manifold.c.detach())
        array = np.asarray(points.cpu())
        places = {"points": folder / "points.npz"}
        if self.file is not None:
            if self.file.exists():
                rank_zero_only(print)(f"{self.file} is replaced by the points of this run, {folder}.", flush=True)
            places["embeddings"] = self.file
        return {key: write_points(path, self.model.names, array, name, c) for key, path in places.items()}
