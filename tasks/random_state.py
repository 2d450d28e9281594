"""The random generators of a process: their state, as a checkpoint keeps it, and one that several processes share."""

import random
from typing import Any

import numpy as np
import torch


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of the generators of Python, NumPy, PyTorch and the device, in types that a checkpoint may hold."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    numbers = [kind, np.asarray(keys).tolist(), *rest]
    state = {"torch": torch.get_rng_state(), "numpy": numbers, "python": random.getstate()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Go on from what `random_state` gave; without the device's where the state was of another kind of device."""
    torch.set_rng_state(state["torch"].cpu())
    np.random.set_state(tuple(state["numpy"]))
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
