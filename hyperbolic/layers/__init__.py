"""Layer families: one module each, the same names in all of them, the manifold as first argument."""

from hyperbolic.layers import euclidean, hatt, klein, lorentz, mobius, poincare_pp, tangent
from hyperbolic.layers.family import LayerFamily, register_family
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall

__all__ = ["euclidean", "hatt", "klein", "lorentz", "mobius", "poincare_pp", "tangent"]

for _name, _module, _manifolds in (
    ("euclidean", euclidean, (Euclidean,)),
    ("hatt", hatt, (Euclidean,)),
    ("mobius", mobius, (PoincareBall,)),
    ("poincare_pp", poincare_pp, (PoincareBall,)),
    ("tangent", tangent, None),
    ("lorentz", lorentz, (Lorentz,)),
    ("klein", klein, (Klein,)),
):
    register_family(LayerFamily(_name, _manifolds, {layer: getattr(_module, layer) for layer in _module.__all__}))
