"""Dtype-aware limits, and the sums of products over coordinates that hyperbolic formulas are made of.

Row scalars (squared norms, ``1 - c|x|^2``, distances) are computed in float64 whatever the dtype of the
points: they are one number per point, and everything that cancels in hyperbolic formulas cancels in them.
Functions of these scalars are in :mod:`hyperbolic.smooth`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.rows import row_dot, row_scale
from hyperbolic.switch import is_followed
from hyperbolic.typing import Context, Function

WIDE = torch.float64

# How close to the boundary a point may come: sqrt(c)|x| <= 1 - BALL_EPS. So many units in the last place (60 of
# float32, 9,000 of float64) that rounding a point moves it by at most a few percent of its distance to the boundary.
BALL_EPS = {torch.float32: 4e-6, torch.float64: 1e-12}
# Largest sqrt(c) * distance from the origin of a hyperboloid point. float64 row scalars stay accurate up to here.
SHEET_RADIUS = {torch.float32: 20.0, torch.float64: 28.0}


def limit(table: dict[torch.dtype, float], dtype: torch.dtype) -> float:
    """Entry of a per-dtype table.

    Raises:
        TypeError: for half precision, in which ``1 - c|x|^2`` and ``<x, x>_L`` have no correct digit.
    """
    try:
        return table[dtype]
    except KeyError:
        raise TypeError(
            f"float32 or float64 is needed, got {dtype}: points and distances have no digit to spare. Cast the "
            "module and its inputs, or keep it out of autocast; vectors that autocast has made are cast by .float()"
        ) from None


def wide(x: Tensor) -> Tensor:
    """``x`` in float64; half precision and whole numbers are refused, see :func:`limit`."""
    return _full(x).to(WIDE)


def _full(x: Tensor) -> Tensor:
    if x.dtype in (torch.float16, torch.bfloat16) or not x.dtype.is_floating_point:
        limit(BALL_EPS, x.dtype)
    return x


def wide_curvature(c: float | Tensor) -> Tensor:
    """``c`` as a float64 tensor (a Python float keeps its exact value)."""
    return c.to(WIDE) if isinstance(c, Tensor) else torch.tensor(c, dtype=WIDE, device="cpu")


def broadcast(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both in their common shape."""
    if is_followed(x, y):
        return torch.broadcast_tensors(x, y)  # type: ignore[no-any-return]
    if x.shape == y.shape:
        return x, y
    # the operation of that name takes no gradients of several directions at once
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return x.expand(shape), y.expand(shape)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y>`` over the last axis in float64, shape (..., 1)."""
    return row_dot(*broadcast(_full(x), _full(y)))


def sqnorm(x: Tensor) -> Tensor:
    """``|x|^2`` over the last axis in float64, shape (..., 1)."""
    x = _full(x)
    return row_dot(x, x)


def rescale(scale: Tensor, x: Tensor) -> Tensor:
    """``scale x`` for float64 row scalars (..., 1): multiplied in float64, in the dtype of x."""
    return row_scale(scale, _full(x))


def ball_gap(x: Tensor, c: float | Tensor) -> Tensor:
    """``1 - c|x|^2`` with full relative accuracy, floored at a quarter of the dtype's boundary epsilon, shape (..., 1).

    float32 points are summed in float64; float64 points with compensated (double-double) products and sums,
    because near the boundary plain float64 keeps only half of the digits.
    """
    floor = limit(BALL_EPS, x.dtype) / 4
    if x.dtype is not WIDE:
        return (1 - c * sqnorm(x)).clamp_min(floor)
    c = wide_curvature(c).to(x.device)
    if is_followed(x):
        return straight_through(1 - c * sqnorm(x), _compensated_gap(x.detach(), c.detach())).clamp_min(floor)
    gap: Tensor = _CompensatedGap.apply(x, c)
    return gap.clamp_min(floor)


def straight_through(plain: Tensor, exact: Tensor) -> Tensor:
    """The exact value with the derivatives of the plain one (a straight-through estimator)."""
    return plain + (exact - plain).detach()


def _compensated_gap(x: Tensor, c: Tensor) -> Tensor:
    high, low = _sum(*_two_product(x, x))
    product, error = _two_product(*broadcast(c, high))
    gap, rest = _two_sum(torch.ones_like(product), -product)
    return gap + (rest - error - c * low)


class _CompensatedGap(Function[Tensor]):
    """``1 - c|x|^2`` of float64 points in double-double arithmetic (Dekker products, Knuth sums)."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(x, c)
        return _compensated_gap(x, c)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, c = ctx.saved_tensors
        grad_x = (-2 * c * grad * x).sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
        grad_c = (-grad * sqnorm(x)).sum_to_size(c.shape) if ctx.needs_input_grad[1] else None
        return grad_x, grad_c


def _sum(high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over the last axis of ``high + low`` in double-double, (..., 1) each; ``low`` are rounding errors."""
    low = low.sum(-1, keepdim=True)
    while high.shape[-1] > 1:  # pairwise tree: one vectorised error-free sum a level
        if high.shape[-1] % 2:
            high = torch.cat([high, torch.zeros_like(high[..., :1])], -1)
        high, error = _two_sum(high[..., 0::2], high[..., 1::2])
        low = low + error.sum(-1, keepdim=True)
    return (torch.zeros_like(low) if high.shape[-1] == 0 else high), low


class _CompensatedDot(Function[Tensor]):
    """``<x, y>`` of float64 vectors in double-double arithmetic."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return _compensated_dot(x, y)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return (grad * y).sum_to_size(x.shape), (grad * x).sum_to_size(y.shape)


def _compensated_dot(x: Tensor, y: Tensor) -> Tensor:
    high, low = _sum(*_two_product(x, y))
    return high + low


def careful_dot(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y>`` like :func:`dot`, but correct to the last digits also where large products cancel in float64."""
    if x.dtype is not WIDE or y.dtype is not WIDE:
        return dot(x, y)
    if is_followed(x, y):
        return straight_through(dot(x, y), _compensated_dot(x.detach(), y.detach()))
    return _CompensatedDot.apply(x, y)


def difference_along(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y - x>`` without the rounding of ``y - x``, float64, shape (..., 1)."""
    if x.dtype is not WIDE or y.dtype is not WIDE:
        return dot(x, wide(y) - wide(x))
    with torch.no_grad():
        lost = _two_sum(y, -x)[1]
        rest = dot(x, lost)
    return careful_dot(x, y - x) + rest


def _compensated_rejection(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    square = sqnorm(x)
    safe = torch.where(square > 0, square, 1)
    q = dot(x, v) / safe
    product, error = _two_product(*broadcast(q, x))
    high, low = _two_sum(v, -product)
    out = high + (low - error)
    return out - dot(x, out) / safe * x, q, safe  # the error of q lies along x


class _Reject(Function[Tensor]):
    """``v - <x, v>/|x|^2 x`` to full relative accuracy, however much longer v is than the result."""

    @staticmethod
    def forward(ctx: Context, v: Tensor, x: Tensor) -> Tensor:
        out, q, safe = _compensated_rejection(v, x)
        ctx.save_for_backward(out, v, x, q, safe)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        out, v, x, q, square = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, which goes through them
            square = sqnorm(x)
            square = torch.where(square > 0, square, 1)
            q = dot(x, v) / square
        grad = grad.expand_as(out)
        across = _compensated_rejection(grad, x)[0] if is_followed(grad) else _Reject.apply(grad, x)
        by_x = -(dot(grad, x) / square * out + q * across)
        return across.sum_to_size(v.shape), by_x.sum_to_size(x.shape)


def reject(v: Tensor, x: Tensor) -> Tensor:
    """The part of v orthogonal to x, ``v - <x, v>/|x|^2 x`` (v itself where x = 0), float64.

    float64 vectors are worked on with error-free products, because far out on the hyperboloid a vector is up to
    e^radius times longer along the ray than across; float32 vectors have digits to spare in float64.
    """
    exact = v.dtype is WIDE and x.dtype is WIDE
    if exact and not is_followed(v, x):
        return _Reject.apply(v, x)
    v, x = wide(v), wide(x)
    square = sqnorm(x)
    plain = v - dot(x, v) / torch.where(square > 0, square, 1) * x
    return straight_through(plain, _compensated_rejection(v.detach(), x.detach())[0]) if exact else plain


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def _split(a: Tensor) -> tuple[Tensor, Tensor]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def _two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
