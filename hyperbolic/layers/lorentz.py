"""The Lorentz family of HyboNet (Chen et al., Fully Hyperbolic Neural Networks), on the hyperboloid of any curvature.

Layers act on the coordinates of points, not in tangent spaces; the time coordinate of every result is recomputed.
Recurrent layers, which HyboNet has not, are those of the tangent family.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.lorentz_rows import lift, normalised_mean
from hyperbolic.kernels.mobius_sum import mobius_sum
from hyperbolic.layers import aggregation, feedforward, ordered_sum, positions
from hyperbolic.layers.attention import Centroid
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import (
    check_choice,
    check_features,
    name_of,
    takes_points,
)
from hyperbolic.layers.initial import uniform_table
from hyperbolic.layers.lorentz_attention import Attention, ContextAttention, MultiHeadAttention
from hyperbolic.layers.lorentz_linear import Linear
from hyperbolic.layers.lorentz_logits import HyperplaneLogits, Logits, unit_points
from hyperbolic.layers.neighbours import Neighbours
from hyperbolic.layers.points import PointTable
from hyperbolic.layers.tangent import GRU, RNN, GRUCell, RNNCell
from hyperbolic.manifolds import Lorentz
from hyperbolic.manifolds.charts import lorentz_to_poincare, poincare_to_lorentz
from hyperbolic.manifolds.lorentz import lorentz_distance2
from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity
from hyperbolic.numerics import wide


class Embedding(PointTable):
    """Table of n points of the hyperboloid.

    While c is trained, it moves the sheet away also from rows that an optimiser leaves alone: the space parts are what
    the table keeps, and the time coordinates of the rows looked up follow from them.

    Args:
        padding_idx: this row starts at the origin; it is trained like the others, unlike that of torch's Embedding.
        init_norm: size of the rows at the start, see ``uniform_table``; not used for start="unit".
        sparse: gradients of the rows used only, for an optimiser with ``lazy=True``.
        start: "small", rows near the origin, or "unit", as in HyboNet: points up to ``1/sqrt(c)`` from the origin.

    Raises:
        ValueError: another start.
    """

    max_radius: float | None = None  # of the points, which the optimiser keeps

    def __init__(
        self,
        manifold: Lorentz,
        n: int,
        d: int,
        padding_idx: int | None = None,
        init_norm: float = 1e-3,
        sparse: bool = False,
        start: str = "small",
    ):
        super().__init__(manifold, n, d, padding_idx, sparse)
        check_choice(f"{name_of(self)}.start", start, ("small", "unit"))
        if start == "unit":
            table = unit_points(manifold, n, d)
            if padding_idx is not None:
                table[padding_idx] = manifold.origin(d)
        else:
            table = manifold.expmap0(uniform_table(n, d, init_norm, padding_idx))
        self.weight = ManifoldParameter(table, manifold=manifold)


class Activation(nn.Module):
    """``(sqrt(1/c + |fn(s)|^2), fn(s))``: a pointwise function of the space coordinates s.

    HyboNet has no such layer; its activations act on the input of a linear layer (``Linear(activation=...)``).
    """

    def __init__(self, manifold: Lorentz, fn: str):
        super().__init__()
        self.manifold, self.fn = manifold, check_nonlinearity(fn)

    extra_repr = shows("fn")

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if self.fn == "identity":
            return x
        return lift(NONLINEARITIES[self.fn](x[..., 1:]), self.manifold.c)


class Dropout(nn.Module):
    """``(sqrt(1/c + |s'|^2), s')`` with ``s' = dropout(s)`` of the space coordinates s.

    HyboNet drops coordinates too (``Linear(dropout=...)``). The factor 1/(1-p) moves a far point out by
    ``log(1/(1-p))``, at most to the stated radius, whereas in the tangent space it would multiply its distance from the
    origin.
    """

    def __init__(self, manifold: Lorentz, p: float):
        super().__init__()
        self.manifold, self.drop = manifold, nn.Dropout(p)

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop.p == 0:
            return x
        return self.manifold.projx(torch.cat([x[..., :1], self.drop(x[..., 1:])], -1))

    def from_tangent(self, u: Tensor) -> Tensor:
        """See :meth:`hyperbolic.layers.mobius.Dropout.from_tangent`."""
        result: Tensor = self(self.manifold.expmap0(u))
        return result


class Concat(nn.Module):
    """A Lorentz linear layer of ``(t, s_1 | ... | s_n)``, ``t = sqrt(1/c + sum |s_i|^2)``: points are joined by their
    space parts, side by side, as the heads of an attention are (Chen et al., Eq. 6 and A.2).

    Args:
        dims: intrinsic sizes of the points, in the order of the call. d_out: intrinsic size of the result.
        n_features: number of real features y_j; ``sum_j y_j b_j`` is added to the bias, the vectors b_j from zero.
        variant: of the linear layer, see :class:`Linear`.
    """

    def __init__(
        self,
        manifold: Lorentz,
        dims: Sequence[int],
        d_out: int,
        bias: bool = True,
        n_features: int = 0,
        variant: str = "paper",
    ):
        super().__init__()
        self.manifold, self.dims, self.d_out = manifold, tuple(dims), d_out
        self.affine = Linear(manifold, sum(self.dims), d_out, bias, variant=variant)
        self.feature_bias = nn.Parameter(torch.zeros(n_features, d_out)) if n_features else None

    extra_repr = shows("dims", "d_out")

    @takes_points("dims*")
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., D_i) for every size in dims; features: (..., n_features).
        Raises:
            ValueError: features are missing, not expected, or of another number.
        """
        check_features(self, features)
        lead = torch.broadcast_shapes(*(x_i.shape[:-1] for x_i in x))
        joined = lift(torch.cat([x_i[..., 1:].expand(*lead, -1) for x_i in x], -1), self.manifold.c)
        added = None if features is None or self.feature_bias is None else features @ self.feature_bias
        return self.affine.join(joined, added)


class Residual(nn.Module):
    """The Lorentz linear layer of o that has the block's input x as its bias (Chen et al., Eq. 7).

    ``u = W h(o) + x_s [+ b]``, ``t = (lambda sigmoid(v^T o) + epsilon) / sqrt(c)``, scaled as in :class:`Linear`; in
    the released program for translation (variant="mt") ``t = (lambda sigmoid(v^T h(o) + x_0) + epsilon) / sqrt(c)``.

    Args:
        d_in: intrinsic size of o. d_out: intrinsic size of x and of the result. activation: h. dropout: of o.
        bias: also have b (and b'); Eq. 7 has none.
    """

    def __init__(
        self,
        manifold: Lorentz,
        d_in: int,
        d_out: int,
        activation: str = "identity",
        dropout: float = 0.0,
        variant: str = "paper",
        bias: bool = False,
    ):
        super().__init__()
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        self.affine = Linear(manifold, d_in, d_out, bias, activation, dropout, variant=variant)

    extra_repr = shows("d_in", "d_out")

    @takes_points("d_in", "d_out")
    def forward(self, o: Tensor, x: Tensor) -> Tensor:
        """Points o (..., D_in) and x (..., D_out) -> (..., D_out)."""
        return self.affine.join(o, x)


class FeedForward(feedforward.FeedForward):
    """``Residual(Linear(x), x)``; see :class:`hyperbolic.layers.feedforward.FeedForward`.

    Args:
        dropout: of the input of the second layer. variant: of both layers, see :class:`Linear`.
    """

    def __init__(
        self,
        manifold: Lorentz,
        d: int,
        d_hidden: int,
        activation: str = "relu",
        dropout: float = 0.0,
        variant: str = "paper",
    ):
        nn.Module.__init__(self)
        self.manifold, self.d, self.d_hidden = manifold, d, d_hidden
        self.expand = Linear(manifold, d, d_hidden, variant=variant)
        self.join = Residual(manifold, d_hidden, d, activation, dropout, variant)


class PositionEncoding(positions.PositionEncoding):
    """A Lorentz linear layer, the same for all positions, that has the vector p_t of the position as its bias
    (Chen et al., section 3.3); p from N(0, 0.02^2). It has no other bias, neither b nor b'.

    Args:
        dropout: of the input of the linear layer. input_dropout: instead of it, where a model gives the dropout of all
            its layers (0.1 in the released program, whatever the others have).
        variant: of the linear layer; for "mt" the vectors have an entry that counts in the time coordinate.
    """

    drop = Dropout

    def __init__(
        self,
        manifold: Lorentz,
        d: int,
        n_positions: int,
        dropout: float = 0.0,
        variant: str = "paper",
        input_dropout: float | None = None,
    ):
        super().__init__(manifold, d, n_positions, 0.0)
        dropout = dropout if input_dropout is None else input_dropout
        self.affine = Linear(manifold, d, d, bias=False, dropout=dropout, variant=variant)
        if self.affine.residual_in_time:
            self.table = nn.Parameter(0.02 * torch.randn(n_positions, d + 1))

    def add(self, x: Tensor, p: Tensor) -> Tensor:
        return self.affine.join(x, p)

    forward = takes_points("d")(positions.PositionEncoding.forward)


class Norm(feedforward.NoNorm):
    """The identity: a Lorentz linear layer normalises already, and HyboNet's Transformer has no layer norm."""


class OrderedSum(ordered_sum.OrderedSum):
    """The Möbius sum of :class:`hyperbolic.layers.mobius.OrderedSum` through the isometry: the gyroaddition
    ``x (+) y = exp_x(PT_{0->x}(log_0(y)))`` is the same in every model (Ungar 2008), and HyboNet has none of its own.

    Worked out in float64, as far points of the hyperboloid lie beyond what a float32 ball has.
    """

    def total(self, x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
        c = self.manifold.c
        total = mobius_sum(lorentz_to_poincare(wide(x), c), c, None if weights is None else wide(weights), mask)
        return self.manifold.projx(poincare_to_lorentz(total, c).to(x.dtype))


class Aggregation(aggregation.Aggregation):
    """The Lorentz centroid of a node's neighbours (Chen et al., A.1), in the precision of the points; distances are
    squared Lorentz distances ``d_L^2 = -2/c - 2 <x, y>_L``. See :class:`hyperbolic.layers.aggregation.Aggregation`."""

    linear = Linear

    def midpoint(self, x: Tensor, neighbours: Neighbours, weights: Tensor) -> Tensor:
        return normalised_mean(neighbours.sum(x, weights.to(x.dtype)), self.manifold.c)

    def squared_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return lorentz_distance2(x, y)


__all__ = [
    "GRU", "RNN", "Activation", "Aggregation", "Attention", "Centroid", "Concat", "ContextAttention", "Dropout",
    "Embedding", "FeedForward", "GRUCell", "HyperplaneLogits", "Linear", "Logits", "MultiHeadAttention", "Norm",
    "OrderedSum", "PositionEncoding", "RNNCell", "Residual",
]  # fmt: skip
