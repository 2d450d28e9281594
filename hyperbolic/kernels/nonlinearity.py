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


def checked(name: str) -> str:
    """``name`` itself.

    Raises:
        ValueError: for a name that is not in ``NONLINEARITIES``.
    """
    if name not in NONLINEARITIES:
        raise ValueError(f"unknown nonlinearity {name!r}; available: {', '.join(NONLINEARITIES)}")
    return name
