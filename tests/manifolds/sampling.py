"""Points and tangent vectors to test at, by regime, and the table of functions that are tested on them.

Everything is drawn by hyperbolic size: ``radius`` is sqrt(c) times the distance from the origin, a step is sqrt(c)
times the length of a tangent vector. Samples are made with plain formulas of NumPy, then rounded to the dtype: the
rounded bits are what both sides of a comparison see, so it does not matter how well the sample was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from hyperbolic import manifolds
from scripts.exactness import arithmetic
from scripts.exactness import spaces as oracle

# The registered manifolds that have exact formulas to be compared with. The others need a reason.
MANIFOLDS = {name: kind for name, kind in manifolds.MANIFOLDS.items() if name in oracle.SPACES}
WITHOUT_ORACLE = {"Euclidean": "its formulas are sums and differences"}
CURVATURES = (0.1, 1.0, 4.0)
DTYPES = (torch.float32, torch.float64)

# Largest radius of samples: the stated accuracy holds up to here. In float32 12 for the two models that papers
# train in; the Klein disk runs out of float32 numbers at 6.6. In float64 somewhat inside the stated radius.
RADIUS = {
    ("PoincareBall", torch.float32): 12.0,
    ("Lorentz", torch.float32): 12.0,
    ("Klein", torch.float32): 6.5,
    ("PoincareBall", torch.float64): 26.0,
    ("Lorentz", torch.float64): 26.0,
    ("Klein", torch.float64): 13.0,
}


def unit(rng: np.random.Generator, rows: int, d: int) -> np.ndarray:
    direction = rng.standard_normal((rows, d))
    return direction / np.linalg.norm(direction, axis=-1, keepdims=True)


def loguniform(rng: np.random.Generator, low: float, high: float, rows: int) -> np.ndarray:
    return np.exp(rng.uniform(np.log(low), np.log(high), (rows, 1)))


def at_radius(name: str, c: float, radius: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Points at these radii (rows, 1) in these directions (rows, d)."""
    if name == "Lorentz":
        return np.concatenate([np.cosh(radius), np.sinh(radius) * direction], -1) / np.sqrt(c)
    return np.tanh(radius / (2 if name == "PoincareBall" else 1)) * direction / np.sqrt(c)


def tangent(name: str, c: float, x: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Tangent vectors at x with the length of ``vector`` (rows, d), in about its direction."""
    if name == "Lorentz":
        t, s = x[:, :1] * np.sqrt(c), x[:, 1:]
        space = vector + c * (s * vector).sum(-1, keepdims=True) / (1 + t) * s
        return np.concatenate([(s * space).sum(-1, keepdims=True) / x[:, :1], space], -1)
    gap = 1 - c * (x * x).sum(-1, keepdims=True)
    if name == "PoincareBall":
        return vector * gap / 2
    inward = c * (x * vector).sum(-1, keepdims=True) / (1 + np.sqrt(gap))
    return np.sqrt(gap) * (vector - inward * x)


# A regime says how two points lie: radii (rows, 1) and directions (rows, d) of x and of y, and lengths of steps.


def _near_zero(rng, rows, d, radius):
    sizes = [loguniform(rng, 1e-12, 1e-2, rows) for _ in range(3)]
    return sizes[0], unit(rng, rows, d), sizes[1], unit(rng, rows, d), sizes[2]


def _zero_and_near(rng, rows, d, radius):
    """One point anywhere, the other within 1e-12 .. 1e-6 of the origin."""
    tiny, any_radius = loguniform(rng, 1e-12, 1e-6, rows), rng.uniform(0.5, min(radius, 6), (rows, 1))
    swap = rng.random((rows, 1)) < 0.5
    r_x, r_y = np.where(swap, tiny, any_radius), np.where(swap, any_radius, tiny)
    return r_x, unit(rng, rows, d), r_y, unit(rng, rows, d), loguniform(rng, 1e-3, 3, rows)


def _moderate(rng, rows, d, radius):
    r_x, r_y, step = (rng.uniform(0.1, 3, (rows, 1)) for _ in range(3))
    return r_x, unit(rng, rows, d), r_y, unit(rng, rows, d), step


def _near_each_other(rng, rows, d, radius):
    r_x, direction = rng.uniform(0.1, min(radius, 8) - 1, (rows, 1)), unit(rng, rows, d)
    gap = loguniform(rng, 1e-12, 1e-2, rows)
    turned = direction + gap * rng.standard_normal((rows, d)) / np.sinh(r_x)
    turned /= np.linalg.norm(turned, axis=-1, keepdims=True)
    return r_x, direction, r_x + gap * rng.standard_normal((rows, 1)), turned, gap


def _far_apart(rng, rows, d, radius):
    r_x, r_y = (rng.uniform(radius / 2, radius, (rows, 1)) for _ in range(2))
    return r_x, unit(rng, rows, d), r_y, unit(rng, rows, d), rng.uniform(1, radius / 2, (rows, 1))


def _opposite(rng, rows, d, radius):
    r_x, direction = rng.uniform(radius / 2, radius, (rows, 1)), unit(rng, rows, d)
    return r_x, direction, r_x, -direction, rng.uniform(0.1, 1, (rows, 1))


def _boundary(rng, rows, d, radius):
    """Both points in the last unit of radius, at all angles down to those of near neighbours there."""
    r_x, r_y = (rng.uniform(radius - 1, radius, (rows, 1)) for _ in range(2))
    direction = unit(rng, rows, d)
    turned = direction + loguniform(rng, np.exp(-radius), 1, rows) * unit(rng, rows, d)
    turned /= np.linalg.norm(turned, axis=-1, keepdims=True)
    return r_x, direction, r_y, turned, loguniform(rng, 1e-6, 1, rows)


def _boundary_and_inside(rng, rows, d, radius):
    """One point near the boundary, the other at a moderate radius."""
    swap = rng.random((rows, 1)) < 0.5
    far, inside = rng.uniform(radius - 1, radius, (rows, 1)), loguniform(rng, 1e-3, radius / 2, rows)
    r_x, r_y = np.where(swap, far, inside), np.where(swap, inside, far)
    return r_x, unit(rng, rows, d), r_y, unit(rng, rows, d), rng.uniform(0.1, 2, (rows, 1))


REGIMES = {
    "near_zero": _near_zero,
    "zero_and_near": _zero_and_near,
    "moderate": _moderate,
    "near_each_other": _near_each_other,
    "far_apart": _far_apart,
    "opposite": _opposite,
    "boundary": _boundary,
    "boundary_and_inside": _boundary_and_inside,
}


def sample(name: str, c: float, dtype: torch.dtype, regime: str, rows: int, d: int = 3, seed: int = 0) -> dict:
    """Arguments of every function in ``FUNCTIONS``, by the letter they have there."""
    rng = np.random.default_rng([seed, list(REGIMES).index(regime), list(MANIFOLDS).index(name)])
    r_x, dir_x, r_y, dir_y, step = REGIMES[regime](rng, rows, d, RADIUS[name, dtype])
    x, y = at_radius(name, c, r_x, dir_x), at_radius(name, c, r_y, dir_y)
    short, long = step / np.sqrt(c), loguniform(rng, 1e-2, 2, rows) / np.sqrt(c)
    third = at_radius(name, c, (r_x + r_y) / 2, unit(rng, rows, d))
    values = {
        "x": x,
        "y": y,
        "u": tangent(name, c, x, short * unit(rng, rows, d)),
        "v": tangent(name, c, x, long * unit(rng, rows, d)),
        "a": short * unit(rng, rows, d) / (2 if name == "PoincareBall" else 1),
        "g": rng.standard_normal(x.shape) * loguniform(rng, 1e-6, 1e2, rows),
        "r": rng.uniform(-1.2, 1.2, (rows, 1)),
        "M": rng.standard_normal((d - 1, d)) / np.sqrt(d),
        "P": np.stack([x, y, third], -2),
        "w": rng.uniform(0.1, 1, (rows, 3)),
    }
    return {letter: torch.tensor(value, dtype=dtype) for letter, value in values.items()}


@dataclass(frozen=True)
class Function:
    """A function of the interface: the letters of its arguments and what it gives (a number, a vector or a point)."""

    arguments: str
    gives: str = "vector"

    def call(self, manifold, name: str, *arguments: torch.Tensor) -> torch.Tensor:
        return getattr(manifold, name)(*arguments)


COMMON = {
    "dist": Function("xy", "number"),
    "dist2": Function("xy", "number"),
    "dist0": Function("x", "number"),
    "inner": Function("xuv", "number"),
    "norm": Function("xu", "number"),
    "expmap": Function("xu", "point"),
    "logmap": Function("xy"),
    "expmap0": Function("a", "point"),
    "logmap0": Function("x"),
    "transp": Function("xyv"),
    "transp0": Function("ya"),
    "proju": Function("xg"),
    "egrad2rgrad": Function("xg"),
    "centroid": Function("Pw", "point"),
}
MOBIUS = {
    "mobius_add": Function("xy", "point"),
    "mobius_scalar": Function("rx", "point"),
    "mobius_matvec": Function("Mx", "point"),
}
FUNCTIONS = {
    "PoincareBall": COMMON | MOBIUS,
    "Lorentz": COMMON,
    "Klein": COMMON,
}


def row(values: dict, letters: str, i: int) -> list:
    """The exact arguments of row i (the matrix M is shared by all rows, the factor r is a number)."""
    picked = []
    for letter in letters:
        value = arithmetic.exact(values[letter] if letter == "M" else values[letter][i])
        picked.append(value[0] if letter == "r" else value)
    return picked


def space(name: str, c: float, learn_c: bool = False):
    """The product's manifold and the oracle's, at the same bits of c."""
    manifold = MANIFOLDS[name](c, learn_c=learn_c)
    return manifold, oracle.SPACES[name](float(manifold.c.detach()))
