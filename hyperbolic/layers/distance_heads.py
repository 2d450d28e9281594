"""Multi-head attention by hyperbolic distances, the part that HAtt and HNN++ share: distances, weights, centroids."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hyperbolic.layers.guard import name_of
from hyperbolic.layers.multihead import MultiHead
from hyperbolic.manifolds import Manifold, sheet
from hyperbolic.manifolds.base import HyperbolicManifold
from hyperbolic.numerics import WIDE, sqnorm, wide


class DistanceHeads(MultiHead):
    """In each head ``w_ti = f(-tau d(q_t, k_i))`` over their sum, and the centroid of the values with these weights.

    Args:
        manifold: space of inputs and outputs. d: intrinsic size. n_heads: divides d.
        space: the hyperbolic space of queries, keys and values. dropout: of the weights.
        gate: f, "softmax" (``exp``) or "sigmoid" (``sigmoid(. - gamma)``, gamma trained, a number a head, 0 at first).
        tau: positive, the factor of the distances at the start. learn_tau: train it, the softplus of a number a head.

    Subclasses implement ``queries``, ``keys``, ``values`` and ``merge``.

    Raises:
        ValueError: an unknown gate; tau that is not positive; n_heads that does not divide d.
    """

    def __init__(
        self,
        manifold: Manifold,
        d: int,
        n_heads: int,
        space: HyperbolicManifold,
        dropout: float,
        gate: str,
        tau: float,
        learn_tau: bool,
    ):
        super().__init__(manifold, d, n_heads)
        if gate not in ("softmax", "sigmoid"):
            raise ValueError(f"{name_of(self)}: gate must be 'softmax' or 'sigmoid', got {gate!r}")
        if not tau > 0:
            raise ValueError(f"{name_of(self)}: the factor of the distances must be positive, got {tau!r}")
        self.space, self.gate = space, gate
        start = torch.full((n_heads, 1, 1), tau + math.log(-math.expm1(-tau)))  # inverse of softplus
        self.free_tau = nn.Parameter(start, requires_grad=learn_tau)
        self.gamma = nn.Parameter(torch.zeros(n_heads, 1, 1)) if gate == "sigmoid" else None
        self.dropout = nn.Dropout(dropout)

    @property
    def tau(self) -> Tensor:
        """``softplus(free_tau)``: (n_heads, 1, 1)."""
        return nn.functional.softplus(self.free_tau)

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        score = -self.tau * pairwise_distances(self.space, q, k)
        if self.gamma is not None:
            score = nn.functional.logsigmoid(score - self.gamma)  # its softmax: sigmoids over their sum, never 0/0
        return torch.softmax(score if mask is None else score.masked_fill(~mask, -torch.inf), -1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        if causal:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        weights = self.weights(q, k, mask)
        if self.training and self.dropout.p:
            dropped = self.dropout(weights)
            weights = torch.where(dropped.any(-1, keepdim=True), dropped, weights)  # a row of zeros has no centroid
        return weighted_centroids(self.space, v, weights)


def weighted_centroids(space: HyperbolicManifold, x: Tensor, weights: Tensor) -> Tensor:
    """:meth:`hyperbolic.manifolds.Manifold.centroid` for many rows of weights at a time, as a matrix product.

    ``S / sqrt(c (T^2 - |S|^2))`` with the float64 sums S and T of the weighted space and time coordinates on the
    hyperboloid. Rounding costs up to 1e-16 cosh^2(R) for points at the radius R (times sqrt(c)): nothing in float32.
    Beyond, where it could take all, the root is kept above the sum of the weights, its smallest possible value.

    Args: x (..., N, D) points; weights (..., T, N), in each row not negative and not all zero.
    Returns: (..., T, D).
    """
    c, s, w = space.c, space._to_sheet(x), wide(weights)
    space_sum, time_sum = w @ s, w @ sheet.time(s, c)
    square = torch.maximum(c * (time_sum.square() - sqnorm(space_sum)), w.sum(-1, keepdim=True).square())
    return space._from_sheet(space_sum * square.rsqrt(), x.dtype)


def pairwise_distances(space: HyperbolicManifold, x: Tensor, y: Tensor) -> Tensor:
    """Distances of all pairs by one matrix product on the hyperboloid, ``sinh^2(d/2) = (c (t s - <x, y>) - 1)/2``.

    The product is float64; the error of ``sinh^2(d/2)`` is about 1e-16 times that of the time coordinates, t s.

    Args: x (..., T, D) and y (..., N, D) points. Returns: (..., T, N). The gradient of equal points is 0.
    """
    c, x_space, y_space = space.c, space._to_sheet(x), space._to_sheet(y)
    x_sheet = torch.cat([sheet.time(x_space, c), -x_space], -1) * (c / 2)
    y_sheet = torch.cat([sheet.time(y_space, c), y_space], -1)
    dtype = torch.promote_types(x.dtype, y.dtype)
    return _LengthOfSquare.apply(x_sheet @ y_sheet.mT, dtype) * c.rsqrt().to(dtype)


class _LengthOfSquare(torch.autograd.Function):
    """``2 arsinh(sqrt(h - 1/2))`` of h in float64, given in another dtype; 0 with gradient 0 below 1/2."""

    @staticmethod
    def forward(ctx, h: Tensor, dtype: torch.dtype) -> Tensor:
        square = (h - 0.5).clamp_min_(0).to(dtype)
        ctx.save_for_backward(square)
        whole = (1 + square).sqrt_().add_(1)
        return torch.div(square, whole, out=whole).add_(square.sqrt()).log1p_().mul_(2)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (square,) = ctx.saved_tensors
        slope = torch.addcmul(square, square, square).rsqrt_()
        return slope.masked_fill_(square == 0, 0).mul_(grad).to(WIDE), None
