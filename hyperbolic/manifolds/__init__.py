"""The four spaces: flat, and three models of hyperbolic space, with one interface and one curvature convention."""

import inspect

from hyperbolic.manifolds.base import HyperbolicManifold, Manifold
from hyperbolic.manifolds.euclidean import Euclidean
from hyperbolic.manifolds.klein import Klein
from hyperbolic.manifolds.lorentz import Lorentz
from hyperbolic.manifolds.poincare import PoincareBall

MANIFOLDS: dict[str, type[Manifold]] = {}  # by name


def register_manifold(manifold: type[Manifold]) -> None:
    """Make a manifold known by its ``name``, which configurations call it.

    Raises:
        ValueError: it is no class of manifolds, has no name, lacks a method of the interface, or another manifold has
            the name.
    """
    if not (inspect.isclass(manifold) and issubclass(manifold, Manifold)):
        raise ValueError(f"register_manifold: takes a subclass of hyperbolic.manifolds.Manifold, got {manifold!r}")
    place = f"register_manifold: {manifold.__name__}"
    if not isinstance(manifold.name, str):
        raise ValueError(f"{place} has no name; give the class one, as name = {manifold.__name__!r}")
    if lacking := sorted(manifold.__abstractmethods__):
        raise ValueError(f"{place} lacks {', '.join(lacking)}; see hyperbolic.manifolds.Manifold")
    lacking = [key for key in ("c", "learn_c") if key not in inspect.signature(manifold).parameters]
    if lacking and manifold.is_curved:
        raise ValueError(f"{place}: its constructor does not take {' and '.join(lacking)}")
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
