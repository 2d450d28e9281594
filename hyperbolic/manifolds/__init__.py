"""The four spaces: flat, and three models of hyperbolic space, with one interface and one curvature convention."""

from hyperbolic.manifolds.base import HyperbolicManifold, Manifold
from hyperbolic.manifolds.euclidean import Euclidean
from hyperbolic.manifolds.klein import Klein
from hyperbolic.manifolds.lorentz import Lorentz
from hyperbolic.manifolds.poincare import PoincareBall

MANIFOLDS: dict[str, type[Manifold]] = {}  # by name


def register_manifold(manifold: type[Manifold]) -> None:
    """Make a manifold known by its ``name``, which configurations call it.

    Raises:
        ValueError: when another manifold has the name.
    """
    if MANIFOLDS.setdefault(manifold.name, manifold) is not manifold:
        raise ValueError(f"another manifold is registered as {manifold.name!r}; choose another name")


for _manifold in (Euclidean, PoincareBall, Lorentz, Klein):
    register_manifold(_manifold)

__all__ = [
    "MANIFOLDS",
    "Euclidean",
    "HyperbolicManifold",
    "Klein",
    "Lorentz",
    "Manifold",
    "PoincareBall",
    "register_manifold",
]
