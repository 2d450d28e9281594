"""The passes of :mod:`hyperbolic.kernels.mobius_linear` in C++, over rows, around the matrix products.

Möbius operations only scale and add the vectors that go in: with ``p_i = W_i x_i`` and bias points ``b_j``,

``((W_1 (x) x_1 (+) W_2 (x) x_2) (+) b_1) (+) f_2 (x) b_2 = C_1 p_1 + C_2 p_2 + D_1 b_1 + D_2 b_2``

with one coefficient a row, made in float64 of the norms of the ``x_i`` and the inner products of the ``p_i`` and
``b_j``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.fusion import gradients
from hyperbolic.kernels.mobius_linear import plain
from hyperbolic.kernels.scratch import plus_product, row_blocks, rows_of
from hyperbolic.numerics import BALL_EPS
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

_MAX_VECTORS = 8  # vectors of a sum, as in mobius_rows.h
_BOUND = 1 - BALL_EPS[torch.float32]
_REACH = 16.0  # of a row's terms, above which the plain formula has it: their rounding is worth a fifth of the margin
_LIBRARY = native.Library("mobius")


def _arguments(
    c: Tensor, points: Tensor | None, factors: Tensor | None, xs: Sequence[Tensor], products: Sequence[Tensor]
) -> tuple[native.Argument, ...]:
    """Of both passes in C++, the first ones."""
    of_points = (points, 0 if points is None else len(points), factors, 0 if factors is None else factors.shape[1])
    return xs, [x.shape[1] for x in xs], products, len(xs), *of_points, *products[0].shape, float(c), _BOUND


def _of_rows(
    rows: Tensor, c: Tensor, points: Tensor | None, factors: Tensor | None, xs: Sequence[Tensor], weights: Sequence[Any]
) -> tuple[Any, ...]:
    """The operator's arguments of some rows."""
    return c, points, None if factors is None else factors[rows], *(x[rows] for x in xs), *weights


def _well_formed(points: Tensor | None, factors: Tensor | None, tensors: Sequence[Tensor]) -> bool:
    """Whether sizes are those that :class:`MobiusAffine` names."""
    n = len(tensors) // 2
    xs, weights = tensors[:n], tensors[n:]
    rows, size = xs[0].shape[0], weights[0].shape[0]
    return (
        len(weights) == n
        and all(x.dim() == w.dim() == 2 for x, w in zip(xs, weights, strict=True))
        and all(x.shape == (rows, w.shape[1]) and w.shape[0] == size for x, w in zip(xs, weights, strict=True))
        and (points is None or (points.dim() == 2 and points.shape[1] == size))
        and (
            factors is None
            or ((points is not None and factors.dim() == 2 and factors.shape[0] == rows)
            and factors.shape[1] <= len(points))
        )
    )


@operator("mobius_affine(Tensor c, Tensor? points, Tensor? factors, Tensor[] tensors) -> Tensor")
class MobiusAffine(Operator):
    """points: (P, D); factors: (N, P') of the last P' of them; tensors: the x_i (N, D_i), then the W_i (D, D_i)."""

    plain = staticmethod(plain.affine)

    @staticmethod
    def fits(c: Tensor, points: Tensor | None, factors: Tensor | None, *tensors: Tensor) -> bool:
        n_vectors = len(tensors) // 2 + (0 if points is None else len(points))
        return (
            tensors[0].dtype is torch.float32  # the gaps of float64 points need compensated sums
            and n_vectors <= _MAX_VECTORS
            and _well_formed(points, factors, tensors)
            and _LIBRARY.readable(points, factors, *tensors)
        )

    @staticmethod
    def forward(ctx: Context, c: Tensor, points: Tensor | None, factors: Tensor | None, *tensors: Tensor) -> Tensor:
        n = len(tensors) // 2
        points, factors = (None if t is None else t.contiguous() for t in (points, factors))
        xs, weights = [x.contiguous() for x in tensors[:n]], tensors[n:]
        products = [x @ w.T for x, w in zip(xs, weights, strict=True)]
        count = 0 if points is None else len(points)
        numbers = c.new_empty(2 * n + n * (n - 1) // 2 + n * count, len(xs[0]), dtype=torch.float64)
        out, reach = torch.empty_like(products[0]), numbers.new_empty(len(xs[0]))
        _LIBRARY.run("mobius_forward", *_arguments(c, points, factors, xs, products), numbers, reach, out)
        ctx.steep = steep = (reach > _REACH).nonzero().squeeze(1)
        if len(steep):
            out[steep] = plain.affine(*_of_rows(steep, c, points, factors, xs, weights))
        ctx.save_for_backward(c, points, factors, numbers, *xs, *products, *weights)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        c, points, factors, numbers, *tensors = ctx.saved_tensors
        n, needs, steep, grad = len(tensors) // 3, ctx.needs_input_grad, ctx.steep, grad.contiguous()
        xs, products, weights = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        if len(steep):
            some = _of_rows(steep, c, points, factors, xs, weights)
            own = gradients(plain.affine, some, [grad[steep]], needs)
            grad = grad.index_fill(0, steep, 0)
        arguments = (*_arguments(c, points, factors, xs, products), numbers, grad)
        grad_c = c.new_zeros((), dtype=torch.float64) if needs[0] else None
        grad_points = torch.zeros_like(points) if needs[1] else None
        grad_factors = torch.empty_like(factors) if needs[2] else None
        grad_xs = [torch.empty_like(x) if need else None for x, need in zip(xs, needs[3:], strict=False)]
        grad_weights: list[Tensor | None] = [None] * n
        for rows, space in row_blocks(grad, grad.dtype, n):
            outputs = (space, grad_xs, grad_factors, grad_points, grad_c)
            _LIBRARY.run("mobius_backward", *arguments, rows.start, rows.stop, *outputs)
            for i, grad_product in enumerate(space.unbind(0) if n > 1 else [space]):
                if (grad_x := grad_xs[i]) is not None:
                    rows_of(grad_x, rows).addmm_(grad_product, weights[i])
                if needs[3 + n + i]:
                    grad_weights[i] = plus_product(grad_weights[i], grad_product.T, rows_of(xs[i], rows))
        grads = [None if grad_c is None else grad_c / c, grad_points, grad_factors, *grad_xs, *grad_weights]
        if len(steep):
            for k, (whole, part) in enumerate(zip(grads, own, strict=True)):
                if whole is not None:
                    whole[steep if 2 <= k < 3 + n else ...] += part
        return tuple(grads)
