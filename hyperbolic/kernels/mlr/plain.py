"""The formulas of :mod:`hyperbolic.kernels.mlr` in PyTorch operations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic.numerics import WIDE, ball_gap, dot, scaled, sqnorm

TINY = 1e-74  # keeps |a| positive; the inverse of its root is a float32 number
_LONG = 1e18  # its square is a float32 number


def lift_points(x: Tensor, c: Tensor) -> Tensor:
    gap = ball_gap(x, c)
    return torch.cat([scaled(2 / gap, x), (4 / gap - 2).to(x.dtype)], -1)


def lift_hyperplanes(p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """With ``t = <p,a>/g`` and ``alpha = sqrt(c)/|a|``: ``W = [alpha a + 2 c alpha t p, -alpha t]``."""
    shift, norm = dot(p, a) / ball_gap(p, c), (sqnorm(a) + TINY).sqrt()
    alpha = c.sqrt() / norm
    w = torch.cat([scaled(alpha, a) + scaled(2 * c * alpha * shift, p), (-alpha * shift).to(a.dtype)], -1)
    return w, (2 / c.sqrt() * norm).squeeze(-1).to(a.dtype)


def arsinh(z: Tensor) -> Tensor:
    """``arsinh(z)``, with a slope also where the square of a float32 number overflows: there ``log(2|z|)``."""
    if z.dtype is WIDE:
        return z.asinh()
    long = z.abs() > _LONG
    tail = torch.where(long, z.abs(), 1).log() + math.log(2)
    return torch.where(long, torch.where(z < 0, -tail, tail), torch.where(long, 0, z).asinh())


def logits(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    return scale * arsinh(x @ w.T)
