"""Checkpoints of the best and of the last states, and the history of a run."""

import csv
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping
from torch import Tensor

from hyperbolic.diagnostics import manifold_parameters
from tasks.base import Task, as_task
from tasks.checkpoint_parts import counts_by_name, numbers_by_name, selection
from tasks.checkpoint_reader import load
from tasks.folders import name_place, whole_file
from tasks.interruption import Interruption, Stop

BEST, LAST, AVERAGE, EPOCH = "best.ckpt", "last.ckpt", "average.ckpt", "epoch-{:06d}.ckpt"
BEFORE = "before.ckpt"  # the best state but for the validation after trainer.max_steps ended a run within an epoch
# Of the diagnostics (tasks.watch): the mean distance of points from the origin, and a learned curvature.
DISTANCE, CURVATURE = "/dist0_mean", "/c"


def _epoch(trainer: pl.Trainer) -> int:
    """The number, from 1, of the epoch that is being trained or was trained last."""
    return max(1, trainer.current_epoch + (trainer.state.fn == "fit"))


def _stops_early(trainer: pl.Trainer) -> bool:
    """Whether the training ends after this step, for its patience and not before min_epochs."""
    return trainer.should_stop and trainer.fit_loop._can_stop_early


def epoch_files(folder: Path) -> list[Path]:
    """The weights of the last epochs in a folder of checkpoints, the newest last."""
    return sorted((file for file in folder.glob("epoch-*.ckpt") if file.stem[6:].isdecimal()), key=epoch_of)


def epoch_of(file: Path) -> int:
    """The number in the name of a file of `epoch_files`."""
    return int(file.stem[6:])


def _weights(trainer: pl.Trainer, task: Task) -> dict[str, Any]:
    """A checkpoint without a state of the training; for one Lightning takes a fifth of a millisecond more."""
    place = {"epoch": trainer.current_epoch, "global_step": trainer.global_step}
    checkpoint = place | {"pytorch-lightning_version": pl.__version__, "state_dict": task.state_dict()}
    task.on_save_checkpoint(checkpoint)
    return checkpoint


def _mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean(0) if values[-1].is_floating_point() else values[-1]


class History(Checkpoint):
    """One row for each validation and each epoch: metrics, mean distances of points from the origin, learned c, speed,
    seconds so far; kept in history.csv, which is written once in a while, and when the training ends.

    It is a Checkpoint only so that Lightning calls it after the module has its metrics.
    """

    def __init__(self, folder: Path):
        self.path = folder / "history.csv"
        self.rows: list[dict[str, float]] = []
        self.ended = False  # what is validated later is no state of the training
        self.earlier_s = 0.0  # of the run that this one continues
        self.examples = self.training_s = 0.0
        self._start = self._mark = time.perf_counter()
        self._before = 0.0
        self._next_write = 0.0

    @property
    def wall_s(self) -> float:
        """Seconds from the start of the run, those before an interruption included."""
        return self.earlier_s + time.perf_counter() - self._start

    @property
    def examples_per_s(self) -> float | None:
        return self.examples / self.training_s if self.training_s else None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._epoch_s, self._mark = 0.0, time.perf_counter()
        self._before = as_task(module).examples_seen()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._epoch_s, self._before, self._mark = 0.0, 0.0, time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._pause(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.ended:
            return
        self._mark = time.perf_counter()
        task = as_task(module)
        metrics = {k: v for k, v in task.metrics.items() if k.startswith("val/")}
        spaces = {k: v for k, v in task.diagnostics.items() if k.endswith((DISTANCE, CURVATURE))}
        self._row(trainer, metrics | spaces)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._pause(trainer)
        task = as_task(module)
        examples = task.counts["train"] - self._before * trainer.world_size
        self.examples += examples
        self.training_s += self._epoch_s
        metrics = {k: v for k, v in task.metrics.items() if k.startswith("train/")}
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        self._row(trainer, metrics | {"lr": rate, "examples_per_s": examples / max(self._epoch_s, 1e-9)})

    def _pause(self, trainer: pl.Trainer) -> None:
        if trainer.state.fn == "fit":
            self._epoch_s += time.perf_counter() - self._mark

    def _row(self, trainer: pl.Trainer, values: dict[str, float]) -> None:
        place = {"epoch": _epoch(trainer), "step": trainer.global_step}
        if not self.rows or any(self.rows[-1][k] != v for k, v in place.items()):
            self.rows.append(dict(place))
        self.rows[-1] |= values | {"seconds": self.wall_s}
        if trainer.state.fn != "fit" or time.perf_counter() >= self._next_write:
            self.write(trainer)

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.write(trainer)

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self.write(trainer)

    def write(self, trainer: pl.Trainer) -> None:
        """The table as it is now; a row later writes it again when that takes at most a 500th of the time."""
        if not trainer.is_global_zero or not self.rows:
            return
        start = time.perf_counter()
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        with whole_file(self.path) as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows)
        end = time.perf_counter()
        self._next_write = end + 500 * (end - start)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "wall_s": self.wall_s, "examples": self.examples, "training_s": self.training_s}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rows = [numbers_by_name(row, "history") for row in state["rows"]]
        if not all(row["epoch"] >= 1 and row["step"] >= 0 and "".join(row).isprintable() for row in rows):
            raise ValueError("its history is not that of a run")
        self.rows = rows
        numbers = counts_by_name({key: value for key, value in state.items() if key != "rows"}, "counts")
        self.earlier_s, self.examples, self.training_s = (numbers[k] for k in ("wall_s", "examples", "training_s"))


class Patience(EarlyStopping):
    """Lightning's, whose patience is this run's own. Raises ValueError for a state that is none."""

    @property
    def state_key(self) -> str:
        """As Lightning's own has it in checkpoints from before."""
        return super().state_key.replace(type(self).__qualname__, EarlyStopping.__qualname__, 1)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        counts_by_name({name: state[name] for name in ("wait_count", "stopped_epoch")}, "waiting epochs")
        best = state["best_score"]
        if not isinstance(best, Tensor) or best.is_meta or best.numel() != 1 or math.isnan(float(best)):
            raise ValueError("its best score is no number")
        super().load_state_dict(state | {"patience": self.patience, "stopping_reason_message": None})


class Checkpoints(Checkpoint):
    """best.ckpt: weights of the best validation; among equal values the one with the lowest val/loss, and of these the
    first. last.ckpt: everything, to resume from; with average_last = n the
    weights after each of the last n epochs, epoch-<number>.ckpt, and at the end their mean, average.ckpt.

    Both are written at the first end of an epoch and at later ones `every_s` seconds apart (at every one by several
    processes), at the end of the training, every `every_n_steps` steps, and on Ctrl-C or SIGTERM; until then the best
    weights are kept in memory. Files are always whole or not at all, and last.ckpt is only written where the run can go
    on exactly: after a step of the optimiser and the validation that may follow it. After an error best.ckpt alone is
    written, so it may be ahead of last.ckpt; it says itself which validation it is of.
    """

    def __init__(self, folder: Path, every_n_steps: int | None, every_s: float, average_last: int | None = None):
        self.folder = folder
        self.every_n_steps, self.every_s = every_n_steps, every_s
        self.average_last = average_last
        self.best: dict[str, Any] = {}  # value, epoch, step, and the loss of the validation
        self.interruption = Interruption()
        self._due = self._averaged = self._ended_within = False
        self._kept: dict[str, Any] | None = None  # best.ckpt that is still to be written
        self._latest_save = -math.inf
        self._stops = False  # trainer.should_stop when it was saved; it stays where min_epochs are still to come

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        trainer.should_stop = self._stops

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.interruption.catch()
        if trainer.is_global_zero:  # what is left of an earlier end of a run that goes on in its own folder
            (self.folder / AVERAGE).unlink(missing_ok=True)
            if (before := self.folder / BEFORE).exists():
                os.replace(before, self.folder / BEST)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.interruption.release()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches:  # gradients are added up, or the epoch ends
            return
        self._due |= self.every_n_steps is not None and trainer.global_step % self.every_n_steps == 0
        if not self._validates_after(trainer, batch_idx):
            self._end_step(trainer)

    def _end_step(self, trainer: pl.Trainer) -> None:
        """After a step within an epoch, and after the validation that may follow it."""
        interrupted = self.interruption.agreed_after_step(trainer)
        ends = trainer.global_step == trainer.max_steps  # within an epoch, with which a longer run goes on
        if self._due or interrupted or ends:
            self.save_last(trainer)
        self._ended_within = ends
        if interrupted:
            raise Stop

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        task = as_task(module)
        task.schedule.follow(trainer, task.metrics, task.select)  # after History has the rate, and before it is saved
        if self.average_last:
            self._save(trainer, EPOCH.format(_epoch(trainer)), weights_only=True)
            if trainer.is_global_zero:
                for file in epoch_files(self.folder):  # later ones are of a run that went on from the same last.ckpt
                    if not 0 <= _epoch(trainer) - epoch_of(file) < self.average_last:
                        file.unlink()
        interrupted = self.interruption.agreed(trainer)
        last = (
            _stops_early(trainer) or _epoch(trainer) == trainer.max_epochs or trainer.global_step == trainer.max_steps
        )
        if self._ended_within:  # Lightning counts the epoch as a whole one, and last.ckpt is from before
            self._save_best(trainer)
        elif last or interrupted or self._is_time(trainer):
            self.save_last(trainer)
        if interrupted:
            raise Stop

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        self._save_best(trainer)

    def _is_time(self, trainer: pl.Trainer) -> bool:
        """Whether last.ckpt is old; several processes, whose clocks differ, save every time."""
        return trainer.world_size > 1 or time.perf_counter() >= self._latest_save + self.every_s

    @torch.no_grad()
    def load_average(self, module: Task) -> int:
        """Give the module the mean of the weights of the last epochs; returns how many there were.

        Numbers are averaged, tables of integers are the last. Points are put on the manifold of their epoch and, where
        its curvature is learned, scaled by ``sqrt(c_epoch / c_mean)`` onto that of the mean, where their centroid is.
        """
        states = [load(file, module.device)["state_dict"] for file in epoch_files(self.folder)]
        points: dict[str, list[tuple[Tensor, Tensor]]] = {}  # by epoch, with c
        for state in states:
            module.load_state_dict(state)
            for name, (manifold, x) in manifold_parameters(module).items():
                points.setdefault(name, []).append((manifold.projx(x).clone(), manifold.c.clone()))
        module.load_state_dict({name: _mean([state[name] for state in states]) for name in states[-1]})
        for name, (manifold, parameter) in manifold_parameters(module).items():
            rows = [(c / manifold.c).sqrt().to(x) * x if manifold.learn_c else x for x, c in points[name]]
            parameter.copy_(manifold.centroid(torch.stack(rows, -2)))
        self._averaged = True
        return len(states)

    def save_average(self, trainer: pl.Trainer) -> None:
        """Keep the mean, with what its validation gave, as average.ckpt."""
        self._save(trainer, AVERAGE, weights_only=True)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        task = as_task(module)
        if self._averaged:  # of no epoch, so it is not the best one's
            return
        value, loss = task.metrics[task.select], task.metrics.get("val/loss")
        ties = value == self.best.get("value") and loss is not None and "loss" in self.best
        if task.is_better(value, self.best.get("value")) or (ties and loss < self.best["loss"]):
            self.best = {"value": value, "epoch": _epoch(trainer), "step": trainer.global_step}
            if loss is not None and math.isfinite(loss):
                self.best["loss"] = loss
            self._kept = _weights(trainer, task) | {"best": self.best}
            if trainer.state.fn != "fit":
                self._save_best(trainer)
            elif self._is_time(trainer):
                self._save_best(trainer)
                self._due = True
            else:  # the weights change, alone of all; on a GPU they would take its memory twice
                weights = self._kept["state_dict"]
                self._kept["state_dict"] = {name: x.to("cpu", copy=True) for name, x in weights.items()}
        adds_up = trainer.fit_loop.epoch_loop._should_accumulate()  # gradients, which no checkpoint has
        if trainer.state.fn == "fit" and self._is_within(trainer) and not adds_up:
            self._end_step(trainer)

    def save_last(self, trainer: pl.Trainer) -> None:
        self._save_best(trainer)
        self._stops = trainer.should_stop
        self._save(trainer, LAST)
        self._due, self._latest_save = False, time.perf_counter()

    def _save_best(self, trainer: pl.Trainer) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._write(trainer, BEST, lambda part: trainer.strategy.save_checkpoint(kept, part))

    def _save(self, trainer: pl.Trainer, name: str, weights_only: bool = False) -> None:
        self._write(trainer, name, lambda part: trainer.save_checkpoint(part, weights_only=weights_only))

    def _write(self, trainer: pl.Trainer, name: str, write: Callable[[Path], None]) -> None:
        part = self.folder / f"{name}.part"
        try:
            write(part)
        except BaseException as error:  # a disk that is full, a second Ctrl-C
            part.unlink(missing_ok=True)
            if isinstance(error, OSError):
                name_place(error, part, self.folder / name)
            raise
        if trainer.is_global_zero:
            os.replace(part, self.folder / name)
        trainer.strategy.barrier()  # the others may read it next

    @staticmethod
    def _is_within(trainer: pl.Trainer) -> bool:
        """Whether more steps of the epoch follow; its end saves."""
        return not (trainer.fit_loop.epoch_loop.batch_progress.is_last_batch or _stops_early(trainer))

    def _validates_after(self, trainer: pl.Trainer, batch_idx: int) -> bool:
        if not self._is_within(trainer):
            return True
        every = trainer.val_check_batch
        validates = trainer.fit_loop.epoch_loop._should_check_val_epoch()
        return bool(every and every != float("inf") and (batch_idx + 1) % every == 0 and validates)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "should_stop": self._stops}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = selection(state["best"])
        self._stops = state.get("should_stop") is True
