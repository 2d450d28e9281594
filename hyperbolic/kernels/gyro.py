"""Gyrovector steps of the Möbius RNN and GRU on points that carry their gaps.

Layout: coordinates on axis -2 and the batch on the last axis, (..., H, B), so that a cell of 5 coordinates still
works on contiguous rows; row scalars are (..., 1, B). Points are scaled to the unit ball (``sqrt(c) x``), where
the operations of every curvature are those of ``c = 1``.

Points travel with their gap ``g = 1 - |x|^2``. The gap of a Möbius sum is a product, ``g_x g_y / D``, so it keeps
its relative accuracy in float32 up to the boundary, where ``1 - |x|^2`` computed from the coordinates has none.
Every function is made of operations without side effects and has derivatives of any order, by autograd.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic.numerics import BALL_EPS, limit
from hyperbolic.smooth import TANHC, artanhc

_NEAR = 0.9  # squared norm up to which 1 - |x|^2 keeps nearly all digits
_SMALL = 0.02  # squared norm under which functions of a norm come from their series, with all derivatives


class Constants(NamedTuple):
    bound: float  # largest norm of a point
    least_gap: float  # and its gap
    longest: float  # and the length of its logarithm
    clips: bool  # whether nothing is learned beyond them, as when points are clipped


def constants(x: Tensor, margin: float = 0.0) -> Constants:
    """The limits of points like x: those of the dtype, or, with a margin in (0, 0.05], of points clipped to 1 - margin.
    Raises TypeError for half precision."""
    return _within(max(margin, limit(BALL_EPS, x.dtype)), True) if margin > 0 else _of_dtype(x.dtype)


def _within(margin: float, clips: bool) -> Constants:
    bound = 1 - margin
    return Constants(bound, 1 - bound * bound, math.atanh(bound), clips)


def _of_dtype(dtype: torch.dtype) -> Constants:
    return _within(limit(BALL_EPS, dtype), False)


# As torch.compiler.assume_constant_result does, which imports Dynamo for two seconds: torch.compile(dynamic=True) would
# make variables of these numbers.
_of_dtype._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-2, keepdim=True)


def clamped(x: Tensor, low: float, high: float) -> Tensor:
    """x in these limits, with the gradient of x: what saturates can still learn its way back."""
    fixed = x.detach()
    return fixed.clamp(low, high) + (x - fixed)


def _series(coefficients: tuple[float, ...], square: Tensor) -> Tensor:
    terms = coefficients if square.dtype is torch.float64 else coefficients[:5]
    total = torch.full_like(square, terms[-1])
    for term in terms[-2::-1]:
        total = total * square + term
    return total


def tanhc(square: Tensor, limits: Constants | None = None) -> tuple[Tensor, Tensor]:
    """``tanh(r)/r`` and ``sech(r)^2`` from ``r^2``, kept inside the boundary margin."""
    k, small = limits or constants(square), square < _SMALL
    clamp = torch.clamp if k.clips else clamped
    r = torch.where(small, 1, square).sqrt().clamp_max(torch.finfo(square.dtype).max)
    inside = clamp(r, 0, k.longest)
    near = _series(TANHC, torch.where(small, square, 0))
    scale = torch.where(small, near, clamp(torch.tanh(inside), 0, k.bound) / r)
    gap = torch.where(small, 1 - square * near.square(), clamp(inside.cosh().square().reciprocal(), k.least_gap, 1))
    return scale, gap


def log_origin(x: Tensor, gap: Tensor) -> Tensor:
    """``log_0(x) = artanh(|x|)/|x| x`` of points x (..., H, B) with known gap (..., 1, B)."""
    return artanhc(gap) * x


def exp_origin(u: Tensor, limits: Constants | None = None) -> tuple[Tensor, Tensor]:
    """``exp_0(u) = tanh(|u|)/|u| u`` of vectors u (..., H, B), and its gap ``sech(|u|)^2``."""
    scale, gap = tanhc(_dot(u, u), limits)
    return scale * u, gap


def add(x: Tensor, x_gap: Tensor, y: Tensor, y_gap: Tensor) -> tuple[Tensor, Tensor]:
    """``x (+) y = (|s|^2 x + g_x s) / (|s|^2 + g_x g_y)``, ``s = x + y``, with gap ``g_x g_y / (...)``.

    Nothing cancels, not even for opposite points at the boundary (Ganea et al. 2018, Eq. 4, with ``1 - |x|^2 = g_x``).
    """
    s = x + y
    square = _dot(s, s)
    gaps = x_gap * y_gap
    one_over = (square + gaps).reciprocal()
    return (square * one_over) * x + (x_gap * one_over) * s, gaps * one_over


def affine_point(
    q: Tensor, u: Tensor, u_gap: Tensor, b: Tensor, b_gap: Tensor, limits: Constants | None = None
) -> tuple[Tensor, Tensor]:
    """``o = (exp_0(q) (+) u) (+) b`` and its gap: the affine part of every gate (Ganea et al. 2018, Eq. 27, 29, 30).
    Limits that clip hold its gap, and so the length of its logarithm, too.

    Args:
        q: (..., H, B) tangent vectors ``W log_0(h)``.
        u: (..., H, B) points ``U (x) x`` with gaps u_gap (..., 1, B).
        b: (..., H, 1) bias point with gap b_gap (..., 1, 1).
    """
    point, gap = add(*add(*exp_origin(q, limits), u, u_gap), b, b_gap)
    return point, gap.clamp_min(limits.least_gap) if limits and limits.clips else gap


def gated_update(h: Tensor, h_gap: Tensor, o: Tensor, o_gap: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """``h' = h (+) exp_0(z * log_0((-h) (+) o))`` and its gap, kept inside the boundary margin
    (the update gate of Ganea et al. 2018, Eq. 31).

    Args: h, o (..., H, B) points with gaps (..., 1, B); z (..., H, B) in [0, 1].
    """
    e = o - h
    square, gaps = _dot(e, e), h_gap * o_gap
    one_over = (square + gaps).reciprocal()
    step = log_origin((h_gap * e - square * h) * one_over, gaps * one_over)
    return _inside(*add(h, h_gap, *exp_origin(z * step)))


def _inside(x: Tensor, gap: Tensor) -> tuple[Tensor, Tensor]:
    """A point and its gap, pulled back to the boundary margin where it lies beyond."""
    k, square = constants(x), _dot(x, x)
    # away from the boundary the coordinates give the gap just as well, and carried errors end there
    gap = torch.where(square < _NEAR, 1 - square, gap)
    shrink = torch.where(square > k.bound**2, k.bound * square.clamp_min(_NEAR).rsqrt(), 1)
    return shrink * x, gap.clamp_min(k.least_gap)
