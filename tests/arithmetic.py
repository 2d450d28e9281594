"""120-digit arithmetic on the exact bits of float tensors, and what is measured with it: errors, conditions, slopes.

Vectors are lists of ``mpf``, matrices lists of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath
import torch

DIGITS = 120
mp = mpmath.MPContext()  # a context of its own: no other code changes its precision
mp.dps = DIGITS
STEP = mp.mpf(10) ** -30  # of central differences: errors near 1e-40 of the value and below
TRACE = mp.mpf(10) ** -45

Vector = list
ZERO, ONE = mp.mpf(0), mp.mpf(1)


def exact(x: torch.Tensor | float | Sequence) -> Vector:
    """The bits of a number, a vector or a matrix as (nested lists of) ``mpf``."""
    if isinstance(x, torch.Tensor):
        x = x.detach().to(torch.float64).tolist()
    return [exact(entry) for entry in x] if isinstance(x, (list, tuple)) else mp.mpf(x)


def dot(x: Vector, y: Vector):
    return mp.fsum(a * b for a, b in zip(x, y, strict=True))


def norm(x: Vector):
    return mp.sqrt(dot(x, x))


def scale(factor, x: Vector) -> Vector:
    return [factor * a for a in x]


def combine(a, x: Vector, b, y: Vector) -> Vector:
    return [a * p + b * q for p, q in zip(x, y, strict=True)]


def flat(value) -> Vector:
    """A number, vector or matrix as one list."""
    return [entry for part in value for entry in flat(part)] if isinstance(value, (list, tuple)) else [value]


def shaped(like, entries: Vector):
    """The entries of a flat list in the nesting of ``like``."""
    rest = iter(entries)

    def build(value):
        return [build(part) for part in value] if isinstance(value, list) else next(rest)

    return build(like)


def relative_error(actual: torch.Tensor | float, expected) -> float:
    """``|actual - expected| / |expected|`` (normwise); the absolute error where the expected value is 0.

    Values below 1e-45 count as 0: cancellation in the oracle leaves up to 1e-58 of them.
    """
    got, want = flat(exact(actual)), flat(expected)
    if any(not mp.isfinite(entry) for entry in got):
        return float("inf")
    size = norm(want)
    return float(norm(combine(ONE, got, -ONE, want)) / (size if size > TRACE else ONE))


def sensitivity(function: Callable, arguments: list):
    """Change of ``function`` per relative change of its arguments: ``sum_j |df/da_j| |a_j|`` over all entries."""
    value, total = flat(function(*arguments)), ZERO
    for number, argument in enumerate(arguments):
        entries = flat(argument)
        for i, entry in enumerate(entries):
            moved = shaped(argument, [*entries[:i], entry * (1 + STEP), *entries[i + 1 :]])
            changed = flat(function(*arguments[:number], moved, *arguments[number + 1 :]))
            total += norm(combine(ONE, changed, -ONE, value))
    return total / STEP


def condition(function: Callable, arguments: list) -> float:
    """How much ``function`` magnifies relative errors of its arguments: ``sensitivity / |f|``.

    A result computed in arithmetic of unit u from arguments that are rounded even once inside carries an error of
    about u times this number, whatever the formula.
    """
    return float(sensitivity(function, arguments) / norm(flat(function(*arguments))))


def derivative(function: Callable, arguments: list, number: int) -> Vector:
    """Gradient of a scalar ``function(*arguments)`` by its argument of that number, by central differences (flat)."""

    entries, slopes = flat(arguments[number]), []
    for i in range(len(entries)):
        values = []
        for sign in (1, -1):
            moved = shaped(arguments[number], [*entries[:i], entries[i] + sign * STEP, *entries[i + 1 :]])
            values.append(function(*arguments[:number], moved, *arguments[number + 1 :]))
        slopes.append((values[0] - values[1]) / (2 * STEP))
    return slopes
