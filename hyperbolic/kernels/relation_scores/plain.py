"""The formula of :mod:`hyperbolic.kernels.relation_scores` in PyTorch operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperbolic.kernels.lorentz_rows.plain import dual, normalise


class Tables(NamedTuple):
    """Parameters: table (N, D) of points, matrix (R, D, D), bias (R, D - 1), head_bias and tail_bias (N, 1)."""

    table: Tensor
    matrix: Tensor
    bias: Tensor
    head_bias: Tensor
    tail_bias: Tensor

    def well_formed(self) -> bool:
        """Whether the shapes are these."""
        n, size, relations = len(self.table), self.table.shape[-1], len(self.matrix)
        shapes = ((n, size), (relations, size, size), (relations, size - 1), (n, 1), (n, 1))
        return all(table.shape == shape for table, shape in zip(self, shapes, strict=True))


def scores(*arguments: Any) -> Tensor:
    """``margin + 2 <f_r(x_h), x_t>_L + b_h + b'_t``, of gathered matrices and rows. Args: the operator's."""
    *tensors, h, r, t, margin, scale, c = arguments
    tables = Tables(*tensors)
    y = torch.bmm(tables.matrix[r], tables.table[h].unsqueeze(-1)).squeeze(-1)
    y = y + torch.nn.functional.pad(tables.bias[r], (1, 0))
    curvature = torch.tensor(c, dtype=torch.float64, device=y.device)
    q = dual(normalise(y, y.new_tensor(scale), curvature), y.new_tensor(2.0))
    products = torch.bmm(tables.table[t], q.unsqueeze(-1)).squeeze(-1)
    result: Tensor = margin + products + tables.head_bias[h] + tables.tail_bias[t].squeeze(-1)
    return result
