"""The sums of :mod:`hyperbolic.kernels.mobius` in two C++ passes over rows, forward and backward, around the matrix
products."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic import native
from hyperbolic.kernels.scratch import plus_product, row_blocks, rows_of
from hyperbolic.typing import Context, Function

_MAX_VECTORS = 8  # vectors of a sum, as in native/mobius_rows.h
Addresses = ctypes.Array[ctypes.c_void_p]
_LIBRARY = native.Library("mobius", mobius_forward="pppipipinnddpp", mobius_backward="pppipipinnddppnnppppp")


def usable(points: Tensor | None, factors: Tensor | None, xs: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether :class:`MobiusAffine` takes these arguments, which are float32."""
    if len(xs) + (0 if points is None else len(points)) > _MAX_VECTORS:
        return False
    strided = (t if t is None or t.is_contiguous() else t.new_empty(0) for t in (*xs, factors))
    return _LIBRARY.usable(points, *strided, *weights)


def _addresses(tensors: Sequence[Tensor | None]) -> Addresses:
    return (ctypes.c_void_p * len(tensors))(*map(native.address, tensors))


class _Sum:
    """The arguments of both passes; it keeps the tensors whose addresses it hands out."""

    def __init__(
        self,
        c: Tensor,
        points: Tensor | None,
        factors: Tensor | None,
        bound: float,
        xs: Sequence[Tensor],
        products: Sequence[Tensor],
        numbers: Tensor,
    ):
        n, size = products[0].shape
        self.tensors = (points, factors, xs, products, numbers)
        self.arguments = (
            _addresses(xs),
            (ctypes.c_int64 * len(xs))(*(x.shape[1] for x in xs)),
            _addresses(products),
            len(xs),
            points,
            0 if points is None else len(points),
            factors,
            0 if factors is None else factors.shape[1],
            n,
            size,
            float(c),
            bound,
            numbers,
        )

    def run(self, name: str, *arguments: native.Argument) -> None:
        _LIBRARY.run(name, *self.arguments, *arguments)


class MobiusAffine(Function[Tensor]):
    """points: (P, D); factors: (N, P') of the last P' of them; tensors: the x_i (N, D_i), then the W_i (D, D_i)."""

    @staticmethod
    def forward(
        ctx: Context, c: Tensor, points: Tensor | None, factors: Tensor | None, bound: float, *tensors: Tensor
    ) -> Tensor:
        n = len(tensors) // 2
        points, factors = (None if t is None else t.contiguous() for t in (points, factors))
        xs, weights = [x.contiguous() for x in tensors[:n]], tensors[n:]
        products = [x @ w.T for x, w in zip(xs, weights, strict=True)]
        count = 0 if points is None else len(points)
        numbers = torch.empty(2 * n + n * (n - 1) // 2 + n * count, len(xs[0]), dtype=torch.float64)
        out = torch.empty_like(products[0])
        _Sum(c, points, factors, bound, xs, products, numbers).run("mobius_forward", out)
        ctx.save_for_backward(c, points, factors, numbers, *xs, *products, *weights)
        ctx.bound = bound
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        c, points, factors, numbers, *tensors = ctx.saved_tensors
        n, needs, grad = len(tensors) // 3, ctx.needs_input_grad, grad.contiguous()
        xs, products, weights = tensors[:n], tensors[n : 2 * n], tensors[2 * n :]
        passes = _Sum(c, points, factors, ctx.bound, xs, products, numbers)
        grad_c = torch.zeros((), dtype=torch.float64) if needs[0] else None
        grad_points = torch.zeros_like(points) if needs[1] else None
        grad_factors = torch.empty_like(factors) if needs[2] else None
        grad_xs = [torch.empty_like(x) if need else None for x, need in zip(xs, needs[4:], strict=False)]
        grad_weights: list[Tensor | None] = [None] * n
        grad_norms = _addresses(grad_xs)
        for rows, space in row_blocks(grad, grad.dtype, n):
            outputs = (space, grad_norms, grad_factors, grad_points, grad_c)
            passes.run("mobius_backward", grad, rows.start, rows.stop, *outputs)
            for i, grad_product in enumerate(space.unbind(0) if n > 1 else [space]):
                if (grad_x := grad_xs[i]) is not None:
                    rows_of(grad_x, rows).addmm_(grad_product, weights[i])
                if needs[4 + n + i]:
                    grad_weights[i] = plus_product(grad_weights[i], grad_product.T, rows_of(xs[i], rows))
        return None if grad_c is None else grad_c / c, grad_points, grad_factors, None, *grad_xs, *grad_weights
