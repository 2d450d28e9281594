"""The state of all random generators of a process, as a checkpoint keeps it."""

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
