"""The random generators of a process: their state, as a checkpoint keeps it, and one that several processes share."""

import random
from typing import Any

import numpy as np
import torch

NUMPY_WORDS = 624  # of the state of its Mersenne twister


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of the generators of Python, NumPy, PyTorch and the device, in types that a checkpoint may hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    numbers = [kind, np.asarray(keys).tolist(), *rest]
    state = {"torch": torch.get_rng_state(), "numpy": numbers, "python": random.getstate()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Go on from what `random_state` gave; without the device's where the state was of another kind of device.

    Raises ValueError where NumPy's has another length, or a position outside of it, from which NumPy would read.
    """
    torch.set_rng_state(state["torch"].cpu())
    kind, keys, position, *rest = state["numpy"]
    if len(keys) != NUMPY_WORDS or not 0 <= position <= NUMPY_WORDS:
        raise ValueError("its state of NumPy's random numbers is none")
    np.random.set_state((kind, keys, position, *rest))
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)


def shared_generator(device: torch.device, rank: int, drawn: torch.Tensor | None) -> torch.Generator:
    """A generator of the numbers that one process would draw, the same in all of several; of all others, as dropout's,
    each process has its own from now on.

    drawn: the generator's state in a checkpoint.
    """
    state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    if drawn is not None and len(drawn) == len(state):  # of the same kind of device
        state = drawn.cpu()
    generator = torch.Generator(device)
    generator.set_state(state)
    torch.manual_seed((torch.initial_seed() + rank) % 2**63)
    return generator
