"""Flat space, with the interface of the curved ones: the twin of every hyperbolic model."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic.manifolds.base import Manifold, check_number
from hyperbolic.numerics import broadcast, dot, sqnorm, wide
from hyperbolic.smooth import safe_sqrt


class Euclidean(Manifold):
    """R^d with the usual inner product; ``c = 0``, ``expmap0`` and ``logmap0`` are the identity."""

    name = "Euclidean"
    reversible = True

    is_curved = False

    def __init__(self) -> None:
        super().__init__(0.0)

    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        return math.sqrt(torch.finfo(dtype).max) / 4

    def projx(self, x: Tensor) -> Tensor:
        return x

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        return u.expand(torch.broadcast_shapes(x.shape, u.shape))

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return broadcast(dot(u, v), x[..., :1])[0]

    def _dist2(self, x: Tensor, y: Tensor) -> Tensor:
        return sqnorm(wide(x) - wide(y))

    def _dist(self, x: Tensor, y: Tensor) -> Tensor:
        return safe_sqrt(self._dist2(x, y))

    def _dist0(self, x: Tensor) -> Tensor:
        return safe_sqrt(sqnorm(x))

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        return x + u

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        return y - x

    def expmap0(self, u: Tensor) -> Tensor:
        return u

    def logmap0(self, x: Tensor) -> Tensor:
        return x

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        return x + u

    def transp(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return v.expand(torch.broadcast_shapes(x.shape, y.shape, v.shape))

    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        return u.expand(torch.broadcast_shapes(y.shape, u.shape))

    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted mean over axis -2; raises ValueError for another number of weights than of points."""
        check_number(x, weights)
        if weights is None:
            return x.mean(-2)
        return ((weights.unsqueeze(-1) * x).sum(-2) / weights.sum(-1, keepdim=True)).to(x.dtype)
