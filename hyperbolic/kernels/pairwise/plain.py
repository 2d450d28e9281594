"""The formulas of :mod:`hyperbolic.kernels.pairwise` in PyTorch operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.manifolds import lorentz, poincare
from hyperbolic.numerics import ball_gap, sqnorm, wide

# A pair is computed again where what is left of the terms of its product is a smaller part of them than this.
CLOSE = {torch.float32: 1e-8, torch.float64: 1e-3}
Index = tuple[Tensor, ...]


class Model(NamedTuple):
    """terms: how many of the last factors say how large the terms of a product are."""

    name: str
    terms: int
    factors: Callable[[Tensor, Tensor, bool], Tensor]
    distance: Callable[[Tensor, Tensor, Tensor], Tensor]


def poincare_factors(x: Tensor, c: Tensor, left: bool) -> Tensor:
    """``[-2c x/g, c|x|^2/g, 1/g]`` on the left and ``[x/g, 1/g, c|x|^2/g]`` on the right."""
    inverse = 1 / ball_gap(x, c)
    space, terms = wide(x) * inverse, [c * sqnorm(x) * inverse, inverse]
    return torch.cat([-2 * c * space, *terms] if left else [space, *terms[::-1]], -1)


def lorentz_factors(x: Tensor, c: Tensor, left: bool) -> Tensor:
    """``[-c/2 s, c/2 t, -1/2]`` on the left and ``[s, t, 1]`` on the right."""
    space = wide(x[..., 1:])
    time = (1 / c + sqnorm(space)).sqrt()
    one = torch.ones_like(time)
    return torch.cat([-c / 2 * space, c / 2 * time, -one / 2] if left else [space, time, one], -1)


POINCARE = Model("poincare", 2, poincare_factors, poincare.distance)
LORENTZ = Model("lorentz", 1, lorentz_factors, lorentz.distance)


def distances(model: Model, x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
    """``2/sqrt(c) arsinh(sqrt(h))``, (..., T, N), of the product ``h = left right^T`` of the factors of x (..., T, D)
    and y (..., N, D). With ``refine`` pairs with h far below the product of the model's terms, the size of what h is a
    sum of, get its ``distance(x, y, c)``."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    left, right = model.factors(x, c, True), model.factors(y, c, False)
    h = left @ right.mT
    ends = [side[..., -2:][..., : model.terms].detach() for side in (left, right)]
    close = h.detach() <= (CLOSE[dtype] * (ends[0] @ ends[1].mT) if refine else 0)
    distance = torch.where(close, 0, 2 / c.sqrt() * torch.where(close, 1, h).sqrt().asinh()).to(dtype)
    if not refine:
        return distance
    if switch.is_followed(x):  # which cannot follow a number of pairs that depends on the points
        return torch.where(close, model.distance(x.unsqueeze(-2), y.unsqueeze(-3), c).squeeze(-1).to(dtype), distance)
    index = close.nonzero(as_tuple=True)
    if len(index[0]) == 0:
        return distance
    return distance.index_put(index, model.distance(*pairs(x, y, index), c).squeeze(-1).to(dtype))


def pairs(x: Tensor, y: Tensor, index: Index) -> tuple[Tensor, Tensor]:
    """The points (M, D) of the pairs at these places of a matrix (..., T, N)."""
    lead = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return x.expand(*lead, *x.shape[-2:])[index[:-1]], y.expand(*lead, *y.shape[-2:])[(*index[:-2], index[-1])]
