"""Distances of all pairs of two sets of points, and Lorentz products with a table, as one matrix product each.

``sinh^2(sqrt(c) d/2)`` of every pair is an inner product of a vector of the one point with a vector of the other, taken
in float64. Where its terms cancel (points close to each other, measured by their distance from the origin), the pair is
computed again from the difference of its points, as the manifolds do. The relative error of distances is at most about
2e-7 for float32 points, and 1e-12 for float64 points; memory is that of a few float64 matrices of pairs. With
``refine=False``, for attention, close pairs keep what the product gives: an error of ``sinh^2(sqrt(c) d/2)`` of about
1e-16 times the terms, at half the time and without waiting for a GPU. On a CPU the factors and the lengths are those of
:mod:`hyperbolic.kernels.pairwise_native`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic.kernels import pairwise_native
from hyperbolic.kernels.mlr import arsinh
from hyperbolic.kernels.table_products import refuse_graph
from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.poincare import distance_square
from hyperbolic.numerics import asinhc, ball_gap, safe_sqrt, sqnorm, wide, wide_curvature
from hyperbolic.typing import Context, Function

# A pair is computed again where what is left of the terms of its product is a smaller part of them than this.
_CLOSE = {torch.float32: 1e-8, torch.float64: 1e-3}


def poincare_pairwise(x: Tensor, y: Tensor, c: Tensor, refine: bool = True) -> Tensor:
    """Distances in the Poincaré ball: x (..., T, d), y (..., N, d) -> (..., T, N).

    ``sinh^2(sqrt(c) d/2) = c |x - y|^2 / (g_x g_y)``, ``g = 1 - c|x|^2``. At equal points value and gradient are 0.
    """
    c = wide_curvature(c).to(x.device)

    def again(x: Tensor, y: Tensor) -> Tensor:
        t = distance_square(x, y, c)
        return 2 * safe_sqrt(t) * asinhc(c * t)

    return _pairwise(x, y, *_factors(x, y, c, "poincare", _poincare_factors), 2, c, again if refine else None)


def _poincare_factors(x: Tensor, c: Tensor, left: bool) -> Tensor:
    """``[-2c x/g, c|x|^2/g, 1/g]`` on the left and ``[x/g, 1/g, c|x|^2/g]`` on the right."""
    inverse = 1 / ball_gap(x, c)
    space, terms = wide(x) * inverse, [c * sqnorm(x) * inverse, inverse]
    return torch.cat([-2 * c * space, *terms] if left else [space, *terms[::-1]], -1)


def lorentz_pairwise(x: Tensor, y: Tensor, c: Tensor, refine: bool = True) -> Tensor:
    """Distances on the hyperboloid: x (..., T, d+1), y (..., N, d+1) -> (..., T, N), time coordinate first.

    ``sinh^2(sqrt(c) d/2) = (c (t_x t_y - <s_x, s_y>) - 1) / 2``, where the times t are recomputed from the space parts
    s; there is no gradient for the time coordinates given. At equal points value and gradient are 0.
    """
    c = wide_curvature(c).to(x.device)

    def again(x: Tensor, y: Tensor) -> Tensor:
        q = sheet.half_sinh_square(x[..., 1:], y[..., 1:], c)
        return 2 / c.sqrt() * safe_sqrt(q) * asinhc(q)

    return _pairwise(x, y, *_factors(x, y, c, "lorentz", _lorentz_factors), 1, c, again if refine else None)


def _lorentz_factors(x: Tensor, c: Tensor, left: bool) -> Tensor:
    """``[-c/2 s, c/2 t, -1/2]`` on the left and ``[s, t, 1]`` on the right."""
    space = wide(x[..., 1:])
    time = (1 / c + sqnorm(space)).sqrt()
    one = torch.ones_like(time)
    return torch.cat([-c / 2 * space, c / 2 * time, -one / 2] if left else [space, time, one], -1)


def lorentz_products(queries: Tensor, table: Tensor, bias: Tensor | None = None) -> Tensor:
    """``<q, e>_L = -q_0 e_0 + sum_i q_i e_i`` of all pairs: (..., d+1), (N, d+1) -> (..., N), in the points' dtype;
    plus a bias (N,) of the points.

    The order of the products is that of the distances, nearest first: ``cosh(sqrt(c) d) = -c <q, e>_L``.
    """
    return torch.nn.functional.linear(torch.cat([-queries[..., :1], queries[..., 1:]], -1), table, bias)


def _factors(
    x: Tensor, y: Tensor, c: Tensor, model: str, plain: Callable[[Tensor, Tensor, bool], Tensor]
) -> tuple[Tensor, Tensor]:
    """Left factors of x and right factors of y; ``plain(points, c, left)`` makes them of PyTorch operations."""
    if pairwise_native.factors_usable(x, y, c):
        return pairwise_native.Factors.apply(x, c, model, True), pairwise_native.Factors.apply(y, c, model, False)
    return plain(x, c, True), plain(y, c, False)


def _pairwise(
    x: Tensor,
    y: Tensor,
    left: Tensor,
    right: Tensor,
    terms: int,
    c: Tensor,
    again: Callable[[Tensor, Tensor], Tensor] | None,
) -> Tensor:
    """``2/sqrt(c) arsinh(sqrt(h))`` of the product ``h = left right^T``; pairs with h far below the sum of the products
    of so many of the last two factors, the size of what h is a sum of, get the distance ``again(x, y)`` (M, 1)."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    h = left @ right.transpose(-2, -1)
    limit = 0.0 if again is None else _CLOSE[dtype]
    if pairwise_native.LIBRARY.usable(h):
        distance, close_pairs = pairwise_native.Lengths.apply(h, c, left.detach(), right.detach(), terms, limit, dtype)
        if again is None or not close_pairs:
            return distance
        close = h < 0
    else:
        with torch.no_grad():
            ends = [side[..., -2:][..., :terms] for side in (left, right)]
            close = h <= (0 if again is None else limit * (ends[0] @ ends[1].transpose(-2, -1)))
        distance = _Length.apply(h, c, close, dtype)
        if again is None:
            return distance
    index = close.nonzero(as_tuple=True)
    lead = h.shape[:-2]
    x, y = x.expand(*lead, *x.shape[-2:])[index[:-1]], y.expand(*lead, *y.shape[-2:])[(*index[:-2], index[-1])]
    return distance.index_put_(index, again(x, y).squeeze(-1).to(dtype))


class _Length(Function[Tensor]):
    """``2/sqrt(c) arsinh(sqrt(h))`` without gradient at the pairs of ``close``."""

    @staticmethod
    def forward(ctx: Context, h: Tensor, c: Tensor, close: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(h, c, close)
        out = h.clamp_min(0).sqrt_().to(dtype)
        return (2 / c.sqrt()).to(dtype) * arsinh(out)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        refuse_graph("a matrix of distances")
        h, c, close = ctx.saved_tensors
        grad = wide(grad).masked_fill(close, 0)
        safe = h.masked_fill(close, 1)
        grad_c = -(grad * torch.asinh(safe.sqrt())).sum() / c**1.5 if ctx.needs_input_grad[1] else None
        return torch.addcmul(safe, safe, safe).rsqrt_().mul_(grad).div_(c.sqrt()), grad_c, None, None
