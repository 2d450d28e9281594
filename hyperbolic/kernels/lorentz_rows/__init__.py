"""Rows of hyperboloid points: HyboNet's normalised linear layer, lifts of space parts, normalised means, duals.

Points are ``(t, s)`` with the time coordinate first, ``-t^2 + |s|^2 = -1/c``. c is a float64 scalar tensor, in which
every function is differentiable.
"""

from __future__ import annotations

from torch import Tensor

from hyperbolic.fusion import fuse
from hyperbolic.kernels.lorentz_rows import passes, plain
from hyperbolic.kernels.lorentz_rows.plain import OFFSET

dual, normalise, set_time = fuse(plain.dual), fuse(plain.normalise), fuse(plain.set_time)


def normalised_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor,
    c: Tensor,
    offset: float = OFFSET,
    heads: int = 1,
    raw: Tensor | None = None,
    added: Tensor | None = None,
) -> Tensor:
    """:func:`normalise` of ``x W^T + b``: x (n, D_in), weight (heads * D, D_in), bias (heads * D).

    Args:
        raw: (n, D_in), taken in the place of x by the rows of W that make the times.
        added: (n, D) or, to the space parts only, (n, D - 1), is added to the product; with one head.
    Returns: (n, heads * D).
    """
    y: Tensor = passes.Linear.run(x, weight, bias, raw, added, scale, c, offset, heads)
    return y


def lift(s: Tensor, c: Tensor, axes: int = 1) -> Tensor:
    """The points ``(sqrt(1/c + |s|^2), s)`` above space parts s (..., d) -> (..., d+1).

    Args: axes: how many axes of s, from the end, hold the coordinates; 2 joins heads (..., n_heads, d_head).
    """
    y: Tensor = passes.Lift.run(s, c, axes)
    return y


def normalised_mean(mean: Tensor, c: Tensor) -> Tensor:
    """``m / sqrt(-c <m, m>_L)`` for ``m = sum w_i x_i``, ``sum w_i = 1`` (Law et al. 2019; Chen et al., Eq. 4).

    ``-c <m, m>_L = 1 + c (m_0 - t)(m_0 + t)`` with ``t = sqrt(1/c + |m_s|^2) <= m_0``, so it never falls below 1. In
    float32 its relative error is about ``1e-7 c m_0^2``. (..., D) -> (..., D).
    """
    y: Tensor = passes.Mean.run(mean, c)
    return y


__all__ = ["OFFSET", "dual", "lift", "normalise", "normalised_linear", "normalised_mean", "set_time"]
