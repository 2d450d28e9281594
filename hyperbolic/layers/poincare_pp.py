"""The HNN++ family on the Poincaré ball (Shimizu, Mukuta & Harada 2021, Hyperbolic Neural Networks++).

A class, or a coordinate of a result, is a hyperplane given by a vector z (the direction of its normal at the origin,
and a scale) and a number r (half of its signed distance from the origin along z), so that layers have as many
parameters as their Euclidean twins. Only tables of points are not Euclidean. ``(+)`` is the Möbius sum. HNN++ defines
no recurrent cells, pointwise functions, tables or norms; those are the Möbius family's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.mlr import lift_points
from hyperbolic.layers import aggregation, attention, feedforward, mobius
from hyperbolic.layers.attention import Centroid
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.description import shows
from hyperbolic.layers.distance_heads import DistanceHeads
from hyperbolic.layers.guard import check_features, check_sizes, takes_points
from hyperbolic.layers.mobius import (
    GRU,
    RNN,
    Activation,
    Dropout,
    Embedding,
    GRUCell,
    Norm,
    OrderedSum,
    PositionEncoding,
    RNNCell,
)
from hyperbolic.layers.poincare_fc import poincare_fc, unidirectional_hyperplanes
from hyperbolic.layers.points import PointLayer
from hyperbolic.manifolds import PoincareBall


class Linear(nn.Module):
    """Poincaré FC layer: ``y = w / (1 + sqrt(1 + c|w|^2))`` with ``w_k = sinh(sqrt(c) v_k(x)) / sqrt(c)``: y is the
    point whose signed distance from each coordinate hyperplane is v_k, ``2|z_k|`` times that of x from hyperplane k.

    For c to 0 the layer is ``2 (z_k x - |z_k| r_k)``. At the start z has variance ``1 / (2 d_in d_out)``, and r = 0.
    Results beyond the stated radius are cut to it.
    """

    def __init__(self, manifold: PoincareBall, d_in: int, d_out: int, bias: bool = True):
        super().__init__()
        check_sizes(self, d_in, d_out)
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        self.z = nn.Parameter(torch.randn(d_out, d_in) / math.sqrt(2 * d_in * d_out))
        self.r = nn.Parameter(torch.zeros(d_out)) if bias else None

    extra_repr = shows("d_in", "d_out")

    @takes_points("d_in")
    def forward(self, x: Tensor) -> Tensor:
        return poincare_fc(x, self.z, self.r, self.manifold.c)


def _beta(n: int) -> float:
    """Logarithm of Euler's beta function ``B(n/2, 1/2)``."""
    return math.lgamma(n / 2) + math.lgamma(0.5) - math.lgamma((n + 1) / 2)


def beta_concat(x: Sequence[Tensor], manifold: PoincareBall) -> Tensor:
    """``exp_0`` of the joined ``B(n/2, 1/2) / B(n_i/2, 1/2) log_0(x_i)``, points (..., n_i) -> (..., n) with
    ``n = sum n_i``: parts equally far from the origin give a point about as far (HNN++, beta concatenation)."""
    n = sum(x_i.shape[-1] for x_i in x)
    parts = [math.exp(_beta(n) - _beta(x_i.shape[-1])) * manifold.logmap0(x_i) for x_i in x]
    lead = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return manifold.expmap0(torch.cat([part.expand(*lead, -1) for part in parts], -1))


class Concat(PointLayer):
    """``(FC(beta_concat(x_1, ..., x_n)) (+) y_1 (x) b_1) (+) ...`` with the Poincaré FC layer (:class:`Linear`).

    Args:
        dims: sizes of the points, in the order of the call. d_out: size of the result.
        n_features: number of real features y_j; each scales its own point b_j, from zero.
    """

    manifold: PoincareBall

    def __init__(self, manifold: PoincareBall, dims: Sequence[int], d_out: int, bias: bool = True, n_features: int = 0):
        super().__init__()
        self.manifold, self.dims, self.d_out = manifold, tuple(dims), d_out
        self.affine = Linear(manifold, sum(dims), d_out, bias)
        self.feature_bias = None
        if n_features:
            self.feature_bias = ManifoldParameter(torch.zeros(n_features, d_out), manifold=manifold)

    extra_repr = shows("dims", "d_out")

    @takes_points("dims*")
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., d_i) for every size in dims; features: (..., n_features).
        Raises:
            ValueError: features are missing, not expected, or of another number.
        """
        check_features(self, features)
        out = self.affine(beta_concat(x, self.manifold))
        if features is not None and self.feature_bias is not None:
            points = self.inside(self.feature_bias)
            for term in self.manifold.mobius_scalar(features.unsqueeze(-1), points).unbind(-2):
                out = self.manifold.mobius_add(out, term)
        result: Tensor = out
        return result


class Attention(mobius.Attention):
    """Distance attention of Lopez & Strube 2020 with Poincaré FC layers for queries and keys."""

    linear = Linear


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context point; see :class:`hyperbolic.layers.attention.ContextAttention`."""

    linear = Linear


class MultiHeadAttention(DistanceHeads):
    """Queries, keys and values by Poincaré FC layers, divided among the heads by the beta split, the inverse of the
    beta concatenation; in each head ``w_ti = f(-tau d(q_t, k_i) - gamma)`` and the Möbius midpoint of the values,
    weighted; the heads joined by the beta concatenation (HNN++, Poincaré multi-head attention).

    Queries, keys, values and heads are rounded to points of the ball in between: at the radius R (times sqrt(c)) that
    moves them by up to eps e^R, and results and gradients by as much, in C++ and on PyTorch operations alike; distances
    of close pairs are those of :mod:`hyperbolic.kernels.pairwise` without refining.

    Args:
        d: intrinsic size. n_heads: divides d. dropout: of the weights.
        gate: f, "softmax" (``exp``, where gamma cancels) or "sigmoid"; either way weights are divided by their sum.
        tau: factor of the distances at the start; ``1 / sqrt(d / n_heads)`` when left out. learn_tau: train it.
    """

    def __init__(
        self,
        manifold: PoincareBall,
        d: int,
        n_heads: int,
        dropout: float = 0.0,
        gate: str = "softmax",
        tau: float | None = None,
        learn_tau: bool = True,
    ):
        start = (n_heads / d) ** 0.5 if tau is None else tau
        super().__init__(manifold, d, n_heads, manifold, dropout, gate, start, learn_tau)
        self.query, self.key, self.value = (Linear(manifold, d, d) for _ in range(3))
        # B(d_head/2, 1/2) / B(d/2, 1/2), the factor of the beta split
        self.split = math.exp(_beta(d // n_heads) - _beta(d))

    def divide(self, points: Tensor) -> Tensor:
        parts = self.manifold.logmap0(points).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2)
        return self.manifold.expmap0(self.split * parts)

    def merge(self, heads: Tensor) -> Tensor:
        joined = self.manifold.logmap0(heads).transpose(-3, -2).flatten(-2)
        return self.manifold.expmap0(joined / self.split)

    forward = takes_points("d", "d")(DistanceHeads.forward)


class Residual(mobius.Residual):
    """``x (+) dropout(FC(phi(o)))``; see :class:`hyperbolic.layers.feedforward.Residual`."""

    linear: type[nn.Module] = Linear


class FeedForward(feedforward.FeedForward):
    """``x (+) FC(phi(FC(x)))``; see :class:`hyperbolic.layers.feedforward.FeedForward`."""

    linear, residual = Linear, Residual


class Logits(ClassLogits):
    """Unidirectional Poincaré MLR for K classes: ``v_k(x) = 2|z_k|/sqrt(c) arsinh(lambda_x <sqrt(c) x, z_k/|z_k|>
    cosh(2 sqrt(c) r_k) - (lambda_x - 1) sinh(2 sqrt(c) r_k))``, the MLR of Ganea et al. 2018 (Eq. 23) for hyperplanes
    whose normal points away from the origin, with as many parameters as a Euclidean one (HNN++).

    At the start z has the variance ``1 / (2 d K)``, and r = 0.
    """

    def __init__(self, manifold: PoincareBall, d: int, n_classes: int):
        super().__init__(manifold, d, n_classes)
        self.z = nn.Parameter(torch.randn(n_classes, d) / math.sqrt(2 * d * n_classes))
        self.r = nn.Parameter(torch.zeros(n_classes))

    @property
    def class_points(self) -> Tensor:
        return self.manifold.expmap0(self.r.unsqueeze(-1) * nn.functional.normalize(self.z, dim=-1))

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        c = self.manifold.c
        w, norm = unidirectional_hyperplanes(self.z, self.r, c)
        return lift_points(x, c), w, (2 * c.rsqrt() * norm).to(w.dtype), None


class Aggregation(aggregation.Aggregation):
    """The Möbius midpoint of a node's neighbours; see :class:`hyperbolic.layers.aggregation.Aggregation`."""

    linear = Linear


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "Linear", "Logits", "MultiHeadAttention", "Norm", "OrderedSum",
    "PositionEncoding", "RNNCell", "Residual",
]  # fmt: skip
