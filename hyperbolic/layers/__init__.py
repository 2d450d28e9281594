"""Layer families: one module each, the same names in all of them, the manifold as first argument."""

from hyperbolic.layers import euclidean, hatt, klein, lorentz, mobius, poincare_pp, tangent

__all__ = ["euclidean", "hatt", "klein", "lorentz", "mobius", "poincare_pp", "tangent"]
