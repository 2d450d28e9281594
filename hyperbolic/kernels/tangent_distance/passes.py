"""The passes of :mod:`hyperbolic.kernels.tangent_distance` in C++."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.tangent_distance import plain
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

LIBRARY = native.Library("tangent_distance")


@operator("row_products(Tensor queries, Tensor rows) -> (Tensor, Tensor)")
class RowProducts(Operator):
    """queries (B, K, d), float64; rows (B, N, d). Of float32 rows, which are widened in the processor."""

    plain = staticmethod(plain.row_products)

    @staticmethod
    def fits(queries: Tensor, rows: Tensor) -> bool:
        return (
            rows.dtype is torch.float32
            and queries.dtype is torch.float64
            and queries.is_cpu
            and rows.dim() == queries.dim() == 3
            and queries.shape[::2] == rows.shape[::2]
            and LIBRARY.readable(rows)
        )

    @staticmethod
    def forward(ctx: Context, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        queries, rows = queries.contiguous(), rows if rows.stride(-1) == 1 else rows.contiguous()
        (b, n, d), k = rows.shape, queries.shape[1]
        products, squares = queries.new_empty(b, k, n), queries.new_empty(b, n)
        sizes = (b, k, n, d, *rows.stride()[:2])
        LIBRARY.run("row_products", queries, native.Strided(rows), products, squares, *sizes)
        ctx.save_for_backward(queries, rows)
        return products, squares

    @staticmethod
    def backward(ctx: Context, grad_products: Tensor, grad_squares: Tensor) -> tuple[Tensor, Tensor]:
        queries, rows = ctx.saved_tensors
        (b, n, d), k = rows.shape, queries.shape[1]
        grad_queries, grad_rows = torch.empty_like(queries), rows.new_empty(rows.shape)
        grads = (grad_products.contiguous(), grad_squares.contiguous(), grad_queries, grad_rows)
        LIBRARY.run("row_products_grad", queries, native.Strided(rows), *grads, b, k, n, d, *rows.stride()[:2])
        return grad_queries, grad_rows


@operator("squared_length(Tensor h, Tensor c, bool narrow) -> Tensor")
class SquaredLength(Operator):
    plain = staticmethod(plain.squared_length)

    @staticmethod
    def fits(h: Tensor, c: Tensor, narrow: bool) -> bool:
        shapes = h.dim() == 2 and c.shape in ((), (len(h), 1))
        return shapes and h.dtype is torch.float64 and LIBRARY.readable(h, c)

    @staticmethod
    def forward(ctx: Context, h: Tensor, c: Tensor, narrow: bool) -> Tensor:
        h, c = h.contiguous(), c.contiguous()
        out = h.new_empty(h.shape, dtype=torch.float32 if narrow else torch.float64)
        LIBRARY.run("squared", out, h, c, *h.shape, c.dim() > 0)
        ctx.save_for_backward(h, c)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        h, c = ctx.saved_tensors
        grad_h, grad_c = torch.empty_like(h), h.new_empty(len(h), 1) if ctx.needs_input_grad[1] else None
        tensors = (grad.contiguous(), h, c, grad_h, grad_c)
        LIBRARY.run("squared_grad", *tensors, *h.shape, c.dim() > 0)
        return grad_h, None if grad_c is None else grad_c.sum_to_size(c.shape), None
