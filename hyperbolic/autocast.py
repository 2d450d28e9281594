"""Mixed precision, which hyperbolic formulas leave: half-precision numbers cannot hold points far from the origin."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., Any])
HALF = (torch.float16, torch.bfloat16)


def autocast_device(*values: Any) -> str | None:
    """The device of the first tensor among them, where autocast is on there."""
    for value in values:
        if isinstance(value, Tensor):
            kind = value.device.type
            return kind if kind != "meta" and torch.is_autocast_enabled(kind) else None
    return None


def without_autocast(*values: Any) -> AbstractContextManager[Any]:
    """A context without autocast on the device of the first tensor among them."""
    device = autocast_device(*values)
    return nullcontext() if device is None else torch.autocast(device, enabled=False)


def leaves_autocast(function: F) -> F:
    """A function of tensors that computes in their dtype whatever autocast says; what autocast has made is cast to
    float32."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if (device := autocast_device(*args, *kwargs.values())) is None:
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*map(in_full, args), **{key: in_full(value) for key, value in kwargs.items()})

    return cast(F, run)


def in_full(value: Any) -> Any:
    """A tensor in half precision as float32; anything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value
