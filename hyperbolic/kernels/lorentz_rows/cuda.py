"""HyboNet's linear layer on a GPU: the products of ``nn.Linear``, and a kernel of ``triton.py`` in each direction.

As a compiled formula its call alone takes longer, and every number of a row computes the row's scalars again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hyperbolic.kernels.gpu import available
from hyperbolic.kernels.lorentz_rows import plain
from hyperbolic.typing import Context

SPACE = 8192  # space coordinates up to which a program holds a row
_TILE = 2048  # numbers of a program


def _launch(name: str, tensors: tuple[Tensor, ...], points: int, size: int, offset: float, **constants: Any) -> None:
    from hyperbolic.kernels.lorentz_rows import triton as kernels

    rows, columns = tile(size)
    grid = (-(-points // rows),)
    constants |= {"OFFSET": offset, "BR": rows, "BD": columns}
    with torch.cuda.device_of(tensors[0]):
        getattr(kernels, name)[grid](*tensors, points, size, **constants, num_warps=4 if columns <= _TILE else 8)


def tile(size: int) -> tuple[int, int]:
    """Rows and space coordinates of a program, for points of `size` coordinates; powers of two."""
    columns = max(16, 1 << (size - 2).bit_length())
    return max(1, _TILE // columns), columns


def fits(x: Tensor, weight: Tensor, *others: Any) -> bool:
    bias, raw, added, scale, c, _, heads = others
    matrices = [t for t in (x, weight, bias, added) if t is not None]
    return (
        raw is None
        and plain.fits_linear(x, weight, bias, raw, added, heads)
        and 1 < len(weight) // heads <= SPACE + 1
        and c.dtype is torch.float64
        and scale.dim() == c.dim() == 0
        and all(t.dtype is torch.float32 for t in matrices)
        and all(t.device == x.device for t in (*matrices, scale, c))
        and available(x.device.index)
    )


def forward(ctx: Context, x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    bias, _, added, scale, c, offset, heads = others
    z, size = torch.nn.functional.linear(x, weight, bias), len(weight) // heads
    if added is not None:
        z[:, size - added.shape[-1] :] += added
    points, keeps = len(x) * heads, any(ctx.needs_input_grad)
    y, numbers = torch.empty_like(z), c.new_empty(2, points if keeps else 0)
    _launch("normalise", (z, scale, c, y, numbers), points, size, offset, KEEPS=keeps)
    ctx.save_for_backward(x, weight, y, numbers, scale, c)
    ctx.sizes, ctx.added = (points, size, offset), 0 if added is None else added.shape[-1]
    return y


def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, y, numbers, scale, c = ctx.saved_tensors
    points, size, _ = ctx.sizes
    of_z, sums = torch.empty_like(y), c.new_empty(2, -(-points // tile(size)[0]))
    _launch("normalise_grad", (grad.contiguous(), y, numbers, scale, c, of_z, sums), *ctx.sizes)
    needs = ctx.needs_input_grad
    of_scale, of_c = sums.sum(1).unbind() if needs[5] or needs[6] else (None, None)
    return (
        of_z @ weight if needs[0] else None,
        of_z.T @ x if needs[1] else None,
        of_z.sum(0) if needs[2] else None,
        None,
        of_z[:, size - ctx.added :] if needs[4] else None,
        of_scale.to(scale.dtype) if of_scale is not None and needs[5] else None,
        of_c if needs[6] else None,
        None,
        None,
    )
