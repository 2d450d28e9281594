"""Linear layers that are defined on every manifold, for the keys of an attention."""

from __future__ import annotations

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.initial import glorot
from hyperbolic.layers.points import PointLayer
from hyperbolic.manifolds import Manifold


class TangentLinear(nn.Module):
    """``W u + b`` of vectors u (..., d) at the origin; W Glorot uniform, b = 0."""

    def __init__(self, manifold: Manifold, d_in: int, d_out: int):
        super().__init__()
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        self.weight = nn.Parameter(glorot(torch.empty(d_out, d_in)))
        self.bias = nn.Parameter(torch.zeros(d_out))

    extra_repr = shows("d_in", "d_out")

    def forward(self, u: Tensor) -> Tensor:
        return nn.functional.linear(u, self.weight, self.bias)


class MobiusLinear(PointLayer):
    """``W (x) x (+) b = exp_y(P_{0->y} log_0(b))`` with ``y = exp_0(W log_0(x))`` and parallel transport P: the Möbius
    linear layer of the ball (Ganea et al. 2018, Lemma 6 and Eq. 26) on any manifold. W is Glorot uniform, b the origin,
    a point of the manifold."""

    def __init__(self, manifold: Manifold, d_in: int, d_out: int):
        super().__init__()
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        self.weight = nn.Parameter(glorot(torch.empty(d_out, d_in)))
        origin = manifold.origin(d_out)
        self.bias = ManifoldParameter(origin, manifold=manifold) if manifold.is_curved else nn.Parameter(origin)

    extra_repr = shows("d_in", "d_out")

    def forward(self, x: Tensor) -> Tensor:
        space = self.manifold
        y = space.expmap0(nn.functional.linear(space.logmap0(x), self.weight))
        key: Tensor = space.expmap(y, space.transp0(y, space.logmap0(self.inside(self.bias))))
        return key


KEYS: dict[str, type[nn.Module]] = {"tangent": TangentLinear, "mobius": MobiusLinear}
