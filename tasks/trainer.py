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

from hyperbolic.geometry import Geometry
from tasks.checkpoints import Checkpoints
from tasks.errors import UserError, one_of
from tasks.gradients import MeanGradients
from tasks.loop import EpochLoop

PRECISIONS = ("32-true", "64-true", "32", "64", "bf16-mixed")


def check_precision(precision: str, geometry: Geometry) -> None:
    """Raises UserError for a precision that there is not, and for a mixed one of a model that is not Euclidean
    throughout: near the boundary, and far from the origin, 8 bits of a bfloat16 do not tell points apart."""
    one_of("trainer.precision", precision, PRECISIONS)
    for part in (geometry, *geometry.parts.values()):
        if precision.endswith("mixed") and (part.manifold.is_curved or part.family.name != "euclidean"):
            raise UserError(
                f"trainer.precision={precision} is for models that are Euclidean throughout, and this one has geometry="
                f"{part.name}, whose points need 32 bits or more. Take trainer.precision=32-true, or "
                "geometry=euclidean."
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
    trainer.fit_loop.epoch_loop = EpochLoop(trainer)
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
