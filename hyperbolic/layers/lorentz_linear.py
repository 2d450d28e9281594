"""The Lorentz linear layer of HyboNet (Chen et al., Fully Hyperbolic Neural Networks) in its general form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hyperbolic.kernels.lorentz_rows import normalised_linear, set_time
from hyperbolic.layers.constants import ConstantLayer
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_choice, check_sizes, name_of, takes_points
from hyperbolic.manifolds import Lorentz
from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity
from hyperbolic.numerics import SHEET_RADIUS, limit


@dataclass(frozen=True)
class Variant:
    """What HyboNet's paper, its three released programs and its baseline do differently in the linear layer.

    Args:
        scale, learn_scale: lambda at the start, and whether it is trained (as the exponential of a free scalar).
        bias_in_time: the bias has an entry b' that counts in the time coordinate.
        residual_in_time: the time coordinate of an added point counts in the time of the result.
        raw_time: time is made from the input itself, not from what activation and dropout leave of it.
        start: bound of the uniform weights, from the number of coordinates of outputs and inputs.
        zero_time_column: weights of the input's time coordinate start at 0.
    """

    scale: float
    learn_scale: bool
    bias_in_time: bool
    residual_in_time: bool
    raw_time: bool
    start: Callable[[int, int], float]
    zero_time_column: bool


VARIANTS: dict[str, Variant] = {
    # Eq. 7 and 9, Table 8; "lambda can be either learnable or fixed"
    "paper": Variant(10.0, True, True, False, True, lambda out, in_: 0.02, False),
    # knowledge graphs: one (out, in) matrix for each relation, kaiming uniform on the three-dimensional table of them
    "kg": Variant(2.5, False, False, False, False, lambda out, in_: math.sqrt(6 / (out * in_)), False),
    # graphs
    "gcn": Variant(10.0, True, True, True, False, lambda out, in_: 1 / math.sqrt(out), True),
    # translation
    "mt": Variant(math.exp(2.3), True, True, True, False, lambda out, in_: 0.02, True),
    # what section 3.1 compares with, the linear layers of Lorentz (Tangent) in Table 6; Glorot uniform (ours)
    "tangent": Variant(1.0, False, False, False, False, lambda out, in_: math.sqrt(6 / (out + in_)), False),
}


class Linear(ConstantLayer):
    """``(sqrt(1/c + |y|^2), y)`` with the space part (Chen et al., Eq. 3, 7, 9)

    ``y = sqrt(t^2 - 1/c) / |u| u``, ``u = W h(x) + b``, ``t = (lambda sigmoid(v^T x + b') + epsilon) / sqrt(c)``

    or, without normalisation, ``y = u``: that layer covers all boosts and rotations (Lemma 1), and results beyond the
    stated radius are cut to it. ``weight`` holds the rows ``v, W`` (only W without normalisation),
    (d_out + 1, d_in + 1), with the time coordinate first.

    With variant="tangent" it is ``exp_0(W h(log_0(x)) + b)``, W (d_out, d_in), in any case without normalisation.

    For u = 0, where the formula has no value, ``|u|`` is ``sqrt(|u|^2 + 2^-40)`` and the result the origin.

    Args:
        manifold: hyperboloid of inputs and outputs, any c. d_in, d_out: intrinsic sizes. bias: b and b', 0 at first.
        activation: h, a name in ``NONLINEARITIES``, applied to all coordinates of the input.
        dropout: of the input's coordinates, after h (in the paper's variant before it).
        normalize: as above.
        variant: a key of ``VARIANTS``: the paper's, one of the three released programs (kg, gcn, mt), or tangent. It
            sets the initialisation and what the following options are when left out.
        scale: lambda > 0 (at the start), learn_scale: train it. In units of 1/sqrt(c).
        offset: epsilon > 1, in units of 1/sqrt(c); left out 1.1, as in the programs, which have c = 1.
        bias_in_time, residual_in_time, raw_time: see :class:`Variant`. They, offset, scale and learn_scale belong to
            the normalisation.
        heads: number of layers of this kind side by side, in one product: results (..., heads, D_out). They share
            lambda.

    Raises:
        ValueError: an unknown variant or activation, scale <= 0, offset <= 1, heads < 1, d_out < 1, or without
            normalisation an option of it.
    """

    def __init__(
        self,
        manifold: Lorentz,
        d_in: int,
        d_out: int,
        bias: bool = True,
        activation: str = "identity",
        dropout: float = 0.0,
        normalize: bool = True,
        variant: str = "paper",
        scale: float | None = None,
        learn_scale: bool | None = None,
        offset: float | None = None,
        bias_in_time: bool | None = None,
        residual_in_time: bool | None = None,
        raw_time: bool | None = None,
        heads: int = 1,
    ):
        super().__init__()
        self.manifold, self.d_in, self.d_out, self.heads = manifold, d_in, d_out, heads
        self.activation, self.drop = check_nonlinearity(activation), nn.Dropout(dropout)
        check_choice(f"{name_of(self)}.variant", variant, VARIANTS)
        self.variant, preset = variant, VARIANTS[variant]
        self.normalize = normalize = normalize and variant != "tangent"
        timed = {
            "scale": scale,
            "learn_scale": learn_scale,
            "offset": offset,
            "bias_in_time": bias_in_time,
            "residual_in_time": residual_in_time,
            "raw_time": raw_time,
        }
        unused = [option for option, value in timed.items() if value is not None]
        if unused and not normalize:
            without = "variant='tangent'" if variant == "tangent" else "normalize=False"
            raise ValueError(f"{name_of(self)}: no effect with {without}: {', '.join(unused)}; leave them out")
        scale = preset.scale if scale is None else scale
        self.offset = offset = 1.1 if offset is None else offset
        check_sizes(self, d_in, d_out)
        if not 0 < scale < math.inf or not 1 < offset < math.inf or heads < 1:
            raise ValueError(
                f"{name_of(self)}: needs scale > 0, offset > 1 (units of 1/sqrt(c)) and heads >= 1, got "
                f"scale={scale}, offset={offset}, heads={heads}"
            )
        self.bias_in_time = normalize and (preset.bias_in_time if bias_in_time is None else bias_in_time)
        self.residual_in_time = preset.residual_in_time if residual_in_time is None else residual_in_time
        self.raw_time = preset.raw_time if raw_time is None else raw_time
        rows, columns = d_out + 1 if normalize else d_out, d_in if variant == "tangent" else d_in + 1
        bound = preset.start(d_out + 1, columns)
        weight = torch.empty(heads * rows, columns).uniform_(-bound, bound)
        if preset.zero_time_column:
            weight[:, 0] = 0
        self.weight = nn.Parameter(weight)
        entries = d_out + 1 if self.bias_in_time else d_out
        self.bias = nn.Parameter(torch.zeros(heads * entries)) if bias else None
        self.log_scale = None
        if normalize:
            start = torch.tensor(math.log(scale))
            if preset.learn_scale if learn_scale is None else learn_scale:
                self.log_scale = nn.Parameter(start)
            else:
                self.keep_constant("fixed_scale", scale)

    fixed_scale: Tensor

    @property
    def scale(self) -> Tensor:
        """lambda, a scalar (only with normalisation)."""
        return self.fixed_scale if self.log_scale is None else self.log_scale.exp()

    @takes_points("d_in")
    def forward(self, x: Tensor) -> Tensor:
        """Points (..., D_in) -> (..., D_out), or (..., heads, D_out) for more than one head."""
        return self.join(x)

    def join(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """The layer with another bias, added to ``W h(x) + b`` (Chen et al., Eq. 7).

        Args: x (..., D_in) points; added (..., D_out), a point or vector whose first coordinate counts in the time of
            the result where ``residual_in_time`` says so, or (..., d_out), a vector that counts in the space part.
            Leading axes broadcast; only for one head. With variant="tangent" a point counts by its ``log_0``.
        Returns: (..., D_out).
        """
        # the number of axes first: shapes of other lengths would be compared entry by entry, which torch.export records
        if added is not None and (added.dim() != x.dim() or added.shape[:-1] != x.shape[:-1]):
            x = x.expand(*torch.broadcast_shapes(added.shape[:-1], x.shape[:-1]), x.shape[-1])
        if self.variant == "tangent":
            return self._through_tangent_space(x, added)
        lead, size, c = x.shape[:-1], self.d_out + 1, self.manifold.c
        x = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
        inner, parameters = self._inner(x), self._parameters_with_time()
        if added is not None:
            added = added if added.shape[-1] < size or self.residual_in_time else added[..., 1:]
            added = added.expand(*lead, added.shape[-1]).reshape(-1, added.shape[-1])
        if self.normalize:
            raw = x if self.raw_time and inner is not x else None
            y = normalised_linear(inner, *parameters, self.scale, c, self.offset, self.heads, raw, added)
        else:
            y = nn.functional.linear(inner, *parameters)
            if added is not None:
                y = y + nn.functional.pad(added, (size - added.shape[-1], 0))
            y = set_time(self._inside(y), c, self.heads)
        if self.heads > 1:
            return y.view(*lead, self.heads, size)
        return y if len(lead) == 1 else y.view(*lead, size)

    def _through_tangent_space(self, x: Tensor, added: Tensor | None) -> Tensor:
        u = nn.functional.linear(self._inner(self.manifold.logmap0(x)), self.weight, self.bias)
        if added is not None:
            u = u + (self.manifold.logmap0(added) if added.shape[-1] > self.d_out else added)
        return self.manifold.expmap0(u if self.heads == 1 else u.unflatten(-1, (self.heads, self.d_out)))

    def _parameters_with_time(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias with a row and an entry for the time coordinate of each head, 0 where there is none."""
        weight = self.weight if self.normalize else self._with_time(self.weight)
        if self.bias is None or self.bias_in_time:
            return weight, self.bias
        return weight, self._with_time(self.bias)

    def _inner(self, x: Tensor) -> Tensor:
        """What activation and dropout leave of the coordinates: x itself where they do nothing."""
        drop = self.training and self.drop.p > 0
        if drop and self.variant == "paper":
            x = self.drop(x)
        if self.activation != "identity":
            x = NONLINEARITIES[self.activation](x)
        return self.drop(x) if drop and self.variant != "paper" else x

    def _inside(self, y: Tensor) -> Tensor:
        """Rows (n, heads * D) whose space parts are cut to the stated radius."""
        y = y.unflatten(-1, (self.heads, self.d_out + 1))
        longest = math.sinh(limit(SHEET_RADIUS, y.dtype)) * self.manifold.c.rsqrt()
        length = torch.linalg.vector_norm(y[..., 1:], dim=-1, keepdim=True, dtype=torch.float64)
        outside = length > longest
        return (y * torch.where(outside, longest / torch.where(outside, length, 1), 1).to(y.dtype)).flatten(-2)

    def _with_time(self, parameter: Tensor) -> Tensor:
        """A zero for the time coordinate in front of each head's rows."""
        split = parameter.unflatten(0, (self.heads, self.d_out))
        return nn.functional.pad(split, (0, 0) * (parameter.dim() - 1) + (1, 0)).flatten(0, 1)

    extra_repr = shows("d_in", "d_out", "variant", "normalize", "heads", "activation")


__all__ = ["VARIANTS", "Linear", "Variant"]
