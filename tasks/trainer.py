"""Lightning's trainer, as all runs have it: its devices, and what it does not say."""

import logging
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import StrategyRegistry
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from hyperbolic.manifolds import Manifold
from tasks.base import Task
from tasks.checkpoints import Checkpoints
from tasks.errors import UserError, one_of
from tasks.gradients import MeanGradients

MIXED = "bf16-mixed"
PRECISIONS = ("32-true", "64-true", "32", "64", MIXED)


def check_precision(task: Task, precision: str) -> None:
    """Raises UserError where mixed precision is asked for a model with curved spaces: points far from the origin are
    further apart than the 8 significant bits of bfloat16 tell."""
    curved = [m.name for m in task.model.modules() if isinstance(m, Manifold) and m.is_curved]
    if precision == MIXED and curved:
        raise UserError(
            f"trainer.precision={MIXED} is for Euclidean models, and this one has points on {curved[0]}, whose "
            "distances numbers of 16 bits cannot tell; take 32-true or 64-true, or geometry=euclidean."
        )


def make_trainer(
    callbacks: list[Callback], logger: Logger | None, enable_progress_bar: bool, **options: Any
) -> pl.Trainer:
    """Lightning's trainer with our choices: own checkpoints, own batches for several processes, no sanity check."""
    # Lightning tells on every run what hardware it looked for and which of its products there are.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    one_of("trainer.precision", str(options.get("precision", "32-true")), PRECISIONS)
    options["accelerator"] = choose_accelerator(options.get("accelerator", "auto"))
    StrategyRegistry.register("ddp", MeanGradients, override=True)  # what Lightning takes for several processes
    try:
        trainer = pl.Trainer(
            callbacks=callbacks,
            logger=logger or False,
            enable_progress_bar=enable_progress_bar,
            enable_checkpointing=any(isinstance(c, Checkpoints) for c in callbacks),
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            **options,
        )
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise UserError(f"trainer: {' '.join(str(error).split())}") from error
    # Lightning's talk to the other processes at any time, which hangs, and requeue Slurm's jobs with checkpoints of
    # their own; tasks.interruption has those that end a run.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    # With max_steps Lightning takes every run that goes on for one within an epoch, and at the end of an epoch it would
    # end that one again, without batches.
    trainer.fit_loop._iteration_based_training = lambda: False  # type: ignore[method-assign]
    return trainer


def choose_accelerator(accelerator: str) -> str:
    """What "auto" means here, or the accelerator itself. Raises UserError where it has no device that suits."""
    if accelerator == "auto":  # Lightning would take Apple's MPS, which has no float64
        return "cuda" if torch.cuda.is_available() else "cpu"
    if accelerator == "mps" or (accelerator in ("gpu", "cuda") and not torch.cuda.is_available()):
        raise UserError(f"trainer.accelerator={accelerator}: a CUDA device is needed (MPS has no float64); use cpu.")
    return accelerator


class without_advice(warnings.catch_warnings):
    """Without Lightning's advice that does not apply: our batches are resumable, in memory, and need no workers."""

    def __enter__(self) -> None:
        super().__enter__()
        for message in (
            ".*does not have many workers.*",
            ".*smaller than the logging interval.*",
            ".*treespec.*",
            ".*Checkpoint directory .* exists and is not empty.*",
            ".*GPU available but not used.*",
            ".*sync_dist=True.*",  # what is logged is the same in all processes
        ):
            warnings.filterwarnings("ignore", message=message)
