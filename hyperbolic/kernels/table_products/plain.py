"""The formula of :mod:`hyperbolic.kernels.table_products` in PyTorch operations."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.table_rows import table_rows


def products(x: Tensor, table: Tensor, index: Tensor, bias: Tensor | None = None, sparse: bool = False) -> Tensor:
    """``<x_i, table[index_ij]> + bias[index_ij]``, by the rows (B, M, D)."""
    values = torch.bmm(table_rows(table, index, sparse), x.unsqueeze(-1)).squeeze(-1)
    return values if bias is None else values + table_rows(bias, index, sparse).squeeze(-1)
