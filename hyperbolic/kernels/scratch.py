"""Memory for intermediate rows that is kept between calls: on a CPU fresh memory costs more than the arithmetic done in
it."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

_SPACE = 1 << 20  # float32 numbers of the scratch space
_LINE = 16  # of them in a line of the cache
_SHAPES = 64  # how many shapes its views are kept for
_SMALL = 1 << 18  # numbers of a result up to which it makes no difference where its rows begin
_local = threading.local()
Blocks = list[tuple[slice, Tensor]]


def aligned_size(size: int) -> int:
    """The length of rows, of `size` numbers or a few more, that all begin on a line of the cache. Products that are
    written into rows of another length, as of the d + 1 coordinates of Lorentz points, take up to twice as long."""
    return -(-size // _LINE) * _LINE


def row_blocks(x: Tensor, dtype: torch.dtype, copies: int = 1, size: int | None = None, use: str = "rows") -> Blocks:
    """Row ranges of x (N, D) with scratch space for each, (rows, D), or (copies, rows, D) for more than one copy; on a
    GPU, or where rows are very long, one range with all rows in fresh memory. size: of the rows of the scratch space;
    None: D. use: names the space; two that are in use at the same time need different names."""
    n, size = len(x), size or x.shape[1]
    if x.is_cuda or copies * size > _SPACE // 2:
        return [(slice(0, n), x.new_empty((copies, n, size)[copies == 1 :], dtype=dtype))]
    if not hasattr(_local, "spaces"):
        _local.spaces, _local.blocks = {}, {}
    key = (n, size, dtype, copies, use)
    if key not in _local.blocks:
        if len(_local.blocks) == _SHAPES:
            _local.blocks.clear()
        with torch.inference_mode(False):  # whose tensors no training may write into later
            if use not in _local.spaces:
                _local.spaces[use] = torch.empty(_SPACE, dtype=torch.float32, device="cpu")
            _local.blocks[key] = _blocks(_local.spaces[use].view(dtype), n, size, copies)
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


def set_product(out: Tensor, a: Tensor, b: Tensor, add: bool = False) -> None:
    """``out = a b``, or ``out += a b``, of matrices; by rows of an `aligned_size` where that is faster."""
    size = out.shape[1]
    if out.numel() <= _SMALL or aligned_size(size) == size or out.is_cuda:
        out.addmm_(a, b, beta=int(add))
        return
    for rows, space in row_blocks(out, out.dtype, size=aligned_size(size), use="products"):
        product = torch.mm(a[rows], b, out=space[:, :size])
        out[rows].add_(product) if add else out[rows].copy_(product)
