"""Attention that pools N points into one, written once for all families, and the centroid as a layer.

Distance attention of Lopez & Strube 2020 (Eq. 8, 9); attention to a learned context of Zhang & Gao (Hype-HAN) and of
Yang et al. 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import (
    check_choice,
    check_mask,
    check_rows,
    check_sequence,
    check_weights,
    name_of,
    takes_points,
)
from hyperbolic.layers.keys import KEYS, TangentLinear
from hyperbolic.layers.points import PointLayer
from hyperbolic.layers.positions import check_positions
from hyperbolic.manifolds import Manifold
from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity
from hyperbolic.smooth import inverse_softplus

SCORES = ("distance", "squared")


class Centroid(nn.Module):
    """Weighted centre of N points: the manifold's ``centroid`` (Möbius midpoint, Lorentz centroid, Einstein midpoint,
    or the mean in flat space) as a module without parameters."""

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = manifold

    @takes_points(None)
    def forward(self, x: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (..., N, D). weights: (..., N), not negative; equal when left out.
            mask: (..., N), boolean, true for points that count.
        Returns: (..., D).
        Raises:
            ValueError: no points; weights or a mask of another shape; a mask that is not boolean; a row in which the
                mask hides every point, the weights sum to 0 or one is negative (on a GPU: a device-side assertion).
        """
        check_sequence(self, x)
        shape = x.shape[:-1]
        if weights is not None:
            check_weights(self, weights, shape)
        if mask is not None:
            check_mask(self, mask, shape)
            weights = mask.to(x.dtype) if weights is None else torch.where(mask, weights, 0)
        if weights is not None:
            self._check_weights(weights.detach())
        return self.manifold.centroid(x, weights)

    def _check_weights(self, weights: Tensor) -> None:
        where = f"among the points that count, of the shape {tuple(weights.shape)}"
        wrong = (weights.sum(-1) <= 0) | (weights < 0).any(-1)
        check_rows(self, ~wrong, f"the weights {where}, have a negative number or no positive sum in {{}}")


class DistanceAttention(nn.Module):
    """``w_i = softmax_i(-beta d(q_i, k_i))`` with ``q = W_q r + b_q``, ``k = W_k r + b_k``, ``r_i = x_i + p_i``.

    Query and key belong to the same position, so the weights are one number a position; values are the inputs
    before the position is added. ``beta`` is a trained scalar from U(-0.01, 0.01), its sign free (official code).

    Args:
        manifold: space of the points. d: intrinsic size. n_positions: size of the table of positions; 0 for none.
        score: "distance": as above; "squared": ``w_i = softmax_i(-d^2(q_i, k_i) / sqrt(d))`` without beta, with the
            squared geodesic distance, or in the Lorentz family the squared Lorentz distance (Chen et al., Eq. 5).

    Subclasses name the linear layer and the table of their family in ``linear`` and ``embedding``, implement
    ``add_positions`` and guard ``forward``.

    Raises:
        ValueError: an unknown score.
    """

    linear: Callable[..., nn.Module]
    embedding: type[nn.Module]

    def __init__(self, manifold: Manifold, d: int, n_positions: int = 0, score: str = "distance"):
        super().__init__()
        check_choice(f"{name_of(self)}.score", score, SCORES)
        self.manifold, self.d = manifold, d
        self.query, self.key = self.linear(manifold, d, d), self.linear(manifold, d, d)
        self.n_positions = n_positions
        self.positions = self.embedding(manifold, n_positions, d) if n_positions else None
        self.beta = nn.Parameter(torch.empty(()).uniform_(-0.01, 0.01)) if score == "distance" else None

    extra_repr = shows("d", "n_positions")

    def add_positions(self, x: Tensor, p: Tensor) -> Tensor:
        """The points x (..., N, D) with the rows p of the table at their positions."""
        raise NotImplementedError

    def pairs(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries and keys (..., N, D) of the points x (..., N, D), see :meth:`forward`."""
        if positions is not None and self.positions is not None:
            x = self.add_positions(x, self.positions(positions))
        return self.query(x), self.key(x)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """``-beta d(q, k)`` or ``-d^2(q, k) / sqrt(d)``: (..., N)."""
        if self.beta is None:
            return -self.squared_distance(q, k) / math.sqrt(self.d)
        return -self.beta * self.manifold.dist(q, k)

    def squared_distance(self, q: Tensor, k: Tensor) -> Tensor:
        return self.manifold.dist2(q, k)

    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args:
            x: (..., N, D) points. positions: (N,) or (..., N) indices into the table.
            mask: (..., N), boolean, true where a point counts.
        Returns:
            the weighted centroid (..., D) and the weights (..., N).
        Raises:
            ValueError: no points; positions without a table or the reverse, of another shape or beyond the table; a
                mask that is not boolean, of another shape, or that hides every position of a row. (What is in
                positions and mask is on a GPU checked by a device-side assertion.)
        """
        check_sequence(self, x)
        if (positions is None) != (self.positions is None):
            raise ValueError(
                f"{name_of(self)}: positions are given exactly when the layer was built with n_positions > 0"
            )
        if positions is not None:
            check_positions(self, positions, x, self.n_positions)
        if mask is not None:
            check_mask(self, mask, x.shape[:-1])
        score = self.scores(*self.pairs(x, positions))
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf)
        weights = torch.softmax(score, -1)
        return self.manifold.centroid(x, weights), weights


class ContextAttention(PointLayer):
    """Attention to a learned context point c: ``w_i = softmax_i(-beta d(c, h'_i))`` with ``h'_i = phi(linear(x_i))``,
    and the weighted midpoint of the x_i (Zhang & Gao, Hype-HAN, Eq. 6-8 and 10-12), written once for all families.

    ``phi(y) = exp_0(fn(log_0(y)))`` with a pointwise fn. On the hyperboloid Hype-HAN attends over words with
    keys="tangent" and fn = tanh, where ``exp_0`` is Eq. 5, and over sentences with keys="mobius" and no fn.

    Args:
        manifold: space of the points. d: intrinsic size.
        score: "distance"; or "dot": ``<log_0(c), log_0(h'_i)>`` without beta, in flat space the attention of Yang et
            al. 2016 (Eq. 5-7). Left out, it is the paper's: dot in flat space and distance elsewhere.
        gate: "softmax", which needs no offset (c in Eq. 7, 11); or "sigmoid": ``w_i`` proportional to
            ``sigmoid(score_i - c_0)`` with a trained offset c_0, 0 at the start, beyond which all points weigh nearly
            the same.
        nonlinearity: fn, a name in ``NONLINEARITIES``. Left out, it is tanh in flat space and none elsewhere.
        keys: the linear layer; "family": the family's own; "tangent": ``exp_0(W log_0(x) + b)``; "mobius":
            :class:`hyperbolic.layers.keys.MobiusLinear`. In flat space all three are ``W x + b``.
        beta: "softplus": beta is the softplus of a trained number; "free": that number, of any sign. 1 at the start.
        context_std: at the start ``c = exp_0(v)`` with a normal v, ``|v|`` about this long.

    Subclasses name the linear layer of their family in ``linear``. With ``tangent`` they keep c as a vector of the
    tangent space at the origin, ``c = exp_0(v)``, a Euclidean parameter; otherwise it is a point of the manifold
    (``geoopt.ManifoldParameter``).

    Raises:
        ValueError: an unknown score, gate, nonlinearity, keys or beta.
    """

    linear: type[nn.Module]
    tangent = False

    def __init__(
        self,
        manifold: Manifold,
        d: int,
        score: str | None = None,
        gate: str = "softmax",
        nonlinearity: str | None = None,
        keys: str = "family",
        beta: str = "softplus",
        context_std: float = 0.1,
    ):
        super().__init__()
        score = score or ("distance" if manifold.is_curved else "dot")
        for name, value, choices in (
            ("score", score, ("distance", "dot")),
            ("gate", gate, ("softmax", "sigmoid")),
            ("keys", keys, ("family", *KEYS)),
            ("beta", beta, ("softplus", "free")),
        ):
            check_choice(f"{name_of(self)}.{name}", value, choices)
        self.manifold, self.d, self.score, self.gate = manifold, d, score, gate
        self.nonlinearity = check_nonlinearity(nonlinearity or ("identity" if manifold.is_curved else "tanh"))
        self.key = KEYS.get(keys, self.linear)(manifold, d, d)
        start = torch.randn(d) * (context_std / d**0.5)
        on_manifold = manifold.is_curved and not self.tangent
        self.context = (
            ManifoldParameter(manifold.expmap0(start), manifold=manifold) if on_manifold else nn.Parameter(start)
        )
        self.positive = beta == "softplus"
        first = torch.tensor(inverse_softplus(1.0) if self.positive else 1.0)
        self.free_beta = nn.Parameter(first) if score == "distance" else None
        self.offset = nn.Parameter(torch.zeros(())) if gate == "sigmoid" else None

    extra_repr = shows("d", "score", "gate", "nonlinearity")

    @property
    def beta(self) -> Tensor | None:
        """``softplus(free_beta)``, or ``free_beta``; None where the score is no distance."""
        if self.free_beta is None:
            return None
        return nn.functional.softplus(self.free_beta) if self.positive else self.free_beta

    def scores(self, x: Tensor) -> Tensor:
        """``-beta d(c, h'_i)`` or ``<log_0(c), log_0(h'_i)>`` of points x (..., N, D): (..., N)."""
        space = self.manifold
        if isinstance(self.key, TangentLinear):
            return self.scores_of_vectors(self.key(space.logmap0(x)))
        key, beta = self.key(x), self.beta
        if self.nonlinearity == "identity" and beta is not None:
            return -beta * space.dist(self.context_point, key)
        return self.scores_of_vectors(space.logmap0(key))

    def scores_of_vectors(self, v: Tensor) -> Tensor:
        """The scores of ``h'_i = exp_0(fn(v_i))`` for vectors v (..., N, d) at the origin."""
        space, v, beta = self.manifold, NONLINEARITIES[self.nonlinearity](v), self.beta
        if beta is None:
            return v @ (self.context if self.tangent else space.logmap0(self.context_point))
        return -beta * space.dist_exp0(self.context_point, v)

    @property
    def context_point(self) -> Tensor:
        """c, a point (D,) of the manifold."""
        return self.manifold.expmap0(self.context) if self.tangent else self.inside(self.context)

    @takes_points("d")
    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args: x: (..., N, D) points. mask: (..., N), boolean, true where a point counts.
        Returns: the weighted midpoint (..., D) and the weights (..., N), which sum to 1.
        Raises:
            ValueError: no points; a mask that is not boolean, of another shape, or that hides every position of a row
                (the last on a GPU: a device-side assertion).
        """
        check_sequence(self, x)
        weights = self._weights(self.scores(x), mask)
        return self.manifold.centroid(x, weights), weights

    @takes_points("d", flat=True, full=True)
    def pool_vectors(self, u: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """:meth:`forward` of the points ``exp_0(u)``, which tangent keys do without: u (..., N, d) at the origin."""
        if not isinstance(self.key, TangentLinear):
            result: tuple[Tensor, Tensor] = self(self.manifold.expmap0(u), mask)
            return result
        check_sequence(self, u)
        weights = self._weights(self.scores_of_vectors(self.key(u)), mask)
        return self.manifold.centroid_exp0(u, weights), weights

    def _weights(self, score: Tensor, mask: Tensor | None) -> Tensor:
        """Scores (..., N) to weights, 0 where the mask is false."""
        if mask is not None:
            check_mask(self, mask, score.shape)
        if self.offset is not None:
            score = nn.functional.logsigmoid(score - self.offset)  # its softmax: sigmoids over their sum, never 0/0
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf)
        return torch.softmax(score, -1)
