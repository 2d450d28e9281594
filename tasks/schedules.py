"""How learning rates change over a run: a warm-up, then a schedule."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytorch_lightning as pl
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)

from tasks.errors import UserError, one_of, rate, whole

# Learning rates that fall to 0 over so many steps.
FALLING: dict[str, Callable[[Optimizer, int], LRScheduler]] = {
    "linear": lambda optimizer, steps: LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=steps),
    "cosine": lambda optimizer, steps: CosineAnnealingLR(optimizer, T_max=steps),
}
SCHEDULES = ("constant", *FALLING, "inverse_sqrt", "noam", "plateau")


class Schedule:
    """The settings of a schedule; with t the optimiser step from 1, w = warmup_steps and T all steps of the run:

    constant: lr; linear: lr (1 - (t-1)/T); cosine: lr (1 + cos(pi (t-1)/T)) / 2;
    inverse_sqrt: lr min(t/w, sqrt(w/t));
    noam: lr d^-0.5 min(t^-0.5, t w^-1.5) (Vaswani et al. 2017, section 5.3), d = d_model;
    plateau: lr, times `factor` after each `patience` + 1 validated epochs without a better selecting metric, that of
    an epoch's last validation.

    With a warm-up the first three begin at lr/w, rise to lr in w steps, and have T - w steps for the rest.

    Raises UserError for an unknown name, a value out of range, and where warmup_steps or d_model is missing or stands
    beside a schedule without it.
    """

    def __init__(
        self, name: str = "constant", warmup_steps: int = 0, d_model: int | None = None, factor: float = 0.5,
        patience: int = 0,
    ):  # fmt: skip
        self.name = one_of("optim.schedule", name, SCHEDULES)
        self.warmup_steps = whole("optim.warmup_steps", warmup_steps, 0)
        self.factor = rate("optim.plateau.factor", factor)
        self.patience = whole("optim.plateau.patience", patience, 0)
        if name in ("inverse_sqrt", "noam") and warmup_steps < 1:
            raise UserError(f"optim.schedule={name} needs optim.warmup_steps of at least 1, and it is {warmup_steps}.")
        if name == "plateau" and warmup_steps:
            raise UserError("optim.schedule=plateau has no warm-up; set optim.warmup_steps=0 or choose another one.")
        if name == "noam" and d_model is None:
            raise UserError(
                "optim.schedule=noam needs optim.d_model, the size of the model, by whose root its rates are divided; "
                "add optim.d_model=512, for a Transformer of that size."
            )
        if name == "noam":
            d_model = whole("optim.d_model", d_model, 1)
        elif d_model is not None:
            raise UserError(f"optim.d_model={d_model} is for optim.schedule=noam, and the schedule is {name}.")
        self.d_model = d_model

    def configure(self, optimizer: Optimizer, trainer: Callable[[], pl.Trainer], monitor: str, mode: str) -> Any:
        """What LightningModule.configure_optimizers returns.

        trainer: gives the trainer, where the schedule asks for its steps or validations. monitor, mode: the selecting
        metric and "max" or "min".
        """
        if self.name == "constant" and not self.warmup_steps:
            return optimizer
        if self.name == "plateau":
            epochs = trainer().check_val_every_n_epoch or 1  # from one validation to the next
            if trainer().limit_val_batches == 0:
                raise UserError("optim.schedule=plateau follows validations, and trainer.limit_val_batches=0 has none.")
            direction: Literal["max", "min"] = "max" if mode == "max" else "min"
            plateau = ReduceLROnPlateau(optimizer, direction, self.factor, self.patience, threshold=0.0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": plateau, "interval": "epoch", "frequency": epochs, "monitor": monitor},
            }
        scheduler = self._by_step(optimizer, trainer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def follow(self, trainer: pl.Trainer, metrics: Mapping[str, float], monitor: str) -> None:
        """After a whole epoch with a validation, the step of a plateau, which the checkpoint of its end has then.

        Lightning makes it after checkpoints are saved, and not at all in the epoch in which a run goes on.
        """
        for config in trainer.lr_scheduler_configs:
            validated = config.reduce_on_plateau and (trainer.current_epoch + 1) % config.frequency == 0
            if validated and trainer.fit_loop.epoch_loop._num_ready_batches_reached():
                assert isinstance(config.scheduler, ReduceLROnPlateau)
                config.scheduler.step(metrics[monitor])

    def _by_step(self, optimizer: Optimizer, trainer: Callable[[], pl.Trainer]) -> LRScheduler:
        w, d = self.warmup_steps, self.d_model or 1
        if self.name == "inverse_sqrt":
            return LambdaLR(optimizer, lambda k: min((k + 1) / w, (w / (k + 1)) ** 0.5))
        if self.name == "noam":
            return LambdaLR(optimizer, lambda k: d**-0.5 * min((k + 1) ** -0.5, (k + 1) * w**-1.5))
        if not w:
            return FALLING[self.name](optimizer, int(trainer().estimated_stepping_batches))
        warmup = LinearLR(optimizer, start_factor=1 / w, total_iters=max(w - 1, 1))
        if self.name == "constant":
            return warmup
        rest = FALLING[self.name](optimizer, max(int(trainer().estimated_stepping_batches) - w, 1))
        return SequentialLR(optimizer, [warmup, rest], milestones=[w])
