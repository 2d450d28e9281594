"""The formula of :mod:`hyperbolic.kernels.table_rows` in PyTorch operations."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def rows(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``."""
    return functional.embedding(index, table)
