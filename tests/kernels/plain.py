"""Möbius operations of the unit ball as the papers print them, for autograd: coordinates on axis -2, as in the kernels.

Functions of a norm are functions of its square, so that autograd gives a number at 0. ``bound`` is the largest norm
of a point; what would lie outside is scaled back to it.
"""

import torch
from torch import Tensor

from hyperbolic.numerics import BALL_EPS, limit


def dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-2, keepdim=True)


def gap(x: Tensor) -> Tensor:
    return 1 - dot(x, x)


def bound(dtype: torch.dtype) -> float:
    return 1 - limit(BALL_EPS, dtype)


def inside(x: Tensor, bound: float) -> Tensor:
    square = dot(x, x)
    outside = square > bound * bound
    return x * torch.where(outside, bound * torch.where(outside, square, 1).rsqrt(), 1)


def add(x: Tensor, y: Tensor) -> Tensor:
    """Ganea et al. 2018, Eq. 4."""
    xx, yy, xy = dot(x, x), dot(y, y), dot(x, y)
    return ((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy)


def _ratio(square: Tensor, function, first: float, second: float) -> Tensor:
    """``function(r)/r`` of ``r^2``, ``1 + first r^2 + second r^4`` near 0."""
    small = square < 1e-8
    r = torch.where(small, 1, square).sqrt()
    return torch.where(small, 1 + first * square + second * square * square, function(r) / r)


def exp0(u: Tensor, bound: float = 1.0) -> Tensor:
    return inside(_ratio(dot(u, u), torch.tanh, -1 / 3, 2 / 15) * u, bound)


def log0(x: Tensor) -> Tensor:
    return _ratio(dot(x, x), torch.atanh, 1 / 3, 1 / 5) * x


def affine(q: Tensor, u: Tensor, b: Tensor, bound: float = 1.0) -> Tensor:
    """``(exp_0(q) (+) u) (+) b``."""
    return add(add(exp0(q, bound), u), b)


def gated(h: Tensor, o: Tensor, z: Tensor, bound: float = 1.0) -> Tensor:
    """``h (+) exp_0(z * log_0((-h) (+) o))``."""
    return inside(add(h, exp0(z * log0(add(-h, o)), bound)), bound)
