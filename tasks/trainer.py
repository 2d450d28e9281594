"""Lightning's trainer, as all runs have it: its devices, and what it does not say."""

import logging
import os
import sys
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import StrategyRegistry
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from hyperbolic.geometry import Geometry
from tasks.checkpoint_reader import CheckpointReader
from tasks.checkpoints import Checkpoints
from tasks.errors import UserError, one_of
from tasks.gradients import MeanGradients
from tasks.loop import EpochLoop
from tasks.rendezvous import is_alone_in_slurm

MOST_PROCESSES = 8  # on CPUs, for each core
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
    callbacks: list[Callback], loggers: list[Logger], enable_progress_bar: bool, **options: Any
) -> pl.Trainer:
    """Lightning's trainer with our choices: own checkpoints, own batches for several processes, no sanity check.

    Raises UserError for what it refuses, and for several processes in a job of Slurm that srun did not start."""
    # Lightning tells on every run what hardware it looked for and which of its products there are.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    one_of("trainer.precision", str(options.get("precision", "32-true")), PRECISIONS)
    if str(options.get("devices", 1)) == "0":
        raise UserError("trainer.devices must be at least 1, or auto, and it is 0.")
    options["accelerator"] = choose_accelerator(options.get("accelerator", "auto"))
    if options["accelerator"] == "cpu":
        check_processes(options.get("devices", 1))
    alone = is_alone_in_slurm()
    StrategyRegistry.register("ddp", MeanGradients, override=True)  # what Lightning takes for several processes
    try:
        trainer = pl.Trainer(
            callbacks=callbacks,
            logger=loggers or False,
            enable_progress_bar=enable_progress_bar and sys.stdout.isatty(),  # else Lightning draws one into a log
            enable_checkpointing=any(isinstance(c, Checkpoints) for c in callbacks),
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            plugins=[CheckpointReader(), *([LightningEnvironment()] if alone else [])],
            **options,
        )
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise UserError(f"trainer: {' '.join(str(error).split())}") from error
    if alone and trainer.world_size > 1:
        raise UserError(
            f"trainer.devices={trainer.num_devices} and trainer.num_nodes={trainer.num_nodes} ask for "
            f"{trainer.world_size} processes, and this job of Slurm has started one of them alone. Start all of them: "
            f"srun --ntasks-per-node={trainer.num_devices} python run.py ... in a script for sbatch."
        )
    trainer.fit_loop.epoch_loop = EpochLoop(trainer)
    # Lightning's talk to the other processes at any time, which hangs, and requeue Slurm's jobs with checkpoints of
    # their own; tasks.interruption has those that end a run.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    # With max_steps Lightning takes every run that goes on for one within an epoch, and at the end of an epoch it would
    # end that one again, without batches.
    trainer.fit_loop._iteration_based_training = lambda: False  # type: ignore[method-assign]
    return trainer


def check_processes(devices: Any) -> None:
    """Warn of more processes on CPUs than there are cores. Raises UserError where they would not come to an end."""
    if not str(devices).isdecimal():
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n = int(devices)
    if n > MOST_PROCESSES * cores:
        raise UserError(
            f"trainer.devices={n} asks for {n} processes, and this machine has {cores} core{'s' * (cores > 1)}; they "
            f"would wait for each other, each with a copy of the model. Take trainer.devices={cores} or fewer."
        )
    if n > cores and os.environ.get("LOCAL_RANK", "0") == "0":
        warnings.warn(
            f"trainer.devices={n} is more than the {cores} core{'s' * (cores > 1)} of this machine: the processes wait "
            f"for each other, and trainer.devices={cores} is faster.",
            stacklevel=2,
        )


def choose_accelerator(accelerator: str) -> str:
    """What "auto" means here, or the accelerator itself. Raises UserError where it has no device that suits."""
    if accelerator == "auto":  # Lightning would take Apple's MPS, which has no float64
        return "cuda" if torch.cuda.is_available() else "cpu"
    if accelerator == "mps" or (accelerator in ("gpu", "cuda") and not torch.cuda.is_available()):
        raise UserError(f"trainer.accelerator={accelerator}: a CUDA device is needed (MPS has no float64); use cpu.")
    one_of("trainer.accelerator", accelerator, ("auto", "cpu", "gpu", "cuda"))
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
