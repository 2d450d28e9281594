"""Möbius sums and squared distances of large float32 tensors of the ball in C++, with their gradients by hand.

``x (+) y = a s + b x`` with ``s = x + y`` and one pair of numbers a row, so a row is read once forwards and once
backwards. The plain formulas stand in :mod:`hyperbolic.manifolds.poincare`, which comes here for tensors that
:func:`hyperbolic.rows.blocked` calls large; they also give derivatives of higher order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic import fusion, native
from hyperbolic.numerics import BALL_EPS, limit
from hyperbolic.rows import blocked
from hyperbolic.typing import Context, Function

Formula = Callable[[Tensor, Tensor, Tensor], Tensor]  # of x, y and c
_LIBRARY = native.Library("ball")


def fits(x: Tensor, y: Tensor, c: Tensor) -> bool:
    """Whether these points, and their one curvature, can be worked on here."""
    return c.numel() == 1 and blocked(x, y) and _LIBRARY.usable(x, y)


class _Rows(Function[Tensor]):
    """symbol: of the C++ function, ``symbol_grad`` its gradient. limits: numbers it takes after c. plain: the formula,
    for derivatives of higher order. wide: a float64 number a row comes out, else a row."""

    @staticmethod
    def forward(
        ctx: Context,
        x: Tensor,
        y: Tensor,
        c: Tensor,
        symbol: str,
        limits: list[float],
        plain: Formula,
        wide: bool,
    ) -> Tensor:
        out = x.new_empty(*x.shape[:-1], 1, dtype=torch.float64) if wide else torch.empty_like(x)
        _call(symbol, (x, y, out), x, c, limits)
        ctx.save_for_backward(x, y, c)
        ctx.symbol, ctx.limits, ctx.plain = symbol, limits, plain
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, c = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *fusion.gradients(ctx.plain, (x, y, c), [grad], ctx.needs_input_grad[:3]), None, None, None, None
        grad_x, grad_y = torch.empty_like(x), torch.empty_like(y)
        grad_c = x.new_empty(x.shape[:-1], dtype=torch.float64) if ctx.needs_input_grad[2] else None
        _call(f"{ctx.symbol}_grad", (x, y, grad.contiguous(), grad_x, grad_y, grad_c), x, c, ctx.limits)
        return grad_x, grad_y, None if grad_c is None else grad_c.sum().view(c.shape), None, None, None, None


def _call(symbol: str, tensors: tuple[Tensor | None, ...], x: Tensor, c: Tensor, limits: list[float]) -> None:
    _LIBRARY.run(symbol, *tensors, x.numel() // x.shape[-1], x.shape[-1], float(c), *limits)


def _floor(x: Tensor) -> float:
    return limit(BALL_EPS, x.dtype) / 4


def mobius_add(x: Tensor, y: Tensor, c: Tensor, plain: Formula) -> Tensor:
    """``x (+) y``; plain: the formula."""
    return _Rows.apply(x, y, c, "mobius_add", [_floor(x), 1 - limit(BALL_EPS, x.dtype)], plain, False)


def distance_square(x: Tensor, y: Tensor, c: Tensor, plain: Formula) -> Tensor:
    """``|x - y|^2 / (g_x g_y)``, (..., 1) in float64; plain: the formula."""
    return _Rows.apply(x, y, c, "distance_square", [_floor(x)], plain, True)
