"""How points of a space of many dimensions are put on paper: what is kept exactly, and what is not."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from hyperbolic.manifolds import Manifold, PoincareBall
from hyperbolic.manifolds.charts import convert

CURVED = (
    "Poincaré disk of radius 1: distances d from the origin are exact, drawn at tanh(√c d/2); angles are those of log₀ "
    "projected to its 2 principal directions, which hold at least {share} of its squared length."
)
FLAT = "Flat: coordinates along the 2 principal directions, at least {share} of the variance."
ON_PAPER = "projected to the 2 principal directions, which hold at least {share} of the squared lengths."


@dataclass(frozen=True)
class Basis:
    """Two orthonormal directions."""

    axes: Tensor  # (2, d)
    share: float  # of the sum of squares of the vectors, what lies in the plane of the axes
    centre: Tensor  # (d,), what is taken from the vectors first

    def coordinates(self, vectors: Tensor) -> Tensor:
        """(..., d) -> (..., 2)."""
        return (vectors.double() - self.centre) @ self.axes.mT


# Of points that have two dimensions: nothing is turned or projected.
PLANE = Basis(torch.eye(2, dtype=torch.float64), 1.0, torch.zeros(2, dtype=torch.float64))
TRUE_PLACES = (
    "Points are where they are, in the Poincaré disk of radius 1 (or, where no rim is drawn, in a flat plane): nothing "
    "is projected."
)
RAYS = 721  # the first again at the end
_POINTS = 10_000  # whose coordinates are held at a time


def principal(vectors: Tensor, centred: bool) -> Basis:
    """The plane nearest to the vectors (N, d): through the origin, or, if `centred`, through their mean.

    The sign of each axis is such that the sum of the coordinates is not negative; one dimension gets an empty second
    axis. Raises ValueError where there is no vector.
    """
    vectors = vectors.detach().double().reshape(-1, vectors.shape[-1])
    if not len(vectors):
        raise ValueError("there is no vector to find a plane for")
    n, d = vectors.shape
    centre = vectors.mean(0) if centred else vectors.new_zeros(d)
    vectors = vectors - centre
    _, lengths, directions = torch.linalg.svd(pad(vectors, (0, max(0, 2 - d), 0, max(0, 2 - n))), full_matrices=False)
    axes = directions[:2, :d]
    sign = torch.sign((vectors @ axes.mT).sum(0))
    axes = axes * torch.where(sign == 0, 1, sign).unsqueeze(-1)
    total = float(lengths.square().sum())
    return Basis(axes, float(lengths[:2].square().sum()) / total if total else 1.0, centre)


def plane_of(manifold: Manifold, x: Tensor) -> Basis:
    """The plane to show points (N, D) in: of their logarithms at the origin, or, where the space is flat, of the points
    about their mean."""
    return principal(manifold.logmap0(x.detach().double()), centred=not manifold.is_curved)


def flatten(manifold: Manifold, x: Tensor, basis: Basis = PLANE, true_distance: bool = False) -> Tensor:
    """Points (..., D) as (..., 2) on paper.

    Hyperbolic: in the unit disk (Poincaré), where the distance from the origin is kept exactly, ``tanh(sqrt(c) d / 2)``
    from the centre, and the angle is that of ``log_0(x)`` in the plane of the basis. Flat: coordinates in the basis,
    or with `true_distance` at the distance from the origin in their direction.
    """
    x = x.detach().double()
    flat = basis.coordinates(manifold.logmap0(x))
    if not (manifold.is_curved or true_distance):
        return flat
    return radius(manifold, manifold.dist0(x, keepdim=True)) * flat / flat.norm(dim=-1, keepdim=True).clamp_min(1e-300)


def centred(manifold: Manifold, x: Tensor) -> tuple[Manifold, Tensor]:
    """A manifold and points (N, D) on it, as far from each other as x (N, D), whose centroid is the origin.

    Hyperbolic: ``(-m) (+) x`` in the Poincaré ball, with m the centroid, which is an isometry; flat: ``x - m``.
    """
    if not manifold.is_curved:
        return manifold, x - x.mean(0)
    ball = manifold.twin(PoincareBall)
    y = convert(x, manifold, ball)
    return ball, ball.mobius_add(-ball.centroid(y), y)


def radius(manifold: Manifold, distance: Tensor) -> Tensor:
    """How far from the centre of the paper a point at a distance from the origin is drawn: ``tanh(sqrt(c) d / 2)`` in
    the unit disk, ``d`` in flat axes."""
    return torch.tanh(float(manifold.c.detach()) ** 0.5 * distance / 2) if manifold.is_curved else distance


@torch.no_grad()
def values_on_rays(
    manifold: Manifold, function: Callable[[Tensor], Tensor], distance: Tensor, paper: Tensor, axes: Tensor = PLANE.axes
) -> tuple[Tensor, Tensor, Tensor]:
    """What `function` takes points (M, D) to, (M, ...), on rays from the origin in the plane that the axes (2, d) span,
    at distances (R,), which are drawn at distances `paper` (R,): x and y (R, RAYS) on paper, values (R, RAYS, ...)."""
    angle = torch.linspace(0, 2 * math.pi, RAYS, dtype=torch.float64)
    rays = torch.stack([angle.cos(), angle.sin()], -1)
    lengths = (distance / manifold.origin_scale).view(-1, 1, 1)
    blocks = [
        function(manifold.expmap0((rays @ axes * length).flatten(0, 1)))
        for length in lengths.split(max(1, _POINTS // RAYS))
    ]
    return *(paper.view(-1, 1, 1) * rays).unbind(-1), torch.cat(blocks).double().unflatten(0, (-1, RAYS))


def notes(shares: Iterable[tuple[Manifold, float]], curved: str = CURVED, flat: str = FLAT) -> str:
    """What pictures by `flatten` show truly, a line for each kind of space among them; {share} in the texts is the
    smallest share (see `Basis`) of the kind, in percent."""
    smallest: dict[bool, float] = {}
    for manifold, share in shares:
        kind = manifold.is_curved
        smallest[kind] = min(share, smallest.get(kind, 1.0))
    return "\n".join(
        (curved if kind else flat).format(share=f"{100 * share:.0f} %") for kind, share in smallest.items()
    )
