"""Sums over rows of what is large in a row, for the plain forms of operators: only some rows are held at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hyperbolic import switch

ENTRIES = 1 << 22  # most that are held at a time


def sum_over_rows(of_rows: Callable[..., Tensor], tensors: Sequence[Tensor], width: int) -> Tensor:
    """``of_rows(rows, *(t[rows] for t in tensors))``, a float64 sum over rows, for all rows (N) of the tensors.

    Where N times the width, what a row needs, is large, blocks of rows are computed one after the other, and once more
    for their gradients; not where operations are traced or transformed.
    """
    n = tensors[0].shape[0]
    if switch.is_followed(*tensors) or n * width <= ENTRIES:
        return of_rows(slice(0, n), *tensors)
    step, total = max(ENTRIES // max(width, 1), 1), tensors[0].new_zeros((), dtype=torch.float64)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        parts = (t[rows] for t in tensors)
        total = total + checkpoint(of_rows, rows, *parts, use_reentrant=False, preserve_rng_state=False)
    return total
