"""The Poincaré fully connected layer of HNN++ (Shimizu, Mukuta & Harada 2021) as one matrix product.

``y = Y / sqrt(c)`` with ``Y = s / (1 + sqrt(1 + |s|^2))``, ``s_k = sinh(2|z_k| arsinh(<X, W_k>))``, X the lift of x and
W_k that of the hyperplane k. Row scalars are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.fusion import fuse
from hyperbolic.kernels.mlr.plain import arsinh
from hyperbolic.numerics import BALL_EPS, WIDE, ball_gap, limit, rescale, sqnorm, wide

_TINY = 1e-74  # keeps |z| positive; the inverse of its root is a float32 number
# Largest argument of sinh: its square is representable, and it is far outside the stated radius.
_LONGEST = {torch.float32: 43.0, torch.float64: 300.0}


def unidirectional_hyperplanes(z: Tensor, r: Tensor | None, c: Tensor) -> tuple[Tensor, Tensor]:
    """W (K, d+1) and ``|z_k|`` (K,) with the signed distance of x from hyperplane k ``arsinh(<X, W_k>) / sqrt(c)``:

    ``<X, W_k> = lambda_x <sqrt(c) x, z_k/|z_k|> cosh(2 sqrt(c) r_k) - (lambda_x - 1) sinh(2 sqrt(c) r_k)`` with X from
    :func:`hyperbolic.kernels.mlr.lift_points` (HNN++, unidirectional MLR).

    z (K, d); r (K,), None for zeros, cut where ``2 sqrt(c)|r|`` leaves the stated radius by far. Where z = 0, W has
    no direction, and the gradient of ``|z_k| W_k`` is finite.
    """
    root = c.sqrt()
    norm = (torch.linalg.vector_norm(z, dim=-1, keepdim=True, dtype=WIDE).square() + _TINY).sqrt()
    normal = (1 / norm).to(z.dtype) * z
    if r is None:
        return torch.cat([root.to(z.dtype) * normal, torch.zeros_like(z[:, :1])], -1), norm.squeeze(-1)
    shift = (2 * root * wide(r).unsqueeze(-1)).clamp(-_LONGEST[torch.float32], _LONGEST[torch.float32])
    w = torch.cat([(root * shift.cosh()).to(z.dtype) * normal, (-0.5 * shift.sinh()).to(z.dtype)], -1)
    return w, norm.squeeze(-1)


@fuse
def _coordinates(x: Tensor, w: Tensor, k: Tensor, c: Tensor) -> Tensor:
    """y of x (N, d), W (K, d+1) and k (K,), with ``s = sinh(k arsinh(<X, W>))``.

    The lift ``X = [2x/g, 4/g - 2]``, ``g = 1 - c|x|^2``, is not formed: its factors act on the rows of ``x W^T``.
    """
    longest, bound, gap = limit(_LONGEST, x.dtype), 1 - limit(BALL_EPS, x.dtype), ball_gap(x, c)
    space, time = (2 / gap).to(x.dtype), (4 / gap - 2).to(x.dtype)
    s = (k * arsinh(space * (x @ w[:, :-1].T) + time * w[:, -1])).clamp(-longest, longest).sinh()
    square = sqnorm(s)
    inside = 1 / (1 + (1 + square).sqrt())
    cut = inside.square() * square > bound**2
    return rescale(torch.where(cut, bound / torch.where(cut, square, 1).sqrt(), inside) * c.rsqrt(), s)


def poincare_fc(x: Tensor, z: Tensor, r: Tensor | None, c: Tensor) -> Tensor:
    """Points (..., K) of the ball for points x (..., d), from K hyperplanes z (K, d), r (K,) or None.

    Results beyond the stated radius are cut to it.
    """
    w, norm = unidirectional_hyperplanes(z, r, c)
    y = _coordinates(x.reshape(-1, x.shape[-1]), w, (2 * norm).to(z.dtype), c)
    return y.view(*x.shape[:-1], z.shape[0])
