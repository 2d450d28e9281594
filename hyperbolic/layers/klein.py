"""The Klein family: Einstein gyrovector layers on the Klein disk, and Hype-HAN's parts (Zhang & Gao).

Einstein addition and the Möbius sum are the same operation in two models of one space (Ungar 2008): every layer here is
the Möbius layer of its name between the exact isometries ``x -> x / (1 + sqrt(1 - c|x|^2))`` to the ball and
``y -> 2y / (1 + c|y|^2)`` back. Parameters belong to the ball of the same, also learned, curvature. Float32 points of
the disk end at a distance of 6.6 / sqrt(c) from the origin, half of the ball's, whatever the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hyperbolic.kernels.mobius_sum import mobius_sum
from hyperbolic.layers import aggregation, attention, feedforward, mobius, ordered_sum
from hyperbolic.layers.attention import Centroid
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.guard import check_index, check_manifold, check_points, takes_points
from hyperbolic.manifolds import Klein, PoincareBall
from hyperbolic.manifolds.charts import klein_to_poincare, poincare_to_klein


class _Einstein(nn.Module):
    """A Möbius layer seen from the Klein disk.

    Args:
        layer: class of the inner layer; sizes, options: its arguments after the manifold.
    """

    def __init__(self, manifold: Klein, layer: type[nn.Module], *sizes: Any, **options: Any):
        super().__init__()
        self.manifold = manifold
        check_manifold(self)
        self.inner = layer(manifold.twin(PoincareBall), *sizes, **options)

    def to_ball(self, x: Tensor) -> Tensor:
        return klein_to_poincare(x, self.manifold.c)

    def to_disk(self, x: Tensor) -> Tensor:
        return poincare_to_klein(x, self.manifold.c)

    def through_ball(self, *x: Tensor, **others: Tensor | None) -> Tensor:
        """What the inner layer makes of points of the disk."""
        return self.to_disk(self.inner(*map(self.to_ball, x), **others))


class Linear(_Einstein):
    """``W (x) x (+) b``, in the ball Hype-HAN's Eq. 10, with Einstein's operations;
    :class:`hyperbolic.layers.mobius.Linear`."""

    def __init__(self, manifold: Klein, d_in: int, d_out: int, bias: bool = True, bias_std: float = 0.0):
        super().__init__(manifold, mobius.Linear, d_in, d_out, bias, bias_std)
        self.d_in, self.d_out = d_in, d_out

    @takes_points("d_in")
    def forward(self, x: Tensor) -> Tensor:
        return self.through_ball(x)


class Embedding(_Einstein):
    """Table of n points, close to the origin at the start; :class:`hyperbolic.layers.mobius.Embedding`. Its parameter
    has them in the coordinates of the ball."""

    inner: mobius.Embedding

    def __init__(
        self,
        manifold: Klein,
        n: int,
        d: int,
        padding_idx: int | None = None,
        init_norm: float = 1e-3,
        sparse: bool = False,
    ):
        super().__init__(manifold, mobius.Embedding, n, d, padding_idx, init_norm, sparse)
        with torch.no_grad():
            self.inner.weight.mul_(0.5)  # log_0 in the ball is half of log_0 in the disk

    def forward(self, index: Tensor) -> Tensor:
        check_index(self, index, self.inner.n)
        return self.to_disk(self.inner(index))

    @torch.no_grad()
    def set_points(self, points: Tensor) -> None:
        """Start from these points (n, D) of the manifold, as pretrained vectors after ``manifold.expmap0``; raises
        ValueError for another shape and for points off the manifold."""
        check_points(self, points, self.inner.n, self.inner.d)
        self.inner.set_points(self.to_ball(points))


class Activation(_Einstein):
    """:class:`hyperbolic.layers.mobius.Activation`, the Möbius version of a pointwise function, in the disk."""

    inner: mobius.Activation

    def __init__(self, manifold: Klein, fn: str):
        super().__init__(manifold, mobius.Activation, fn)

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        return x if self.inner.fn == "identity" else self.through_ball(x)


class Dropout(_Einstein):
    """:class:`hyperbolic.layers.mobius.Dropout`; "coordinates" are those of the ball."""

    inner: mobius.Dropout

    def __init__(self, manifold: Klein, p: float, space: str = "tangent"):
        super().__init__(manifold, mobius.Dropout, p, space)

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        return self.through_ball(x) if self.training and self.inner.drop.p else x

    def from_tangent(self, u: Tensor) -> Tensor:
        """See :meth:`hyperbolic.layers.mobius.Dropout.from_tangent`."""
        if self.inner.space == "coordinates":
            result: Tensor = self(self.manifold.expmap0(u))
            return result
        return self.manifold.expmap0(self.inner.drop(u))


class Concat(_Einstein):
    """:class:`hyperbolic.layers.mobius.Concat` with Einstein's operations."""

    def __init__(
        self,
        manifold: Klein,
        dims: Sequence[int],
        d_out: int,
        bias: bool = True,
        n_features: int = 0,
        bias_std: float = 0.0,
    ):
        super().__init__(manifold, mobius.Concat, dims, d_out, bias, n_features, bias_std)
        self.dims, self.d_out = tuple(dims), d_out

    @takes_points("dims*")
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        return self.through_ball(*x, features=features)


class _Cell(_Einstein):
    layer: type[nn.Module]

    def __init__(self, manifold: Klein, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__(manifold, self.layer, d_in, d_hidden, nonlinearity)
        self.d_in, self.d_hidden = d_in, d_hidden

    @takes_points("d_in", "d_hidden")
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.through_ball(x, h)


class RNNCell(_Cell):
    """:class:`hyperbolic.layers.mobius.RNNCell` with Einstein's operations."""

    layer = mobius.RNNCell


class GRUCell(_Cell):
    """:class:`hyperbolic.layers.mobius.GRUCell` with Einstein's operations."""

    layer = mobius.GRUCell


class _Recurrent(_Einstein):
    layer: type[nn.Module]
    inner: mobius.RNN | mobius.GRU

    def __init__(
        self,
        manifold: Klein,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        join: str = "linear",
        bias_std: float = 0.0,
    ):
        super().__init__(manifold, self.layer, d_in, d_hidden, nonlinearity, bidirectional, streams, join, bias_std)
        self.d_in, self.d_hidden = d_in, d_hidden

    @property
    def d_out(self) -> int:
        return self.inner.d_out

    @takes_points("d_in")
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :class:`hyperbolic.layers.sequence.Recurrence`; the sequence is taken to the ball once, as a whole."""
        states, last = self.inner(self.to_ball(x), lengths)
        return self.to_disk(states), self.to_disk(last)


class RNN(_Recurrent):
    """:class:`hyperbolic.layers.mobius.RNN` with Einstein's operations."""

    layer = mobius.RNN


class GRU(_Recurrent):
    """:class:`hyperbolic.layers.mobius.GRU` with Einstein's operations."""

    layer = mobius.GRU


class Attention(_Einstein):
    """:class:`hyperbolic.layers.mobius.Attention`: distance attention and the Einstein midpoint."""

    inner: mobius.Attention

    def __init__(self, manifold: Klein, d: int, n_positions: int = 0, score: str = "distance"):
        super().__init__(manifold, mobius.Attention, d, n_positions, score)
        self.d = d

    @property
    def beta(self) -> nn.Parameter | None:
        return self.inner.beta

    def pairs(self, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :meth:`hyperbolic.layers.attention.DistanceAttention.pairs`."""
        q, k = self.inner.pairs(self.to_ball(x), positions)
        return self.to_disk(q), self.to_disk(k)

    @takes_points("d")
    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :class:`hyperbolic.layers.attention.DistanceAttention`."""
        centroid, weights = self.inner(self.to_ball(x), positions, mask)
        return self.to_disk(centroid), weights


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context point, with Einstein's linear keys; see
    :class:`hyperbolic.layers.attention.ContextAttention`."""

    linear = Linear


class Norm(feedforward.NoNorm):
    """The identity: none of these papers has a norm for points."""


class Residual(_Einstein):
    """``x (+) dropout(W (x) phi(o) (+) b)``; :class:`hyperbolic.layers.mobius.Residual`."""

    def __init__(self, manifold: Klein, d_in: int, d_out: int, activation: str = "identity", dropout: float = 0.0):
        super().__init__(manifold, mobius.Residual, d_in, d_out, activation, dropout)
        self.d_in, self.d_out = d_in, d_out

    @takes_points("d_in", "d_out")
    def forward(self, o: Tensor, x: Tensor) -> Tensor:
        return self.through_ball(o, x)


class FeedForward(_Einstein):
    """:class:`hyperbolic.layers.mobius.FeedForward` with Einstein's operations."""

    def __init__(self, manifold: Klein, d: int, d_hidden: int, activation: str = "relu", dropout: float = 0.0):
        super().__init__(manifold, mobius.FeedForward, d, d_hidden, activation, dropout)
        self.d = d

    @takes_points("d", "d")
    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        return self.through_ball(x, *(() if base is None else (base,)))


class PositionEncoding(_Einstein):
    """``dropout(x_t (+) p_t)``; :class:`hyperbolic.layers.mobius.PositionEncoding`."""

    def __init__(self, manifold: Klein, d: int, n_positions: int, dropout: float = 0.0):
        super().__init__(manifold, mobius.PositionEncoding, d, n_positions, dropout)
        self.d = d

    @takes_points("d")
    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        return self.to_disk(self.inner(self.to_ball(x), positions))


class OrderedSum(ordered_sum.OrderedSum):
    """:class:`hyperbolic.layers.mobius.OrderedSum` with Einstein's operations."""

    def total(self, x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
        c = self.manifold.c
        return poincare_to_klein(mobius_sum(klein_to_poincare(x, c), c, weights, mask), c)


class Logits(ClassLogits):
    """Hyperbolic MLR: :class:`hyperbolic.layers.mobius.Logits` of the point in the ball."""

    def __init__(self, manifold: Klein, d: int, n_classes: int, point_std: float = 0.0):
        super().__init__(manifold, d, n_classes)
        self.inner = mobius.Logits(manifold.twin(PoincareBall), d, n_classes, point_std)

    @property
    def class_points(self) -> Tensor:
        return poincare_to_klein(self.inner.class_points, self.manifold.c)

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.inner.operands(klein_to_poincare(x, self.manifold.c))


class Aggregation(aggregation.Aggregation):
    """The Einstein midpoint of a node's neighbours; see :class:`hyperbolic.layers.aggregation.Aggregation`."""

    linear = Linear


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "Linear", "Logits", "Norm", "OrderedSum", "PositionEncoding", "RNNCell",
    "Residual",
]  # fmt: skip
