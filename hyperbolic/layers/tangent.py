"""The tangent family on any manifold: ``exp_0(layer(log_0(x)))`` with a Euclidean layer inside.

All parameters are Euclidean and live in the tangent space at the origin, so no Riemannian optimiser is needed; the
curvature enters through exp, log, distances and centroids only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hyperbolic.layers import aggregation, attention, euclidean, ordered_sum, positions
from hyperbolic.layers.attention import Centroid, DistanceAttention
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.guard import check_index, check_manifold, check_points, takes_points
from hyperbolic.layers.multihead import AttentionCache, MultiHead
from hyperbolic.manifolds import Euclidean, Lorentz, Manifold
from hyperbolic.manifolds.lorentz import lorentz_distance2


class _Tangent(nn.Module):
    """Wraps a Euclidean layer: every input goes through log_0, the result through exp_0.

    Args: inner: the layer. sizes: intrinsic sizes of its inputs, None for any size.
    """

    def __init__(self, manifold: Manifold, inner: nn.Module, *sizes: int | None):
        super().__init__()
        self.manifold, self.inner, self.sizes = manifold, inner, sizes

    @takes_points("sizes*")
    def forward(self, *x: Tensor, **features: Tensor) -> Tensor:
        return self.manifold.expmap0(self.inner(*(self.manifold.logmap0(x_i) for x_i in x), **features))


class Linear(_Tangent):
    """``exp_0(W log_0(x) + b)``; see :class:`hyperbolic.layers.euclidean.Linear`."""

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_out: int,
        bias: bool = True,
        init: str = "glorot",
        weight_dropout: float = 0.0,
    ):
        super().__init__(manifold, euclidean.Linear(Euclidean(), d_in, d_out, bias, init, weight_dropout), d_in)


class Embedding(nn.Module):
    """``exp_0`` of a table of n tangent vectors; see :class:`hyperbolic.layers.euclidean.Embedding`."""

    def __init__(
        self,
        manifold: Manifold,
        n: int,
        d: int,
        padding_idx: int | None = None,
        init_norm: float = 1e-3,
        sparse: bool = False,
    ):
        super().__init__()
        self.manifold = manifold
        check_manifold(self)
        self.inner = euclidean.Embedding(Euclidean(), n, d, padding_idx, init_norm, sparse)

    def forward(self, index: Tensor) -> Tensor:
        check_index(self, index, self.inner.n)
        return self.manifold.expmap0(self.inner(index))

    @torch.no_grad()
    def set_points(self, points: Tensor) -> None:
        """Start from these points (n, D) of the manifold, as pretrained vectors after ``manifold.expmap0``; raises
        ValueError for another shape and for points off the manifold."""
        check_points(self, points, self.inner.n, self.inner.d)
        self.inner.set_points(self.manifold.logmap0(points))


class Activation(_Tangent):
    """``exp_0(fn(log_0(x)))``."""

    def __init__(self, manifold: Manifold, fn: str):
        super().__init__(manifold, euclidean.Activation(Euclidean(), fn), None)


class Dropout(nn.Module):
    """``exp_0(dropout(log_0(x)))``."""

    def __init__(self, manifold: Manifold, p: float):
        super().__init__()
        self.manifold, self.inner = manifold, euclidean.Dropout(Euclidean(), p)

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        return self.from_tangent(self.manifold.logmap0(x)) if self.training and self.inner.drop.p else x

    def from_tangent(self, u: Tensor) -> Tensor:
        """See :meth:`hyperbolic.layers.mobius.Dropout.from_tangent`."""
        return self.manifold.expmap0(self.inner(u))


class Concat(_Tangent):
    """``exp_0(sum_i W_i log_0(x_i) + b + sum_j y_j b_j)``."""

    def __init__(self, manifold: Manifold, dims: Sequence[int], d_out: int, bias: bool = True, n_features: int = 0):
        super().__init__(manifold, euclidean.Concat(Euclidean(), dims, d_out, bias, n_features), *dims)


class RNNCell(_Tangent):
    """``exp_0(cell(log_0(x), log_0(h)))`` with :class:`hyperbolic.layers.euclidean.RNNCell`."""

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__(manifold, euclidean.RNNCell(Euclidean(), d_in, d_hidden, nonlinearity), d_in, d_hidden)


class GRUCell(_Tangent):
    """``exp_0(cell(log_0(x), log_0(h)))`` with :class:`hyperbolic.layers.euclidean.GRUCell`."""

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__(manifold, euclidean.GRUCell(Euclidean(), d_in, d_hidden, nonlinearity), d_in, d_hidden)


class _Recurrent(nn.Module):
    layer: type[euclidean.RNN] | type[euclidean.GRU]

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        join: str = "linear",
    ):
        super().__init__()
        self.manifold, self.d_in = manifold, d_in
        self.inner = self.layer(Euclidean(), d_in, d_hidden, nonlinearity, bidirectional, streams, join)

    @property
    def d_out(self) -> int:
        return self.inner.d_out

    @takes_points("d_in")
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states, last = self.inner(self.manifold.logmap0(x), lengths)
        return self.manifold.expmap0(states), self.manifold.expmap0(last)


class RNN(_Recurrent):
    """:class:`hyperbolic.layers.euclidean.RNN` in the tangent space at the origin."""

    layer = euclidean.RNN


class GRU(_Recurrent):
    """:class:`hyperbolic.layers.euclidean.GRU` in the tangent space at the origin."""

    layer = euclidean.GRU


class Attention(DistanceAttention):
    """Distance attention with tangent linear queries and keys, the manifold's distance and its centroid;
    positions are added in the tangent space at the origin."""

    linear, embedding = Linear, Embedding

    def add_positions(self, x: Tensor, p: Tensor) -> Tensor:
        return self.manifold.expmap0(self.manifold.logmap0(x) + self.manifold.logmap0(p))

    forward = takes_points("d")(DistanceAttention.forward)


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context point, with tangent linear keys and the context kept as a tangent vector; see
    :class:`hyperbolic.layers.attention.ContextAttention`."""

    linear, tangent = Linear, True


class MultiHeadAttention(euclidean.MultiHeadAttention):
    """``exp_0(attention(log_0(x)))`` with :class:`hyperbolic.layers.euclidean.MultiHeadAttention`."""

    @takes_points("d", "d")
    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: AttentionCache | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """See :meth:`hyperbolic.layers.multihead.MultiHead.forward`."""
        filled = cache is not None and cache.static and cache.length > 0  # then memory is not looked at
        if memory is not None and not filled:
            memory = self.manifold.logmap0(memory)
        out = MultiHead.forward(self, self.manifold.logmap0(x), memory, mask, causal, cache, return_weights)
        if isinstance(out, tuple):
            return self.manifold.expmap0(out[0]), out[1]
        return self.manifold.expmap0(out)


class Residual(_Tangent):
    """``exp_0(log_0(x) + dropout(W phi(log_0(o)) + b))`` with :class:`hyperbolic.layers.euclidean.Residual`."""

    def __init__(self, manifold: Manifold, d_in: int, d_out: int, activation: str = "identity", dropout: float = 0.0):
        super().__init__(manifold, euclidean.Residual(Euclidean(), d_in, d_out, activation, dropout), d_in, d_out)


class FeedForward(nn.Module):
    """``exp_0(block(log_0(x)))`` with :class:`hyperbolic.layers.euclidean.FeedForward`."""

    def __init__(self, manifold: Manifold, d: int, d_hidden: int, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        self.manifold, self.d = manifold, d
        self.inner = euclidean.FeedForward(Euclidean(), d, d_hidden, activation, dropout)

    @takes_points("d", "d")
    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """See :meth:`hyperbolic.layers.feedforward.FeedForward.forward`."""
        u = self.manifold.logmap0(x)
        v = u if base is None or base is x else self.manifold.logmap0(base)
        return self.manifold.expmap0(self.inner(u, v))


class PositionEncoding(positions.PositionEncoding):
    """``exp_0(dropout(log_0(x_t) + p_t))``; see :class:`hyperbolic.layers.positions.PositionEncoding`."""

    drop = Dropout
    dropout: Dropout

    @takes_points("d")
    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """See :meth:`hyperbolic.layers.positions.PositionEncoding.forward`."""
        return self.dropout.from_tangent(self.manifold.logmap0(x) + self.rows(x, positions))


class Norm(_Tangent):
    """``exp_0(norm(log_0(x)))`` with :class:`hyperbolic.layers.euclidean.Norm`."""

    def __init__(self, manifold: Manifold, d: int):
        super().__init__(manifold, euclidean.Norm(Euclidean(), d), d)


class OrderedSum(ordered_sum.OrderedSum):
    """``exp_0(w_1 log_0(x_1) + w_2 log_0(x_2) + ...)``, in which the order does not count."""

    def total(self, x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
        return self.manifold.expmap0(euclidean.weighted_sum(self.manifold.logmap0(x), weights, mask))


class Logits(ClassLogits):
    """``scale <log_0(x) - p_k, a_k>`` for K classes: Euclidean logits in the tangent space at the origin."""

    def __init__(self, manifold: Manifold, d: int, n_classes: int, scale: float = 1.0):
        super().__init__(manifold, d, n_classes)
        self.inner = euclidean.Logits(Euclidean(), d, n_classes, scale)

    @property
    def class_points(self) -> Tensor:
        return self.manifold.expmap0(self.inner.p)

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        return self.inner.operands(self.manifold.logmap0(x))


class Aggregation(aggregation.Aggregation):
    """The centroid of a node's neighbours; distances on the hyperboloid are squared Lorentz distances, as in LGCN. See
    :class:`hyperbolic.layers.aggregation.Aggregation`."""

    linear = Linear

    def squared_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return lorentz_distance2(x, y) if isinstance(self.manifold, Lorentz) else super().squared_distance(x, y)


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "Linear", "Logits", "MultiHeadAttention", "Norm", "OrderedSum",
    "PositionEncoding", "RNNCell", "Residual",
]  # fmt: skip
