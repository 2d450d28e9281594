"""Hyperbolic attention networks (Gulcehre et al. 2019): a Euclidean model in which multi-head attention alone is
hyperbolic. Everything else is the Euclidean family's."""

from __future__ import annotations

from torch import Tensor

from hyperbolic.layers.distance_heads import DistanceHeads
from hyperbolic.layers.euclidean import (
    GRU,
    RNN,
    Activation,
    Aggregation,
    Attention,
    Centroid,
    Concat,
    ContextAttention,
    Dropout,
    Embedding,
    FeedForward,
    GRUCell,
    Linear,
    Logits,
    Norm,
    OrderedSum,
    PositionEncoding,
    Residual,
    RNNCell,
)
from hyperbolic.layers.guard import check_choice, name_of, takes_points
from hyperbolic.manifolds import Lorentz, Manifold

_SHORTEST = 1e-12  # square of a length under which a direction fades to 0


class MultiHeadAttention(DistanceHeads):
    """Weights by distance, ``w_ti = f(-beta d(q_t, k_i) - offset)``, and the Einstein midpoint of the values.

    Queries, keys and values are linear functions of Euclidean inputs, sent to the hyperboloid of curvature -c head by
    head; ``exp_0(u) = (cosh(r), sinh(r) u/|u|) / sqrt(c)`` with ``r = sqrt(c)|u|``. The midpoint goes back by log_0,
    and the heads are joined.

    Args:
        manifold: flat. d: size. n_heads: divides d. dropout: of the weights.
        c: curvature of the hyperboloid, positive. learn_c: train it.
        coordinates: "polar": pseudo-polar, ``u = r e/|e|`` from d_head coordinates e and one more, r, of any sign
            (Gulcehre et al., section 3.1); "exp": u is the vector of d_head coordinates.
        gate: f, "softmax" (``exp``, where the offset cancels) or "sigmoid"; weights are divided by their sum.
        beta: factor of the distances at the start. learn_beta: train it, positive, a number a head.
    """

    def __init__(
        self,
        manifold: Manifold,
        d: int,
        n_heads: int,
        dropout: float = 0.0,
        c: float = 1.0,
        learn_c: bool = False,
        coordinates: str = "polar",
        gate: str = "softmax",
        beta: float = 1.0,
        learn_beta: bool = True,
    ):
        super().__init__(manifold, d, n_heads, Lorentz(c, learn_c), dropout, gate, beta, learn_beta)
        check_choice(f"{name_of(self)}.coordinates", coordinates, ("polar", "exp"))
        self.coordinates = coordinates
        size = d + n_heads if coordinates == "polar" else d
        self.query, self.key, self.value = (Linear(manifold, d, size) for _ in range(3))

    def divide(self, points: Tensor) -> Tensor:
        """Points (B, n_heads, T, d_head + 1) of the hyperboloid."""
        u = points.unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)
        if self.coordinates == "polar":
            direction, radius = u[..., :-1], u[..., -1:]
            u = radius * direction * (direction.square().sum(-1, keepdim=True) + _SHORTEST).rsqrt()
        return self.space.expmap0(u)

    def merge(self, heads: Tensor) -> Tensor:
        return self.space.logmap0(heads).transpose(-3, -2).flatten(-2)

    forward = takes_points("d", "d")(DistanceHeads.forward)


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "Linear", "Logits", "MultiHeadAttention", "Norm", "OrderedSum",
    "PositionEncoding", "RNNCell", "Residual",
]  # fmt: skip
