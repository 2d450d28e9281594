"""Möbius sums and squared distances of pairs of points of the ball.

``x (+) y = a s + b x`` with ``s = x + y`` and a pair of numbers a row, so that the C++, for large float32 tensors,
reads a row once forwards and once backwards. :mod:`hyperbolic.manifolds.poincare` has the functions that take any
arguments.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.numerics import BALL_EPS, ball_gap, limit, sqnorm, wide
from hyperbolic.operator import Operator, operator
from hyperbolic.rows import blocked, large
from hyperbolic.typing import Context

_LIBRARY = native.Library("ball")


def inside(gap: Tensor, dtype: torch.dtype) -> Tensor:
    """Factor that pulls a point with ``1 - c|x|^2 = gap`` back inside the boundary margin; 1 for points inside."""
    bound = 1 - limit(BALL_EPS, dtype)
    outside = gap < 1 - bound * bound
    return torch.where(outside, bound * (1 - torch.where(outside, gap, 0)).rsqrt(), 1)


class _Rows(Operator):
    """x and y (..., D); the C++ takes points of one shape and one curvature."""

    opaque = False

    @staticmethod
    def fits(x: Tensor, y: Tensor, c: Tensor) -> bool:
        one_number = c.numel() == 1 and c.dim() <= x.dim() and c.dtype is torch.float64
        return one_number and large(x, y) and _LIBRARY.usable(x, y)


def _call(symbol: str, tensors: tuple[Tensor | None, ...], x: Tensor, c: Tensor) -> None:
    """The function of this name, with its limits: the least gap, and for sums the margin of the boundary."""
    margin = limit(BALL_EPS, x.dtype)
    limits = [margin / 4, 1 - margin] if symbol.startswith("mobius_add") else [margin / 4]
    _LIBRARY.run(symbol, *tensors, x.numel() // x.shape[-1], x.shape[-1], float(c), *limits)


def _gradients(symbol: str, ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, y, c = ctx.saved_tensors
    grad_x, grad_y = torch.empty_like(x), torch.empty_like(y)
    grad_c = x.new_empty(x.shape[:-1], dtype=torch.float64) if ctx.needs_input_grad[2] else None
    _call(f"{symbol}_grad", (x, y, grad.contiguous(), grad_x, grad_y, grad_c), x, c)
    return grad_x, grad_y, None if grad_c is None else grad_c.sum().view(c.shape)


@operator("ball_add(Tensor x, Tensor y, Tensor c) -> Tensor")
class BallAdd(_Rows):
    """``x (+) y``, see :func:`hyperbolic.manifolds.poincare.mobius_add`."""

    @staticmethod
    def plain(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        gap_x, gap_y = ball_gap(x, c), ball_gap(y, c)
        total = x + y
        square = c * sqnorm(total)
        denominator = square + gap_x * gap_y
        scale = inside(gap_x * gap_y / denominator, total.dtype) / denominator
        return (scale * gap_x).to(total.dtype) * total + (scale * square).to(total.dtype) * x

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(x, y, c)
        out = torch.empty_like(x)
        _call("mobius_add", (x, y, out), x, c)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients("mobius_add", ctx, grad)


@operator("ball_distance_square(Tensor x, Tensor y, Tensor c) -> Tensor")
class BallDistanceSquare(_Rows):
    """``|x - y|^2 / (g_x g_y)``, see :func:`hyperbolic.manifolds.poincare.distance_square`."""

    @staticmethod
    def plain(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        e = x - y if blocked(x, y) else wide(x) - wide(y)  # in float32 off by a rounding of itself, at most
        return sqnorm(e) / (ball_gap(x, c) * ball_gap(y, c))

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(x, y, c)
        out = x.new_empty(*x.shape[:-1], 1, dtype=torch.float64)
        _call("distance_square", (x, y, out), x, c)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients("distance_square", ctx, grad)
