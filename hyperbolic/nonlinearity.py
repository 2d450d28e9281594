"""The pointwise functions layers can name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


def check_nonlinearity(name: str) -> str:
    """``name`` itself.

    Raises:
        ValueError: for a name that is not in ``NONLINEARITIES``.
    """
    if name not in NONLINEARITIES:
        kind = "a nonlinearity is given by its name, got" if callable(name) else "unknown nonlinearity"
        raise ValueError(f"{kind} {name!r}; available: {', '.join(NONLINEARITIES)}")
    return name
