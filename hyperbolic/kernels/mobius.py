"""Möbius linear layers, and Möbius sums of several of them, as one matrix product and a few passes a matrix.

Möbius operations only scale and add the vectors that go in: with ``p_i = W_i x_i`` and bias points ``b_j``,

``((W_1 (x) x_1 (+) W_2 (x) x_2) (+) b_1) (+) f_2 (x) b_2 = C_1 p_1 + C_2 p_2 + D_1 b_1 + D_2 b_2``

with one coefficient a row, which :mod:`hyperbolic.kernels.mobius_rows` makes of the norms of the ``x_i`` and the inner
products of the ``p_i`` and ``b_j``, taken in float64.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic import switch
from hyperbolic.kernels import mobius_native
from hyperbolic.kernels.mobius_rows import Gram, Rows, Vector, VectorGrad, row_coefficients, row_coefficients_grad
from hyperbolic.kernels.scratch import row_blocks
from hyperbolic.manifolds.poincare import expmap0, logmap0, mobius_add
from hyperbolic.numerics import BALL_EPS, dot, limit
from hyperbolic.typing import Context, Function

_TINY = 1e-30


def _norms_and_dots(x: Tensor, points: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """``|x|`` (N, 1) and ``<x, b_j>`` (N, P) of rows and float64 points, in float64."""
    norm = x.new_empty(x.shape[0], 1, dtype=torch.float64)
    dots = None if points is None else norm.new_empty(x.shape[0], points.shape[0])
    for rows, space in row_blocks(x, torch.float64):
        space.copy_(x[rows])
        torch.linalg.vector_norm(space, dim=-1, keepdim=True, out=norm[rows])
        if points is not None and dots is not None:
            torch.mm(space, points.T, out=dots[rows])
    return norm, dots


def _row_dot(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y>`` (N, 1) of rows, summed in their dtype, as float64."""
    out = x.new_empty(x.shape[0], 1)
    for rows, space in row_blocks(x, x.dtype):
        torch.sum(torch.mul(x[rows], y[rows], out=space), -1, keepdim=True, out=out[rows])
    return out.double()


def _rows(
    c: Tensor,
    xs: Sequence[Tensor],
    products: Sequence[Tensor],
    points: Tensor | None,
    factors: Tensor | None,
    bound: float,
) -> tuple[list[Tensor], Rows]:
    n, root = len(xs), c.sqrt()
    wide_points = None if points is None else points.double()
    scaled_points = None if wide_points is None else c * wide_points
    gram: Gram = {}
    vectors = []
    for i, (x, p) in enumerate(zip(xs, products, strict=True)):
        (r, _), (w, dots) = _norms_and_dots(x, None), _norms_and_dots(p, scaled_points)
        vectors.append(Vector((root * r).clamp_min_(_TINY), (root * w).clamp_min_(_TINY)))
        if dots is not None:
            gram |= {(i, n + j): column for j, column in enumerate(dots.split(1, -1))}
    for i, j in itertools.combinations(range(n), 2):
        gram[i, j] = c * dot(products[i], products[j])
    if wide_points is not None and scaled_points is not None:
        among = scaled_points @ wide_points.T
        scaled = [] if factors is None else factors.double().split(1, -1)
        fixed = len(wide_points) - len(scaled)
        for j in range(len(wide_points)):
            gram |= {(n + i, n + j): among[i : i + 1, j : j + 1] for i in range(j)}
            length = among[j : j + 1, j : j + 1].sqrt().clamp_min_(_TINY)
            vectors.append(Vector(length, length, None if j < fixed else scaled[j - fixed]))
    numbers = switch.maybe_compiled(row_coefficients, len(xs[0]), n, _count(points), factors is None)
    return numbers(vectors, gram, bound)


class _MobiusAffine(Function[Tensor]):
    """points: (P, D); factors: (N, P') of the last P' of them; tensors: the x_i (N, D_i), then the W_i (D, D_i)."""

    @staticmethod
    def forward(
        ctx: Context, c: Tensor, points: Tensor | None, factors: Tensor | None, bound: float, *tensors: Tensor
    ) -> Tensor:
        n = len(tensors) // 2
        xs, weights = tensors[:n], tensors[n:]
        products = [x @ w.T for x, w in zip(xs, weights, strict=True)]
        coefficients, rows = _rows(c, xs, products, points, factors, bound)
        coefficients = [k.to(xs[0].dtype) for k in coefficients]
        out = products[0] * coefficients[0]
        for p, k in zip(products[1:], coefficients[1:n], strict=True):
            out.addcmul_(p, k)
        if points is not None:
            out.addmm_(_beside(coefficients[n:]), points)
        ctx.save_for_backward(c, points, *tensors, *products)
        ctx.rows, ctx.coefficients = rows, coefficients
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        c, points, *tensors = ctx.saved_tensors
        n, needs, rows = len(tensors) // 3, ctx.needs_input_grad, ctx.rows
        xs, weights, products = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        grads = [_row_dot(grad, p) for p in products]
        if points is not None:
            grads += (grad @ points.T).double().split(1, -1)
        numbers = switch.maybe_compiled(row_coefficients_grad, len(grad), n, _count(points), needs[2], needs[0])
        g_vectors, g_gram = numbers(rows, grads, needs[0])
        across = _across(c, g_gram, n, _count(points), grad.dtype)
        g_c = g_points = g_factors = None
        if needs[0]:
            g_c = _curvature_grad(c, rows, g_vectors, g_gram) / c
        if needs[1]:
            g_points = _points_grad(c, points, g_vectors[n:], g_gram, n).to(grad.dtype)
            g_points.addmm_(_beside(ctx.coefficients[n:]).T, grad)
            for p, mixed in zip(products, across, strict=True):
                g_points.addmm_(mixed.T, p)
        if needs[2]:
            g_factors = _beside([g for _, g, _ in g_vectors[n:] if g is not None]).to(grad.dtype)
        twice, pairs = 2 * c, []
        for i, (x, weight) in enumerate(zip(xs, weights, strict=True)):
            sources = [
                (p, twice * g_vectors[i][2] if i == j else c * g_gram[min(i, j), max(i, j)])
                for j, p in enumerate(products)
            ]
            sources = [(grad, ctx.coefficients[i])] + [(p, k.to(grad.dtype)) for p, k in sources]
            shared = None if points is None else (across[i], points)
            own, g_square = None, g_vectors[i][0]
            if needs[4 + i] and g_square is not None:
                own = (twice * g_square).to(x.dtype)
            pairs.append(_product_grad(sources, shared, x, weight, own, needs[4 + n + i]))
        return g_c, g_points, g_factors, None, *(g for g, _ in pairs), *(g for _, g in pairs)


def _across(c: Tensor, g_gram: Gram, n: int, count: int, dtype: torch.dtype) -> list[Tensor]:
    """For every product, the gradients of its inner products with the points, (N, P)."""
    return [(c * _beside([g_gram[i, n + j] for j in range(count)])).to(dtype) for i in range(n if count else 0)]


def _points_grad(c: Tensor, points: Tensor, g_points: Sequence[VectorGrad], g_gram: Gram, n: int) -> Tensor:
    """What comes from the inner products of points with each other."""
    wide, twice, rows = points.double(), 2 * c, []
    for j, (g_r, _, g_w) in enumerate(g_points):
        own = g_w.sum() if g_r is None else g_w.sum() + g_r.sum()
        row = twice * own * wide[j]
        for i in range(points.shape[0]):
            if i != j:
                row = row + c * g_gram[n + min(i, j), n + max(i, j)].sum() * wide[i]
        rows.append(row)
    return torch.stack(rows)


def _product_grad(
    sources: Sequence[tuple[Tensor, Tensor]],
    shared: tuple[Tensor, Tensor] | None,
    x: Tensor,
    weight: Tensor,
    own: Tensor | None,
    needs_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and W from that of the product, ``sum k v + K b``, which is made block by block and never kept.

    sources: (v, k) with v (N, D) and k (N, 1); shared: (K, b) with K (N, P) and b (P, D); own: ``own x`` is what x
    gets besides, by its norm.
    """
    (grad, coefficient), *others = sources
    g_x = None if own is None else torch.empty_like(x)
    g_weight = torch.zeros_like(weight) if needs_weight else None
    for rows, space in row_blocks(grad, grad.dtype):
        torch.mul(grad[rows], coefficient[rows], out=space)
        for p, k in others:
            space.addcmul_(p[rows], k[rows])
        if shared is not None:
            space.addmm_(shared[0][rows], shared[1])
        if g_x is not None and own is not None:
            torch.mul(x[rows], own[rows], out=g_x[rows]).addmm_(space, weight)
        if g_weight is not None:
            g_weight.addmm_(space.T, x[rows])
    return g_x, g_weight


def _beside(columns: list[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else torch.cat(columns, -1)


def _count(points: Tensor | None) -> int:
    return 0 if points is None else points.shape[0]


def _curvature_grad(c: Tensor, rows: Rows, g_vectors: Sequence[VectorGrad], g_gram: Gram) -> Tensor:
    """Of log(c): every number the coefficients are made of is proportional to c."""
    total = sum(((rows.gram[key] * g).sum() for key, g in g_gram.items()), start=torch.zeros_like(c))
    for term, (g_r, _, g_w) in zip(rows.terms, g_vectors, strict=True):
        r, w, _ = term.vector
        total = total + (w.square() * g_w).sum() + (0 if g_r is None else (r.square() * g_r).sum())
    return total


def mobius_affine(
    xs: Sequence[Tensor],
    weights: Sequence[Tensor],
    c: Tensor,
    points: Tensor | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """``((W_1 (x) x_1 (+) W_2 (x) x_2) (+) ...) (+) b_1 (+) ... (+) f_1 (x) b_{P-P'+1} (+) ...``, summed from the left
    (Ganea et al. 2018, Eq. 26, Lemma 6 and the end of section 3.2).

    Args:
        xs: ball points (..., D_i), at least one tensor. weights: (D, D_i) for each. c: curvature.
        points: (P, D) ball points. factors: (..., P') Möbius factors of the last P' points.
    Returns: (..., D), inside the boundary margin.

    float64 takes the plain path, :func:`mobius_affine_reference`: its gaps need compensated sums.
    """
    if xs[0].dtype is torch.float64:
        return mobius_affine_reference(xs, weights, c, points, factors)
    inputs = [*xs] if factors is None else [*xs, factors]
    lead = _common_lead(inputs)
    flat = [_flat(x, lead) for x in inputs]
    factors = None if factors is None else flat.pop()
    function = mobius_native.MobiusAffine if mobius_native.usable(points, factors, flat, weights) else _MobiusAffine
    out = function.apply(c, points, factors, 1 - limit(BALL_EPS, xs[0].dtype), *flat, *weights)
    return out if len(lead) == 1 else out.view(*lead, weights[0].shape[0])


def _common_lead(tensors: Sequence[Tensor]) -> torch.Size:
    """The leading axes that all tensors (..., D) broadcast to."""
    lead = tensors[0].shape[:-1]
    same = all(t.shape[:-1] == lead for t in tensors[1:])
    return lead if same else torch.broadcast_shapes(*(t.shape[:-1] for t in tensors))


def _flat(x: Tensor, lead: torch.Size) -> Tensor:
    """The rows of x (..., D) with these leading axes, (N, D)."""
    x = x if x.shape[:-1] == lead else x.expand(*lead, x.shape[-1])
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def mobius_affine_reference(
    xs: Sequence[Tensor],
    weights: Sequence[Tensor],
    c: Tensor,
    points: Tensor | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """Plain version of :func:`mobius_affine`: every operation by itself."""
    terms = [expmap0(torch.nn.functional.linear(logmap0(x, c), w), c) for x, w in zip(xs, weights, strict=True)]
    if points is not None:
        scaled = 0 if factors is None else factors.shape[-1]
        terms += points[: points.shape[0] - scaled].unbind(0)
        if factors is not None and scaled:
            terms += expmap0(factors.unsqueeze(-1) * logmap0(points[-scaled:], c), c).unbind(-2)
    return functools.reduce(lambda x, y: mobius_add(x, y, c), terms)
