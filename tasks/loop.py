"""The loops over the batches of an epoch and of its validation: Lightning's, without what our trainings do not use."""

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loops.evaluation_loop import _EvaluationLoop
from pytorch_lightning.loops.fetchers import _DataFetcher
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop
from pytorch_lightning.trainer.states import RunningStage, TrainerFn
from torch import Tensor

from tasks.errors import UserError

HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip
VALIDATION_HOOKS = (
    "on_validation_start", "on_validation_epoch_start", "on_validation_batch_start", "on_validation_batch_end",
    "on_validation_epoch_end", "on_validation_end",
)  # fmt: skip
# What a module, and for TRANSFERS its data, may do in a way of its own, which Lightning's loop calls.
OWN_WAYS = (
    "on_train_batch_start",  # whose answer -1 ends the epoch
    "backward", "optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping",
)  # fmt: skip
TRANSFERS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


class EpochLoop(_TrainingEpochLoop):
    """Trains as Lightning's loop does, and calls the same hooks in the same order, in less time for each batch.

    Lightning asks every callback for every hook, with a profiler around each, wraps the step into closures, and
    collects what `LightningModule.log` was given in each batch: about a millisecond. Here a hook is called where it
    does something, and `log` is for the ends of epochs; in a step it raises Lightning's MisconfigurationException.
    Progress is counted as in Lightning's, so a checkpoint is the same. What else differs: no profiler is asked, the
    strategy's and the precision's hooks of a step are not called, and the gradients are made after the model's part of
    the step, not within `optimizer.step`. An optimiser that needs a closure (`needs_closure`), several processes, a
    strategy that accumulates by itself, Lightning's own clipping of gradients (`gradient_clip_val`), the batch that a
    run goes on with, and a module that has its own way of a part of the step (OWN_WAYS) are left to Lightning's loop.
    """

    def __init__(self, trainer: Trainer) -> None:
        replaced = trainer.fit_loop.epoch_loop
        super().__init__(trainer, replaced.min_steps, replaced.max_steps)
        self.val_loop = ValidationLoop(trainer, TrainerFn.FITTING, RunningStage.VALIDATING, False, inference_mode=False)
        self._hooks: dict[str, list[Callable[..., Any]]] = {}
        self._is_plain = False

    @property
    def global_step(self) -> int:
        return self.automatic_optimization.optim_progress.optimizer_steps  # no task steps by hand

    @cached_property
    def _validates(self) -> bool:
        return self.trainer.enable_validation

    def _should_check_val_epoch(self) -> bool:
        every = self.trainer.check_val_every_n_epoch
        return self._validates and (every is None or (self.trainer.current_epoch + 1) % every == 0)

    def update_lr_schedulers(self, interval: str, update_plateau_schedulers: bool) -> None:
        """As Lightning's, but for a plateau, which a task follows by itself (`Schedule.follow`)."""
        if self.trainer.lr_scheduler_configs and not update_plateau_schedulers:
            super().update_lr_schedulers(interval, update_plateau_schedulers)

    def on_run_start(self, data_fetcher: _DataFetcher) -> None:
        super().on_run_start(data_fetcher)
        if self._hooks:  # an earlier epoch
            return
        trainer, module = self.trainer, self.trainer.lightning_module
        closure = any(getattr(optimizer, "needs_closure", False) for optimizer in trainer.optimizers)
        if closure:
            check_whole(trainer)
        self._is_plain = (
            not closure
            and trainer.world_size == 1
            and trainer.gradient_clip_val is None
            and not trainer.strategy.handles_gradient_accumulation
            and not any(_has(module, name, LightningModule) for name in OWN_WAYS)
            and not _transfers(trainer)
        )
        self._hooks = _hooks(trainer, HOOKS)

    def advance(self, data_fetcher: _DataFetcher) -> None:
        if self.restarting or not self._is_plain:
            super().advance(data_fetcher)
            return
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        trainer, progress = self.trainer, self.batch_progress
        batch, _, _ = next(data_fetcher)
        batch = trainer.precision_plugin.convert_input(batch)
        if trainer.strategy.root_device.type != "cpu":
            batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
        batch_idx = self.batch_idx + 1
        progress.is_last_batch = data_fetcher.done
        progress.increment_ready()
        self._call("on_train_batch_start", batch, batch_idx)
        progress.increment_started()
        outputs = self._step(batch, batch_idx)
        progress.increment_processed()
        self.update_lr_schedulers("step", update_plateau_schedulers=False)
        if self._num_ready_batches_reached():
            self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        self._call("on_train_batch_end", outputs, batch, batch_idx)
        progress.increment_completed()

    def _step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Gradients of a batch, and where they are not to be added to those of others, a step of the optimiser."""
        trainer, counts = self.trainer, self.automatic_optimization.optim_progress.optimizer
        optimizer, accumulates = trainer.optimizers[0], self._should_accumulate()
        if not accumulates:
            counts.step.increment_ready()
        loss = trainer.strategy.training_step(batch, batch_idx)
        assert isinstance(loss, Tensor)
        if trainer.accumulate_grad_batches > 1:
            loss = loss / trainer.accumulate_grad_batches
        if batch_idx % trainer.accumulate_grad_batches == 0:
            counts.zero_grad.increment_ready()
            self._call("on_before_zero_grad", optimizer)
            counts.zero_grad.increment_started()
            optimizer.zero_grad()
            counts.zero_grad.increment_completed()
        self._call("on_before_backward", loss)
        loss.backward()
        self._call("on_after_backward")
        if not accumulates:
            self._call("on_before_optimizer_step", optimizer)
            optimizer.step()
            counts.step.increment_completed()
        return {"loss": loss.detach()}

    def _call(self, name: str, *args: Any) -> None:
        for hook in self._hooks[name]:
            hook(*args)


class ValidationLoop(_EvaluationLoop):
    """Validates as Lightning's loop does within a training, with the same hooks, in 2 ms less.

    `LightningModule.log` is for the ends of training epochs; here it raises Lightning's MisconfigurationException. A
    validation that was interrupted, and a module or data that move batches in their own way, are left to Lightning's.
    """

    @cached_property
    def _hooks(self) -> dict[str, list[Callable[..., Any]]]:
        return {} if _transfers(self.trainer) else _hooks(self.trainer, VALIDATION_HOOKS)

    @torch.no_grad()
    def run(self) -> list[Any]:
        if self.restarting or not self._hooks:
            result: list[Any] = super().run()
            return result
        self.setup_data()
        if self.skip or self._combined_loader is None:
            return []
        trainer, progress, most = self.trainer, self.batch_progress, self.max_batches[0]
        if len(self.max_batches) > 1 or most == float("inf"):  # several loaders, or one without an end
            return list(super().run())
        progress.reset_on_run()
        self._has_run = False
        self._on_evaluation_model_eval()
        self._call("on_validation_start")
        self._call("on_validation_epoch_start")
        for batch_idx, batch in zip(range(int(most)), self._combined_loader.flattened[0], strict=False):
            progress.is_last_batch = batch_idx + 1 == most
            batch = trainer.precision_plugin.convert_input(batch)
            if trainer.strategy.root_device.type != "cpu":
                batch = trainer.strategy.batch_to_device(batch, dataloader_idx=0)
            progress.increment_ready()
            self._call("on_validation_batch_start", batch, batch_idx)
            progress.increment_started()
            outputs = trainer.strategy.validation_step(batch, batch_idx)
            progress.increment_processed()
            self._call("on_validation_batch_end", outputs, batch, batch_idx)
            progress.increment_completed()
            self._has_run = True
        self._call("on_validation_epoch_end")
        self._call("on_validation_end")
        self._on_evaluation_model_train()
        trainer._last_val_time = time.monotonic()  # type: ignore[attr-defined]
        return []

    def _call(self, name: str, *args: Any) -> None:
        for hook in self._hooks[name]:
            hook(*args)


def check_whole(trainer: Trainer) -> None:
    """Raises UserError unless a step has all data, and only one process works on it: what an optimiser needs that
    computes the loss again and again."""
    batches = int(trainer.num_training_batches)
    if batches > 1:
        raise UserError(
            f"optim.rule=lbfgs minimises the loss of all data at once, and an epoch has {batches} batches; take a "
            "task.data.batch_size of at least the number of training examples."
        )
    if trainer.world_size > 1:
        raise UserError(f"optim.rule=lbfgs works in one process, not in {trainer.world_size}; take trainer.devices=1.")


def _hooks(trainer: Trainer, names: tuple[str, ...]) -> dict[str, list[Callable[..., Any]]]:
    """What is to be called for each hook: that of the callbacks, then the module's own."""
    module, hooks = trainer.lightning_module, {}
    for name in names:
        callbacks = [c for c in trainer.callbacks if _has(c, name, Callback)]  # type: ignore[attr-defined]
        own = [getattr(module, name)] if _has(module, name, LightningModule) else []
        hooks[name] = [*(partial(getattr(c, name), trainer, module) for c in callbacks), *own]
    return hooks


def _transfers(trainer: Trainer) -> bool:
    """Whether the module or its data have their own way of moving batches to the device."""
    owners = (trainer.lightning_module, trainer.datamodule)  # type: ignore[attr-defined]
    return any(_has(owner, name, LightningModule) for owner in owners for name in TRANSFERS)


def _has(x: Any, name: str, base: type) -> bool:
    """Whether the method is x's own, of its class or given to it alone, and not that of `base`."""
    return getattr(getattr(x, name), "__func__", None) is not getattr(base, name)
