"""The Möbius family on the Poincaré ball: layers of Ganea, Bécigneul & Hofmann 2018 and of Lopez & Strube 2020.

``(+)`` is the Möbius sum and ``M (x) x = exp_0(M log_0(x))``. Neither commutes nor associates, so the order of
operands is part of a layer and stated in its formula. Matrices are Euclidean parameters, Glorot uniform; biases,
tables and the points of hyperplanes are points of the ball (``geoopt.ManifoldParameter``), biases zero at the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.gyro_sum import mobius_sum
from hyperbolic.kernels.mlr import lift_hyperplanes, lift_points
from hyperbolic.kernels.mobius import mobius_affine
from hyperbolic.kernels.nonlinearity import NONLINEARITIES, checked
from hyperbolic.kernels.recurrent import mobius_gru, mobius_rnn
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.layers import attention, feedforward, ordered_sum, positions
from hyperbolic.layers.attention import Centroid, DistanceAttention
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_features, check_index, check_table, name_of, takes_points
from hyperbolic.layers.initial import glorot, uniform_table
from hyperbolic.layers.mobius_gru import input_first_gru
from hyperbolic.layers.sequence import Recurrence
from hyperbolic.manifolds import PoincareBall


def _bias(manifold: PoincareBall, *size: int, std: float = 0.0) -> ManifoldParameter:
    start = manifold.random(*size, std=std) if std else torch.zeros(*size)
    return ManifoldParameter(start, manifold=manifold)


class Linear(nn.Module):
    """``(W (x) x) (+) b`` (Ganea et al. 2018, Lemma 6 and Eq. 26).

    Args:
        bias_std: spread of the bias at the start; 0 in Ganea et al., 1e-3 in Lopez & Strube's code.
    """

    def __init__(self, manifold: PoincareBall, d_in: int, d_out: int, bias: bool = True, bias_std: float = 0.0):
        super().__init__()
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        self.weight = nn.Parameter(glorot(torch.empty(d_out, d_in)))
        self.bias = _bias(manifold, d_out, std=bias_std) if bias else None

    extra_repr = shows("d_in", "d_out")

    @takes_points("d_in")
    def forward(self, x: Tensor) -> Tensor:
        points = None if self.bias is None else self.bias.unsqueeze(0)
        return mobius_affine([x], [self.weight], self.manifold.c, points)


class Embedding(nn.Module):
    """Table of n points of the ball, close to the origin at the start (see ``uniform_table``).

    Args:
        sparse: gradients of the rows used only, for an optimiser with ``lazy=True``.
    """

    parameter_role = "embeddings"

    def __init__(
        self,
        manifold: PoincareBall,
        n: int,
        d: int,
        padding_idx: int | None = None,
        init_norm: float = 1e-3,
        sparse: bool = False,
    ):
        super().__init__()
        self.manifold, self.n, self.d, self.sparse = manifold, n, d, sparse
        check_table(self, n, d, padding_idx)
        table = manifold.projx(uniform_table(n, d, init_norm, padding_idx))
        self.weight = ManifoldParameter(table, manifold=manifold)

    extra_repr = shows("n", "d", "sparse")

    def forward(self, index: Tensor) -> Tensor:
        check_index(self, index, self.n)
        return table_rows(self.weight, index, self.sparse)


class Activation(nn.Module):
    """Möbius version ``exp_0(fn(log_0(x)))`` of a pointwise function (Ganea et al. 2018, Eq. 24)."""

    def __init__(self, manifold: PoincareBall, fn: str):
        super().__init__()
        self.manifold, self.fn = manifold, checked(fn)

    extra_repr = shows("fn")

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if self.fn == "identity":
            return x
        return self.manifold.expmap0(NONLINEARITIES[self.fn][0](self.manifold.logmap0(x)))


class Dropout(nn.Module):
    """Dropout of a point.

    Args:
        space: "tangent": ``exp_0(dropout(log_0(x)))``; "coordinates": ``proj(dropout(x))`` on the ball coordinates
            themselves, as Lopez & Strube's code does (there without the projection).
    """

    def __init__(self, manifold: PoincareBall, p: float, space: str = "tangent"):
        super().__init__()
        if space not in ("tangent", "coordinates"):
            raise ValueError(f"dropout space must be 'tangent' or 'coordinates', got {space!r}")
        self.manifold, self.space, self.drop = manifold, space, nn.Dropout(p)

    extra_repr = shows("space")

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop.p == 0:
            return x
        if self.space == "coordinates":
            return self.manifold.projx(self.drop(x))
        return self.manifold.expmap0(self.drop(self.manifold.logmap0(x)))

    def lifted(self, u: Tensor) -> Tensor:
        """``forward(exp_0(u))`` of tangent vectors u (..., d) at the origin, without going there and back."""
        if self.space == "coordinates":
            return self(self.manifold.expmap0(u))
        return self.manifold.expmap0(self.drop(u))


class Concat(nn.Module):
    """``((W_1 (x) x_1 (+) W_2 (x) x_2) (+) ...) (+) b) (+) y_1 (x) b_1 (+) ...``, summed from the left
    (Ganea et al. 2018, end of section 3.2; Lopez & Strube 2020, Eq. 8).

    Args:
        dims: sizes of the points, in the order of the call. d_out: size of the result.
        n_features: number of real features y_j; each scales its own point b_j, added after the bias.
        bias_std: spread of the bias at the start.
    """

    def __init__(
        self,
        manifold: PoincareBall,
        dims: Sequence[int],
        d_out: int,
        bias: bool = True,
        n_features: int = 0,
        bias_std: float = 0.0,
    ):
        super().__init__()
        self.manifold, self.dims, self.d_out = manifold, tuple(dims), d_out
        self.weights = nn.ParameterList(glorot(torch.empty(d_out, d)) for d in dims)
        self.bias = _bias(manifold, d_out, std=bias_std) if bias else None
        self.feature_bias = _bias(manifold, n_features, d_out) if n_features else None

    extra_repr = shows("dims", "d_out")

    @takes_points("dims*")
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., d_i) for every size in dims; features: (..., n_features).

        Raises:
            ValueError: features are missing, not expected, or of another number.
        """
        check_features(self, features)
        points = [p for p in (self.bias, self.feature_bias) if p is not None]
        points = torch.cat([p.view(-1, self.d_out) for p in points]) if points else None
        return mobius_affine(x, list(self.weights), self.manifold.c, points, features)


class RNNCell(nn.Module):
    """``h' = phi((W (x) h (+) U (x) x) (+) b)`` with the Möbius version of phi (Ganea et al. 2018, Eq. 27).

    Args:
        nonlinearity: the identity when left out, as in the published command.
    """

    def __init__(self, manifold: PoincareBall, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__()
        self.manifold, self.d_in, self.d_hidden = manifold, d_in, d_hidden
        self.phi = Activation(manifold, nonlinearity or "identity")
        self.weight_ih = nn.Parameter(glorot(torch.empty(1, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(1, d_hidden, d_hidden)))
        self.bias = _bias(manifold, 1, d_hidden)

    extra_repr = shows("d_in", "d_hidden")

    @takes_points("d_in", "d_hidden")
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.phi(_affine(self, 0, x, self.manifold.mobius_matvec(self.weight_hh[0], h)))


class GRUCell(nn.Module):
    """Möbius GRU (Ganea et al. 2018, Eq. 29-31), parameters stacked in the order r, z, candidate.

    ``r, z = sigma(log_0((W (x) h (+) U (x) x) (+) b))``, ``h~ = phi((W diag(r) (x) h (+) U (x) x) (+) b)`` and
    ``h' = h (+) diag(z) (x) ((-h) (+) h~)``.

    Args:
        nonlinearity: the identity when left out, as in the published command.
    """

    def __init__(self, manifold: PoincareBall, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__()
        self.manifold, self.d_in, self.d_hidden = manifold, d_in, d_hidden
        self.phi = Activation(manifold, nonlinearity or "identity")
        self.weight_ih = nn.Parameter(glorot(torch.empty(3, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(3, d_hidden, d_hidden)))
        self.bias = _bias(manifold, 3, d_hidden)

    extra_repr = shows("d_in", "d_hidden")

    @takes_points("d_in", "d_hidden")
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        ball, w = self.manifold, self.weight_hh
        tangent = ball.logmap0(h)
        gates = [_affine(self, gate, x, ball.expmap0(tangent @ w[gate].T)) for gate in (0, 1)]
        r, z = (torch.sigmoid(ball.logmap0(gate)) for gate in gates)
        new = self.phi(_affine(self, 2, x, ball.expmap0((r * tangent) @ w[2].T)))
        step = z * ball.logmap0(ball.mobius_add(-h, new))
        return ball.mobius_add(h, ball.expmap0(step))


def _affine(cell: nn.Module, gate: int, x: Tensor, wh: Tensor) -> Tensor:
    """``(wh (+) U (x) x) (+) b`` of one gate."""
    ball = cell.manifold
    return ball.mobius_add(ball.mobius_add(wh, ball.mobius_matvec(cell.weight_ih[gate], x)), cell.bias[gate])


class _Recurrent(Recurrence):
    gates: int
    kernel: staticmethod

    def __init__(
        self,
        manifold: PoincareBall,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        bias_std: float = 0.0,
    ):
        sizes = (d_in, d_hidden, self.gates)
        super().__init__(manifold, *sizes, nonlinearity or "identity", bidirectional, streams, concat=Concat)
        self.bias = _bias(manifold, *self.weight_ih.shape[:3], std=bias_std)

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.kernel(x, lengths, self.weight_ih, self.weight_hh, self.bias, self.manifold.c, self.nonlinearity)

    run_both = run  # the kernels know the second direction by the number of cells

    forward = takes_points("d_in")(Recurrence.forward)


class RNN(_Recurrent):
    """:class:`RNNCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes.

    Two directions are joined by the Möbius concatenation. Runs :func:`hyperbolic.kernels.recurrent.mobius_rnn`.
    """

    gates, kernel = 1, staticmethod(mobius_rnn)


class GRU(_Recurrent):
    """:class:`GRUCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes.

    Two directions are joined by the Möbius concatenation. Runs :func:`hyperbolic.kernels.recurrent.mobius_gru`.

    Args:
        variant: "paper"; or "hypera", the order of operands and the second bias of the program of Patel et al., see
            :func:`hyperbolic.layers.mobius_gru.input_first_gru`; several times slower.

    Raises:
        ValueError: another variant.
    """

    gates, kernel = 3, staticmethod(mobius_gru)

    def __init__(
        self,
        manifold: PoincareBall,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        bias_std: float = 0.0,
        variant: str = "paper",
    ):
        super().__init__(manifold, d_in, d_hidden, nonlinearity, bidirectional, streams, bias_std)
        if variant not in ("paper", "hypera"):
            raise ValueError(f"{name_of(self)}: variant must be 'paper' or 'hypera', got {variant!r}")
        self.variant = variant
        if variant == "hypera":
            self.bias_hh = _bias(manifold, *self.bias.shape, std=bias_std)
            self.phi = Activation(manifold, self.nonlinearity)

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        if self.variant == "paper":
            return super().run(x, lengths)
        weights = (self.weight_ih, self.weight_hh, self.bias, self.bias_hh)
        return input_first_gru(self.manifold, x, lengths, *weights, self.phi)

    def run_both(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.run(x, lengths) if self.variant == "paper" else Recurrence.run_both(self, x, lengths)


class Attention(DistanceAttention):
    """Distance attention with Möbius linear queries and keys and the Möbius midpoint (Lopez & Strube 2020)."""

    def __init__(self, manifold: PoincareBall, d: int, n_positions: int = 0, score: str = "distance"):
        super().__init__(manifold, d, Linear, Embedding, manifold.mobius_add, n_positions, score)

    forward = takes_points("d")(DistanceAttention.forward)


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context point, with Möbius linear keys; see
    :class:`hyperbolic.layers.attention.ContextAttention` (Zhang & Gao, Hype-HAN, Eq. 10-12)."""

    def __init__(
        self,
        manifold: PoincareBall,
        d: int,
        score: str = "distance",
        gate: str = "softmax",
        nonlinearity: str | None = None,
    ):
        super().__init__(manifold, d, Linear, score, gate, nonlinearity)


class Residual(feedforward.Residual):
    """``x (+) dropout((W (x) phi(o)) (+) b)``; see :class:`hyperbolic.layers.feedforward.Residual`."""

    linear, activation, drop = Linear, Activation, Dropout

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.manifold.mobius_add(x, y)

    forward = takes_points("d_in", "d_out")(feedforward.Residual.forward)


class FeedForward(feedforward.FeedForward):
    """Two Möbius linear layers and the sum with x; see :class:`hyperbolic.layers.feedforward.FeedForward`."""

    linear, residual = Linear, Residual


class PositionEncoding(positions.PositionEncoding):
    """``dropout(x_t (+) p_t)``; see :class:`hyperbolic.layers.positions.PositionEncoding`."""

    drop = Dropout

    def make(self, start: Tensor) -> ManifoldParameter:
        return ManifoldParameter(self.manifold.expmap0(start), manifold=self.manifold)

    def add(self, x: Tensor, p: Tensor) -> Tensor:
        return self.manifold.mobius_add(x, p)

    forward = takes_points("d")(positions.PositionEncoding.forward)


class Norm(nn.Module):
    """The point itself: Möbius layers keep their points inside, and their papers have no norm."""

    def __init__(self, manifold: PoincareBall, d: int):
        super().__init__()
        self.manifold, self.d = manifold, d

    extra_repr = shows("d")

    @takes_points("d")
    def forward(self, x: Tensor) -> Tensor:
        return x


class OrderedSum(ordered_sum.OrderedSum):
    """``((w_1 (x) x_1 (+) w_2 (x) x_2) (+) w_3 (x) x_3) (+) ...``; see :mod:`hyperbolic.layers.ordered_sum`.

    Runs :func:`hyperbolic.kernels.gyro_sum.mobius_sum`.
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
        self.p = _bias(manifold, n_classes, d, std=point_std)
        self.a = nn.Parameter(glorot(torch.empty(n_classes, d)))

    @property
    def class_points(self) -> Tensor:
        return self.p

    def lifted(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        c = self.manifold.c
        return lift_points(x, c), *lift_hyperplanes(self.p, self.a, c), None


__all__ = [
    "GRU",
    "RNN",
    "Activation",
    "Attention",
    "Centroid",
    "Concat",
    "ContextAttention",
    "Dropout",
    "Embedding",
    "FeedForward",
    "GRUCell",
    "Linear",
    "Logits",
    "Norm",
    "OrderedSum",
    "PositionEncoding",
    "RNNCell",
    "Residual",
]
