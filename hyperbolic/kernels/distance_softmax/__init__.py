"""Softmax over distances, of pairs of points against one draw of others (Nickel & Kiela 2017, Eq. 6).

For points x_i, their partners y_i and P others z_j, with T the temperature, the mean over i of

    -log( exp(-d(x_i, y_i) / T) / (exp(-d(x_i, y_i) / T) + sum_j exp(-d(x_i, z_j) / T)) )

without the pairs (i, j) that are excluded. ``sinh^2(sqrt(c) d/2)`` of all pairs is one product, and ``exp(-d)`` an
algebraic function of it; in C++ the gradient is made in the same pass, over blocks of rows that stay in the cache, so
no matrix of distances is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.kernels.distance_softmax.passes import DistanceSoftmax
from hyperbolic.manifolds import sheet
from hyperbolic.numerics import sqnorm, wide_curvature

_CLOSE = 1e-6  # part of its terms below which sinh^2(sqrt(c) d/2) of a pair is computed again from the difference
Pairs = tuple[Tensor, Tensor]


def distance_softmax(x: Tensor, y: Tensor, z: Tensor, c: Tensor, excluded: Pairs, temperature: float = 1.0) -> Tensor:
    """The loss above, a float64 scalar.

    Args:
        x, y: (B, d) and z: (P, d), space coordinates of points of the hyperboloid, float64. c: scalar.
        excluded: rows and columns (K,) of the pairs (i, j) that do not count, none twice.
        temperature: positive.
    """
    c = wide_curvature(c).to(x.device)
    left, right = _factors(x, torch.cat([y, z]), c)
    near, right = right[: len(y)], right[len(y) :]
    h = (left * near).sum(-1)
    close = h <= _CLOSE * (left[:, -2:] * near[:, -2:]).sum(-1)  # the terms cancel
    if switch.is_followed(x):  # which cannot follow a number of pairs that depends on the points
        h = torch.where(close, sheet.half_sinh_square(x, y, c, careful=False).squeeze(-1), h)
    elif len(index := close.nonzero().squeeze(1)):
        h = h.index_put((index,), sheet.half_sinh_square(x[index], y[index], c, careful=False).squeeze(-1))
    loss: Tensor = DistanceSoftmax.run(left, right, h, *excluded, 2 / (c.sqrt() * temperature))
    return loss


def cosh_products(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``cosh(sqrt(c) d) = c (t_x t_y - <x, y>)`` of all pairs, which sorts them by distance.

    Args: x (B, d), y (N, d): space coordinates on the hyperboloid, float64. c: scalar. Returns: (B, N), float64.
    """
    c = wide_curvature(c).to(x.device)
    return torch.cat([-c * x, c * sheet.time(x, c)], -1) @ torch.cat([y, sheet.time(y, c)], -1).T


def _factors(x: Tensor, z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Rows whose inner products are ``sinh^2(sqrt(c) d/2) = (c (t_x t_z - <x, z>) - 1) / 2``, with the times t as what
    they are above ``1/sqrt(c)``, so that near the origin nothing cancels."""
    root = c.sqrt()
    rise_x, rise_z = (sqnorm(s) / (sheet.time(s, c) + 1 / root) for s in (x, z))
    left = torch.cat([-c / 2 * x, (c * rise_x + root) / 2, root / 2 * rise_x], -1)
    return left, torch.cat([z, rise_z, torch.ones_like(rise_z)], -1)


__all__ = ["cosh_products", "distance_softmax"]
