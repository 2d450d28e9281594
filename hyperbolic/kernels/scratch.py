"""Memory for intermediate rows that is kept between calls: on a CPU fresh memory costs more than the arithmetic done in
it."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

_SPACE = 1 << 20  # float32 numbers of the scratch space
_SHAPES = 64  # how many shapes its views are kept for
_local = threading.local()

Blocks = list[tuple[slice, Tensor]]


def row_blocks(x: Tensor, dtype: torch.dtype, copies: int = 1) -> Blocks:
    """Row ranges of x (N, D) with scratch space for each, (rows, D), or (copies, rows, D) for more than one copy.

    On a GPU, or where rows are very long, one range with all rows in fresh memory.
    """
    n, size = x.shape
    if x.is_cuda or copies * size > _SPACE // 2:
        return [(slice(0, n), x.new_empty((copies, n, size)[copies == 1 :], dtype=dtype))]
    if not hasattr(_local, "space"):
        _local.space, _local.blocks = torch.empty(_SPACE), {}
    key = (n, size, dtype, copies)
    if key not in _local.blocks:
        if len(_local.blocks) == _SHAPES:
            _local.blocks.clear()
        _local.blocks[key] = _blocks(_local.space.view(dtype), n, size, copies)
    blocks: Blocks = _local.blocks[key]
    return blocks


def _blocks(space: Tensor, n: int, size: int, copies: int) -> Blocks:
    step = len(space) // (copies * max(size, 1))
    ranges = [slice(i, min(i + step, n)) for i in range(0, n, step)] or [slice(0, 0)]
    shapes = ((copies, r.stop - r.start, size)[copies == 1 :] for r in ranges)
    return [(r, space[: math.prod(shape)].view(shape)) for r, shape in zip(ranges, shapes, strict=True)]


def rows_of(x: Tensor, rows: slice) -> Tensor:
    """``x[rows]``, x itself where those are all."""
    return x if rows.stop - rows.start == x.shape[0] else x[rows]


def plus_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """``total + a b``, in place; None counts as zero."""
    return a @ b if total is None else total.addmm_(a, b)
