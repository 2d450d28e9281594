"""Training and testing a task: builds Lightning's trainer, goes on where a run stopped, tests the best state."""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.optim import Optimizer

from hyperbolic import fusion, switch
from hyperbolic.diagnostics import NonFiniteError
from hyperbolic.native import build as native
from hyperbolic.optim import RiemannianLBFGS, RiemannianOptimizer, parameter_groups
from tasks import processes
from tasks import resume as resuming
from tasks.base import Task, TaskData
from tasks.checkpoints import BEFORE, BEST, LAST, Checkpoints, History, Patience
from tasks.errors import Diverged, UserError, whole
from tasks.interruption import ends_with_a_message
from tasks.pruning import Pruning
from tasks.settings import TESTED
from tasks.trainer import make_trainer, without_advice
from tasks.vocabularies import pack
from tasks.watch import Diagnostics, NanGuard, StepLog, make_progress

_COMPILED_LATER = (
    "formulas are compiled for the GPU at their first use: the first steps of a model of many layers take minutes, "
    "those of later runs, which find them in PyTorch's cache, a fraction of that; trainer.kernels=plain starts at once"
)


@dataclass
class Outcome:
    """The result of a run: metrics, how the state was selected, and what it cost."""

    metrics: dict[str, float]
    selection: dict[str, Any] | None
    diagnostics: dict[str, float]
    history: list[dict[str, float]]
    share: float
    wall_s: float
    examples_per_s: float | None
    device: torch.device
    processes: int
    is_main: bool
    test_s: float | None = None  # seconds of the test alone
    prediction: dict[str, Any] | None = None  # what mode=predict read and wrote


def fit(
    task: Task,
    data: TaskData,
    folder: Path,
    loggers: list[Logger],
    *,
    resume: str | None,
    checkpoint_every_n_steps: int | None,
    checkpoint_every_s: float,
    patience: int | None,
    average_last: int | None,
    nan_check_every_n_steps: int,
    progress_every_n_steps: int,
    kernels: str,
    threads: int | None,
    enable_progress_bar: bool,
    log_every_n_steps: int,
    max_epochs: int | None,
    max_steps: int,
    tests: bool = True,
    prune: Callable[[int, float], str | None] | None = None,
    **options: Any,
) -> Outcome:
    """Train, then test the state that was best on the validation split, or the mean of the last ones (average_last).

    folder: of this run; it gets checkpoints/, history.csv and what else the run leaves. The named options are ours
    and explained in configs/trainer; `options` are Lightning's Trainer's. tests: false for a
    trial of a search: validation alone chooses among trials. prune: see `Pruning`.

    Raises UserError for what cannot be done, Interrupted on Ctrl-C, NonFiniteError where the guard stopped it.
    """
    counts = {"checkpoint_every_n_steps": checkpoint_every_n_steps, "patience": patience, "average_last": average_last}
    for name, value in (counts | {"min_epochs": options.get("min_epochs")}).items():
        if value is not None:
            whole(f"trainer.{name}", value, 1)
    if not checkpoint_every_s >= 0:
        raise UserError(f"trainer.checkpoint_every_s must be 0 or more seconds, and it is {checkpoint_every_s}.")
    whole("trainer.nan_check_every_n_steps", nan_check_every_n_steps, 1)
    whole("trainer.progress_every_n_steps", progress_every_n_steps, 1)
    whole("trainer.log_every_n_steps", log_every_n_steps, 1)
    if max_epochs is None or max_epochs < 1:
        if max_steps < 1:
            raise UserError(f"trainer.max_epochs must be at least 1, or trainer.max_steps set; it is {max_epochs}.")
        max_epochs = -1
    _check_interval(options.get("val_check_interval", 1.0))
    for name in ("limit_train_batches", "limit_test_batches"):
        _more_than_0(name, options.get(name, 1))
    if max_steps == 0:
        raise UserError("trainer.max_steps must be at least 1, or -1 for no limit, and it is 0.")

    choose_threads(threads)
    choose_kernels(kernels)

    checkpoint = None
    if resume is not None:
        checkpoint = resuming.checkpoint_to_continue(resume, folder.parent, task.origin, max_epochs, max_steps)

    task.vocabulary = pack(data)
    states = folder / "checkpoints"
    states.mkdir(parents=True, exist_ok=True)
    diagnostics = Diagnostics()
    history = History(folder)
    checkpoints = Checkpoints(states, checkpoint_every_n_steps, checkpoint_every_s, average_last)
    stopping = None
    callbacks: list[Callback] = [NanGuard(folder, nan_check_every_n_steps), diagnostics, StepLog(log_every_n_steps)]
    if enable_progress_bar:
        callbacks.append(make_progress(progress_every_n_steps))
    if patience is not None:
        stopping = Patience(
            task.select, mode=task.select_mode, patience=patience, check_finite=False, check_on_train_epoch_end=False
        )
        callbacks.append(stopping)
    callbacks += [history, checkpoints, *([Pruning(prune)] if prune else [])]
    trainer = make_trainer(
        callbacks, loggers, enable_progress_bar, max_epochs=max_epochs, max_steps=max_steps,
        log_every_n_steps=log_every_n_steps, **options,
    )  # fmt: skip

    if checkpoint is not None:
        setting = f"trainer.resume={resume}"  # so that a misfit is one sentence
        resuming.take_over(task, checkpoint, states, setting, max_epochs, max_steps)
        resuming.adopt_name(task, checkpoint)
        if processes.is_first():
            step, epoch = int(checkpoint["global_step"]), resuming.epochs_of(checkpoint) + 1
            print(f"goes on from {checkpoint['file']}: after step {step:,}, in epoch {epoch}", flush=True)
    build_kernels(trainer)

    def hint() -> str:
        begun = [file for file in (states / LAST, checkpoint and checkpoint["file"]) if file and file.exists()]
        return f"go on with {resuming.word(begun[0])}" if begun else "nothing was saved yet"

    with (
        without_advice(),
        processes.together(trainer, hint),
        ends_with_a_message(lambda: f"Interrupted at step {trainer.global_step}; {hint()}."),
    ):
        _train(trainer, task, data, checkpoint, states)
        newest = history.rows[-1] if history.rows else {}
        if stopping is not None and stopping.wait_count >= stopping.patience and trainer.is_global_zero:
            why = f"{task.select} was not better in {stopping.wait_count} validations (trainer.patience={patience})"
            print(f"training ended in epoch {newest['epoch']}: {why}", flush=True)
        validated = task.select in newest and newest["step"] == trainer.global_step
        if not validated and options.get("limit_val_batches") != 0:  # max_steps came between two validations
            if checkpoints.best and trainer.is_global_zero:
                shutil.copyfile(states / BEST, states / BEFORE)  # with which a longer run goes on
            trainer.validate(task, datamodule=data, verbose=False)
        metrics = dict(task.metrics)
        selection: dict[str, Any] | None = None
        if average_last is not None:
            selection = {"metric": None, "average_last": checkpoints.load_average(task)}
            history.ended = True
            trainer.validate(task, datamodule=data, verbose=False)
            metrics = dict(task.metrics)
            checkpoints.save_average(trainer)
        elif checkpoints.best:
            best = resuming.read(states / BEST, "best checkpoint")
            resuming.load_weights(task, best, "best checkpoint")
            metrics |= {k: v for k, v in best["metrics"].items() if k.startswith("val/")}
            chosen = {k: v for k, v in best.get("best", checkpoints.best).items() if k != "loss"}
            selection = {"metric": task.select, "mode": task.select_mode, **chosen}
        start = time.perf_counter()
        if tests:
            trainer.test(task, datamodule=data, verbose=False)
        test_s = time.perf_counter() - start if tests else None
    metrics |= {k: v for k, v in task.metrics.items() if k.startswith("test/")}
    return Outcome(
        metrics=metrics,
        selection=selection,
        diagnostics=diagnostics.latest,
        history=history.rows,
        share=_share(trainer, data, tests),
        wall_s=history.wall_s,
        examples_per_s=history.examples_per_s,
        device=trainer.strategy.root_device,
        processes=trainer.world_size,
        is_main=trainer.is_global_zero,
        test_s=test_s,
    )


def test(
    task: Task,
    data: TaskData,
    loggers: list[Logger],
    checkpoint: str | None,
    *,
    kernels: str,
    threads: int | None,
    enable_progress_bar: bool,
    limit_test_batches: int | float,
    **options: Any,
) -> Outcome:
    """Test the state of a checkpoint. `options` may hold what `fit` takes; only the hardware's part is used.

    Raises UserError where there is no checkpoint, or it does not fit the task.
    """
    if not checkpoint:
        raise UserError("mode=test needs checkpoint=<run folder>, or a file in it.")
    _more_than_0("limit_test_batches", limit_test_batches)
    choose_threads(threads)
    choose_kernels(kernels)
    setting = f"checkpoint={checkpoint}"
    state = resuming.read(Path(checkpoint), setting)
    resuming.check_same(state, task.origin, TESTED, setting)
    resuming.say_other_data(state, task.origin)
    task.to(resuming.dtype_of(options.get("precision")))  # or float64 weights would be rounded
    resuming.load_weights(task, state, setting)
    resuming.adopt_name(task, state)
    keys = ("accelerator", "devices", "num_nodes", "strategy", "precision", "deterministic")
    hardware = {k: options[k] for k in keys if k in options}
    trainer = make_trainer([], loggers, enable_progress_bar, limit_test_batches=limit_test_batches, **hardware)
    build_kernels(trainer)
    start = time.perf_counter()
    with (
        without_advice(),
        processes.together(trainer, lambda: "no result was written"),
        ends_with_a_message(lambda: ""),
    ):
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


_own_threads: list[int] = []  # PyTorch's own number, once another was chosen


def choose_threads(threads: int | None) -> None:
    """How many threads PyTorch's operations have on a CPU; None: as it chose. Raises UserError for less than 1."""
    if threads is not None:
        threads = whole("trainer.threads", threads, 1)
        _own_threads[:] = _own_threads or [torch.get_num_threads()]
        torch.set_num_threads(threads)
    elif _own_threads:  # of an earlier run of a multirun
        torch.set_num_threads(_own_threads.pop())


def _more_than_0(name: str, limit: int | float) -> None:
    if not limit > 0:
        raise UserError(f"trainer.{name} must be more than 0, and it is {limit}.")


def _check_interval(interval: int | float) -> None:
    if interval <= 0 or (interval > 1 and not isinstance(interval, int)):
        raise UserError(
            f"trainer.val_check_interval={interval} must be a whole number of batches, or a share of an epoch as 0.5, "
            "at most 1.0."
        )


def choose_kernels(kernels: str) -> None:
    """Which kernels are used. Raises UserError, which names trainer.kernels, for what there is not."""
    try:
        switch.use_kernels(kernels)
    except ValueError as error:
        raise UserError(f"trainer.{error}") from error


def build_kernels(trainer: pl.Trainer) -> None:
    """Compile the C++ kernels of a CPU, where they are not yet, before the clock and the progress bar start."""
    device = trainer.strategy.root_device.type
    if device == "cpu" and processes.is_first_here():
        native.build(lambda line: print(line, file=sys.stderr, flush=True))
    elif device in fusion.DEVICES and switch.fast() and processes.is_first_here():
        print(_COMPILED_LATER, file=sys.stderr, flush=True)


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


def make_optimizer(
    module: nn.Module,
    embeddings: dict[str, Any],
    biases: dict[str, Any],
    matrices: dict[str, Any],
    vectors: dict[str, Any] | None = None,  # runs from before this setting have none
    lbfgs: dict[str, Any] | None = None,  # likewise
    **settings: Any,
) -> Optimizer:
    """The optimiser of a module: `settings` for all parameters, other values for one kind of them where not None.

    lbfgs: settings of rule "lbfgs", which takes of the others lr alone and raises UserError for those that it would
    have to follow.
    """
    roles = {"embeddings": embeddings, "biases": biases, "matrices": matrices, "vectors": vectors or {}}
    own = {role: {k: v for k, v in node.items() if v is not None} for role, node in roles.items()}
    if settings.get("rule") != "lbfgs":
        apart = settings.get("clip") == "tensor"  # as in Ganea et al., whose gates, cells and classes are tensors each
        return RiemannianOptimizer(parameter_groups(module, **own, apart=apart), **settings)
    idle = {"max_grad_norm": None, "weight_decay": 0, "momentum": 0, "amsgrad": False, "lazy": False}
    own = {role: node for role, node in own.items() if node}
    wrong = [name for name, value in idle.items() if settings.get(name, value) != value]
    if names := [*wrong, *own]:
        value = own.get(names[0], settings.get(names[0]))
        raise UserError(f"optim.{names[0]}={value} does nothing with optim.rule=lbfgs; take optim=lbfgs as it stands.")
    return RiemannianLBFGS(parameter_groups(module), lr=settings["lr"], **(lbfgs or {}))
