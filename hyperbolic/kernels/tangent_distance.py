"""Squared distances of points x of the Poincaré ball from points ``exp_0(e)``, for tangent vectors e at the origin.

They follow from ``<x, e>`` and from numbers of x and of e alone, so the points ``exp_0(e)`` are never made: with
``r = sqrt(c)|e|`` and ``g_x = 1 - c|x|^2``,

    sinh^2(sqrt(c) d/2) = (c|x|^2 cosh^2 r - 2c <x, e> sinh(2r)/(2r) + sinh^2 r) / g_x.

The inner products are taken in float64 also of float32 rows. What cancels in the sum loses about 1e-16 times its terms,
which are at most ``cosh^2`` of half the distances of x and exp_0(e) from the origin, multiplied: an error of d^2 of
about 1e-5/c where both lie 13/sqrt(c) from the origin. Each formula is smooth at e = 0 and at x = exp_0(e).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hyperbolic.manifolds.poincare import distance_square, expmap0
from hyperbolic.numerics import WIDE, asinhc, sqnorm, wide, wide_curvature
from hyperbolic.rows import blocked
from hyperbolic.typing import Context, Function

_BLOCK = 1 << 16  # float64 entries that are worked on at a time, half a megabyte
_LONGEST = 28.0  # sqrt(c)|e|, beyond which e counts as a vector of this length
_SMALL = 0.02


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


def tangent_distance2_reference(x: Tensor, e: Tensor, c: Tensor) -> Tensor:
    """:func:`tangent_distance2` by way of the points ``exp_0(e)``."""
    c = wide_curvature(c).to(x.device)
    c = c.unsqueeze(-1) if c.dim() else c
    t = distance_square(x.unsqueeze(1), expmap0(wide(e), c), c)
    return (4 * t * asinhc(c * t).square()).squeeze(-1).to(e.dtype)


def squared_length(h: Tensor, c: Tensor, dtype: torch.dtype) -> Tensor:
    """``(2/sqrt(c) arsinh(sqrt(h)))^2``: d^2 for ``h = sinh^2(sqrt(c) d/2)`` (B, N), float64; smooth at h = 0.

    What rounding has made negative counts as 0, with the slope there. c: a scalar, or (B, 1). The result has
    ``dtype``; a float32 d is at most 88/sqrt(c).
    """
    return _SquaredLength.apply(h, c, dtype)


def squared_length_of_product(left: Tensor, right: Tensor, c: Tensor | None, dtype: torch.dtype) -> Tensor:
    """:func:`squared_length` of ``left right^T`` for left (B, k), right (E, k), float64; where c is None, the product.

    Without gradients, a block of columns is finished before the next is begun, in memory that stays in the cache.
    """
    if torch.is_grad_enabled() or left.device.type != "cpu":
        h = left @ right.T
        return h.to(dtype) if c is None else squared_length(h, c, dtype)
    out = left.new_empty(len(left), len(right), dtype=dtype)
    step = max(64, 2 * _BLOCK // max(len(left), 1))
    for start in range(0, len(right), step):
        h = left @ right[start : start + step].T
        out[:, start : start + step] = h if c is None else squared_length(h, c, dtype)
    return out


class _SquaredLength(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, h: Tensor, c: Tensor, dtype: torch.dtype) -> Tensor:
        narrow = h.to(dtype).clamp_(0, torch.finfo(dtype).max / 4)
        part = (narrow + 1).sqrt_().add_(1)
        out = narrow.sqrt().addcdiv_(narrow, part).log1p_()  # arsinh(z) = log(1 + z + z^2 / (1 + sqrt(1 + z^2)))
        out.square_().mul_((4 / c).to(dtype))
        ctx.save_for_backward(h, c, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        refuse_graph("a squared distance")
        h, c, out = ctx.saved_tensors
        grad, h = wide(grad), h.clamp_min(0)
        grad_c = -(grad * out / c).sum_to_size(c.shape) if ctx.needs_input_grad[1] else None
        return asinhc(h).mul_((1 + h).rsqrt_()).mul_(4 / c).mul_(grad), grad_c, None


def _lengths(square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``sinh^2 r``, ``sinh(2r)/(2r)`` and the factor that makes longer vectors ``_LONGEST``, for ``r^2``."""
    shrink = _LONGEST * square.clamp_min(_LONGEST**2).rsqrt()
    return *_Hyperbolic.apply(square.clamp_max(_LONGEST**2)), shrink


class _Hyperbolic(Function[tuple[Tensor, Tensor]]):
    """``sinh^2 r`` and ``sinh(2r)/(2r)`` of ``r^2``, by one exponential; the second is the slope of the first."""

    @staticmethod
    def forward(ctx: Context, square: Tensor) -> tuple[Tensor, Tensor]:
        root = square.clamp_min(torch.finfo(WIDE).tiny).sqrt_()
        grown = torch.expm1(2 * root)
        part = grown / (1 + grown) / 4
        sinh_square, ratio = grown * part, (grown + 2).mul_(part).div_(root)
        ctx.save_for_backward(square, sinh_square, ratio)
        return sinh_square, ratio

    @staticmethod
    def backward(ctx: Context, grad_sinh: Tensor, grad_ratio: Tensor) -> Tensor:
        refuse_graph("a squared distance")
        square, sinh_square, ratio = ctx.saved_tensors
        series = torch.full_like(square, 4096 / 1037836800)  # sum of 4^n n s^(n-1) / (2n+1)!
        for coefficient in (1024 / 7983360, 256 / 90720, 64 / 1680, 16 / 60, 4 / 6):
            series.mul_(square).add_(coefficient)
        closed = (sinh_square * 2 + 1).sub_(ratio).div_(square.clamp_min(_SMALL).mul_(2))
        slope = torch.where(square < _SMALL, series, closed)
        return slope.mul_(grad_ratio).addcmul_(ratio, grad_sinh)


def refuse_graph(what: str) -> None:
    """
    Raises:
        RuntimeError: in a backward pass that shall be differentiated itself.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"{what} can be differentiated once: there is no second derivative (create_graph=True)")


def row_products(queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``<q_k, v_n>`` (B, K, N) and ``|v_n|^2`` (B, N) in float64, for queries (B, K, d), float64, and rows (B, N, d).

    Large float32 rows on a CPU are widened block by block, in both passes, never as a whole.
    """
    if blocked(rows):
        return _RowProducts.apply(queries, rows)
    return row_products_reference(queries, rows)


def row_products_reference(queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`row_products` with the rows widened as a whole."""
    rows = wide(rows)
    return queries @ rows.transpose(1, 2), rows.square().sum(-1)


class _RowProducts(Function[tuple[Tensor, Tensor]]):
    @staticmethod
    def forward(ctx: Context, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(queries, rows)
        n = rows.shape[1]
        products = queries.new_empty(*queries.shape[:2], n)
        squares = queries.new_empty(len(rows), n)
        for at, v in _widened(rows):
            torch.bmm(queries[at], v.transpose(1, 2), out=products[at])
            torch.sum(v.square_(), -1, out=squares[at])
        return products, squares

    @staticmethod
    def backward(ctx: Context, grad_products: Tensor, grad_squares: Tensor) -> tuple[Tensor, Tensor]:
        refuse_graph("an inner product of rows")
        queries, rows = ctx.saved_tensors
        grad_queries, grad_rows = torch.empty_like(queries), rows.new_empty(rows.shape)
        for at, v in _widened(rows):
            torch.bmm(grad_products[at], v, out=grad_queries[at])
            v.mul_(grad_squares[at].unsqueeze(-1)).baddbmm_(grad_products[at].transpose(1, 2), queries[at], beta=2)
            grad_rows[at] = v
        return grad_queries, grad_rows


def _widened(rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Slices of the first axis, and the rows there in float64, in memory that the next slice takes again."""
    size = rows[0].numel()
    step = max(1, _BLOCK // size)
    space = torch.empty(min(step, len(rows)) * size, dtype=WIDE)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        yield slice(start, start + len(part)), space[: part.numel()].view(part.shape).copy_(part)
