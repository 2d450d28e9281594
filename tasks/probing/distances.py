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

    Raises:
        ValueError: another distance.
    """
    if distance not in DISTANCES:
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}")
    if not manifold.is_curved:
        squares = x.square().sum(-1)
        products = x @ x.transpose(-2, -1)
        return _hollow(squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * products), squares
    sheet = manifold.twin(Lorentz)
    x = convert(x, manifold, sheet)
    if distance == "geodesic":
        return lorentz_pairwise(x, x, sheet.c).square(), sheet.dist0(x).square()
    c = sheet.c.to(x.dtype)
    time, space = x[..., :1], x[..., 1:]
    products = space @ space.transpose(-2, -1) - time @ time.transpose(-2, -1)
    to_origin = 2 * space.square().sum(-1) / (1 + c.sqrt() * time.squeeze(-1))  # = 2 (sqrt(c) t - 1) / c
    return _hollow(-2 / c - 2 * products), to_origin


def _hollow(squares: Tensor) -> Tensor:
    """Squares of distances from products: at least 0, and 0 on the diagonal."""
    diagonal = torch.eye(squares.shape[-1], dtype=torch.bool, device=squares.device)
    return squares.clamp_min(0).masked_fill(diagonal, 0)
