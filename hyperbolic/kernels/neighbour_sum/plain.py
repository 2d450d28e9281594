"""The formula of :mod:`hyperbolic.kernels.neighbour_sum` in PyTorch operations."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def sums(x: Tensor, weights: Tensor, target: Tensor, source: Tensor, *others: Any) -> Tensor:
    """``sum_j w_ij x_j`` (N, D), by the rows (E, D) of all pairs; the last of the others is N."""
    return x.new_zeros(others[-1], x.shape[1]).index_add(0, target, weights.unsqueeze(-1) * x[source])
