"""What a run watches while it trains: values that are not finite, points near the boundary, progress."""

import contextlib
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm
from torch import Tensor, nn
from torch.optim import Optimizer

from hyperbolic.diagnostics import NonFiniteError, find_nonfinite, manifold_parameters, statistics_by_name
from hyperbolic.manifolds import Manifold
from tasks.base import Points, Task, as_task
from tasks.checkpoint_parts import numbers_by_name
from tasks.checkpoints import CURVATURE
from tasks.folders import whole_file

_SMALL = 1 << 14  # numbers of a tensor that are copied in less time than a norm takes to start


class NanGuard(Callback):
    """Stops the run before a step with a loss or gradient that is NaN or infinite: the first of every `every_n_steps`.

    The error names the tensors; nan_state.pt keeps the batch, the weights, the gradients and the optimiser's state
    that produced them. Looking costs one wait for the device, so on a GPU `every_n_steps` may be larger than 1.
    """

    def __init__(self, folder: Path, every_n_steps: int):
        self.path, self.every_n_steps = folder / "nan_state.pt", every_n_steps
        self._batch: Any = None

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._batch = batch

    def on_before_optimizer_step(self, trainer: Trainer, module: LightningModule, optimizer: Optimizer) -> None:
        if self.every_n_steps > 1 and trainer.global_step % self.every_n_steps:  # Lightning's count takes a while
            return
        task = as_task(module)
        assert task.latest_loss is not None
        # those of the optimiser: going through the modules takes longer than a look at their gradients
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not _are_finite([task.latest_loss, *gradients]):
            raise self.report(trainer, task, optimizer)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        task = as_task(module)
        names = [name for name, value in task.metrics.items() if not math.isfinite(value)]
        if names and trainer.optimizers:
            raise self.report(trainer, task, trainer.optimizers[0], tuple(names))

    def report(self, trainer: Trainer, module: Task, optimizer: Any, also: tuple[str, ...] = ()) -> NonFiniteError:
        """Save the state, and make the error that says which tensors are not finite."""
        loss = module.latest_loss
        gradients = {n: p.grad for n, p in module.model.named_parameters() if p.grad is not None}
        tensors = {f"gradient of {n}": gradient for n, gradient in gradients.items()}
        tensors |= {f"parameter {n}": p for n, p in module.model.named_parameters()}
        names = [*also, *([] if loss is None or loss.isfinite() else ["loss"]), *find_nonfinite(tensors)]
        if layer := first_nonfinite_layer(module, self._batch):
            names.append(f"output of {layer}, the first layer whose output is not finite")
        if trainer.is_global_zero:
            state = {
                "names": names,
                "epoch": trainer.current_epoch,
                "step": trainer.global_step,
                "batch": self._batch,
                "weights": module.model.state_dict(),
                "gradients": gradients,
                "optimizer": optimizer.state_dict(),
            }
            with whole_file(self.path) as part:
                torch.save(state, part)
        return NonFiniteError(
            names,
            f"Training stopped at step {trainer.global_step} (epoch {trainer.current_epoch + 1}): not finite: "
            f"{'; '.join(names)}. The batch, weights and gradients are in {self.path}. A smaller optim.lr or "
            "optim.max_grad_norm, or trainer.precision=64-true, may help.",
        )


def _are_finite(tensors: list[Tensor]) -> bool:
    """Whether no value is NaN or infinite; one wait for the device, where all have one dtype."""
    small: dict[torch.dtype, list[Tensor]] = {}  # which are looked at as one
    large: dict[torch.dtype, list[Tensor]] = {}
    for t in tensors:
        values = t._values() if t.is_sparse else t
        if size := values.numel():  # a sparse gradient may have no row, and then no largest value
            (small if size <= _SMALL else large).setdefault(t.dtype, []).append(values)
    for dtype, parts in small.items():
        large.setdefault(dtype, []).append(torch._utils._flatten_dense_tensors(parts))
    return all(math.isfinite(_largest(each).item()) for each in large.values())


def _largest(tensors: list[Tensor]) -> Tensor:
    """The largest absolute value; NaN where a value is. One tensor alone is what a step of a small model has."""
    if len(tensors) == 1:
        return torch.linalg.vector_norm(tensors[0], math.inf)
    return torch.stack(torch._foreach_norm(tensors, math.inf)).max()


def first_nonfinite_layer(module: Task, batch: Any) -> str | None:
    """The name of the first layer of the model, in the order of the forward pass, whose output is not finite."""
    layers: list[str] = []

    def watch(name: str) -> Callable[[Any, Any, Any], None]:
        def hook(_: Any, __: Any, output: Any) -> None:
            parts = output if isinstance(output, (tuple, list)) else [output]
            if not layers and any(isinstance(t, Tensor) and not t.isfinite().all() for t in parts):
                layers.append(name)

        return hook

    hooks = [m.register_forward_hook(watch(name)) for name, m in module.model.named_modules() if name]
    try:
        with torch.no_grad(), contextlib.suppress(Exception):  # the step may fail where a layer is not finite
            module.step(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return layers[0] if layers else None


def _learned_curvatures(model: nn.Module) -> dict[str, float]:
    """Each learned c once, by the name in the model of the first manifold that has it."""
    first: dict[Tensor, tuple[str, Manifold]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Manifold) and module.learn_c:
            first.setdefault(module.free_c, (name, module))
    return {f"diagnostics/{name}{CURVATURE}": float(manifold.c.detach()) for name, manifold in first.values()}


class Diagnostics(Callback):
    """At a validation: how far points are from the origin, how many are clamped, how far off the manifold, what c is.

    Logged as diagnostics/<name>/<statistic>, for every manifold parameter and for `Task.points`; c where it is learned.
    A validation soon after one that was looked at is left out, as a look takes as long as a step of a small model: the
    next look comes after half as many further steps as there were, at most 20. At the end of a training c is looked at
    in any case.
    """

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self._points: dict[str, Points] = {}
        self._step: int | None = None  # of the latest
        self._looks = False

    def on_validation_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        step = trainer.global_step
        is_soon = self._step is not None and step < self._step + min(self._step // 2, 20)
        self._looks = trainer.state.fn != "fit" or not is_soon

    def on_validation_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        if batch_idx == 0 and self._looks:
            self._points = as_task(module).points(batch)

    def on_validation_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        if not self._looks:
            as_task(module).diagnostics = {}
            return
        named_points = dict(self._points)
        for name, (manifold, parameter) in manifold_parameters(as_task(module).model).items():
            named_points[name] = Points(manifold, parameter.detach())
        statistics = {
            f"diagnostics/{name}/{key}": value
            for name, values in statistics_by_name(named_points).items()
            for key, value in values.items()
        } | _learned_curvatures(as_task(module).model)
        values = torch.tensor([*statistics.values()], dtype=torch.float64, device=module.device)
        means = trainer.strategy.reduce(values, reduce_op="mean").tolist()  # each process has points of its own
        self.latest, self._step = dict(zip(statistics, means, strict=True)), trainer.global_step
        as_task(module).diagnostics = self.latest  # which the task logs, in one row with its metrics
        self._points = {}

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self.latest = self.latest | _learned_curvatures(as_task(module).model)

    def state_dict(self) -> dict[str, Any]:
        return {"latest": self.latest, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        latest = numbers_by_name(state["latest"], "diagnostics")
        if not all(name.startswith("diagnostics/") and math.isfinite(value) for name, value in latest.items()):
            raise ValueError("its diagnostics are not those of a run")
        self.latest = latest
        step = state.get("step")  # runs from before this entry have none
        self._step = None if step is None else int(step)


class Progress(TQDMProgressBar):
    """A progress bar that shows the latest loss and validation, redrawn every `refresh_rate` batches."""

    def init_validation_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def init_test_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer)
        last = f"/{trainer.max_epochs}" if (trainer.max_epochs or -1) > 0 else ""
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}{last}")

    def get_metrics(self, trainer: Trainer, module: LightningModule) -> dict[str, Any]:
        return _latest(as_task(module))


class ProgressLines(Callback):
    """What :class:`Progress` shows as lines for a log file, one at most every `every_s` seconds.

    epoch 3/30, batch 1570/7813, loss 0.6904, val/accuracy 0.5031
    """

    def __init__(self, every_s: float = 30.0):
        self.every_s, self._due = every_s, time.monotonic() + every_s

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (now := time.monotonic()) < self._due or not trainer.is_global_zero:
            return
        self._due = now + self.every_s
        batches = trainer.num_training_batches
        places = [
            f"epoch {trainer.current_epoch + 1}{f'/{trainer.max_epochs}' if (trainer.max_epochs or -1) > 0 else ''}",
            f"batch {batch_idx + 1}{f'/{batches}' if isinstance(batches, int) else ''}",
            *(f"{name} {value}" for name, value in _latest(as_task(module)).items()),
        ]
        print(", ".join(places), flush=True)


def make_progress(refresh_rate: int) -> Callback:
    """A bar on a terminal, lines elsewhere."""
    return Progress(refresh_rate=refresh_rate) if sys.stdout.isatty() else ProgressLines()


def _latest(task: Task) -> dict[str, str]:
    values = {} if task.latest_loss is None else {"loss": f"{float(task.latest_loss):.4f}"}
    if task.select in task.metrics:
        values[task.select] = f"{task.metrics[task.select]:.4f}"
    return values


class StepLog(Callback):
    """Logs the training loss of every `every_n_steps`-th step: that of its last batch on this process."""

    def __init__(self, every_n_steps: int):
        self.every_n_steps, self._step = every_n_steps, 0

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *_: Any) -> None:
        before, self._step = self._step, trainer.global_step  # the same within an accumulation
        if trainer.logger is not None and self._step > before and self._step % self.every_n_steps == 0:
            loss = as_task(module).latest_loss
            assert loss is not None
            for logger in trainer.loggers:
                logger.log_metrics({"step/loss": float(loss)}, step=trainer.global_step)
