"""The Euclidean family: the twins of the hyperbolic layers, with the same equations where ``c = 0``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.layers import aggregation, attention, feedforward, ordered_sum, positions
from hyperbolic.layers.attention import Centroid, DistanceAttention
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.description import shows
from hyperbolic.layers.euclidean_linear import Activation, Concat, Linear
from hyperbolic.layers.euclidean_recurrent import GRU, RNN, GRUCell, RNNCell
from hyperbolic.layers.guard import check_index, check_manifold, check_points, check_table, takes_points
from hyperbolic.layers.initial import glorot, uniform_table
from hyperbolic.layers.multihead import MultiHead
from hyperbolic.manifolds import Euclidean, Manifold


class Embedding(nn.Module):
    """Table of n vectors. The row of ``padding_idx`` starts at zero, and is trained. ``sparse``: gradients of the rows
    used only."""

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
        self.manifold, self.n, self.d, self.sparse = manifold, n, d, sparse
        check_manifold(self)
        check_table(self, n, d, padding_idx)
        self.weight = nn.Parameter(uniform_table(n, d, init_norm, padding_idx))

    extra_repr = shows("n", "d", "sparse")

    def forward(self, index: Tensor) -> Tensor:
        check_index(self, index, self.n)
        return table_rows(self.weight, index, self.sparse)

    @torch.no_grad()
    def set_points(self, points: Tensor) -> None:
        """Start from these points (n, D) of the manifold, as pretrained vectors after ``manifold.expmap0``; raises
        ValueError for another shape and for points off the manifold."""
        check_points(self, points, self.n, self.d)
        self.weight.copy_(points)


class Dropout(nn.Module):
    """Dropout on the coordinates."""

    def __init__(self, manifold: Manifold, p: float):
        super().__init__()
        self.manifold, self.drop = manifold, nn.Dropout(p)

    @takes_points(None, flat=True)
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.drop(x)
        return result

    def from_tangent(self, u: Tensor) -> Tensor:
        """See :meth:`hyperbolic.layers.mobius.Dropout.from_tangent`."""
        result: Tensor = self.drop(u)
        return result


class Attention(DistanceAttention):
    """Distance attention with Euclidean distances and the weighted mean (the Euclidean twin of Lopez & Strube)."""

    linear, embedding = Linear, Embedding

    def add_positions(self, x: Tensor, p: Tensor) -> Tensor:
        return x + p

    forward = takes_points("d", flat=True, full=True)(DistanceAttention.forward)


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context vector; see :class:`hyperbolic.layers.attention.ContextAttention`."""

    linear = Linear


class MultiHeadAttention(MultiHead):
    """``softmax(q k^T / sqrt(d / n_heads)) v`` in each head, the heads side by side (Vaswani et al. 2017, Eq. 1).

    Queries and values have biases, keys none: the softmax would not see it. The linear layer on the joined heads is
    the ``Residual`` that follows.

    Args:
        d: size. n_heads: divides d. dropout: of the attention weights.
    """

    def __init__(self, manifold: Manifold, d: int, n_heads: int, dropout: float = 0.0):
        super().__init__(manifold, d, n_heads)
        flat = Euclidean()  # also where tangent layers have given it a curved manifold
        self.query, self.key, self.value = (Linear(flat, d, d, bias) for bias in (True, False, True))
        self.dropout = nn.Dropout(dropout)

    def divide(self, points: Tensor) -> Tensor:
        heads: Tensor = points.unflatten(-1, (self.n_heads, self.d // self.n_heads)).transpose(-3, -2)
        return heads

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        drop = self.dropout.p if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop, is_causal=causal)

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)

    def merge(self, heads: Tensor) -> Tensor:
        return heads.transpose(-3, -2).flatten(-2)

    forward = takes_points("d", "d", flat=True)(MultiHead.forward)


class Residual(feedforward.Residual):
    """``x + dropout(W phi(o) + b)``; see :class:`hyperbolic.layers.feedforward.Residual`."""

    linear, activation, drop = Linear, Activation, Dropout

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    forward = takes_points("d_in", "d_out", flat=True)(feedforward.Residual.forward)


class FeedForward(feedforward.FeedForward):
    """``x + W_2 phi(W_1 x + b_1) + b_2``; see :class:`hyperbolic.layers.feedforward.FeedForward`."""

    linear, residual = Linear, Residual


class PositionEncoding(positions.PositionEncoding):
    """``dropout(x_t + p_t)``; see :class:`hyperbolic.layers.positions.PositionEncoding`."""

    drop = Dropout

    def add(self, x: Tensor, p: Tensor) -> Tensor:
        return x + p

    forward = takes_points("d", flat=True)(positions.PositionEncoding.forward)


class Norm(nn.Module):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the coordinates (Ba et al. 2016)."""

    def __init__(self, manifold: Manifold, d: int):
        super().__init__()
        self.manifold, self.d, self.eps = manifold, d, 1e-5
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    extra_repr = shows("d")

    @takes_points("d", flat=True)
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (self.d,), self.weight, self.bias, self.eps)


class OrderedSum(ordered_sum.OrderedSum):
    """``w_1 x_1 + w_2 x_2 + ...``; see :mod:`hyperbolic.layers.ordered_sum`."""

    def total(self, x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
        return weighted_sum(x, weights, mask)


def weighted_sum(x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
    """``sum w_i x_i`` (..., D) of vectors (..., N, D) over those that count; weights are 1 when left out."""
    if weights is not None:
        x = weights.unsqueeze(-1) * x
    return (x if mask is None else torch.where(mask.unsqueeze(-1), x, 0)).sum(-2)


class Logits(ClassLogits):
    """``scale <x - p_k, a_k>`` for K classes (K = 1: one binary logit); p = 0, a Glorot uniform.

    Args:
        scale: 1 in the code of Ganea et al.; 4, the limit of the hyperbolic formula for c to 0, in Lopez & Strube's.
    """

    def __init__(self, manifold: Manifold, d: int, n_classes: int, scale: float = 1.0):
        super().__init__(manifold, d, n_classes)
        self.scale = scale
        self.p = nn.Parameter(torch.zeros(n_classes, d))
        self.a = nn.Parameter(glorot(torch.empty(n_classes, d)))

    extra_repr = shows("d", "n_classes", "scale")

    @property
    def class_points(self) -> Tensor:
        return self.p

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        a = self.scale * self.a
        return x, a, None, -(self.p * a).sum(-1)


class Aggregation(aggregation.Aggregation):
    """The weighted mean of a node's neighbours; see :class:`hyperbolic.layers.aggregation.Aggregation`."""

    linear = Linear


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "Linear", "Logits", "MultiHeadAttention", "Norm", "OrderedSum",
    "PositionEncoding", "RNNCell", "Residual",
]  # fmt: skip
