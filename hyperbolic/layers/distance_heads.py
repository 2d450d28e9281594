"""Multi-head attention by hyperbolic distances, the part that HAtt and HNN++ share: distances, weights, centroids."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.kernels.pairwise import lorentz_pairwise, poincare_pairwise
from hyperbolic.layers.guard import check_choice, name_of
from hyperbolic.layers.multihead import MultiHead, drop_scores
from hyperbolic.manifolds import HyperbolicManifold, Lorentz, Manifold, PoincareBall, sheet
from hyperbolic.numerics import WIDE, sqnorm, wide
from hyperbolic.smooth import inverse_softplus
from hyperbolic.switch import is_followed

_SUMMABLE = 1e4  # c T^2 / W^2 up to which T^2 - |S|^2 of float64 points keeps 1e-12


class DistanceHeads(MultiHead):
    """In each head ``w_ti = f(-tau d(q_t, k_i))`` over their sum, and the centroid of the values with these weights.

    Args:
        manifold: space of inputs and outputs. d: intrinsic size. n_heads: divides d.
        space: of queries, keys and values: a Lorentz or PoincareBall. dropout: of the weights.
        gate: f, "softmax" (``exp``) or "sigmoid" (``sigmoid(. - gamma)``, gamma trained, a number a head, 0 at first).
        tau: positive, the factor of the distances at the start. learn_tau: train it, the softplus of a number a head.

    Subclasses make ``query``, ``key`` and ``value`` and implement ``divide`` and ``merge``.

    Raises:
        ValueError: another space; an unknown gate; tau that is not positive; n_heads that does not divide d.
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
        if not isinstance(space, (Lorentz, PoincareBall)):
            raise ValueError(f"{name_of(self)}: takes distances on Lorentz or PoincareBall, not on {space!r}")
        check_choice(f"{name_of(self)}.gate", gate, ("softmax", "sigmoid"))
        if not tau > 0:
            raise ValueError(f"{name_of(self)}: the factor of the distances must be positive, got {tau!r}")
        self.space, self.gate = space, gate
        start = torch.full((n_heads, 1, 1), inverse_softplus(tau))
        self.free_tau = nn.Parameter(start, requires_grad=learn_tau)
        self.gamma = nn.Parameter(torch.zeros(n_heads, 1, 1)) if gate == "sigmoid" else None
        self.dropout = nn.Dropout(dropout)

    @property
    def tau(self) -> Tensor:
        """``softplus(free_tau)``: (n_heads, 1, 1)."""
        return nn.functional.softplus(self.free_tau)

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        return torch.softmax(self.scores(q, k, mask), -1)

    def scores(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """What :meth:`weights` are the softmax of; -inf where a query sees no key."""
        distances = lorentz_pairwise if isinstance(self.space, Lorentz) else poincare_pairwise
        score = -self.tau * distances(q, k, self.space.c, refine=False)
        if self.gamma is not None:
            score = nn.functional.logsigmoid(score - self.gamma)  # its softmax: sigmoids over their sum, never 0/0
        return score if mask is None else score.masked_fill(~mask, -torch.inf)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        if causal:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        scores = self.scores(q, k, mask)
        if self.training and self.dropout.p:
            scores = drop_scores(scores, self.dropout.p)
        return weighted_centroids(self.space, v, torch.softmax(scores, -1))


def weighted_centroids(space: HyperbolicManifold, x: Tensor, weights: Tensor) -> Tensor:
    """:meth:`hyperbolic.manifolds.Manifold.centroid` for many rows of weights at a time, as a matrix product.

    ``S / sqrt(c (T^2 - |S|^2))`` with the float64 sums S and T of the weighted space and time coordinates on the
    hyperboloid. Rounding costs up to 1e-16 cosh^2(R) for points at the radius R (times sqrt(c)): nothing in float32,
    where the root is kept above the sum W of the weights, its smallest possible value. Of float64 points that are far
    out, the root is that of ``W^2 + 2 sum_ij w_i w_j sinh^2(sqrt(c) d_ij/2)``, a sum of positive terms.

    Args: x (..., N, D) points; weights (..., T, N), in each row not negative and not all zero.
    Returns: (..., T, D).
    """
    c, s, w = space.c, space._to_sheet(x), wide(weights)
    space_sum, time_sum, total = w @ s, w @ sheet.time(s, c), w.sum(-1, keepdim=True)
    looks = x.dtype is WIDE and x.numel() and not is_followed(x, weights)
    if looks and float((c * (time_sum / total).square()).detach().max()) > _SUMMABLE:
        points = nn.functional.pad(s, (1, 0))  # without times, which do not count
        h = (c.sqrt() / 2 * lorentz_pairwise(points, points, c)).sinh().square()
        square = total.square() + 2 * (w @ h * w).sum(-1, keepdim=True)
    else:
        square = torch.maximum(c * (time_sum.square() - sqnorm(space_sum)), total.square())
    return space._from_sheet(space_sum * square.rsqrt(), x.dtype)
