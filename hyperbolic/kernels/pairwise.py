"""Distances of all pairs of two sets of points, and Lorentz products with a table, as one matrix product each.

``sinh^2(sqrt(c) d/2)`` of every pair is an inner product of a vector of the one point with a vector of the other, taken
in float64. Where its terms cancel (points close to each other, measured by their distance from the origin), the pair is
computed again from the difference of its points, as the manifolds do. The relative error of distances is at most about
2e-7 for float32 points, and 1e-12 for float64 points; memory is that of a few float64 matrices of pairs. With
``refine=False``, for attention, close pairs keep what the product gives: an error of ``sinh^2(sqrt(c) d/2)`` of about
1e-16 times the terms, at half the time and without waiting for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic.kernels.mlr import refuse_graph, scaled_arsinh_
from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.poincare import distance_square
from hyperbolic.numerics import asinhc, ball_gap, safe_sqrt, sqnorm, wide, wide_curvature

# A pair is computed again where what is left of the terms of its product is a smaller part of them than this.
_CLOSE = {torch.float32: 1e-8, torch.float64: 1e-3}


def poincare_pairwise(x: Tensor, y: Tensor, c: Tensor, refine: bool = True) -> Tensor:
    """Distances in the Poincaré ball: x (..., T, d), y (..., N, d) -> (..., T, N).

    ``sinh^2(sqrt(c) d/2) = c |x - y|^2 / (g_x g_y)``, ``g = 1 - c|x|^2``. At equal points value and gradient are 0.
    """
    c = wide_curvature(c).to(x.device)
    factors = []
    for points in (x, y):
        inverse = 1 / ball_gap(points, c)
        factors.append((wide(points) * inverse, c * sqnorm(points) * inverse, inverse))
    (x_space, x_square, x_one), (y_space, y_square, y_one) = factors
    terms = torch.cat([x_square, x_one], -1), torch.cat([y_one, y_square], -1)
    left = torch.cat([-2 * c * x_space, terms[0]], -1)
    right = torch.cat([y_space, terms[1]], -1)

    def again(x: Tensor, y: Tensor) -> Tensor:
        t = distance_square(x, y, c)
        return 2 * safe_sqrt(t) * asinhc(c * t)

    return _pairwise(x, y, left, right, terms, c, again if refine else None)


def lorentz_pairwise(x: Tensor, y: Tensor, c: Tensor, refine: bool = True) -> Tensor:
    """Distances on the hyperboloid: x (..., T, d+1), y (..., N, d+1) -> (..., T, N), time coordinate first.

    ``sinh^2(sqrt(c) d/2) = (c (t_x t_y - <s_x, s_y>) - 1) / 2``, where the times t are recomputed from the space parts
    s; there is no gradient for the time coordinates given. At equal points value and gradient are 0.
    """
    c = wide_curvature(c).to(x.device)
    space = [wide(points[..., 1:]) for points in (x, y)]
    time = [(1 / c + sqnorm(s)).sqrt() for s in space]
    one = [torch.ones_like(t) for t in time]
    left = torch.cat([-c / 2 * space[0], c / 2 * time[0], -one[0] / 2], -1)
    right = torch.cat([space[1], time[1], one[1]], -1)

    def again(x: Tensor, y: Tensor) -> Tensor:
        q = sheet.half_sinh_square(x[..., 1:], y[..., 1:], c)
        return 2 / c.sqrt() * safe_sqrt(q) * asinhc(q)

    return _pairwise(x, y, left, right, (c / 2 * time[0], time[1]), c, again if refine else None)


def lorentz_products(queries: Tensor, table: Tensor) -> Tensor:
    """``<q, e>_L = -q_0 e_0 + sum_i q_i e_i`` of all pairs: (..., d+1), (N, d+1) -> (..., N), in the points' dtype.

    The order of the products is that of the distances, nearest first: ``cosh(sqrt(c) d) = -c <q, e>_L``.
    """
    return torch.nn.functional.linear(torch.cat([-queries[..., :1], queries[..., 1:]], -1), table)


def _pairwise(
    x: Tensor,
    y: Tensor,
    left: Tensor,
    right: Tensor,
    terms: tuple[Tensor, Tensor],
    c: Tensor,
    again: Callable[[Tensor, Tensor], Tensor] | None,
) -> Tensor:
    """``2/sqrt(c) arsinh(sqrt(h))`` of the product ``h = left right^T``; pairs with h far below the product of
    ``terms``, the size of what h is a sum of, get the distance ``again(x, y)`` (M, 1) instead."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    h = left @ right.transpose(-2, -1)
    if again is None:
        return _Length.apply(h, c, h <= 0, dtype)
    with torch.no_grad():
        close = h <= _CLOSE[dtype] * (terms[0] @ terms[1].transpose(-2, -1))
    distance = _Length.apply(h, c, close, dtype)
    index = close.nonzero(as_tuple=True)
    lead = h.shape[:-2]
    x, y = x.expand(*lead, *x.shape[-2:])[index[:-1]], y.expand(*lead, *y.shape[-2:])[(*index[:-2], index[-1])]
    return distance.index_put_(index, again(x, y).squeeze(-1).to(dtype))


class _Length(torch.autograd.Function):
    """``2/sqrt(c) arsinh(sqrt(h))`` without gradient at the pairs of ``close``."""

    @staticmethod
    def forward(ctx, h: Tensor, c: Tensor, close: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(h, c, close)
        out = h.clamp_min(0).sqrt_().to(dtype)
        scaled_arsinh_(out.view(-1, max(out.shape[-1], 1)), (2 / c.sqrt()).to(dtype))
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        refuse_graph("a matrix of distances")
        h, c, close = ctx.saved_tensors
        grad = wide(grad).masked_fill(close, 0)
        safe = h.masked_fill(close, 1)
        grad_c = -(grad * torch.asinh(safe.sqrt())).sum() / c**1.5 if ctx.needs_input_grad[1] else None
        return torch.addcmul(safe, safe, safe).rsqrt_().mul_(grad).div_(c.sqrt()), grad_c, None, None
