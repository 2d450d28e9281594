"""The formulas of :mod:`hyperbolic.kernels.tangent_distance` in PyTorch operations."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.numerics import straight_through, wide
from hyperbolic.smooth import asinhc


def row_products(queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``<q_i, e_j>`` (B, Q, N) and ``|e_j|^2`` (B, N) of queries (B, Q, d), float64, and rows e (B, N, d)."""
    rows = wide(rows)
    return queries @ rows.mT, rows.square().sum(-1)


def squared_length(h: Tensor, c: Tensor, narrow: bool) -> Tensor:
    """``4/c arsinh(sqrt(h))^2`` of h, which counts as 0 where it is negative. narrow: in float32, else in float64."""
    h = straight_through(h, h.clamp_min(0))
    return (4 / c * h * asinhc(h).square()).to(torch.float32 if narrow else torch.float64)
