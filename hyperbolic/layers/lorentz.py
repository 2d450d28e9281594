"""The Lorentz family of HyboNet (Chen et al., Fully Hyperbolic Neural Networks), on the hyperboloid of any curvature.

Layers act on the coordinates of points, not in tangent spaces; the time coordinate of every result is recomputed.
Recurrent layers, which HyboNet has not, are those of the tangent family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.lorentz import lift
from hyperbolic.kernels.nonlinearity import NONLINEARITIES, checked
from hyperbolic.layers import feedforward, positions
from hyperbolic.layers.attention import Centroid
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.guard import name_of, takes_points
from hyperbolic.layers.initial import glorot, uniform_table
from hyperbolic.layers.lorentz_attention import Attention, ContextAttention, MultiHeadAttention
from hyperbolic.layers.lorentz_linear import Linear
from hyperbolic.layers.tangent import GRU, RNN, GRUCell, RNNCell
from hyperbolic.manifolds import Lorentz
from hyperbolic.numerics import sqnorm, wide

_TINY = 1e-76  # keeps |a| positive; its root is below every float32 number


def _unit_points(manifold: Lorentz, n: int, d: int) -> Tensor:
    """HyboNet's start: normal vectors of d + 1 entries made unit, their space parts through exp_0; the points lie at
    most ``1/sqrt(c)`` from the origin."""
    vector = nn.functional.normalize(torch.randn(n, d + 1), dim=-1)[:, 1:]
    return manifold.expmap0(vector / math.sqrt(float(manifold.c.detach())))


class Embedding(nn.Module):
    """Table of n points of the hyperboloid.

    Args:
        padding_idx: this row starts at the origin.
        init_norm: size of the rows at the start, see ``uniform_table``; not used for start="unit".
        start: "small", rows near the origin, or "unit", as in HyboNet: points up to ``1/sqrt(c)`` from the origin.

    Raises:
        ValueError: another start.
    """

    parameter_role = "embeddings"

    def __init__(
        self,
        manifold: Lorentz,
        n: int,
        d: int,
        padding_idx: int | None = None,
        init_norm: float = 1e-3,
        start: str = "small",
    ):
        super().__init__()
        self.manifold = manifold
        if start == "unit":
            table = _unit_points(manifold, n, d)
            if padding_idx is not None:
                table[padding_idx] = manifold.origin(d)
        elif start == "small":
            table = manifold.expmap0(uniform_table(n, d, init_norm, padding_idx))
        else:
            raise ValueError(f"{name_of(self)}: start must be 'small' or 'unit', got {start!r}")
        self.weight = ManifoldParameter(table, manifold=manifold)

    def forward(self, index: Tensor) -> Tensor:
        """Indices (...) -> points (..., D)."""
        return nn.functional.embedding(index, self.weight)


class Activation(nn.Module):
    """``(sqrt(1/c + |fn(s)|^2), fn(s))``: a pointwise function of the space coordinates s.

    HyboNet has no such layer; its activations act on the input of a linear layer (``Linear(activation=...)``).
    """

    def __init__(self, manifold: Lorentz, fn: str):
        super().__init__()
        self.manifold, self.fn = manifold, checked(fn)

    @takes_points(None)
    def forward(self, x: Tensor) -> Tensor:
        if self.fn == "identity":
            return x
        return lift(NONLINEARITIES[self.fn][0](x[..., 1:]), self.manifold.c)


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

    @takes_points("dims*")
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., D_i) for every size in dims; features: (..., n_features).
        Raises:
            ValueError: features without n_features > 0 or the reverse, or another number of them.
        """
        wanted = 0 if self.feature_bias is None else len(self.feature_bias)
        if wanted != (0 if features is None else features.shape[-1]):
            given = None if features is None else tuple(features.shape)
            raise ValueError(f"{name_of(self)}: takes features (..., {wanted}), got the shape {given}")
        lead = torch.broadcast_shapes(*(x_i.shape[:-1] for x_i in x))
        joined = lift(torch.cat([x_i[..., 1:].expand(*lead, -1) for x_i in x], -1), self.manifold.c)
        return self.affine.join(joined, None if features is None else features @ self.feature_bias)


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
    (Chen et al., section 3.3); p from N(0, 0.02^2).

    Args:
        dropout: of the input of the linear layer (0.1 in the released program).
        variant: of the linear layer; for "mt" the vectors have an entry that counts in the time coordinate.
    """

    drop = Dropout

    def __init__(self, manifold: Lorentz, d: int, n_positions: int, dropout: float = 0.0, variant: str = "paper"):
        super().__init__(manifold, d, n_positions, 0.0)
        self.affine = Linear(manifold, d, d, dropout=dropout, variant=variant)
        if self.affine.residual_in_time:
            self.table = nn.Parameter(0.02 * torch.randn(n_positions, d + 1))

    def add(self, x: Tensor, p: Tensor) -> Tensor:
        return self.affine.join(x, p)

    forward = takes_points("d")(positions.PositionEncoding.forward)


class Norm(nn.Module):
    """The identity: a Lorentz linear layer normalises already, and HyboNet's Transformer has no layer norm."""

    def __init__(self, manifold: Lorentz, d: int):
        super().__init__()
        self.manifold, self.d = manifold, d

    @takes_points("d")
    def forward(self, x: Tensor) -> Tensor:
        return x


class Logits(ClassLogits):
    """``-d_L^2(x, t_k) / alpha_k + beta_k = (2/c + 2 <x, t_k>_L) / alpha_k + beta_k`` with class points t_k (Chen et
    al., A.2); ``d_L^2 = -2/c - 2 <x, t>_L`` is the squared Lorentz distance.

    Args:
        d: intrinsic size. n_classes: number K of classes.
        learn_alpha: train alpha > 0, 1 at the start. False: alpha = 1, the output layer of HyboNet's translation and
            node classification.
    """

    def __init__(self, manifold: Lorentz, d: int, n_classes: int, learn_alpha: bool = True):
        super().__init__(manifold, d, n_classes)
        self.points = ManifoldParameter(_unit_points(manifold, n_classes, d), manifold=manifold)
        self.bias = nn.Parameter(torch.zeros(n_classes))
        self.log_alpha = nn.Parameter(torch.zeros(n_classes)) if learn_alpha else None

    def lifted(self, x: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        w = 2 * torch.cat([-self.points[:, :1], self.points[:, 1:]], -1)
        shift = (2 / self.manifold.c).to(x.dtype)
        if self.log_alpha is None:
            return x, w, None, self.bias + shift
        inverse = torch.exp(-self.log_alpha)
        return x, w * inverse.unsqueeze(-1), None, self.bias + shift * inverse


class HyperplaneLogits(ClassLogits):
    """``|a_k| / sqrt(c) arsinh(sqrt(c) <x, w_k>_L / |a_k|)``: signed distance from the hyperplane through p_k with the
    normal w_k, times its length, where w_k is a_k moved from the origin to p_k (Bdeir et al. 2024).

    The same as Ganea's logits (2018, Eq. 23) of the isometric ball points, whose normals at the origin are ``a_k / 2``.

    Args:
        d: intrinsic size. n_classes: number K of classes. Points p_k start at the origin, a_k Glorot uniform.
    """

    def __init__(self, manifold: Lorentz, d: int, n_classes: int):
        super().__init__(manifold, d, n_classes)
        self.p = ManifoldParameter(manifold.origin(n_classes, d), manifold=manifold)
        self.a = nn.Parameter(glorot(torch.empty(n_classes, d)))

    def lifted(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        c, a = self.manifold.c, wide(self.a)
        norm = (sqnorm(a) + _TINY).sqrt()
        w = self.manifold.transp0(self.p, a) * (c.sqrt() / norm)
        w = torch.cat([-w[:, :1], w[:, 1:]], -1)
        return x, w.to(x.dtype), (norm * c.rsqrt()).squeeze(-1).to(x.dtype), None


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
    "MultiHeadAttention",
    "Norm",
    "PositionEncoding",
    "RNNCell",
    "Residual",
]
