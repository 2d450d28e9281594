"""What every task is made of: a Lightning module that adds up its metrics exactly, and its data."""

import abc
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tasks.batches import Share, TrainBatches
from tasks.checkpoint_parts import Origin, check_counts, check_kinds, counts_by_name, numbers_by_name
from tasks.errors import UserError, one_of
from tasks.loggers import log_metrics
from tasks.outputs import LayerStates, NamedPoints, Points, Step
from tasks.random_state import random_state, set_random_state, shared_generator
from tasks.schedules import Schedule
from tasks.task_data import TaskData

__all__ = ["LayerStates", "NamedPoints", "Points", "Step", "Task", "TaskData", "as_task"]

LOWEST_IS_BEST = ("loss", "perplexity", "mean_rank")  # of the metrics' names
HIGHEST_IS_BEST = re.compile(
    r"accuracy|(\w+_)?(f1|precision|recall|spearman)|auc\w*|map|mrr|hits@\d+|bleu\w*|uuas|root|explained"
)


class Task(pl.LightningModule, abc.ABC):
    """A model, how its batches are scored, and which metric selects the best state.

    Metrics are made from sums over the examples of a split, added up in float64 without waiting for the device and
    over all processes once, at the end: so every example counts once, whatever the batches.

    metric_names: what `summary` gives. optimizer: called with this module, gives its optimiser. select: the metric, as
    "val/accuracy", whose best state is tested; one of `validated`. select_mode: "max" or "min".

    Several processes train as one (`tasks.gradients`), but for dropout, of which each draws its own. For that, other
    random numbers of a training step are drawn with the generator `draws` for the whole batch, and a process takes
    those of its examples, `self.own(numbers)`.
    """

    metric_names: tuple[str, ...] = ()
    learns_from: ClassVar[type] = object  # the class of data whose batches `step` takes
    reconstructs = False  # whether dev and test are the training data, so that learning them by heart is the aim

    def __init__(self, model: nn.Module, optimizer: Callable[[nn.Module], Optimizer], select: str, select_mode: str):
        super().__init__()
        one_of("task.module.select_mode", select_mode, ("max", "min"))
        one_of("task.module.select", select, tuple(f"val/{name}" for name in self.validated))
        metric = select.rpartition("/")[2]
        if select_mode == "max" and metric in LOWEST_IS_BEST:
            raise UserError(f"task.module.select={select} is best where it is lowest; add task.module.select_mode=min.")
        if select_mode == "min" and HIGHEST_IS_BEST.fullmatch(metric):
            raise UserError(f"task.module.select={select} is best where it is highest, with select_mode=max.")
        self.model = model
        self.optimizer = optimizer
        self.select, self.select_mode = select, select_mode
        self.metrics: dict[str, float] = {}  # the newest value of each
        self.diagnostics: dict[str, float] = {}  # those of the newest validation, where it was looked at (tasks.watch)
        self.schedule = Schedule()
        self.origin = Origin()
        self.vocabulary: dict[str, Any] | None = None  # of the data, for checkpoints (tasks.vocabularies.pack)
        self.counts: dict[str, int] = {}  # examples that the newest metrics of a split were made from
        self.latest_loss: Tensor | None = None
        self.has_started = False  # whether training has begun, so that a checkpoint to continue was taken over whole
        self.draws: torch.Generator | None = None  # the same in all of several processes; None: PyTorch's own, of one
        self.share: Share | None = None  # of the batch, in a training step of one of several processes
        self._weight: float | None = None  # of the batches whose gradients are being added up
        self._sums: dict[str, dict[str, Any]] = {}
        self._fresh_schedules: list[dict[str, Any]] = []  # as they are before a checkpoint is taken over

    @property
    def validated(self) -> tuple[str, ...]:
        """Those of `metric_names` that the validation split has."""
        return self.metric_names

    @abc.abstractmethod
    def step(self, batch: Any) -> Step:
        """Loss and sums of a batch."""

    @abc.abstractmethod
    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        """Metrics of a split from its sums (numbers, or float64 tensors on the CPU), named as in `metric_names`."""

    def points(self, batch: Any) -> dict[str, Points]:
        """Points that the model makes of a batch, by name, to be watched in the log. None unless a task gives some."""
        return {}

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """What the model has a point for, by kind: entities, relations, nodes, words, classes; the most important kind
        first. For `scripts/export.py`. None unless a task gives some.

        data: those that the model was trained with, which know the names.
        """
        return {}

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        """What mode=predict says of each example of a batch, in values that JSON has. Tasks that predict implement it,
        together with `TaskData.read_inputs` and `TaskData.encode`."""
        raise UserError(f"mode=predict: {type(self).__name__} makes no predictions.")

    def explain(self, batch: Any, texts: Sequence[Any]) -> list[dict[str, Any]]:
        """As `predict`, with the entry "explanation" of each example, in the form of `tasks.explanation`.

        texts: of the examples, what `TaskData.words_of` gives.
        """
        raise UserError(
            "explain=true is for documents, as those of encoder=han, and this task's answers have no explanations. "
            "Leave it out."
        )

    def layer_states(self, sentences: Sequence[Sequence[str]]) -> LayerStates:
        """The states of an encoder's layers for sentences that are cut into words: what task=probing looks into. A word
        that the encoder reads in pieces has their centroid, see `tasks.pieces`."""
        raise UserError(
            f"{type(self).__name__} has no layers with states of words, so there is nothing to probe; name the run of "
            "a translation with probe.checkpoint=..."
        )

    def export(self, folder: Path) -> dict[str, Path]:
        """Write what a training is for beside its record, as files by name; called once, with the selected state."""
        return {}

    def write_test(self, folder: Path) -> dict[str, Path]:
        """Write what a test gives beside its metrics, as files by name; called once after each test, in the main
        process."""
        return {}

    @property
    def measures(self) -> dict[str, str]:
        """How some of `metrics` were measured, by their names, where there is more than one way: for the record."""
        return {}

    def remarks(self) -> list[str]:
        """What a reader of the result has to know of the trained model, in sentences; called in the main process."""
        return []

    def configure_optimizers(self) -> Any:
        return self.schedule.configure(self.optimizer(self), lambda: self.trainer, self.select, self.select_mode)

    def own(self, x: Tensor) -> Tensor:
        """Of a tensor with a row for each example of the whole batch, the rows (B, ...) of this process's examples."""
        return x if self.share is None else x[self.share.place]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        counts = 1.0
        if self.trainer.world_size > 1:
            self.share = share = self._batches.share
            counts = share.weight
        step = self.step(batch)
        if self.share is not None:
            self.share = None
        self.__dict__["latest_loss"] = step.loss.detach()  # a module first looks whether it is a parameter: 10 us
        self._add("train", step if counts else step._replace(sums={name: 0 * v for name, v in step.sums.items()}))
        if self.trainer.accumulate_grad_batches == 1 and (step.weight is None or self.trainer.world_size == 1):
            return step.loss if counts == 1 else step.loss * counts
        weight = counts if step.weight is None else step.weight if counts else 0.0
        self._weight = (self._weight or 0.0) + weight
        return step.loss * weight

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self._weight is None:
            return
        # Lightning has divided each batch's loss by their number, and that of the processes by theirs
        batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        if self.trainer.world_size > 1:
            weight = torch.as_tensor(self._weight, dtype=torch.float64, device=self.device)
            total = float(self.trainer.strategy.reduce(weight, reduce_op="sum"))
        else:
            total = float(self._weight)
        scale, self._weight = batches / total if total else 0.0, None
        for parameter in self.parameters() if scale != 1 else ():
            if parameter.grad is not None:
                parameter.grad.mul_(scale)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._add("val", self.step(batch))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._add("test", self.step(batch))

    def on_train_epoch_end(self) -> None:
        self._finish("train")

    def on_validation_epoch_start(self) -> None:
        self._sums.pop("val", None)

    def on_validation_epoch_end(self) -> None:
        self._finish("val")
        if self.select not in self.metrics:  # of a part of the split
            names = ", ".join(name for name in self.metrics if name.startswith("val/"))
            raise UserError(f"task.module.select={self.select}: this validation has {names}; take one of these.")

    def on_test_epoch_start(self) -> None:
        self._sums.pop("test", None)

    def on_test_epoch_end(self) -> None:
        self._finish("test")

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether `value` of the selecting metric beats an earlier one; a tie does not."""
        return than is None or (value > than if self.select_mode == "max" else value < than)

    def examples_seen(self) -> float:
        """Training examples of this epoch that were added up so far, in this process."""
        return float(self._sums.get("train", {}).get("examples", 0))

    def _add(self, split: str, step: Step) -> None:
        if "examples" not in step.sums:
            name = type(self).__name__
            raise UserError(f"{name}.step: its sums {sorted(step.sums)} need `examples`, how many the batch has.")
        sums = self._sums.setdefault(split, {})
        for name, value in step.sums.items():
            total = sums.get(name, 0)
            if isinstance(total, Tensor):
                total += value.detach() if isinstance(value, Tensor) else value
            else:  # the first one, which stays as it is
                sums[name] = total + (value.detach().double() if isinstance(value, Tensor) else value)

    def _finish(self, split: str) -> None:
        names, values = zip(*sorted(self._sums.pop(split).items()), strict=True)
        parts = [torch.as_tensor(v, dtype=torch.float64, device=self.device) for v in values]
        total = torch.cat([v.reshape(-1) for v in parts])
        total = self.trainer.strategy.reduce(total, reduce_op="sum").cpu().split([v.numel() for v in parts])
        sums = {k: t.view(v.shape) if v.dim() else float(t) for k, t, v in zip(names, total, parts, strict=True)}
        self.counts[split] = int(sums["examples"])
        metrics = {f"{split}/{k}": v for k, v in self.summary(sums).items()}
        self.metrics.update(metrics)
        if self.select in metrics:  # where schedules and EarlyStopping look for it
            self.trainer.callback_metrics[self.select] = torch.tensor(metrics[self.select])
        log_metrics(self.trainer, metrics | (self.diagnostics if split == "val" else {}))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint |= {field.name: getattr(self.origin, field.name) for field in fields(self.origin)}
        if self.vocabulary is not None:
            checkpoint["vocabulary"] = self.vocabulary
        checkpoint["metrics"] = dict(self.metrics)
        if "optimizer_states" in checkpoint:  # not the weights alone
            sums = {k: float(v) for k, v in self._sums.get("train", {}).items()}
            checkpoint["processes"] = self._gather({"sums": sums, "random": random_state(self.device)})
            if self.draws is not None:
                checkpoint["draws"] = self.draws.get_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.metrics = numbers_by_name(checkpoint.get("metrics", {}), "metrics")
        self._drawn = checkpoint.get("draws")
        processes, world = checkpoint["processes"], self.trainer.world_size
        all_sums = [numbers_by_name(process["sums"], "sums") for process in processes]
        for sums in all_sums:
            counts_by_name({"examples": sums.get("examples", 0)}, "sums")
        if len(processes) == world:
            sums, self._random = all_sums[self.trainer.global_rank], processes[self.trainer.global_rank]["random"]
        else:  # each takes an equal share
            sums = {k: sum(own[k] for own in all_sums) / world for k in all_sums[0]}
        self._sums = {"train": sums} if sums else {}
        check_counts(checkpoint["loops"])
        loop = checkpoint["loops"]["fit_loop"]
        within = not loop["epoch_loop.batch_progress"]["is_last_batch"]
        self._given = loop["state_dict"].get("combined_loader", []) if within else []

    def _gather(self, value: Any) -> list[Any]:
        """The value of each process, in all of them."""
        values = [value] * self.trainer.world_size
        if self.trainer.world_size > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def on_fit_start(self) -> None:
        configured = self.trainer.lr_scheduler_configs
        self._fresh_schedules = [deepcopy(each.scheduler.state_dict()) for each in configured]

    def on_train_start(self) -> None:
        for place, fresh in enumerate(self._fresh_schedules):
            check_kinds(self.trainer.lr_scheduler_configs[place].scheduler.state_dict(), fresh)
        # Lightning does so too, but not where the number of steps was asked for before, as schedules do
        for state in self.__dict__.pop("_given", []):
            self._batches.load_state_dict(state)
        if self.trainer.world_size > 1:
            self.draws = shared_generator(self.device, self.trainer.global_rank, self.__dict__.pop("_drawn", None))
        if state := self.__dict__.pop("_random", None):
            set_random_state(state, self.device)
        self.has_started = True

    @property
    def _batches(self) -> TrainBatches:
        batches = self.trainer.train_dataloader
        assert isinstance(batches, TrainBatches)
        return batches


def as_task(module: pl.LightningModule) -> Task:
    """The module that Lightning hands to a callback; here it is always a task."""
    assert isinstance(module, Task)
    return module
