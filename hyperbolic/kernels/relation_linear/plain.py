"""The formula of :mod:`hyperbolic.kernels.relation_linear` in PyTorch operations."""

from __future__ import annotations

import torch
from torch import Tensor


def products(x: Tensor, weight: Tensor, r: Tensor) -> Tensor:
    """``W_{r_i} x_i``, by the matrices (B, d_out, d_in)."""
    return torch.bmm(weight.index_select(0, r.long()), x.unsqueeze(-1)).squeeze(-1)
