"""Products of vectors with some rows of a table: scores of a few candidates for each query of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.typing import Context, Function

_LIBRARY = native.Library("table_products", scores="pppppnnn", grads="pppppppnnnn")


def table_products(x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None = None, sparse: bool = False) -> Tensor:
    """``<x_i, table[index_ij]> + bias[index_ij]``: x (B, D), table (N, D), index long (B, M), bias (N, 1) -> (B, M).

    On a CPU the rows are read where they lie, in C++, and the gradient of the table is added up row by row: the
    (B, M, D) rows are never made. Else they are (:func:`table_products_reference`), which is differentiable twice.

    Args: sparse: gradients of the rows used only, for an optimiser with ``lazy=True``.

    Raises:
        ValueError: sizes that do not fit. IndexError: an index outside of the table.
    """
    fitting = x.shape == (*index.shape[:1], *table.shape[1:]) and index.dim() == table.dim() == 2
    if not fitting or (bias is not None and bias.shape != (len(table), 1)):
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, table, index, bias) if t is not None)
        raise ValueError(
            f"table_products: takes x (B, D), table (N, D), index (B, M) and bias (N, 1) or none, got {shapes}"
        )
    if sparse or index.numel() == 0 or not _usable(x, table, index, bias):
        return table_products_reference(x, table, index, bias, sparse)
    return _TableProducts.apply(x.contiguous(), table, index, bias)


def table_products_reference(
    x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None = None, sparse: bool = False
) -> Tensor:
    """Plain version of :func:`table_products`."""
    products = torch.bmm(table_rows(table, index, sparse), x.unsqueeze(-1)).squeeze(-1)
    return products if bias is None else products + table_rows(bias, index, sparse).squeeze(-1)


def _usable(x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None) -> bool:
    return native.takes_index(index) and _LIBRARY.usable(x.new_empty(0), table, bias)


class _TableProducts(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None) -> Tensor:
        index = native.checked_index(index, len(table), "table_products", "rows")
        out = x.new_empty(index.shape)
        _LIBRARY.run("scores", x, table, bias, index, out, *index.shape, x.shape[1], dtype=x.dtype)
        ctx.save_for_backward(x, table, index)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, Tensor | None]:
        refuse_graph("products with rows of a table")
        x, table, index = ctx.saved_tensors
        grad = grad.contiguous()
        needs_x, needs_table, _, needs_bias = ctx.needs_input_grad
        grad_x = torch.empty_like(x) if needs_x else None
        grad_table = x.new_empty(table.shape) if needs_table else None
        grad_bias = x.new_empty(len(table), 1) if needs_bias else None
        tensors = (grad, x, table, index, grad_x, grad_table, grad_bias)
        _LIBRARY.run("grads", *tensors, *index.shape, *reversed(table.shape), dtype=x.dtype)
        return grad_x, grad_table, None, grad_bias


def refuse_graph(what: str) -> None:
    """
    Raises:
        RuntimeError: in a backward pass that shall be differentiated itself.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"{what} can be differentiated once: there is no second derivative (create_graph=True)")
