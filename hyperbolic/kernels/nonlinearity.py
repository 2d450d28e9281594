"""The pointwise functions layers can name, each with its derivative as a function of its value."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NONLINEARITIES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "identity": (lambda x: x, torch.ones_like),
    "tanh": (torch.tanh, lambda y: 1 - y * y),
    "relu": (torch.relu, lambda y: (y > 0).to(y.dtype)),
    "sigmoid": (torch.sigmoid, lambda y: y * (1 - y)),
}


def checked(name: str) -> str:
    """``name`` itself.

    Raises:
        ValueError: for a name that is not in ``NONLINEARITIES``.
    """
    if name not in NONLINEARITIES:
        raise ValueError(f"unknown nonlinearity {name!r}; available: {', '.join(NONLINEARITIES)}")
    return name
