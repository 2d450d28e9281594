"""The Möbius family on the Poincaré ball: layers of Ganea, Bécigneul & Hofmann 2018 and of Lopez & Strube 2020.

``(+)`` is the Möbius sum and ``M (x) x = exp_0(M log_0(x))``. Neither commutes nor associates, so the order of
operands is part of a layer and stated in its formula. Matrices are Euclidean parameters, Glorot uniform; biases,
tables and the points of hyperplanes are points of the ball (``geoopt.ManifoldParameter``), biases zero at the start.
"""

from __future__ import annotations

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.mlr import lift_hyperplanes, lift_points
from hyperbolic.kernels.mobius_sum import mobius_sum
from hyperbolic.layers import aggregation, attention, feedforward, ordered_sum, positions
from hyperbolic.layers.attention import Centroid, DistanceAttention
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_choice, name_of, takes_points
from hyperbolic.layers.initial import glorot, uniform_table
from hyperbolic.layers.mobius_linear import Activation, Concat, Linear, ball_parameter
from hyperbolic.layers.mobius_recurrent import GRU, RNN, GRUCell, RNNCell
from hyperbolic.layers.points import PointTable
from hyperbolic.manifolds import PoincareBall


class Embedding(PointTable):
    """Table of n points of the ball, close to the origin at the start (see ``uniform_table``): rows (...) -> (..., d).

    Args:
        padding_idx: this row starts at the origin; it is trained like the others, unlike that of torch's Embedding.
        sparse: gradients of the rows used only, for an optimiser with ``lazy=True``.
    """

    def __init__(
        self,
        manifold: PoincareBall,
        n: int,
        d: int,
        padding_idx: int | None = None,
        init_norm: float = 1e-3,
        sparse: bool = False,
    ):
        super().__init__(manifold, n, d, padding_idx, sparse)
        table = manifold.projx(uniform_table(n, d, init_norm, padding_idx))
        self.weight = ManifoldParameter(table, manifold=manifold)


class Dropout(nn.Module):
    """Dropout of a point.

    Args:
        space: "tangent": ``exp_0(dropout(log_0(x)))``; "coordinates": ``proj(dropout(x))`` on the ball coordinates
            themselves, as Lopez & Strube's code does (there without the projection).
    """

    def __init__(self, manifold: PoincareBall, p: float, space: str = "tangent"):
        super().__init__()
        check_choice(f"{name_of(self)}.space", space, ("tangent", "coordinates"))
        self.manifold, self.space, self.drop = manifold, space, nn.Dropout(p)

    extra_repr = shows("space")

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop.p == 0:
            return x
        if self.space == "coordinates":
            return self.manifold.projx(self.drop(x))
        return self.manifold.expmap0(self.drop(self.manifold.logmap0(x)))

    def from_tangent(self, u: Tensor) -> Tensor:
        """``forward(exp_0(u))`` of tangent vectors u (..., d) at the origin, without going there and back."""
        if self.space == "coordinates":
            result: Tensor = self(self.manifold.expmap0(u))
            return result
        return self.manifold.expmap0(self.drop(u))


class Attention(DistanceAttention):
    """Distance attention with Möbius linear queries and keys and the Möbius midpoint (Lopez & Strube 2020)."""

    manifold: PoincareBall
    linear: type[nn.Module] = Linear
    embedding = Embedding

    def add_positions(self, x: Tensor, p: Tensor) -> Tensor:
        return self.manifold.mobius_add(x, p)

    forward = takes_points("d")(DistanceAttention.forward)


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context point, with Möbius linear keys; see
    :class:`hyperbolic.layers.attention.ContextAttention` (Zhang & Gao, Hype-HAN, Eq. 10-12)."""

    linear = Linear


class Residual(feedforward.Residual):
    """``x (+) dropout((W (x) phi(o)) (+) b)``; see :class:`hyperbolic.layers.feedforward.Residual`."""

    manifold: PoincareBall
    linear: type[nn.Module] = Linear
    activation, drop = Activation, Dropout

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.manifold.mobius_add(x, y)

    forward = takes_points("d_in", "d_out")(feedforward.Residual.forward)


class FeedForward(feedforward.FeedForward):
    """Two Möbius linear layers and the sum with x; see :class:`hyperbolic.layers.feedforward.FeedForward`."""

    linear, residual = Linear, Residual


class PositionEncoding(positions.PositionEncoding):
    """``dropout(x_t (+) p_t)``; see :class:`hyperbolic.layers.positions.PositionEncoding`."""

    manifold: PoincareBall
    drop = Dropout

    def make(self, start: Tensor) -> ManifoldParameter:
        return ManifoldParameter(self.manifold.expmap0(start), manifold=self.manifold)

    def add(self, x: Tensor, p: Tensor) -> Tensor:
        return self.manifold.mobius_add(x, p)

    forward = takes_points("d")(positions.PositionEncoding.forward)


class Norm(feedforward.NoNorm):
    """The point itself: Möbius layers keep their points inside, and their papers have no norm."""


class OrderedSum(ordered_sum.OrderedSum):
    """``((w_1 (x) x_1 (+) w_2 (x) x_2) (+) w_3 (x) x_3) (+) ...``; see :mod:`hyperbolic.layers.ordered_sum`.

    Runs :func:`hyperbolic.kernels.mobius_sum.mobius_sum`.
    """

    def total(self, x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
        return mobius_sum(x, self.manifold.c, weights, mask)


class Logits(ClassLogits):
    """Hyperbolic MLR for K classes, K = 1 giving one binary logit (Ganea et al. 2018, Eq. 23):

    ``2|a|/sqrt(c) arsinh(2 sqrt(c) <-p (+) x, a> / ((1 - c|-p (+) x|^2)|a|))`` with points p, zero at the start, and
    normals a given at the origin, Glorot uniform. Softmax, sigmoid or a multi-label loss is the task's choice.

    Args:
        point_std: spread of the points at the start; 0 in Ganea et al., 1e-5 in Lopez & Strube's code.
    """

    def __init__(self, manifold: PoincareBall, d: int, n_classes: int, point_std: float = 0.0):
        super().__init__(manifold, d, n_classes)
        self.p = ball_parameter(manifold, n_classes, d, std=point_std)
        self.a = nn.Parameter(glorot(torch.empty(n_classes, d)))

    @property
    def class_points(self) -> Tensor:
        return self.inside(self.p)

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        c = self.manifold.c
        return lift_points(x, c), *lift_hyperplanes(self.class_points, self.a, c), None


class Aggregation(aggregation.Aggregation):
    """The Möbius midpoint of a node's neighbours; see :class:`hyperbolic.layers.aggregation.Aggregation`."""

    linear = Linear


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "Linear", "Logits", "Norm", "OrderedSum", "PositionEncoding", "RNNCell",
    "Residual",
]  # fmt: skip
