"""Squared distances of points x of the Poincaré ball from points ``exp_0(e)``, for tangent vectors e at the origin.

They follow from ``<x, e>`` and from numbers of x and of e alone, so the points ``exp_0(e)`` are never made: with
``r = sqrt(c)|e|`` and ``g_x = 1 - c|x|^2``,

    sinh^2(sqrt(c) d/2) = (c|x|^2 cosh^2 r - 2c <x, e> sinh(2r)/(2r) + sinh^2 r) / g_x.

The inner products are taken in float64 also of float32 rows. What cancels in the sum loses about 1e-16 times its terms,
which are at most ``cosh^2`` of half the distances of x and exp_0(e) from the origin, multiplied: an error of d^2 of
about 1e-5/c where both lie 13/sqrt(c) from the origin. Each formula is smooth at e = 0 and at x = exp_0(e).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.fusion import fuse
from hyperbolic.kernels.tangent_distance import passes
from hyperbolic.numerics import sqnorm, wide, wide_curvature
from hyperbolic.smooth import sinhc

_BLOCK = 1 << 17  # float64 entries that are worked on at a time, a megabyte
_LONGEST = 28.0  # sqrt(c)|e|, beyond which e counts as a vector of this length


def tangent_distance2(x: Tensor, gap: Tensor, e: Tensor, c: Tensor) -> Tensor:
    """``d(x, exp_0(e))^2`` of points x (B, d), float64, and vectors e (B, N, d): (B, N), in the dtype of e.

    Args: gap: ``1 - c|x|^2`` (B, 1). c: a scalar, or (B, 1) for a curvature of each row.
    """
    c = wide_curvature(c).to(x.device)
    products, squares = row_products(x.unsqueeze(1), e)
    sinh_square, ratio, shrink = _lengths(c * squares)
    h = (c * sqnorm(x) * (1 + sinh_square) - 2 * c * ratio * shrink * products.squeeze(1) + sinh_square) / gap
    return squared_length(h, c, e.dtype)


def tangent_distance2_of_all(x: Tensor, gap: Tensor, e: Tensor, c: Tensor) -> Tensor:
    """``d(x_i, exp_0(e_j))^2`` (B, E) by one product, for points x (B, d), float64, vectors e (E, d) and a scalar c."""
    c = wide_curvature(c).to(x.device)
    sinh_square, ratio, shrink = _lengths(c * sqnorm(e))
    right = torch.cat([ratio * shrink * wide(e), 1 + sinh_square, sinh_square], -1)
    left = torch.cat([-2 * c * x, c * sqnorm(x), torch.ones_like(gap)], -1) / gap
    return squared_length_of_product(left, right, c, e.dtype)


def squared_length(h: Tensor, c: Tensor, dtype: torch.dtype) -> Tensor:
    """``(2/sqrt(c) arsinh(sqrt(h)))^2``: d^2 for ``h = sinh^2(sqrt(c) d/2)`` (B, N), float64; smooth at h = 0.

    What rounding has made negative counts as 0, with the slope there. c: a scalar, or (B, 1). The result has
    ``dtype``; a float32 d is at most 88/sqrt(c).
    """
    square: Tensor = passes.SquaredLength.run(h, c, dtype is torch.float32)
    return square


def squared_length_of_product(left: Tensor, right: Tensor, c: Tensor | None, dtype: torch.dtype) -> Tensor:
    """:func:`squared_length` of ``left right^T`` for left (B, k), right (E, k), float64; where c is None, the product.

    Without gradients, a block of columns is finished before the next is begun, in memory that stays in the cache.
    """
    if torch.is_grad_enabled() or left.device.type != "cpu":
        h = left @ right.T
        return h.to(dtype) if c is None else squared_length(h, c, dtype)
    out = left.new_empty(len(left), len(right), dtype=dtype)
    step = max(64, _BLOCK // max(len(left), 1))
    for start in range(0, len(right), step):
        h = left @ right[start : start + step].T
        out[:, start : start + step] = h if c is None else squared_length(h, c, dtype)
    return out


@fuse
def _lengths(square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``sinh^2 r``, ``sinh(2r)/(2r) = sinh(r)/r cosh(r)`` and the factor that makes longer vectors ``_LONGEST``, for
    ``r^2``."""
    cut = square.clamp_max(_LONGEST**2)
    ratio = sinhc(cut)
    sinh_square = cut * ratio.square()
    return sinh_square, ratio * (1 + sinh_square).sqrt(), _LONGEST * square.clamp_min(_LONGEST**2).rsqrt()


def row_products(queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``<q_k, v_n>`` (B, K, N) and ``|v_n|^2`` (B, N), float64, of queries (B, K, d), float64, and rows (B, N, d)."""
    products, squares = passes.RowProducts.run(queries, rows)
    return products, squares


__all__ = [
    "row_products",
    "squared_length",
    "squared_length_of_product",
    "tangent_distance2",
    "tangent_distance2_of_all",
]
