"""Layer families: one module each, the same names in all of them, the manifold as first argument."""

from hyperbolic.layers import euclidean, mobius, tangent

__all__ = ["euclidean", "mobius", "tangent"]
