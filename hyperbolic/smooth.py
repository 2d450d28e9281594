"""Scalar functions that hyperbolic formulas are made of, accurate and smooth everywhere.

Functions of a norm are written as functions of its square, so that value and gradient are right at zero.

Where something follows the operations (:func:`hyperbolic.switch.is_followed`), each function has a form without
autograd functions, which can be differentiated in every way: by a series near zero, or as a plain formula plus the
constant that is missing to the exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hyperbolic.switch import is_followed
from hyperbolic.typing import Context, Function

_SMALL = 0.02  # below this square, derivatives come from power series; both forms are accurate to rounding there


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
        return grad * _join(square, ctx.coefficients, ctx.slope(square.clamp_min(_SMALL), out)), None, None, None


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


def _join(square: Tensor, coefficients: Sequence[float], closed: Tensor) -> Tensor:
    """The power series where the square is small, else the closed form."""
    small = square.clamp_max(_SMALL)
    series = torch.full_like(square, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        series = (series * small).add_(coefficient)
    return torch.where(square < _SMALL, series, closed)


def _root(square: Tensor) -> Tensor:
    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()


def _over_root(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """``function(r)/r`` as a function of ``r^2``."""
    return lambda s: function(r := _root(s)) / r


_tanhc, _sinhc, _asinhc = map(_over_root, (torch.tanh, torch.sinh, torch.asinh))

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
        closed = (out - 1 / gap) / (2 * square.clamp_min(_SMALL))
        return grad * _join(square, [-(n + 1) / (2 * n + 3) for n in range(10)], closed)


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
