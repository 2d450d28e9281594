"""What every task is made of: a Lightning module that adds up its metrics exactly, and its data."""

import abc
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hyperbolic.manifolds.base import Manifold
from tasks.batches import SHUFFLES, EvaluationBatches, Split, TokenBatches, TrainBatches
from tasks.errors import UserError, one_of, whole
from tasks.schedules import Schedule


class Step(NamedTuple):
    """What one batch gives: the mean loss to differentiate, and sums (a number or tensor each) to add up.

    The sums need "examples", how many examples the batch has. Those of training batches are single numbers.
    weight: how many items (as tokens) the loss is the mean of. Where it is given, a step over several batches
    (accumulate_grad_batches, or one in each process) follows the mean over all their items, ``sum_b w_b L_b / sum_b
    w_b``; otherwise every batch counts the same.
    """

    loss: Tensor
    sums: dict[str, Any]
    weight: float | None = None


class Points(NamedTuple):
    """Points (..., D) and the manifold they lie on."""

    manifold: Manifold
    x: Tensor


@dataclass(frozen=True)
class Origin:
    """Where a state of a task comes from; every checkpoint keeps it, and it alone rebuilds the task.

    experiment: its name, or None. name: of the folder of its runs. config: the resolved configuration as plain values
    (`configs.stored` says how). data: what the model's rows stand for (`TaskData.identity`).
    """

    experiment: str | None = None
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)


class Task(pl.LightningModule, abc.ABC):
    """A model, how its batches are scored, and which metric selects the best state.

    Metrics are made from sums over the examples of a split, added up in float64 without waiting for the device and
    over all processes once, at the end: so every example counts once, whatever the batches.

    metric_names: what `summary` gives. optimizer: called with this module, gives its optimiser. select: the metric, as
    "val/accuracy", whose best state is tested; one of `validated`. select_mode: "max" or "min".
    """

    metric_names: tuple[str, ...] = ()

    def __init__(self, model: nn.Module, optimizer: Callable[[nn.Module], Optimizer], select: str, select_mode: str):
        super().__init__()
        one_of("task.module.select_mode", select_mode, ("max", "min"))
        one_of("task.module.select", select, tuple(f"val/{name}" for name in self.validated))
        self.model = model
        self.optimizer = optimizer
        self.select, self.select_mode = select, select_mode
        self.metrics: dict[str, float] = {}  # the newest value of each
        self.schedule = Schedule()
        self.origin = Origin()
        self.counts: dict[str, int] = {}  # examples that the newest metrics of a split were made from
        self.latest_loss: Tensor | None = None
        self.has_started = False  # whether training has begun, so that a checkpoint to continue was taken over whole
        self._weight: float | None = None  # of the batches whose gradients are being added up
        self._sums: dict[str, dict[str, Any]] = {}

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

    def predict(self, batch: Any) -> list[dict[str, Any]]:
        """What mode=predict says of each example of a batch, in values that JSON has. Tasks that predict implement it,
        together with `TaskData.read_inputs` and `TaskData.encode`."""
        raise UserError(f"mode=predict: {type(self).__name__} makes no predictions.")

    def export(self, folder: Path) -> dict[str, Path]:
        """Write what a training is for beside its record, as files by name; called once, with the selected state."""
        return {}

    def configure_optimizers(self) -> Any:
        return self.schedule.configure(self.optimizer(self), lambda: self.trainer, self.select, self.select_mode)

    def on_fit_start(self) -> None:
        if getattr(self.model, "sparse", False) and self.trainer.world_size > 1:
            raise UserError(
                f"task.model.sparse=true is for one process, and there are {self.trainer.world_size}; add "
                "task.model.sparse=false."
            )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        step = self.step(batch)
        self.latest_loss = step.loss.detach()
        self._add("train", step)
        if step.weight is None:
            return step.loss
        self._weight = (self._weight or 0.0) + step.weight
        return step.loss * step.weight

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self._weight is None:  # no task gives weights in some steps alone
            return
        # Lightning has divided each batch's loss by their number, and DDP the sum of gradients by its processes
        batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        weight = torch.as_tensor(self._weight, dtype=torch.float64, device=self.device)
        total = float(self.trainer.strategy.reduce(weight, reduce_op="sum"))
        scale, self._weight = batches / total if total else 0.0, None
        for parameter in self.parameters():
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
        sums = self._sums.setdefault(split, {})
        for name, value in step.sums.items():
            value = value.detach().double() if isinstance(value, Tensor) else value
            sums[name] = sums[name] + value if name in sums else value

    def _finish(self, split: str) -> None:
        names, values = zip(*sorted(self._sums.pop(split).items()), strict=True)
        parts = [torch.as_tensor(v, dtype=torch.float64, device=self.device) for v in values]
        total = torch.cat([v.reshape(-1) for v in parts])
        total = self.trainer.strategy.reduce(total, reduce_op="sum").cpu().split([v.numel() for v in parts])
        sums = {k: t.view(v.shape) if v.dim() else float(t) for k, t, v in zip(names, total, parts, strict=True)}
        self.counts[split] = int(sums["examples"])
        metrics = {f"{split}/{k}": v for k, v in self.summary(sums).items()}
        self.metrics.update(metrics)
        self.log_dict(metrics, sync_dist=self.trainer.world_size > 1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint |= asdict(self.origin)
        checkpoint["metrics"] = dict(self.metrics)
        checkpoint["sums"] = {k: float(v) for k, v in self._sums.get("train", {}).items()}
        checkpoint["rng"] = _random_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.metrics = dict(checkpoint.get("metrics", {}))
        self._sums = {"train": dict(checkpoint["sums"])} if checkpoint.get("sums") else {}
        self._restore = checkpoint.get("rng")
        loop = checkpoint["loops"]["fit_loop"]
        within = not loop["epoch_loop.batch_progress"]["is_last_batch"]
        self._given = loop["state_dict"].get("combined_loader", []) if within else []

    def on_train_start(self) -> None:
        # Lightning does so too, but not where the number of steps was asked for before, as schedules do
        for state in self.__dict__.pop("_given", []):
            batches = self.trainer.train_dataloader
            assert isinstance(batches, TrainBatches)
            batches.load_state_dict(state)
        if self.trainer.world_size > 1:  # each process draws its own numbers
            torch.manual_seed((torch.initial_seed() + self.trainer.global_rank) % 2**63)
        if (state := self.__dict__.pop("_restore", None)) and self.trainer.world_size == 1:
            _set_random_state(state)
        self.has_started = True


def as_task(module: pl.LightningModule) -> Task:
    """The module that Lightning hands to a callback; here it is always a task."""
    assert isinstance(module, Task)
    return module


class TaskData(pl.LightningDataModule, abc.ABC):
    """The splits train, dev and test of a task, held as tensors, and their batches.

    shuffle: one of SHUFFLES (TrainBatches says what they mean). batch_size: of a whole training batch, shared
    by all processes. eval_batch_size: most examples of an evaluation batch. seed: of the order of the batches.
    batch_tokens: also most words of a training batch after padding, with shuffle=buckets (TokenBatches); None: any.
    """

    def __init__(
        self, shuffle: str, batch_size: int, eval_batch_size: int, seed: int, batch_tokens: int | None = None
    ):
        super().__init__()
        self.shuffle = one_of("task.data.shuffle", shuffle, SHUFFLES)
        self.batch_tokens = None if batch_tokens is None else whole("task.data.batch_tokens", batch_tokens, 1)
        if batch_tokens is not None and shuffle != "buckets":
            raise UserError(f"task.data.batch_tokens needs task.data.shuffle=buckets, and it is {shuffle}.")
        self.batch_size = whole("task.data.batch_size", batch_size, 1)
        self.eval_batch_size = whole("task.data.eval_batch_size", eval_batch_size, 1)
        self.seed = whole("seed", seed, 0)
        self._splits: dict[str, Split] = {}

    @property
    @abc.abstractmethod
    def model_sizes(self) -> dict[str, Any]:
        """What the data decide and the model may take as keywords: sizes, as {"n_words": 101, "n_classes": 2}, or
        tables of words and types."""

    @property
    def identity(self) -> dict[str, str]:
        """What the model's rows stand for and its weights do not say, by name, as the sha256 of the words or types: a
        checkpoint keeps it, so that it is not used with others, of which there may be equally many."""
        return {}

    @abc.abstractmethod
    def load(self) -> dict[str, Split]:
        """The splits, by the names train, dev and test."""

    @abc.abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """{"files": name by split, "counts": by split, "sha256": by split}, all without paths of this machine."""

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Any]:
        """New examples from the lines of a file, for mode=predict; one after the other, so that the file may be long.

        name: of the file, for messages. Raises UserError, which names the line, where one cannot be used.
        """
        raise UserError(f"mode=predict: {type(self).__name__} reads no new examples, so this task has no predictions.")

    def encode(self, inputs: Sequence[Any]) -> Split:
        """Examples that `read_inputs` gave, as a split whose batches `Task.predict` takes."""
        raise NotImplementedError

    def describe(self, example: Any) -> dict[str, Any]:
        """What the line of a prediction says of an example that `read_inputs` gave, in values that JSON has."""
        raise NotImplementedError

    def splits(self) -> dict[str, Split]:
        """The splits, loaded the first time they are asked for."""
        self._splits = self._splits or self.load()
        return self._splits

    def train_dataloader(self) -> TrainBatches:
        split = self.splits()["train"]
        if self.batch_tokens is not None:
            return TokenBatches(split, self.batch_size, self.batch_tokens, self.seed, *self._place())
        return TrainBatches(split, self.batch_size, self.shuffle, self.seed, *self._place())

    def val_dataloader(self) -> EvaluationBatches:
        return EvaluationBatches(self.splits()["dev"], self.eval_batch_size, *self._place())

    def test_dataloader(self) -> EvaluationBatches:
        return EvaluationBatches(self.splits()["test"], self.eval_batch_size, *self._place())

    def _place(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)


def _random_state() -> dict[str, Any]:
    """The state of every random generator, in types that a checkpoint may hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    numbers = [kind, np.asarray(keys).tolist(), *rest]
    state = {"torch": torch.get_rng_state(), "numpy": numbers, "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"].cpu())
    np.random.set_state(tuple(state["numpy"]))
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
