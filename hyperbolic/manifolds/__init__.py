"""The four spaces: flat, and three models of hyperbolic space, with one interface and one curvature convention."""

from hyperbolic.manifolds.base import HyperbolicManifold, Manifold
from hyperbolic.manifolds.euclidean import Euclidean
from hyperbolic.manifolds.klein import Klein
from hyperbolic.manifolds.lorentz import Lorentz
from hyperbolic.manifolds.poincare import PoincareBall

__all__ = ["Euclidean", "HyperbolicManifold", "Klein", "Lorentz", "Manifold", "PoincareBall"]
