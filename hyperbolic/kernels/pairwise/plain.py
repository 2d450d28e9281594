"""The formulas of :mod:`hyperbolic.kernels.pairwise` in PyTorch operations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.poincare import distance_square
from hyperbolic.numerics import asinhc, ball_gap, safe_sqrt, sqnorm, wide

# A pair is computed again where what is left of the terms of its product is a smaller part of them than this.
CLOSE = {torch.float32: 1e-8, torch.float64: 1e-3}
Index = tuple[Tensor, ...]


def poincare(x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
    factors = poincare_factors(x, c, True), poincare_factors(y, c, False)
    return _distances(x, y, c, *factors, 2, poincare_distance if refine else None)


def poincare_factors(x: Tensor, c: Tensor, left: bool) -> Tensor:
    """``[-2c x/g, c|x|^2/g, 1/g]`` on the left and ``[x/g, 1/g, c|x|^2/g]`` on the right."""
    inverse = 1 / ball_gap(x, c)
    space, terms = wide(x) * inverse, [c * sqnorm(x) * inverse, inverse]
    return torch.cat([-2 * c * space, *terms] if left else [space, *terms[::-1]], -1)


def poincare_distance(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """Of each pair, (..., 1)."""
    t = distance_square(x, y, c)
    return 2 * safe_sqrt(t) * asinhc(c * t)


def lorentz(x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
    factors = lorentz_factors(x, c, True), lorentz_factors(y, c, False)
    return _distances(x, y, c, *factors, 1, lorentz_distance if refine else None)


def lorentz_factors(x: Tensor, c: Tensor, left: bool) -> Tensor:
    """``[-c/2 s, c/2 t, -1/2]`` on the left and ``[s, t, 1]`` on the right."""
    space = wide(x[..., 1:])
    time = (1 / c + sqnorm(space)).sqrt()
    one = torch.ones_like(time)
    return torch.cat([-c / 2 * space, c / 2 * time, -one / 2] if left else [space, time, one], -1)


def lorentz_distance(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """Of each pair, (..., 1)."""
    q = sheet.half_sinh_square(x[..., 1:], y[..., 1:], c)
    return 2 / c.sqrt() * safe_sqrt(q) * asinhc(q)


def _distances(
    x: Tensor,
    y: Tensor,
    c: Tensor,
    left: Tensor,
    right: Tensor,
    terms: int,
    again: Callable[[Tensor, Tensor, Tensor], Tensor] | None,
) -> Tensor:
    """``2/sqrt(c) arsinh(sqrt(h))`` of the product ``h = left right^T``; pairs with h far below the sum of the products
    of so many of the last two factors, the size of what h is a sum of, get the distance ``again(x, y, c)``."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    h = left @ right.mT
    ends = [side[..., -2:][..., :terms].detach() for side in (left, right)]
    close = h.detach() <= (0 if again is None else CLOSE[dtype] * (ends[0] @ ends[1].mT))
    distance = torch.where(close, 0, 2 / c.sqrt() * torch.where(close, 1, h).sqrt().asinh()).to(dtype)
    if again is None:
        return distance
    if switch.is_followed(x):  # which cannot follow a number of pairs that depends on the points
        return torch.where(close, again(x.unsqueeze(-2), y.unsqueeze(-3), c).squeeze(-1).to(dtype), distance)
    index = close.nonzero(as_tuple=True)
    return distance.index_put(index, again(*pairs(x, y, index), c).squeeze(-1).to(dtype)) if len(index[0]) else distance


def pairs(x: Tensor, y: Tensor, index: Index) -> tuple[Tensor, Tensor]:
    """The points (M, D) of the pairs at these places of a matrix (..., T, N)."""
    lead = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return x.expand(*lead, *x.shape[-2:])[index[:-1]], y.expand(*lead, *y.shape[-2:])[(*index[:-2], index[-1])]
