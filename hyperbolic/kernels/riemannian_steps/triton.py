# mypy: ignore-errors
"""Steps of many tensors in one launch: Riemannian Adam, Adagrad and SGD of points, and the usual ones of flat tensors.

A job is a tensor with its gradient and state, ``WORDS`` int64 numbers from ``cuda.py``: sizes, addresses, and the bits
of float64 numbers. A program takes ``ROWS`` rows of one job. It reads them twice: for six sums of each row, from which
the weights of the new rows follow in float64, and to write these. Points of the ball and of the Klein disk move as
points of the hyperboloid, in its space coordinates s: lifted by ``s = alpha x``, vectors ``m = mu x + m_o`` with m_o
orthogonal to x by ``rho mu x + alpha m_o``; nothing is lost, as the numbers of a row are float64 and its entries
float32. Formulas: plain.py, and in this form triton_geodesics.py.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hyperbolic.kernels.riemannian_steps.triton_geodesics import (
    BALL,
    SHEET,
    gradient,
    lifting,
    lowering,
    sheet_step,
    sinhc,
)

WORDS: tl.constexpr = tl.constexpr(25)
ROWS: tl.constexpr = tl.constexpr(32)
COLUMNS: tl.constexpr = tl.constexpr(8)  # of a row of points at a time: threads for them all have the row's numbers
FLAT_COLUMNS: tl.constexpr = tl.constexpr(32)
SEARCHED: tl.constexpr = tl.constexpr(128)
FLAT: tl.constexpr = tl.constexpr(0)  # kinds of jobs, beside those of points
FLAT_WIDE: tl.constexpr = tl.constexpr(1)  # float64 numbers
LEAST_GAP: tl.constexpr = tl.constexpr(1e-6)
LONGEST_GRADIENT: tl.constexpr = tl.constexpr(1.8446743e19 / 8)  # its square is a float32


@triton.jit
def word(job_ptr, i):
    return tl.load(job_ptr + i)


@triton.jit
def number(job_ptr, i):
    return tl.load(job_ptr + i).to(tl.float64, bitcast=True)


@triton.jit
def pointer(job_ptr, i, T: tl.constexpr):
    """The address, and whether there is such a tensor."""
    at = tl.load(job_ptr + i)
    return at.to(tl.pointer_type(T)), at != 0


@triton.jit
def read(at, mask):
    return tl.load(at, mask=mask, other=0.0).to(tl.float64)


@triton.jit
def also(mask, flag):
    return (mask & flag) != 0  # the interpreter makes integers of a mask and one flag


@triton.jit
def narrow(x):
    return tl.minimum(tl.maximum(x, -3.4028234663852886e38), 3.4028234663852886e38).to(tl.float32)


@triton.jit
def job_of(jobs_ptr, n_jobs, program):
    """The job of a program: the last whose first program is not after it."""
    before = 0
    for start in range(0, n_jobs, SEARCHED):
        i = start + tl.arange(0, SEARCHED)
        first = tl.load(jobs_ptr + i * WORDS, mask=i < n_jobs, other=9223372036854775807)
        before += tl.sum((first <= program).to(tl.int32), 0)
    return jobs_ptr + (before - 1) * WORDS


@triton.jit
def rows_of(job_ptr, program):
    """First word: the first program. Numbers of rows, of columns and of entries, and the rows of this program."""
    rows = (program - word(job_ptr, 0)) * ROWS + tl.arange(0, ROWS)
    return rows, rows < word(job_ptr, 2), word(job_ptr, 3), word(job_ptr, 4)


@triton.jit
def square_sum(job_ptr, rows, live, size, entries, T: tl.constexpr):
    grad_ptr, _ = pointer(job_ptr, 7, T)
    total = tl.zeros([ROWS, FLAT_COLUMNS], tl.float64)
    for start in range(0, size, FLAT_COLUMNS):
        column = start + tl.arange(0, FLAT_COLUMNS)[None, :]
        at = rows[:, None] * size + column
        h = read(grad_ptr + at, live[:, None] & (column < size) & (at < entries))
        total += h * h
    return tl.sum(tl.sum(total, 1), 0)


@triton.jit(do_not_specialize=["n_jobs"])
def squares(jobs_ptr, n_jobs, squares_ptr):
    """The sum of the squares of gradients that each program has."""
    program = tl.program_id(0).to(tl.int64)
    job_ptr = job_of(jobs_ptr, n_jobs, program)
    rows, live, size, entries = rows_of(job_ptr, program)
    if word(job_ptr, 1) == FLAT_WIDE:
        total = square_sum(job_ptr, rows, live, size, entries, tl.float64)
    else:
        total = square_sum(job_ptr, rows, live, size, entries, tl.float32)
    tl.store(squares_ptr + program, total)


@triton.jit
def scales(parts_ptr, squares_ptr, scales_ptr):
    """What the gradients of a part are multiplied by: ``min(1, max_norm / norm)``.

    Args: parts_ptr: the bits of max_norm, 0, and for each part the number after that of its last program.
    """
    part, max_norm = tl.program_id(0), number(parts_ptr, 0)
    first, end = word(parts_ptr, 1 + part), word(parts_ptr, 2 + part)
    total = tl.zeros([1024], tl.float64)
    for start in range(first, end, 1024):
        i = start + tl.arange(0, 1024)
        total += tl.load(squares_ptr + i, mask=i < end, other=0.0)
    norm = tl.sqrt(tl.sum(total, 0))
    tl.store(scales_ptr + part, max_norm / tl.maximum(norm, max_norm))


@triton.jit
def second_moment(job_ptr, at, mask, square, T: tl.constexpr):
    """Takes squares of gradients into the second moments; the factor of the momentum in the step."""
    square_ptr, has_square = pointer(job_ptr, 9, T)
    largest_ptr, has_largest = pointer(job_ptr, 10, T)
    v = number(job_ptr, 17) * read(square_ptr + at, also(mask, has_square)) + number(job_ptr, 18) * square
    tl.store(square_ptr + at, v.to(T), mask=also(mask, has_square))
    v = tl.maximum(v, read(largest_ptr + at, also(mask, has_largest)))
    tl.store(largest_ptr + at, v.to(T), mask=also(mask, has_largest))
    denominator = tl.where(has_square, tl.sqrt(v * number(job_ptr, 19)) + number(job_ptr, 20), 1.0)
    return -number(job_ptr, 14) / denominator


@triton.jit
def flat_step(job_ptr, rows, at, live, size, entries, clip, T: tl.constexpr):
    """Of flat tensors, number by number; their decay is ``keep``, or ``pull`` of the numbers in their gradients."""
    x_ptr, _ = pointer(job_ptr, 6, T)
    grad_ptr, _ = pointer(job_ptr, 7, T)
    momentum_ptr, has_momentum = pointer(job_ptr, 8, T)
    beta, share, keep, pull = number(job_ptr, 15), number(job_ptr, 16), number(job_ptr, 21), number(job_ptr, 22)
    for start in range(0, size, FLAT_COLUMNS):
        column = start + tl.arange(0, FLAT_COLUMNS)[None, :]
        source, place = rows[:, None] * size + column, at[:, None] * size + column
        mask = live[:, None] & (column < size) & (source < entries)
        x = read(x_ptr + place, mask)
        g = read(grad_ptr + source, mask) * clip + pull * x
        m = beta * read(momentum_ptr + place, also(mask, has_momentum)) + share * g
        x = keep * x + second_moment(job_ptr, place, mask, g * g, T) * m
        tl.store(x_ptr + place, x.to(T), mask=mask)
        tl.store(momentum_ptr + place, m.to(T), mask=also(mask, has_momentum))


@triton.jit
def point_step(job_ptr, kind, rows, at, live, size, clip):
    x_ptr, _ = pointer(job_ptr, 6, tl.float32)
    grad_ptr, _ = pointer(job_ptr, 7, tl.float32)
    momentum_ptr, has_momentum = pointer(job_ptr, 8, tl.float32)
    c_ptr, _ = pointer(job_ptr, 12, tl.float64)
    c, beta = tl.load(c_ptr), number(job_ptr, 15)
    first = tl.where(kind == SHEET, 1, 0)
    xx, xh, hh = tl.zeros([ROWS], tl.float64), tl.zeros([ROWS], tl.float64), tl.zeros([ROWS], tl.float64)
    xm, hm, mm = tl.zeros([ROWS], tl.float64), tl.zeros([ROWS], tl.float64), tl.zeros([ROWS], tl.float64)
    for start in range(0, size, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        mask = live[:, None] & (column < size) & (column >= first)
        place = at[:, None] * size + column
        x = read(x_ptr + place, mask)
        h = read(grad_ptr + rows[:, None] * size + column, mask) * clip
        m = read(momentum_ptr + place, also(mask, has_momentum))
        xx, xh, hh = xx + tl.sum(x * x, 1), xh + tl.sum(x * h, 1), hh + tl.sum(h * h, 1)
        xm, hm, mm = xm + tl.sum(x * m, 1), hm + tl.sum(h * m, 1), mm + tl.sum(m * m, 1)
    inverse = tl.where(xx < 1e-30, 0.0, 1 / tl.maximum(xx, 1e-30))
    hh = tl.maximum(hh - xh * xh * inverse, 0.0)  # from here on of the parts orthogonal to x
    hm = hm - xm * xh * inverse
    mm = tl.maximum(mm - xm * xm * inverse, 0.0)
    gap = tl.maximum(1 - c * xx, LEAST_GAP)
    time = read(grad_ptr + rows * size, also(live, kind == SHEET)) * clip
    square, p, q = gradient(kind, c, gap, xx, xh, hh, inverse, time)
    shrink = LONGEST_GRADIENT / tl.sqrt(tl.maximum(square, LONGEST_GRADIENT * LONGEST_GRADIENT))
    scale = second_moment(job_ptr, at, live, square * shrink * shrink, tl.float32)
    p, q = p * shrink * number(job_ptr, 16), q * shrink * number(job_ptr, 16)
    xm = beta * xm + q * xh + p * xx
    mm = tl.maximum(beta * beta * mm + 2 * beta * q * hm + q * q * hh, 0.0)
    alpha, rho = lifting(kind, gap)
    farthest = tl.minimum(number(job_ptr, 23), tl.sqrt(c) * number(job_ptr, 24))
    ratio, cosh = sinhc(farthest)
    bound = farthest * farthest * ratio * ratio / c
    ss, nn = alpha * alpha * xx, alpha * alpha * mm
    on, b, v, w, end = sheet_step(c, ss, alpha * rho * xm, nn, scale, number(job_ptr, 21), bound)
    low, turn = lowering(kind, tl.sqrt(1 + c * end))
    product = on * v * ss + b * w * nn
    v, w = v - turn * c * product * on, w - turn * c * product * b
    along, low = xm * inverse, low * alpha
    a, b, v, w = low * (on - b * along), low * b, low * (v - w * along), low * w
    square = tl.zeros([ROWS], tl.float64)
    for start in range(0, size, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        mask = live[:, None] & (column < size) & (column >= first)
        place = at[:, None] * size + column
        x = read(x_ptr + place, mask)
        h = read(grad_ptr + rows[:, None] * size + column, mask) * clip
        m = beta * read(momentum_ptr + place, also(mask, has_momentum)) + q[:, None] * h + p[:, None] * x
        new = narrow(a[:, None] * x + b[:, None] * m)
        tl.store(x_ptr + place, new, mask=mask)
        tl.store(momentum_ptr + place, narrow(v[:, None] * x + w[:, None] * m), mask=also(mask, has_momentum))
        new = new.to(tl.float64)
        square += tl.sum(new * new, 1)
    most = tl.where(kind == BALL, (cosh - 1) / (cosh + 1), 1 - 1 / (cosh * cosh)) / c
    most = tl.where(kind == SHEET, bound, most)
    if tl.max(square) > most * (1 + 1e-6):  # rounding, of long steps back through the origin
        pull = tl.minimum(tl.sqrt(most / tl.maximum(square, 1e-30)), 1.0)
        for start in range(0, size, COLUMNS):
            column = start + tl.arange(0, COLUMNS)[None, :]
            mask = live[:, None] & (column < size) & (column >= first)
            place = at[:, None] * size + column
            tl.store(x_ptr + place, narrow(pull[:, None] * read(x_ptr + place, mask)), mask=mask)
    if kind == SHEET:
        time = tl.sqrt(1 / c + tl.minimum(square, most))
        tl.store(x_ptr + at * size, narrow(time), mask=live)
        tl.store(momentum_ptr + at * size, narrow(product / time), mask=also(live, has_momentum))


@triton.jit(do_not_specialize=["n_jobs"])
def steps(jobs_ptr, n_jobs, scales_ptr, CLIPS: tl.constexpr, POINTS: tl.constexpr):
    """One step of all jobs of points, or of all others: these need few registers, so that more of them run at once."""
    program = tl.program_id(0).to(tl.int64)
    job_ptr = job_of(jobs_ptr, n_jobs, program)
    rows, live, size, entries = rows_of(job_ptr, program)
    some_ptr, has_some = pointer(job_ptr, 11, tl.int64)
    at = tl.where(has_some, tl.load(some_ptr + rows, mask=also(live, has_some), other=0), rows)
    clip = tl.load(scales_ptr + word(job_ptr, 5)) if CLIPS else 1.0
    kind = word(job_ptr, 1)
    if POINTS:
        if kind >= SHEET:
            point_step(job_ptr, kind, rows, at, live, size, clip)
    elif kind == FLAT:
        flat_step(job_ptr, rows, at, live, size, entries, clip, tl.float32)
    elif kind == FLAT_WIDE:
        flat_step(job_ptr, rows, at, live, size, entries, clip, tl.float64)
