"""Layers of the Möbius family that others of it are made of: a matrix and a bias, a pointwise function, a concatenation
(Ganea, Bécigneul & Hofmann 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.mobius_linear import mobius_affine
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_features, check_sizes, describe, takes_points
from hyperbolic.layers.initial import glorot
from hyperbolic.layers.points import PointLayer
from hyperbolic.manifolds import PoincareBall
from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity


def ball_parameter(manifold: PoincareBall, *size: int, std: float = 0.0) -> ManifoldParameter:
    """Points of the ball (*size) that are trained; at the start the origin, or spread by `std`. Raises ValueError for
    another manifold."""
    if not isinstance(manifold, PoincareBall):
        raise ValueError(f"mobius: the family is defined on PoincareBall, got {describe(manifold)}")
    start = manifold.random(*size, std=std) if std else torch.zeros(*size)
    return ManifoldParameter(start, manifold=manifold)


class Linear(PointLayer):
    """``(W (x) x) (+) b`` (Ganea et al. 2018, Lemma 6 and Eq. 26).

    Args:
        bias_std: spread of the bias at the start; 0 in Ganea et al., 1e-3 in Lopez & Strube's code.
        gain: W starts Glorot uniform times this; sqrt(2) in HGCN's code (Chami et al. 2019).
        weight_dropout: share of the entries of W that a training step leaves out, as HGCN's code does.
        tangent_bias: ``b = exp_0(v)`` of a Euclidean vector v, which is what is trained, as in HGCN's code; else b is.
            The optimiser then scales each coordinate by itself, and not the whole step by its length.
    """

    def __init__(
        self,
        manifold: PoincareBall,
        d_in: int,
        d_out: int,
        bias: bool = True,
        bias_std: float = 0.0,
        gain: float = 1.0,
        weight_dropout: float = 0.0,
        tangent_bias: bool = False,
    ):
        super().__init__()
        check_sizes(self, d_in, d_out)
        self.manifold, self.d_in, self.d_out, self.tangent_bias = manifold, d_in, d_out, tangent_bias
        self.weight = nn.Parameter(gain * glorot(torch.empty(d_out, d_in)))
        self.drop_weight = nn.Dropout(weight_dropout)
        start: nn.Parameter | None = ball_parameter(manifold, d_out, std=bias_std) if bias else None
        if start is not None and tangent_bias:
            start = nn.Parameter(manifold.logmap0(start.detach()).as_subclass(Tensor))
        self.bias = start

    extra_repr = shows("d_in", "d_out")

    @takes_points("d_in")
    def forward(self, x: Tensor) -> Tensor:
        points = None if self.bias is None else self.bias.unsqueeze(0)
        if points is not None:
            points = self.manifold.expmap0(points) if self.tangent_bias else self.inside(points)
        return mobius_affine([x], [self.drop_weight(self.weight)], self.manifold.c, points)


class Activation(nn.Module):
    """Möbius version ``exp_0(fn(log_0(x)))`` of a pointwise function (Ganea et al. 2018, Eq. 24)."""

    def __init__(self, manifold: PoincareBall, fn: str):
        super().__init__()
        self.manifold, self.fn = manifold, check_nonlinearity(fn)

    extra_repr = shows("fn")

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if self.fn == "identity":
            return x
        return self.manifold.expmap0(NONLINEARITIES[self.fn](self.manifold.logmap0(x)))


class Concat(PointLayer):
    """``((W_1 (x) x_1 (+) W_2 (x) x_2) (+) ...) (+) b) (+) y_1 (x) b_1 (+) ...``, summed from the left
    (Ganea et al. 2018, end of section 3.2; Lopez & Strube 2020, Eq. 7).

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
        self.bias = ball_parameter(manifold, d_out, std=bias_std) if bias else None
        self.feature_bias = ball_parameter(manifold, n_features, d_out) if n_features else None

    extra_repr = shows("dims", "d_out")

    @takes_points("dims*")
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., d_i) for every size in dims; features: (..., n_features).

        Raises:
            ValueError: features are missing, not expected, or of another number.
        """
        check_features(self, features)
        rows = [p.view(-1, self.d_out) for p in (self.bias, self.feature_bias) if p is not None]
        points = self.inside(torch.cat(rows)) if rows else None
        return mobius_affine(x, list(self.weights), self.manifold.c, points, features)
