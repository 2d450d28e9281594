"""How a run uses the machine: threads, kernels, and when these are compiled."""

import sys

import pytorch_lightning as pl
import torch

from hyperbolic import fusion, switch
from hyperbolic.native import build as native
from tasks import processes
from tasks.errors import UserError, whole

_COMPILED_LATER = (
    "formulas are compiled for the GPU at their first use: the first steps of a model of many layers take minutes, "
    "those of later runs, which find them in PyTorch's cache, a fraction of that; trainer.kernels=plain starts at once"
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


def choose_kernels(kernels: str) -> None:
    """Which kernels are used. Raises UserError, which names trainer.kernels, for what there is not."""
    try:
        switch.use_kernels(kernels)
    except ValueError as error:
        raise UserError(f"trainer.{error} (the variable HYPERBOLIC_KERNELS sets it, too)") from error


def build_kernels(trainer: pl.Trainer) -> None:
    """Compile the C++ kernels of a CPU, where they are not yet, before the clock and the progress bar start."""
    device = trainer.strategy.root_device.type
    if device == "cpu" and processes.is_first_here():
        native.build(lambda line: print(line, file=sys.stderr, flush=True))
    elif device in fusion.DEVICES and switch.fast() and processes.is_first_here():
        print(_COMPILED_LATER, file=sys.stderr, flush=True)
