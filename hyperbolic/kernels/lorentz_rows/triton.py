# mypy: ignore-errors
"""Normalisation of HyboNet's linear layer on a GPU: a program takes a few rows, its scalars in float64.

Formulas: :mod:`hyperbolic.kernels.lorentz_rows.plain`. Layouts: z, y and their gradients (points, D), time first;
numbers (2, points), what a forward pass leaves of each point: ``sigmoid(z_0)`` and ``sqrt(t^2 - 1/c) / |u|``.
"""

from __future__ import annotations

import triton
import triton.language as tl

SHORT = tl.constexpr(2.0**-40)  # as in plain.py


@triton.jit
def _rows(points, D, BR: tl.constexpr, BD: tl.constexpr):
    """Numbers of the program's rows, which are there, the places of their times and of their space parts, and which of
    these are there."""
    row, column = tl.program_id(0) * BR + tl.arange(0, BR).to(tl.int64), tl.arange(0, BD)
    there, times = row < points, row * D
    return row, there, times, times[:, None] + 1 + column[None, :], there[:, None] & (column < D - 1)[None, :]


@triton.jit
def _times(sigmoid, scale_ptr, c_ptr, OFFSET: tl.constexpr):
    """scale, c, ``1/sqrt(c)``; in its units ``t - 1/sqrt(c)``; ``t - 1/sqrt(c)`` and ``t^2 - 1/c``."""
    scale, c = tl.load(scale_ptr).to(tl.float64), tl.load(c_ptr)
    radius = 1 / tl.sqrt(c)
    units = scale * sigmoid + (OFFSET - 1)
    above = units * radius
    return scale, c, radius, units, above, above * (above + 2 * radius)


@triton.jit
def normalise(
    z_ptr, scale_ptr, c_ptr, y_ptr, numbers_ptr, points, D,
    OFFSET: tl.constexpr, KEEPS: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    row, there, times, places, live = _rows(points, D, BR, BD)
    u = tl.load(z_ptr + places, mask=live, other=0.0)
    wide = u.to(tl.float64)
    square = tl.sum(wide * wide, 1) + SHORT
    sigmoid = 1 / (1 + tl.exp(-tl.load(z_ptr + times, mask=there, other=0.0).to(tl.float64)))
    _scale, c, _radius, _units, _above, length = _times(sigmoid, scale_ptr, c_ptr, OFFSET)
    factor = tl.sqrt(length / square)
    time = tl.sqrt(length - length * (SHORT / square) + 1 / c)
    tl.store(y_ptr + times, time.to(tl.float32), mask=there)
    tl.store(y_ptr + places, factor.to(tl.float32)[:, None] * u, mask=live)
    if KEEPS:
        tl.store(numbers_ptr + row, sigmoid, mask=there)
        tl.store(numbers_ptr + points + row, factor, mask=there)


@triton.jit
def normalise_grad(
    grad_ptr, y_ptr, numbers_ptr, scale_ptr, c_ptr, z_grad_ptr, sums_ptr, points, D,
    OFFSET: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Leaves in sums (2, programs) the gradients of scale and c."""
    row, there, times, places, live = _rows(points, D, BR, BD)
    y, grad = tl.load(y_ptr + places, mask=live, other=0.0), tl.load(grad_ptr + places, mask=live, other=0.0)
    sigmoid = tl.load(numbers_ptr + row, mask=there, other=0.5)
    factor = tl.load(numbers_ptr + points + row, mask=there, other=1.0)
    scale, c, radius, units, above, length = _times(sigmoid, scale_ptr, c_ptr, OFFSET)
    square = length / (factor * factor)
    short = SHORT / square
    time = tl.sqrt(length - length * short + 1 / c)
    along = tl.sum(y.to(tl.float64) * grad.to(tl.float64), 1)
    of_time_square = tl.load(grad_ptr + times, mask=there, other=0.0).to(tl.float64) / (2 * time)
    of_length = of_time_square * (1 - short) + along / (2 * length)
    of_square = of_time_square * short * (length / square) - along / (2 * square)
    of_above = of_length * 2 * (above + radius)
    of_sigmoid = of_above * radius
    tl.store(z_grad_ptr + times, (of_sigmoid * scale * sigmoid * (1 - sigmoid)).to(tl.float32), mask=there)
    beside = (2 * of_square / factor).to(tl.float32)[:, None]
    tl.store(z_grad_ptr + places, factor.to(tl.float32)[:, None] * grad + beside * y, mask=live)
    of_radius = of_above * units + of_length * 2 * above
    of_c = of_radius * radius / (-2 * c) - of_time_square / (c * c)
    program, programs = tl.program_id(0), tl.num_programs(0)
    tl.store(sums_ptr + program, tl.sum(tl.where(there, of_sigmoid * sigmoid, 0.0), 0))
    tl.store(sums_ptr + programs + program, tl.sum(tl.where(there, of_c, 0.0), 0))
