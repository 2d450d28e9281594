"""How points of a space of many dimensions are put on paper: what is kept exactly, and what is not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hyperbolic.manifolds import Manifold


@dataclass(frozen=True)
class Basis:
    """Two orthonormal directions.

    axes: (2, d). share: of the sum of squares of the vectors, what lies in the plane of the axes. centre: (d,), what is
    taken from the vectors first.
    """

    axes: Tensor
    share: float
    centre: Tensor

    def coordinates(self, vectors: Tensor) -> Tensor:
        """(..., d) -> (..., 2)."""
        return (vectors.double() - self.centre) @ self.axes.mT


def principal(vectors: Tensor, centred: bool) -> Basis:
    """The plane nearest to the vectors (N, d): through the origin, or, if `centred`, through their mean.

    The sign of each axis is such that the sum of the coordinates is not negative; one dimension gets an empty second
    axis. Raises ValueError where there is no vector.
    """
    vectors = vectors.detach().double().reshape(-1, vectors.shape[-1])
    if not len(vectors):
        raise ValueError("there is no vector to find a plane for")
    d = vectors.shape[-1]
    centre = vectors.mean(0) if centred else vectors.new_zeros(d)
    vectors = vectors - centre
    _, lengths, axes = torch.linalg.svd(vectors, full_matrices=d <= 2)
    found = vectors.new_zeros(2, d)
    found[: min(2, len(axes))] = axes[:2]
    if len(axes) == 1 and d > 1:  # a single vector: any direction at a right angle to it
        other = torch.eye(d, dtype=axes.dtype)[axes[0].abs().argmin()]
        other = other - (other @ axes[0]) * axes[0]
        found[1] = other / other.norm()
    sign = torch.sign((vectors @ found.mT).sum(0))
    found = found * torch.where(sign == 0, 1, sign).unsqueeze(-1)
    total = float(lengths.square().sum())
    return Basis(found, float(lengths[:2].square().sum()) / total if total else 1.0, centre)


def itself() -> Basis:
    """The plane of points that have two dimensions: nothing is turned or projected."""
    return Basis(torch.eye(2, dtype=torch.float64), 1.0, torch.zeros(2, dtype=torch.float64))


def is_curved(manifold: Manifold) -> bool:
    return manifold.is_curved


def curvature(manifold: Manifold) -> float:
    """c, where the sectional curvature is -c; 0 of a flat space."""
    return float(manifold.c.detach()) if is_curved(manifold) else 0.0


def plane_of(manifold: Manifold, x: Tensor) -> Basis:
    """The plane to show points (N, D) in: of their logarithms at the origin, or, where the space is flat, of the points
    about their mean."""
    return principal(manifold.logmap0(x.detach().double()), centred=not is_curved(manifold))


def flatten(manifold: Manifold, x: Tensor, basis: Basis) -> Tensor:
    """Points (..., D) as (..., 2) on paper.

    Hyperbolic: in the unit disk (Poincaré), where the distance from the origin is kept exactly, ``tanh(sqrt(c) d / 2)``
    from the centre, and the angle is that of ``log_0(x)`` in the plane of the basis. Flat: coordinates in the basis.
    """
    x = x.detach().double()
    flat = basis.coordinates(manifold.logmap0(x))
    if not is_curved(manifold):
        return flat
    return radius(manifold, manifold.dist0(x, keepdim=True)) * flat / flat.norm(dim=-1, keepdim=True).clamp_min(1e-300)


def radius(manifold: Manifold, distance: Tensor) -> Tensor:
    """How far from the centre of the paper a point at a distance from the origin is drawn: ``tanh(sqrt(c) d / 2)`` in
    the unit disk, ``d`` in flat axes."""
    return torch.tanh(curvature(manifold) ** 0.5 * distance / 2) if is_curved(manifold) else distance


def points_of(manifold: Manifold, distance: Tensor, angle: Tensor, axes: Tensor) -> Tensor:
    """The points (..., D) of the plane through the origin that the axes (2, d) span, by distance and angle, which
    broadcast to (...)."""
    ray = torch.stack([angle.cos(), angle.sin()], -1) @ axes
    return manifold.expmap0(ray * (distance / unit_length(manifold, axes.shape[-1])).unsqueeze(-1))


def unit_length(manifold: Manifold, d: int) -> float:
    """How long a vector of norm 1 at the origin is in the metric: 2 in the Poincaré ball, 1 in the others."""
    vector = torch.zeros(d, dtype=torch.float64)
    vector[0] = 0.5
    return float(manifold.dist0(manifold.expmap0(vector)).detach()) / 0.5


def explained(manifold: Manifold, share: float) -> str:
    """What pictures made by `flatten` show truly, in a sentence for their small print; share: the smallest of them."""
    if is_curved(manifold):
        return (
            "Poincaré disk of radius 1: distances d from the origin are exact, drawn at tanh(√c d/2); angles are those "
            "of log₀ projected to its 2 principal directions, which hold at least "
            f"{100 * share:.0f} % of its squared length."
        )
    return f"Flat: coordinates along the 2 principal directions, at least {100 * share:.0f} % of the variance."
