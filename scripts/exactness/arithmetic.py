"""120-digit arithmetic on vectors (lists of ``mpf``) and the exact bits of float32 and float64 numbers as text."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import mpmath

DIGITS = 120
mp = mpmath.MPContext()  # a context of its own: no other code changes its precision
mp.dps = DIGITS
ZERO, ONE = mp.mpf(0), mp.mpf(1)
STEP = mp.mpf(10) ** -30  # of central differences
DTYPES = {"float32": ("f", 4), "float64": ("d", 8)}

Vector = list
Nested = Any  # a number, or a list of Nested


def dot(x: Vector, y: Vector):
    return mp.fsum(a * b for a, b in zip(x, y, strict=True))


def length(x: Vector):
    return mp.sqrt(dot(x, x))


def scale(factor, x: Vector) -> Vector:
    return [factor * a for a in x]


def add(x: Vector, y: Vector, factor=1) -> Vector:
    """``x + factor * y``."""
    return [a + factor * b for a, b in zip(x, y, strict=True)]


def mean(points: Sequence[Vector], weights: Vector) -> Vector:
    """``sum_i w_i x_i``, not divided."""
    return [mp.fsum(w * p[i] for w, p in zip(weights, points, strict=True)) for i in range(len(points[0]))]


def flat(value: Nested) -> Vector:
    """The numbers of a nested list, in order."""
    return [entry for part in value for entry in flat(part)] if isinstance(value, (list, tuple)) else [value]


def shaped(like: Nested, entries: Sequence) -> Nested:
    """The entries of a flat list in the nesting of ``like``."""
    rest = iter(entries)

    def build(part):
        return [build(p) for p in part] if isinstance(part, (list, tuple)) else next(rest)

    return build(like)


def relative_error(actual: Nested, expected: Nested) -> float:
    """``|actual - expected| / |expected|`` (normwise; absolute where the expected value is 0); NaN and inf stay."""
    got, want = flat(actual), flat(expected)
    if len(got) != len(want):
        raise ValueError(f"{len(got)} numbers compared with {len(want)}")
    bad = [float(entry) for entry in got if not mp.isfinite(entry)]
    if bad:
        return float("nan") if any(entry != entry for entry in bad) else float("inf")
    size = length(want)
    return float(length(add([mp.mpf(entry) for entry in got], want, -1)) / (size or ONE))


def jacobian(function: Callable[..., Nested], arguments: list[Nested]) -> list[list[Vector]]:
    """For each argument and each of its entries, the derivative of all numbers of ``function(*arguments)``."""
    slopes = []
    for number, argument in enumerate(arguments):
        entries = flat(argument)
        columns = []
        for i, entry in enumerate(entries):
            ends = []
            for sign in (1, -1):
                moved = shaped(argument, [*entries[:i], entry + sign * STEP, *entries[i + 1 :]])
                ends.append(flat(function(*arguments[:number], moved, *arguments[number + 1 :])))
            columns.append(scale(1 / (2 * STEP), add(ends[0], ends[1], -1)))
        slopes.append(columns)
    return slopes


def condition(slopes: list[list[Vector]], arguments: list[Nested], value: Nested) -> float:
    """``sum_j |df/da_j| |a_j| / |f|``: how much the function magnifies relative errors of single entries."""
    total = mp.fsum(
        length(column) * abs(entry)
        for columns, argument in zip(slopes, arguments, strict=True)
        for column, entry in zip(columns, flat(argument), strict=True)
    )
    size = length(flat(value))
    return float(total / size) if size else 0.0


def to_bits(value: Nested, dtype: str) -> Nested:
    """Numbers as the hexadecimal bits of the nearest float, a vector as one word: [1.0, 2.0] -> "3f80000040000000"."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [to_bits(part, dtype) for part in value]
    entries = flat(value)
    return struct.pack(f">{len(entries)}{DTYPES[dtype][0]}", *map(float, entries)).hex()


def from_bits(bits: Nested, dtype: str) -> Nested:
    """The floats of :func:`to_bits`, a vector for each word."""
    if isinstance(bits, list):
        return [from_bits(part, dtype) for part in bits]
    code, size = DTYPES[dtype]
    raw = bytes.fromhex(bits)
    return list(struct.unpack(f">{len(raw) // size}{code}", raw))


def exact(value: Nested) -> Nested:
    """Floats as ``mpf``, bit for bit."""
    return [exact(part) for part in value] if isinstance(value, (list, tuple)) else mp.mpf(value)


def text(value: Nested, digits: int) -> Nested:
    """Numbers as decimal text with so many significant digits, a vector as one line."""
    if isinstance(value, list):
        return " ".join(mp.nstr(entry, digits, min_fixed=0, max_fixed=0, strip_zeros=True) for entry in flat(value))
    return mp.nstr(value, digits, min_fixed=0, max_fixed=0, strip_zeros=True)


def parse(line: str) -> Vector:
    """The numbers of :func:`text`."""
    return [mp.mpf(word) for word in line.split()]
