"""The settings of `trainer` that a training takes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tasks.errors import UserError, whole

_COUNTS = ("nan_check_every_n_steps", "progress_every_n_steps", "log_every_n_steps")
_COUNTS_OR_NONE = ("checkpoint_every_n_steps", "patience", "average_last")


@dataclass(frozen=True)
class FitOptions:
    """Settings that are ours, or that we look at, which configs/trainer explains; others: what else Lightning's Trainer
    takes. Raises UserError for values that mean nothing."""

    resume: str | None
    checkpoint_every_n_steps: int | None
    checkpoint_every_s: float
    patience: int | None
    average_last: int | None
    nan_check_every_n_steps: int
    progress_every_n_steps: int
    kernels: str
    threads: int | None
    enable_progress_bar: bool
    log_every_n_steps: int
    max_epochs: int | None
    max_steps: int
    others: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "FitOptions":
        """Raises TypeError where a setting is missing."""
        own = {field.name for field in fields(cls)}
        others = {key: value for key, value in settings.items() if key not in own}
        return cls(**{key: value for key, value in settings.items() if key in own}, others=others)

    def __post_init__(self) -> None:
        optional = {name: getattr(self, name) for name in _COUNTS_OR_NONE}
        optional["min_epochs"] = self.others.get("min_epochs")
        counts = {name: getattr(self, name) for name in _COUNTS}
        for name, value in (counts | {k: v for k, v in optional.items() if v is not None}).items():
            whole(f"trainer.{name}", value, 1)
        if not self.checkpoint_every_s >= 0:
            raise UserError(
                f"trainer.checkpoint_every_s must be 0 or more seconds, and it is {self.checkpoint_every_s}."
            )
        if self.epochs < 0 and self.max_steps < 1:
            most = self.max_epochs
            raise UserError(f"trainer.max_epochs must be at least 1, or trainer.max_steps set; it is {most}.")
        interval = self.others.get("val_check_interval", 1.0)
        if interval <= 0 or (interval > 1 and not isinstance(interval, int)):
            raise UserError(
                f"trainer.val_check_interval={interval} must be a whole number of batches, or a share of an epoch as "
                "0.5, at most 1.0."
            )
        if self.patience is not None and self.others.get("limit_val_batches", 1) == 0:
            raise UserError(
                f"trainer.patience={self.patience} counts validations, and trainer.limit_val_batches=0 has none."
            )
        for name in ("limit_train_batches", "limit_test_batches"):
            more_than_0(name, self.others.get(name, 1))
        if self.max_steps == 0:
            raise UserError("trainer.max_steps must be at least 1, or -1 for no limit, and it is 0.")

    @property
    def epochs(self) -> int:
        """max_epochs, -1 where steps alone end a training."""
        return -1 if self.max_epochs is None or self.max_epochs < 1 else self.max_epochs

    @property
    def of_lightning(self) -> dict[str, Any]:
        """What Lightning's Trainer takes."""
        ends = {"max_epochs": self.epochs, "max_steps": self.max_steps}
        return {**ends, "log_every_n_steps": self.log_every_n_steps, **self.others}


def more_than_0(name: str, limit: int | float) -> None:
    """Raise UserError for a limit of the trainer that is not more than 0."""
    if not limit > 0:
        raise UserError(f"trainer.{name} must be more than 0, and it is {limit}.")
