"""The linear layer, the activation and the concatenation of the Euclidean family."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_choice, check_features, check_sizes, name_of, takes_points
from hyperbolic.layers.initial import glorot
from hyperbolic.manifolds import Manifold
from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity


class Linear(nn.Module):
    """``W x + b``.

    Args:
        init: "glorot": W Glorot uniform, b = 0; "fan_in": both from ``U(-d_in^-1/2, d_in^-1/2)``, as
            ``torch.nn.Linear``.
        weight_dropout: share of the entries of W that a training step leaves out.

    Raises:
        ValueError: another init.
    """

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_out: int,
        bias: bool = True,
        init: str = "glorot",
        weight_dropout: float = 0.0,
    ):
        super().__init__()
        check_choice(f"{name_of(self)}.init", init, ("glorot", "fan_in"))
        check_sizes(self, d_in, d_out)
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        bound = 0.0 if init == "glorot" else d_in**-0.5
        weight = torch.empty(d_out, d_in)
        self.weight = nn.Parameter(weight.uniform_(-bound, bound) if bound else glorot(weight))
        self.bias = nn.Parameter(torch.empty(d_out).uniform_(-bound, bound)) if bias else None
        self.drop_weight = nn.Dropout(weight_dropout)

    extra_repr = shows("d_in", "d_out")

    @takes_points("d_in", flat=True)
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.drop_weight(self.weight), self.bias)


class Activation(nn.Module):
    """Pointwise ``fn``, a name in ``NONLINEARITIES``."""

    def __init__(self, manifold: Manifold, fn: str):
        super().__init__()
        self.manifold, self.fn = manifold, check_nonlinearity(fn)

    extra_repr = shows("fn")

    @takes_points(None, flat=True)
    def forward(self, x: Tensor) -> Tensor:
        return NONLINEARITIES[self.fn](x)


class Concat(nn.Module):
    """``sum_i W_i x_i + b + sum_j y_j b_j``: a linear layer on joined vectors x_i and real features y_j.

    Args:
        dims: sizes of the inputs, in the order of the call. d_out: size of the result.
        n_features: number of real features; each has its own direction b_j, from zero.
    """

    def __init__(self, manifold: Manifold, dims: Sequence[int], d_out: int, bias: bool = True, n_features: int = 0):
        super().__init__()
        self.manifold, self.dims, self.d_out = manifold, tuple(dims), d_out
        self.weights = nn.ParameterList(glorot(torch.empty(d_out, d)) for d in dims)
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None
        self.feature_bias = nn.Parameter(torch.zeros(n_features, d_out)) if n_features else None

    extra_repr = shows("dims", "d_out")

    @takes_points("dims*", flat=True)
    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., d_i) for every size in dims; features: (..., n_features).
        Raises:
            ValueError: features are missing, not expected, or of another number.
        """
        check_features(self, features)
        terms = [nn.functional.linear(x_i, w) for x_i, w in zip(x, self.weights, strict=True)]
        out = functools.reduce(torch.add, terms)
        if self.bias is not None:
            out = out + self.bias
        return out if features is None or self.feature_bias is None else out + features @ self.feature_bias
