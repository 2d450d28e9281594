"""Training and testing a task: builds Lightning's trainer, goes on where a run stopped, tests the best state."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from hyperbolic.diagnostics import NonFiniteError
from tasks import processes, record
from tasks import resume as resuming
from tasks.base import Task, TaskData
from tasks.checkpoints import BEFORE, BEST, LAST, Checkpoints, History, Patience
from tasks.errors import Diverged, UserError
from tasks.fit_options import FitOptions, more_than_0
from tasks.folders import whole_file
from tasks.interruption import ends_with_a_message
from tasks.loggers import log_settings
from tasks.machine import build_kernels, choose_kernels, choose_threads
from tasks.outcome import Outcome
from tasks.pruning import Pruning
from tasks.settings import TESTED
from tasks.trainer import make_trainer, without_advice
from tasks.vocabularies import pack
from tasks.watch import Diagnostics, NanGuard, StepLog, make_progress


class _Watchers(NamedTuple):
    """The callbacks of a training, and those of them that its result is made of."""

    callbacks: list[Callback]
    diagnostics: Diagnostics
    history: History
    checkpoints: Checkpoints
    stopping: Patience | None


def fit(
    task: Task,
    data: TaskData,
    folder: Path,
    loggers: list[Logger],
    *,
    tests: bool = True,
    prune: Callable[[int, float], str | None] | None = None,
    **settings: Any,
) -> Outcome:
    """Train, then test the state that was best on the validation split, or the mean of the last ones (average_last).

    folder: of this run; it gets checkpoints/, history.csv and what else the run leaves. settings: of `FitOptions`, and
    those of Lightning's Trainer. tests: false for a trial of a search: validation alone chooses among trials. prune:
    see `Pruning`.

    Raises UserError for what cannot be done, Interrupted on Ctrl-C, NonFiniteError where the guard stopped it.
    """
    options = FitOptions.of(settings)
    choose_threads(options.threads)
    choose_kernels(options.kernels)
    ends = options.epochs, options.max_steps
    checkpoint = None
    if options.resume is not None:
        checkpoint = resuming.checkpoint_to_continue(options.resume, folder.parent, task.origin, *ends)
    if checkpoint is None or checkpoint["file"].absolute().parent.parent.resolve() != folder.resolve():
        record.check_place(folder)
    task.vocabulary = pack(data)
    states = folder / "checkpoints"
    states.mkdir(parents=True, exist_ok=True)
    watchers = _watchers(task, folder, states, options, prune)
    trainer = make_trainer(watchers.callbacks, loggers, options.enable_progress_bar, **options.of_lightning)
    _check_test(trainer, data)
    if checkpoint is not None:
        setting = f"trainer.resume={options.resume}"  # so that a misfit is one sentence
        task.to(resuming.dtype_of(trainer.precision))  # Lightning would load float64 into float32, and then convert it
        resuming.take_over(task, checkpoint, states, setting, *ends)
        resuming.adopt_name(task, checkpoint)
        if processes.is_first():
            step, epochs = int(checkpoint["global_step"]), resuming.epochs_of(checkpoint)
            place = f"in epoch {epochs + 1}" if epochs != options.epochs else f"after all {epochs} epochs"
            print(f"goes on from {checkpoint['file']}: after step {step:,}, {place}", flush=True)
    build_kernels(trainer)
    log_settings(trainer, task.origin.config)

    def hint() -> str:
        begun = [file for file in (states / LAST, checkpoint and checkpoint["file"]) if file and file.exists()]
        return f"go on with {resuming.word(begun[0])}" if begun else "nothing was saved yet"

    with _guard(trainer, hint, lambda: f"Interrupted at step {trainer.global_step}; {hint()}."):
        _train(trainer, task, data, checkpoint, states)
        _conclude(trainer, task, data, states, watchers, validates=trainer.limit_val_batches != 0)
        metrics, selection = _select(trainer, task, data, states, watchers, averages=options.average_last is not None)
        start = time.perf_counter()
        if tests:
            trainer.test(task, datamodule=data, verbose=False)
        test_s = time.perf_counter() - start if tests else None
    return Outcome(
        metrics=metrics | {k: v for k, v in task.metrics.items() if k.startswith("test/")},
        selection=selection,
        diagnostics=watchers.diagnostics.latest,
        history=watchers.history.rows,
        share=_share(trainer, data, tests),
        wall_s=watchers.history.wall_s,
        examples_per_s=watchers.history.examples_per_s,
        device=trainer.strategy.root_device,
        processes=trainer.world_size,
        is_main=trainer.is_global_zero,
        test_s=test_s,
    )


def _watchers(
    task: Task, folder: Path, states: Path, options: FitOptions, prune: Callable[[int, float], str | None] | None
) -> _Watchers:
    diagnostics, history, stopping = Diagnostics(), History(folder), None
    callbacks: list[Callback] = [NanGuard(folder, options.nan_check_every_n_steps), diagnostics]
    callbacks.append(StepLog(options.log_every_n_steps))
    if options.enable_progress_bar:
        callbacks.append(make_progress(options.progress_every_n_steps))
    if options.patience is not None:
        stopping = Patience(
            task.select, mode=task.select_mode, patience=options.patience, check_finite=False,
            check_on_train_epoch_end=False,
        )  # fmt: skip
        callbacks.append(stopping)
    checkpoints = Checkpoints(
        states, options.checkpoint_every_n_steps, options.checkpoint_every_s, options.average_last
    )
    callbacks += [history, checkpoints, *([Pruning(prune)] if prune else [])]
    return _Watchers(callbacks, diagnostics, history, checkpoints, stopping)


@contextlib.contextmanager
def _guard(trainer: pl.Trainer, hint: Callable[[], str], message: Callable[[], str]) -> Iterator[None]:
    """Several processes end together, and Ctrl-C with a message. hint: what to do next, where another process died."""
    with without_advice(), processes.together(trainer, hint), ends_with_a_message(message):
        yield


def _conclude(
    trainer: pl.Trainer, task: Task, data: TaskData, states: Path, watchers: _Watchers, validates: bool
) -> None:
    """After the last step: say why training ended early, and validate where it ended between two validations."""
    newest, stopping = (watchers.history.rows or [{}])[-1], watchers.stopping
    if stopping is not None and stopping.wait_count >= stopping.patience and trainer.is_global_zero:
        print(
            f"training ended in epoch {newest['epoch']}: {task.select} was not better in {stopping.wait_count} "
            f"validations (trainer.patience={stopping.patience})", flush=True,
        )  # fmt: skip
    validated = task.select in newest and newest["step"] == trainer.global_step
    if not validated and validates:  # max_steps came between two validations
        if watchers.checkpoints.best and trainer.is_global_zero:
            with whole_file(states / BEFORE) as part:  # with which a longer run goes on
                shutil.copyfile(states / BEST, part)
        trainer.validate(task, datamodule=data, verbose=False)


def _select(
    trainer: pl.Trainer, task: Task, data: TaskData, states: Path, watchers: _Watchers, averages: bool
) -> tuple[dict[str, float], dict[str, Any] | None]:
    """The state that is tested, which the task gets: its metrics, and how it was selected."""
    metrics, checkpoints = dict(task.metrics), watchers.checkpoints
    if averages:
        selection = {"metric": None, "average_last": checkpoints.load_average(task)}
        watchers.history.ended = True
        trainer.validate(task, datamodule=data, verbose=False)
        checkpoints.save_average(trainer)
        return dict(task.metrics), selection
    if not checkpoints.best:
        return metrics, None
    best = resuming.read(states / BEST, "best checkpoint")
    resuming.load_weights(task, best, "best checkpoint")
    metrics |= {k: v for k, v in best["metrics"].items() if k.startswith("val/")}
    chosen = {k: v for k, v in best.get("best", checkpoints.best).items() if k != "loss"}
    return metrics, {"metric": task.select, "mode": task.select_mode, **chosen}


def test(
    task: Task,
    data: TaskData,
    loggers: list[Logger],
    state: dict[str, Any],
    *,
    kernels: str,
    threads: int | None,
    enable_progress_bar: bool,
    limit_test_batches: int | float,
    **options: Any,
) -> Outcome:
    """Test the state of a checkpoint, as `tasks.resume.read` gives it. `options` may hold what `fit` takes; only the
    hardware's part is used. Raises UserError where it does not fit the task."""
    more_than_0("limit_test_batches", limit_test_batches)
    choose_threads(threads)
    choose_kernels(kernels)
    setting = f"checkpoint={state['file']}"
    resuming.check_same(state, task.origin, TESTED, setting)
    resuming.say_other_data(state, task.origin)
    task.to(resuming.dtype_of(options.get("precision")))  # or float64 weights would be rounded
    resuming.load_weights(task, state, setting)
    resuming.adopt_name(task, state)
    keys = ("accelerator", "devices", "num_nodes", "strategy", "precision", "deterministic")
    hardware = {k: options[k] for k in keys if k in options}
    trainer = make_trainer([], loggers, enable_progress_bar, limit_test_batches=limit_test_batches, **hardware)
    _check_test(trainer, data)
    build_kernels(trainer)
    log_settings(trainer, task.origin.config)
    start = time.perf_counter()
    with _guard(trainer, lambda: "no result was written", lambda: ""):
        trainer.test(task, datamodule=data, verbose=False)
    seconds = time.perf_counter() - start
    return Outcome(
        metrics={k: v for k, v in task.metrics.items() if k.startswith("test/")},
        selection={"metric": None, "checkpoint": state["file"].name},
        diagnostics={},
        history=[],
        share=sum(trainer.num_test_batches) / len(data.test_dataloader()),
        wall_s=seconds,
        examples_per_s=None,
        device=trainer.strategy.root_device,
        processes=trainer.world_size,
        is_main=trainer.is_global_zero,
        test_s=seconds,
    )


def _check_test(trainer: pl.Trainer, data: TaskData) -> None:
    """Raises UserError where the share of the test's batches that the trainer is to take is less than one of them.
    Lightning says so after the training; of the other splits before it."""
    data.trainer = trainer  # as Lightning sets it: of several processes each has a part of the batches
    limit, batches = trainer.limit_test_batches, len(data.test_dataloader())
    if isinstance(limit, float) and int(limit * batches) == 0:
        number = "1 batch" if batches == 1 else f"{batches} batches"
        raise UserError(
            f"trainer.limit_test_batches={limit} is a share of the test, which has {number}, and comes to less than "
            "one. Take a whole number of batches, as 1, or 1.0 for the whole test."
        )


def _train(trainer: pl.Trainer, task: Task, data: TaskData, checkpoint: dict[str, Any] | None, states: Path) -> None:
    """Train, or go on from a checkpoint; states: this run's folder of them, which gets none of a damaged one's."""
    path = str(checkpoint["file"]) if checkpoint else None
    try:
        trainer.fit(task, datamodule=data, ckpt_path=path, weights_only=True if path else None)
    except MisconfigurationException as error:
        raise UserError(f"trainer: {' '.join(str(error).split())}") from error
    except UserError:
        raise
    except Exception as error:  # what Lightning takes over of a damaged checkpoint raises many kinds
        reason = " ".join(str(error).split())[:300]
        if "val_check_interval" in reason:
            batches, interval = trainer.fit_loop.max_batches, trainer.val_check_interval
            raise UserError(
                f"trainer.val_check_interval={interval} validates after so many batches, and an epoch has {batches}. "
                f"Set trainer.val_check_interval=1.0, for the end of every epoch, or a number of at most {batches}."
            ) from error
        if not isinstance(error, NonFiniteError) and not all(p.isfinite().all() for p in task.parameters()):
            raise Diverged(
                f"The weights are no longer finite ({type(error).__name__}: {reason}). Train with a smaller optim.lr."
            ) from error
        if checkpoint and not task.has_started:
            if states.resolve() != checkpoint["file"].parent.resolve():
                shutil.rmtree(states, ignore_errors=True)
            raise UserError(
                f"trainer.resume: the state of the training in {checkpoint['file']} does not fit or is damaged "
                f"({reason}). Resume from another checkpoint, or train again."
            ) from error
        raise


def _share(trainer: pl.Trainer, data: TaskData, tests: bool) -> float:
    """The smallest share of train that the run used, and of test where it `tests`."""
    epoch = len(data.train_dataloader())
    steps = trainer.global_step * trainer.accumulate_grad_batches
    tested = sum(trainer.num_test_batches) / len(data.test_dataloader()) if tests else 1.0
    return min(1.0, trainer.num_training_batches / epoch, steps / epoch, tested)
