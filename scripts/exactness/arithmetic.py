"""120-digit arithmetic on vectors (lists of ``mpf``), and the exact bits of float32 and float64 numbers as text.

The one oracle of the tests and of ``results/numerics.md``: nothing here, nor in ``spaces.py``, imports the library.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import torch

DIGITS = 120
mp = mpmath.MPContext()  # a context of its own: no other code changes its precision
mp.dps = DIGITS
ZERO, ONE = mp.mpf(0), mp.mpf(1)
STEP = mp.mpf(10) ** -30  # of central differences: errors near 1e-40 of the value and below
TRACE = mp.mpf(10) ** -45  # numbers below count as 0: cancellation leaves up to 1e-58 of them
DTYPES = {"float32": ("f", 4), "float64": ("d", 8)}

Vector = list
Nested = Any  # a number, or a list of Nested


def dot(x: Vector, y: Vector):
    return mp.fsum(a * b for a, b in zip(x, y, strict=True))


def norm(x: Vector):
    return mp.sqrt(dot(x, x))


def scale(factor, x: Vector) -> Vector:
    return [factor * a for a in x]


def add(x: Vector, y: Vector, factor=1) -> Vector:
    """``x + factor * y``."""
    return [a + factor * b for a, b in zip(x, y, strict=True)]


def weighted_sum(points: Sequence[Vector], weights: Vector) -> Vector:
    """``sum_i w_i x_i``."""
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


def exact(value: torch.Tensor | Nested) -> Nested:
    """Floats as ``mpf``, bit for bit."""
    if isinstance(value, torch.Tensor):
        value = value.detach().double().tolist()
    return [exact(part) for part in value] if isinstance(value, (list, tuple)) else mp.mpf(value)


def relative_error(actual: torch.Tensor | Nested, expected: Nested) -> float:
    """``|actual - expected| / |expected|`` (normwise; absolute where the expected value is 0); NaN and inf stay."""
    computed, true = flat(exact(actual)), flat(expected)
    if len(computed) != len(true):
        raise ValueError(f"{len(computed)} numbers compared with {len(true)}")
    if not all(mp.isfinite(entry) for entry in computed):
        return float("nan") if any(mp.isnan(entry) for entry in computed) else float("inf")
    size = norm(true)
    return float(norm(add(computed, true, -1)) / (size if size > TRACE else ONE))


def slopes(function: Callable[..., Nested], arguments: Sequence[Nested], number: int) -> list[Vector]:
    """For each entry of one argument, the derivative of all numbers of ``function(*arguments)``."""
    entries, columns = flat(arguments[number]), []
    for i, entry in enumerate(entries):
        ends = []
        for sign in (1, -1):
            moved = shaped(arguments[number], [*entries[:i], entry + sign * STEP, *entries[i + 1 :]])
            ends.append(flat(function(*arguments[:number], moved, *arguments[number + 1 :])))
        columns.append(scale(1 / (2 * STEP), add(ends[0], ends[1], -1)))
    return columns


def jacobian(function: Callable[..., Nested], arguments: Sequence[Nested]) -> list[list[Vector]]:
    """:func:`slopes` by every argument."""
    return [slopes(function, arguments, number) for number in range(len(arguments))]


def sensitivity(jacobian: list[list[Vector]], arguments: Sequence[Nested]) -> float:
    """``sum_j |df/da_j| |a_j|`` over all entries: the change of f per relative change of single entries."""
    pairs = zip(jacobian, map(flat, arguments), strict=True)
    return float(mp.fsum(norm(c) * abs(a) for columns, entries in pairs for c, a in zip(columns, entries, strict=True)))


def condition(jacobian: list[list[Vector]], arguments: Sequence[Nested], value: Nested) -> float:
    """``sensitivity / |f|``: how much a function magnifies relative errors of single entries.

    A result computed in arithmetic of unit u from arguments that are rounded even once inside has an error of about u
    times this number, whatever the formula.
    """
    size = norm(flat(value))
    return float(sensitivity(jacobian, arguments) / size) if size else 0.0


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


def text(value: Nested, digits: int) -> Nested:
    """Numbers as decimal text with so many significant digits, a vector as one line."""
    if isinstance(value, list):
        return " ".join(mp.nstr(entry, digits, min_fixed=0, max_fixed=0, strip_zeros=True) for entry in flat(value))
    return mp.nstr(value, digits, min_fixed=0, max_fixed=0, strip_zeros=True)


def parse(line: str) -> Vector:
    """The numbers of :func:`text`."""
    return [mp.mpf(word) for word in line.split()]
