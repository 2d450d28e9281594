"""Where metrics go besides history.csv."""

import contextlib
import netrc
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, WandbLogger

from tasks.errors import one_of


def wandb_logger(save_dir: str, project: str, mode: str) -> WandbLogger:
    """A logger of Weights & Biases. mode: "online", "offline", or "auto": online only where one is logged in."""
    if one_of("logger.mode", mode, ("auto", "online", "offline")) == "auto":
        mode = os.environ.get("WANDB_MODE") or ("online" if _logged_in() else "offline")
    return WandbLogger(project=project, save_dir=save_dir, offline=mode != "online")


@contextlib.contextmanager
def open_logger(make: Callable[..., Logger] | None, folder: Path) -> Iterator[Logger | None]:
    """The logger of a run, or None; it ends with the run, so that the next run of this process gets one of its own.

    make: called with save_dir.
    """
    logger = make(save_dir=str(folder)) if make else None
    try:
        yield logger
    finally:
        if isinstance(logger, WandbLogger):
            import wandb  # a second that other runs need not wait

            wandb.finish()


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
