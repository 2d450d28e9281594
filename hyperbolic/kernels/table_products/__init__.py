"""Products of vectors with some rows of a table: scores of a few candidates for each query of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.table_products import plain
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

_LIBRARY = native.Library("table_products")


def table_products(x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None = None, sparse: bool = False) -> Tensor:
    """``<x_i, table[index_ij]> + bias[index_ij]``: x (B, D), table (N, D), index long (B, M), bias (N, 1) -> (B, M).

    On a CPU the rows are read where they lie, in C++, and the gradient of the table is added up row by row: the
    (B, M, D) rows are never made. Else they are (:mod:`~hyperbolic.kernels.table_products.plain`).

    Args: sparse: gradients of the rows used only, for an optimiser with ``lazy=True``.

    Raises:
        ValueError: sizes that do not fit. IndexError: an index outside of the table.
    """
    if not _well_formed(x, table, index, bias):
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, table, index, bias) if t is not None)
        raise ValueError(
            f"table_products: takes x (B, D), table (N, D), index (B, M) and bias (N, 1) or none, got {shapes}"
        )
    if sparse:
        return plain.products(x, table, index, bias, sparse)
    x = x.to(table.dtype) if torch.is_autocast_enabled(x.device.type) else x
    y: Tensor = TableProducts.run(x, table, index, bias)
    return y


def _well_formed(x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None) -> bool:
    return (
        index.dim() == table.dim() == 2
        and x.shape == (index.shape[0], table.shape[1])
        and (bias is None or bias.shape == (table.shape[0], 1))
    )


@operator("table_products(Tensor x, Tensor table, Tensor index, Tensor? bias) -> Tensor")
class TableProducts(Operator):
    plain = staticmethod(plain.products)

    @staticmethod
    def fits(x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None) -> bool:
        return (
            index.numel() > 0
            and _well_formed(x, table, index, bias)
            and table.is_contiguous()
            and (bias is None or bias.is_contiguous())
            and native.takes_index(index)
            and _LIBRARY.readable(x, table, bias)
        )

    @staticmethod
    def forward(ctx: Context, x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        index = native.checked_index(index, len(table), "table_products", "rows")
        out = x.new_empty(index.shape)
        _LIBRARY.run("scores", x, table, bias, index, out, *index.shape, x.shape[1])
        ctx.save_for_backward(x, table, index)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, Tensor | None]:
        x, table, index = ctx.saved_tensors
        grad = grad.contiguous()
        needs_x, needs_table, _, needs_bias = ctx.needs_input_grad
        grad_x = torch.empty_like(x) if needs_x else None
        grad_table = x.new_empty(table.shape) if needs_table else None
        grad_bias = x.new_empty(len(table), 1) if needs_bias else None
        tensors = (grad, x, table, index, grad_x, grad_table, grad_bias)
        _LIBRARY.run("grads", *tensors, *index.shape, *reversed(table.shape))
        return grad_x, grad_table, None, grad_bias
