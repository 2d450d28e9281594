"""Rows of a table, with a gradient that a CPU adds up quicker than ``torch.nn.Embedding`` does."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from hyperbolic.kernels.table_rows import plain
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context


def table_rows(table: Tensor, index: Tensor, sparse: bool = False) -> Tensor:
    """``table[index]``: table (N, D), index of integers (...) -> (..., D).

    Args: sparse: the gradient is a sparse tensor of the rows used, for an optimiser with ``lazy=True``.
    """
    if sparse:
        return functional.embedding(index, table, sparse=True)
    rows: Tensor = TableRows.run(table, index)
    return rows


@operator("table_rows(Tensor table, Tensor index) -> Tensor")
class TableRows(Operator):
    plain = staticmethod(plain.rows)
    fuses = False  # it is one operation

    @staticmethod
    def fits(table: Tensor, index: Tensor) -> bool:
        return not table.is_cuda and table.numel() > 0

    @staticmethod
    def forward(ctx: Context, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = table.shape
        return functional.embedding(index, table.detach().as_subclass(Tensor))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        index, grad = index.reshape(-1).long(), grad.reshape(-1, ctx.size[1])
        if ctx.size[1] == 1:
            return grad.new_zeros(ctx.size[0]).scatter_add_(0, index, grad[:, 0]).unsqueeze(-1), None
        return grad.new_zeros(ctx.size).index_add_(0, index, grad), None
