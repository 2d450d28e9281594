"""Where metrics go besides history.csv."""

import contextlib
import netrc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger

from tasks.errors import UserError, one_of
from tasks.settings import flat


def wandb_logger(save_dir: str, project: str, mode: str) -> WandbLogger:
    """A logger of Weights & Biases. mode: "online", "offline", or "auto": online only where one is logged in."""
    if one_of("logger.mode", mode, ("auto", "online", "offline")) == "auto":
        mode = os.environ.get("WANDB_MODE") or ("online" if _logged_in() else "offline")
    name = "/".join(Path(save_dir).parts[-2:])  # of the run's folder: what it is, and when it began
    return WandbLogger(project=project, name=name, save_dir=save_dir, offline=mode != "online")


def tensorboard_logger(save_dir: str, name: str) -> TensorBoardLogger:
    """A logger of TensorBoard, into the folder `name`. Raises UserError where TensorBoard is not installed."""
    try:
        return TensorBoardLogger(save_dir=save_dir, name=name, version="")
    except ModuleNotFoundError as error:
        raise UserError(
            "logger=tensorboard needs the package tensorboard: pip install '.[tensorboard]'. Or take another logger."
        ) from error


@contextlib.contextmanager
def open_loggers(makers: Iterable[Callable[..., Logger]], folder: Path) -> Iterator[list[Logger]]:
    """The loggers of a run; they end with it, so that the next run of this process gets its own.

    makers: each is called with save_dir.
    """
    loggers = [make(save_dir=str(folder)) for make in makers]
    try:
        yield loggers
    finally:
        if any(isinstance(logger, WandbLogger) for logger in loggers):
            import wandb  # a second that other runs need not wait

            wandb.finish()


def log_settings(trainer: pl.Trainer, settings: Mapping[str, Any]) -> None:
    """The settings of a run, to W&B as its configuration and to TensorBoard as a text; by the first process alone."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.log_hyperparams(dict(settings))
        elif isinstance(logger, TensorBoardLogger):
            lines = (f"    {key}: {value}" for key, value in flat(dict(settings)).items())
            logger.experiment.add_text("settings", "\n".join(lines))


def log_metrics(trainer: pl.Trainer, metrics: Mapping[str, float]) -> None:
    """Numbers that are the same in every process, to the loggers; Lightning's own way there takes longer than an epoch
    of milliseconds."""
    for logger in trainer.loggers:
        logger.log_metrics({**metrics, "epoch": trainer.current_epoch}, step=trainer.global_step)


def _logged_in() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
