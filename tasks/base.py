"""What every task is made of: a Lightning module that adds up its metrics exactly, and its data."""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hyperbolic.geometry import Geometry
from hyperbolic.manifolds.base import Manifold
from tasks.batches import SHUFFLES, EvaluationBatches, Share, Split, TokenBatches, TrainBatches
from tasks.checkpoint_parts import Origin, check_counts, check_kinds, counts_by_name, numbers_by_name
from tasks.errors import UserError, one_of, whole
from tasks.loggers import log_metrics
from tasks.random_state import random_state, set_random_state, shared_generator
from tasks.schedules import Schedule


class Step(NamedTuple):
    """What one batch gives: the mean loss to differentiate, and sums (a number or tensor each) to add up.

    The sums need "examples", how many examples the batch has. Those of training batches are single numbers.
    weight: how many items (as tokens) the loss is the mean of. Where it is given, a step over several batches
    (accumulate_grad_batches, or one in each process) follows the mean over all their items, ``sum_b w_b L_b / sum_b
    w_b``; otherwise every batch counts the same. What each of several processes has of a batch counts by its examples.
    """

    loss: Tensor
    sums: dict[str, Any]
    weight: float | None = None


class Points(NamedTuple):
    """Points (..., D) and the manifold they lie on."""

    manifold: Manifold
    x: Tensor


class NamedPoints(NamedTuple):
    """The names of N things, and their points (N, D) on a manifold."""

    names: Sequence[str]
    manifold: Manifold
    x: Tensor


class LayerStates(NamedTuple):
    """States of the words of B sentences in each layer of an encoder.

    geometry: of the states. points: of each layer, from the first one's input on, (B, W, D) for the most words W.
    mask (B, W): where there is a state; a sentence that is too long for the encoder has none.
    """

    geometry: Geometry
    points: list[Tensor]
    mask: Tensor


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
    reconstructs = False  # whether dev and test are the training data, so that learning them by heart is the aim

    def __init__(self, model: nn.Module, optimizer: Callable[[nn.Module], Optimizer], select: str, select_mode: str):
        super().__init__()
        one_of("task.module.select_mode", select_mode, ("max", "min"))
        one_of("task.module.select", select, tuple(f"val/{name}" for name in self.validated))
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

    def named_points(self, data: "TaskData") -> dict[str, NamedPoints]:
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
        if step.weight is None and self.trainer.accumulate_grad_batches == 1:
            return step.loss if counts == 1 else step.loss * counts
        weight = counts if step.weight is None else step.weight if counts else 0.0
        self._weight = (self._weight or 0.0) + weight
        return step.loss * weight

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        if self._weight is None:
            return
        # Lightning has divided each batch's loss by their number, and that of the processes by theirs
        batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        weight = torch.as_tensor(self._weight, dtype=torch.float64, device=self.device)
        total = float(self.trainer.strategy.reduce(weight, reduce_op="sum"))
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


class TaskData(pl.LightningDataModule, abc.ABC):
    """The splits train, dev and test of a task, held as tensors, and their batches.

    shuffle: one of SHUFFLES (TrainBatches says what they mean). batch_size: of a whole training batch, shared
    by all processes. eval_batch_size: most examples of an evaluation batch. seed: of the order of the batches.
    batch_tokens: also most words of a training batch after padding, with shuffle=buckets (TokenBatches); None: any.
    drop_last: a last training batch that is smaller is left out.
    """

    def __init__(
        self,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        batch_tokens: int | None = None,
        drop_last: bool = False,
    ):
        super().__init__()
        self.drop_last = drop_last
        self.shuffle = one_of("task.data.shuffle", shuffle, SHUFFLES)
        self.batch_tokens = None if batch_tokens is None else whole("task.data.batch_tokens", batch_tokens, 1)
        if batch_tokens is not None and shuffle != "buckets":
            raise UserError(f"task.data.batch_tokens needs task.data.shuffle=buckets, and it is {shuffle}.")
        self.batch_size = whole("task.data.batch_size", batch_size, 1)
        self.eval_batch_size = whole("task.data.eval_batch_size", eval_batch_size, 1)
        self.seed = whole("seed", seed, 0)
        self._splits: dict[str, Split] = {}
        self.adopted: dict[str, Any] | None = None  # fingerprint of the data whose vocabulary these adopted

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

    def vocabulary(self) -> dict[str, Any] | None:
        """What a checkpoint keeps, so that `adopt` makes these data without their files: names of words, classes,
        nodes, and what else predictions need. Values are those that JSON has, tensors and arrays, and mappings of
        these. None: nothing is kept, and predictions need the data."""
        return None

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        """Be the data that gave a `vocabulary`, as far as predictions need: no file is read from now on. Raises any
        error for one that cannot be; `tasks.vocabularies` makes a message of it."""
        raise NotImplementedError

    def test_inputs(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The examples of the test split in the order of their files, as `read_inputs` gives them, each with what is
        right, under "gold", and what else a line of `mode=test output=FILE` says of it."""
        raise UserError(f"output: {type(self).__name__} gives no test examples one by one; leave it out.")

    @property
    def input_keys(self) -> tuple[str, ...]:
        """The keys of objects of JSON that `read_inputs` uses; others are handed on to the line of output."""
        return ()

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Any]:
        """New examples from the lines of a file, for mode=predict; one after the other, so that the file may be long.

        name: of the file, for messages. Raises UserError, which names the line, where one cannot be used.
        """
        raise UserError(f"mode=predict: {type(self).__name__} reads no new examples, so this task has no predictions.")

    def read_table(self, path: Path) -> Iterator[tuple[Any, dict[str, str]]] | None:
        """As `read_inputs`, of a file that is a table whose first line names the columns that this task knows, each
        example with the other columns of its row, which are handed on; None of any other file, whose lines are read."""
        return None

    def read_folder(self, folder: Path) -> Iterator[Any]:
        """As `read_inputs`, of a folder each of whose files is an example."""
        raise UserError(f"input={folder} is a folder; name a file, or - for standard input.")

    def encode(self, inputs: Sequence[Any]) -> Split:
        """Examples that `read_inputs` gave, as a split whose batches `Task.predict` takes."""
        raise NotImplementedError

    def describe(self, example: Any) -> dict[str, Any]:
        """What the line of a prediction says of an example that `read_inputs` gave, in values that JSON has."""
        raise NotImplementedError

    def words_of(self, example: Any) -> list[list[str]]:
        """The words of each sentence of an example that `read_inputs` gave, as the model reads them: for
        `Task.explain`."""
        raise UserError(
            "explain=true is for documents, as those of encoder=han: this task has no weights of words that its "
            "answers do not hold already. Leave it out."
        )

    def splits(self) -> dict[str, Split]:
        """The splits, loaded the first time they are asked for."""
        self._splits = self._splits or self.load()
        return self._splits

    def train_dataloader(self) -> TrainBatches:
        split = self.splits()["train"]
        if self.batch_tokens is not None:
            return TokenBatches(split, self.batch_size, self.batch_tokens, self.seed, *self._place())
        place = self._place()
        return TrainBatches(split, self.batch_size, self.shuffle, self.seed, *place, drop_last=self.drop_last)

    def val_dataloader(self) -> EvaluationBatches:
        return EvaluationBatches(self.splits()["dev"], self.eval_batch_size, *self._place())

    def test_dataloader(self) -> EvaluationBatches:
        return EvaluationBatches(self.splits()["test"], self.eval_batch_size, *self._place())

    def _place(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)
