"""Mixed precision, which hyperbolic formulas leave: half-precision numbers cannot hold points far from the origin."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., Any])


def autocast_device(*values: Any) -> str | None:
    """The device of the first tensor among them, where autocast is on there."""
    for value in values:
        if isinstance(value, Tensor):
            kind = value.device.type
            return kind if kind != "meta" and torch.is_autocast_enabled(kind) else None
    return None


def leaves_autocast(function: F) -> F:
    """A function of tensors that computes in their dtype whatever autocast says."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if (device := autocast_device(*args, *kwargs.values())) is None:
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return cast(F, run)
