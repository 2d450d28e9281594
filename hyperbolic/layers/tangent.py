"""The tangent family on any manifold: ``exp_0(layer(log_0(x)))`` with a Euclidean layer inside.

All parameters are Euclidean and live in the tangent space at the origin, so no Riemannian optimiser is needed; the
curvature enters through exp, log, distances and centroids only.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from hyperbolic.layers import euclidean
from hyperbolic.layers.attention import Centroid, DistanceAttention
from hyperbolic.manifolds import Manifold


class _Tangent(nn.Module):
    """Wraps a Euclidean layer: every input goes through log_0, the result through exp_0."""

    def __init__(self, manifold: Manifold, inner: nn.Module):
        super().__init__()
        self.manifold, self.inner = manifold, inner

    def forward(self, *x: Tensor, **features: Tensor) -> Tensor:
        return self.manifold.expmap0(self.inner(*(self.manifold.logmap0(x_i) for x_i in x), **features))


class Linear(_Tangent):
    """``exp_0(W log_0(x) + b)``."""

    def __init__(self, manifold: Manifold, d_in: int, d_out: int, bias: bool = True):
        super().__init__(manifold, euclidean.Linear(manifold, d_in, d_out, bias))


class Embedding(nn.Module):
    """``exp_0`` of a table of n tangent vectors."""

    def __init__(self, manifold: Manifold, n: int, d: int, padding_idx: int | None = None, init_norm: float = 1e-3):
        super().__init__()
        self.manifold = manifold
        self.inner = euclidean.Embedding(manifold, n, d, padding_idx, init_norm)

    def forward(self, index: Tensor) -> Tensor:
        return self.manifold.expmap0(self.inner(index))


class Activation(_Tangent):
    """``exp_0(fn(log_0(x)))``."""

    def __init__(self, manifold: Manifold, fn: str):
        super().__init__(manifold, euclidean.Activation(manifold, fn))


class Dropout(_Tangent):
    """``exp_0(dropout(log_0(x)))``."""

    def __init__(self, manifold: Manifold, p: float):
        super().__init__(manifold, euclidean.Dropout(manifold, p))


class Concat(_Tangent):
    """``exp_0(sum_i W_i log_0(x_i) + b + sum_j y_j b_j)``."""

    def __init__(self, manifold: Manifold, dims: Sequence[int], d_out: int, bias: bool = True, n_features: int = 0):
        super().__init__(manifold, euclidean.Concat(manifold, dims, d_out, bias, n_features))


class RNNCell(_Tangent):
    """``exp_0(cell(log_0(x), log_0(h)))`` with :class:`hyperbolic.layers.euclidean.RNNCell`."""

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__(manifold, euclidean.RNNCell(manifold, d_in, d_hidden, nonlinearity))


class GRUCell(_Tangent):
    """``exp_0(cell(log_0(x), log_0(h)))`` with :class:`hyperbolic.layers.euclidean.GRUCell`."""

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__(manifold, euclidean.GRUCell(manifold, d_in, d_hidden, nonlinearity))


class _Recurrent(nn.Module):
    layer: type[nn.Module]

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
    ):
        super().__init__()
        self.manifold = manifold
        self.inner = self.layer(manifold, d_in, d_hidden, nonlinearity, bidirectional, streams)

    @property
    def d_out(self) -> int:
        return self.inner.d_out

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

    def __init__(self, manifold: Manifold, d: int, n_positions: int = 0):
        super().__init__(manifold, d, Linear, Embedding, self._add, n_positions)

    def _add(self, x: Tensor, position: Tensor) -> Tensor:
        return self.manifold.expmap0(self.manifold.logmap0(x) + self.manifold.logmap0(position))


class Logits(nn.Module):
    """``scale <log_0(x) - p_k, a_k>`` for K classes: Euclidean logits in the tangent space at the origin."""

    def __init__(self, manifold: Manifold, d: int, n_classes: int, scale: float = 1.0):
        super().__init__()
        self.manifold = manifold
        self.inner = euclidean.Logits(manifold, d, n_classes, scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.manifold.logmap0(x))


__all__ = [
    "GRU",
    "RNN",
    "Activation",
    "Attention",
    "Centroid",
    "Concat",
    "Dropout",
    "Embedding",
    "GRUCell",
    "Linear",
    "Logits",
    "RNNCell",
]
