"""Squared distances of all pairs of a set of points, and those from the origin, on any manifold."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.pairwise import lorentz_pairwise
from hyperbolic.manifolds import Lorentz, Manifold
from hyperbolic.manifolds.charts import convert

DISTANCES = ("geodesic", "lorentz")


def squared_distances(manifold: Manifold, x: Tensor, distance: str) -> tuple[Tensor, Tensor]:
    """Squared distances of the points x (..., W, D) from each other (..., W, W) and from the origin (..., W).

    distance: "geodesic", ``d^2``; or "lorentz", the squared Lorentz distance ``-2/c - 2 <x, y>_L = 2 (cosh(sqrt(c) d) -
    1) / c`` (Law et al. 2019, "Lorentzian distance learning for hyperbolic representations"), on the hyperboloid in
    whatever model the points are. In flat space both are ``|x - y|^2``. All are at least 0, and 0 on the diagonal.
    """
    if not manifold.is_curved:
        squares = x.square().sum(-1)
        gaps = squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * x @ x.transpose(-2, -1)
        diagonal = torch.eye(x.shape[-2], dtype=torch.bool, device=x.device)
        return gaps.clamp_min(0).masked_fill(diagonal, 0), squares
    sheet = manifold.twin(Lorentz)
    x = convert(x, manifold, sheet)
    distances, radii = lorentz_pairwise(x, x, sheet.c), sheet.dist0(x)
    if distance == "geodesic":
        return distances.square(), radii.square()
    c = sheet.c.to(x.dtype)
    half = c.sqrt() / 2  # 2 (cosh(y) - 1) = 4 sinh(y / 2)^2, which does not cancel
    return 4 / c * (half * distances).sinh().square(), 4 / c * (half * radii).sinh().square()
