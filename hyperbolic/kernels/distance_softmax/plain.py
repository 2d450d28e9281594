"""The formula of :mod:`hyperbolic.kernels.distance_softmax` in PyTorch operations."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.numerics import straight_through
from hyperbolic.rows.sums import sum_over_rows

LEAST = 1e-12  # least sinh^2(sqrt(c) d/2) of the others; of the pairs, which are exact, the square of it


def loss(left: Tensor, right: Tensor, h: Tensor, rows: Tensor, columns: Tensor, power: Tensor) -> Tensor:
    """The mean of ``log(1 + sum_j w_ij / w_i)`` for the weights ``w = exp(-d/T) = exp(-power arsinh(sqrt(h)))`` with
    ``power = 2 / (sqrt(c) T)``.

    Args: left (B, e), right (P, e) with ``h = left right^T`` of the others; h (B,) of the pairs; rows, columns: pairs
        of numbers (i, j) that do not count.
    """

    def of_rows(here: slice, left: Tensor, h: Tensor) -> Tensor:
        near, others = -power * _arsinh_root(h, LEAST**2), -power * _arsinh_root(left @ right.T, LEAST)
        i, j = rows, columns
        if not switch.is_followed(left):
            mine = (rows >= here.start) & (rows < here.stop)
            i, j = rows[mine] - here.start, columns[mine]
        others = others.index_put((i, j), others.new_full((), -torch.inf))
        return (torch.cat([near.unsqueeze(1), others], 1).logsumexp(1) - near).sum()

    return sum_over_rows(of_rows, (left, h), right.shape[0]) / left.shape[0]


def _arsinh_root(h: Tensor, least: float) -> Tensor:
    """``arsinh(sqrt(h))`` of h cut to the least, with the slope there."""
    return straight_through(h, h.clamp_min(least)).sqrt().asinh()
