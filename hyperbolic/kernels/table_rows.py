"""Rows of a table, with a gradient that a CPU adds up quicker than ``torch.nn.Embedding`` does."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.switch import is_followed
from hyperbolic.typing import Context, Function


def table_rows(table: Tensor, index: Tensor, sparse: bool = False) -> Tensor:
    """``table[index]``: table (N, D), index long (...) -> (..., D).

    Differentiable as often as ``torch.nn.functional.embedding``, which does the work on a GPU and where something
    follows the operations.

    Args: sparse: the gradient is a sparse tensor of the rows used, for an optimiser with ``lazy=True``.
    """
    if sparse or table.is_cuda or is_followed(table):
        return torch.nn.functional.embedding(index, table, sparse=sparse)
    return _Rows.apply(table, index)


class _Rows(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = table.shape
        return torch.nn.functional.embedding(index, table.detach().as_subclass(Tensor))

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        index, grad = index.reshape(-1).long(), grad.reshape(-1, ctx.size[1])
        if ctx.size[1] == 1:
            return grad.new_zeros(ctx.size[0]).scatter_add_(0, index, grad[:, 0]).unsqueeze(-1), None
        return grad.new_zeros(ctx.size).index_add_(0, index, grad), None
