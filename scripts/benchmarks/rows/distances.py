"""Distances of all pairs of two sets of points."""

from __future__ import annotations

import geoopt
import torch

from hyperbolic.kernels.pairwise import lorentz_pairwise, poincare_pairwise
from hyperbolic.manifolds import Lorentz, PoincareBall
from scripts.benchmarks.measure import Case
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, vectors

_SPACES = {
    "Lorentz": (Lorentz, geoopt.Lorentz, lorentz_pairwise),
    "PoincareBall": (PoincareBall, geoopt.PoincareBall, poincare_pairwise),
}


def pairwise(setting: Setting, space: str, n: int, m: int, d: int) -> Case:
    """Forward and backward pass; the floor is the Euclidean distance of as many vectors."""
    kind, theirs, kernel = _SPACES[space]
    manifold, theirs = kind().to(setting.device), theirs().to(setting.device)
    points = [leaf(manifold.expmap0(vectors(size, d, setting=setting))) for size in (n, m)]
    flat = [leaf(vectors(size, d, setting=setting)) for size in (n, m)]
    gradient = torch.randn(n, m, **setting.placed)

    return Case(
        passes("torch.cdist", lambda: torch.cdist(*flat), flat, gradient, compared=False),
        passes("ours", lambda: kernel(*points, manifold.c), points, gradient),
        [passes("geoopt", lambda: theirs.dist(points[0].unsqueeze(-2), points[1]), points, gradient)],
    )


ROWS = [
    Row(
        f"pairwise-{name}",
        f"pairwise distances, {title}, 200 x 2,000, d 32",
        pairwise,
        {"space": space, "n": 200, "m": 2000, "d": 32},
        {"space": space, "n": 3, "m": 4, "d": 3},
        gates=[Gate(3.5), Gate(0.15 if name == "lorentz" else 0.06, against="geoopt")],
        kernels=("pairwise", f"{name}_pairwise"),
    )
    for name, title, space in (("poincare", "Poincaré", "PoincareBall"), ("lorentz", "Lorentz", "Lorentz"))
]
