"""Dtype-aware limits and the scalar functions that hyperbolic formulas are made of, accurate and smooth everywhere.

Row scalars (squared norms, ``1 - c|x|^2``, distances) are computed in float64 whatever the dtype of the
points: they are one number per point, and everything that cancels in hyperbolic formulas cancels in them.
Functions of a norm are written as functions of its square, so that value and gradient are right at zero.

Where something follows the operations (:func:`hyperbolic.switch.is_followed`), each function has a form without
autograd functions, which can be differentiated in every way: by a series near zero, or as a plain formula plus the
constant that is missing to the exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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

_SMALL = 0.02  # below this square, derivatives come from power series; both forms are accurate to rounding there


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


def safe_sqrt(square: Tensor) -> Tensor:
    """``sqrt(s)`` for s >= 0 whose gradient at 0 is 0 instead of infinite."""
    zero = square <= 0  # NaN stays NaN
    return torch.where(zero, 0, torch.where(zero, 1, square).sqrt())


class _Smooth(Function[Tensor]):
    """A function of a squared norm, with its derivative in closed form, or by series where the closed form cancels."""

    @staticmethod
    def forward(
        ctx: Context,
        square: Tensor,
        value: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor, Tensor], Tensor],
        coefficients: tuple[float, ...],
    ) -> Tensor:
        out = value(square)
        ctx.save_for_backward(square, out)
        ctx.slope, ctx.coefficients = slope, coefficients
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None, None, None]:
        square, out = ctx.saved_tensors
        series = torch.full_like(square, ctx.coefficients[-1])
        for coefficient in ctx.coefficients[-2::-1]:
            series = series.mul(square).add_(coefficient)
        slope = torch.where(square < _SMALL, series, ctx.slope(square.clamp_min(_SMALL), out))
        return grad * slope, None, None, None


def _smooth(
    square: Tensor,
    value: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor, Tensor], Tensor],
    coefficients: tuple[float, ...],
) -> Tensor:
    """A function that is 1 at 0. Args: coefficients: of the power series of its derivative."""
    if not is_followed(square):
        return _Smooth.apply(square, value, slope, coefficients)
    return _join(square, [1.0, *(k / n for n, k in enumerate(coefficients, 1))], value(square.clamp_min(_SMALL)))


def _join(square: Tensor, coefficients: list[float], closed: Tensor) -> Tensor:
    """The power series where the square is small, else the closed form."""
    small = square.clamp_max(_SMALL)
    series = torch.full_like(square, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        series = series * small + coefficient
    return torch.where(square < _SMALL, series, closed)


def _root(square: Tensor) -> Tensor:
    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()


def _tanhc(s: Tensor) -> Tensor:
    r = _root(s)
    return torch.tanh(r) / r


def _sinhc(s: Tensor) -> Tensor:
    r = _root(s)
    return torch.sinh(r) / r


def _asinhc(s: Tensor) -> Tensor:
    r = _root(s)
    return torch.asinh(r) / r


# the power series of tanh(r)/r in r^2
TANHC = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875)
_TANHC_SLOPE = tuple(k * coefficient for k, coefficient in enumerate(TANHC[1:], 1))


def tanhc(square: Tensor) -> Tensor:
    """``tanh(r)/r`` as a function of ``r^2``: the scale of exp at the origin of the Poincaré ball and Klein disk."""
    return _smooth(
        square,
        _tanhc,
        lambda s, f: (1 - s * f * f - f) / (2 * s),
        _TANHC_SLOPE,
    )


class _Artanhc(Function[Tensor]):
    """``artanh(r)/r = log(1 + 2r(1 + r)/g) / (2r)`` of ``g = 1 - r^2``: keeps all digits of r and of the gap."""

    @staticmethod
    def forward(ctx: Context, gap: Tensor) -> Tensor:
        r = _root(1 - gap)
        out = torch.addcmul(r, r, r).mul_(2).div_(gap).log1p_().div_(r).mul_(0.5)
        ctx.save_for_backward(gap, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        gap, out = ctx.saved_tensors
        square = 1 - gap
        series = torch.full_like(square, -10 / 21)
        for n in range(8, -1, -1):
            series = series.mul(square).sub_((n + 1) / (2 * n + 3))
        closed = (out - 1 / gap) / (2 * square.clamp_min(_SMALL))
        return grad * torch.where(square < _SMALL, series, closed)


def artanhc(gap: Tensor) -> Tensor:
    """``artanh(r)/r`` as a function of ``gap = 1 - r^2 > 0``: the scale of log at the origin of the ball and disk."""
    if not is_followed(gap):
        return _Artanhc.apply(gap)
    square = 1 - gap
    r = square.clamp_min(_SMALL).sqrt()
    closed = (2 * (r + r * r) / gap).log1p() / (2 * r)
    return _join(square, [1 / (2 * n + 1) for n in range(11)], closed)


def inverse_softplus(value: float) -> float:
    """``x + log(1 - e^-x)`` of x > 0, whose softplus is x."""
    return value + math.log(-math.expm1(-value))


def sinhc(square: Tensor) -> Tensor:
    """``sinh(r)/r`` as a function of ``r^2``: the scale of exp at the origin of the hyperboloid."""
    return _smooth(
        square,
        _sinhc,
        lambda s, f: (torch.hypot(torch.ones_like(f), _root(s) * f) - f) / (2 * s),  # cosh(r) by sinh(r)
        (1 / 6, 1 / 60, 1 / 1680, 1 / 90720, 1 / 7983360, 1 / 1037836800),
    )


def cosh_sqrt(square: Tensor) -> Tensor:
    """``cosh(r)`` as a function of ``r^2``; its derivative is ``sinh(r)/(2r)``."""
    return _smooth(
        square,
        lambda s: torch.cosh(_root(s)),
        lambda s, f: _sinhc(s) / 2,
        (1 / 2, 1 / 12, 1 / 240, 1 / 10080, 1 / 725760),
    )


def asinhc(square: Tensor) -> Tensor:
    """``arsinh(r)/r`` as a function of ``r^2``: the scale of distances and of log on the hyperboloid."""
    return _smooth(
        square,
        _asinhc,
        lambda s, f: ((1 + s).rsqrt() - f) / (2 * s),
        (-1 / 6, 3 / 20, -15 / 112, 35 / 288, -315 / 2816, 693 / 6656, -1001 / 10240, 6435 / 69632),
    )
