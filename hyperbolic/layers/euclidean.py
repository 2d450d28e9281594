"""The Euclidean family: the twins of the hyperbolic layers, with the same equations where ``c = 0``.

Recurrent cells follow Ganea et al. 2018 (Eq. 28: the reset gate acts before the matrix, which is not
``torch.nn.GRU``), so that they are the limit of the Möbius cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hyperbolic.kernels.nonlinearity import NONLINEARITIES, checked
from hyperbolic.layers.attention import Centroid, DistanceAttention
from hyperbolic.layers.initial import glorot, uniform_table
from hyperbolic.layers.sequence import Recurrence
from hyperbolic.manifolds import Manifold


class Linear(nn.Module):
    """``W x + b``; W Glorot uniform, b = 0."""

    def __init__(self, manifold: Manifold, d_in: int, d_out: int, bias: bool = True):
        super().__init__()
        self.manifold = manifold
        self.weight = nn.Parameter(glorot(torch.empty(d_out, d_in)))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Embedding(nn.Module):
    """Table of n vectors. The row of ``padding_idx`` starts at zero."""

    def __init__(self, manifold: Manifold, n: int, d: int, padding_idx: int | None = None, init_norm: float = 1e-3):
        super().__init__()
        self.manifold = manifold
        self.weight = nn.Parameter(uniform_table(n, d, init_norm, padding_idx))

    def forward(self, index: Tensor) -> Tensor:
        return nn.functional.embedding(index, self.weight)


class Activation(nn.Module):
    """Pointwise ``fn``, a name in ``NONLINEARITIES``."""

    def __init__(self, manifold: Manifold, fn: str):
        super().__init__()
        self.manifold, self.fn = manifold, checked(fn)

    def forward(self, x: Tensor) -> Tensor:
        return NONLINEARITIES[self.fn][0](x)


class Dropout(nn.Module):
    """Dropout on the coordinates."""

    def __init__(self, manifold: Manifold, p: float):
        super().__init__()
        self.manifold, self.drop = manifold, nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x)


class Concat(nn.Module):
    """``sum_i W_i x_i + b + sum_j y_j b_j``: a linear layer on joined vectors x_i and real features y_j.

    Args:
        dims: sizes of the inputs, in the order of the call. d_out: size of the result.
        n_features: number of real features; each has its own direction b_j, from zero.
    """

    def __init__(self, manifold: Manifold, dims: Sequence[int], d_out: int, bias: bool = True, n_features: int = 0):
        super().__init__()
        self.manifold = manifold
        self.weights = nn.ParameterList(glorot(torch.empty(d_out, d)) for d in dims)
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None
        self.feature_bias = nn.Parameter(torch.zeros(n_features, d_out)) if n_features else None

    def forward(self, *x: Tensor, features: Tensor | None = None) -> Tensor:
        """
        Args: x: one tensor (..., d_i) for every size in dims; features: (..., n_features).
        """
        out = sum(nn.functional.linear(x_i, w) for x_i, w in zip(x, self.weights, strict=True))
        if self.bias is not None:
            out = out + self.bias
        return out if self.feature_bias is None else out + features @ self.feature_bias


class RNNCell(nn.Module):
    """``h' = phi(W h + U x + b)`` (Ganea et al. 2018, before Eq. 27)."""

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__()
        self.manifold, self.nonlinearity = manifold, checked(nonlinearity or "tanh")
        self.weight_ih = nn.Parameter(glorot(torch.empty(1, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(1, d_hidden, d_hidden)))
        self.bias = nn.Parameter(torch.zeros(1, d_hidden))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        affine = h @ self.weight_hh[0].T + x @ self.weight_ih[0].T + self.bias[0]
        return NONLINEARITIES[self.nonlinearity][0](affine)


class GRUCell(nn.Module):
    """``r, z = sigma(W h + U x + b)``, ``h~ = phi(W (r h) + U x + b)``, ``h' = h + z (h~ - h)`` (Eq. 28).

    Parameters are stacked in the order r, z, candidate.
    """

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__()
        self.manifold, self.nonlinearity = manifold, checked(nonlinearity or "tanh")
        self.weight_ih = nn.Parameter(glorot(torch.empty(3, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(3, d_hidden, d_hidden)))
        self.bias = nn.Parameter(torch.zeros(3, d_hidden))

    def _affine(self, gate: int, x: Tensor, h: Tensor) -> Tensor:
        return h @ self.weight_hh[gate].T + x @ self.weight_ih[gate].T + self.bias[gate]

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        r, z = torch.sigmoid(self._affine(0, x, h)), torch.sigmoid(self._affine(1, x, h))
        new = NONLINEARITIES[self.nonlinearity][0](self._affine(2, x, r * h))
        return h + z * (new - h)


class _Recurrent(Recurrence):
    """Input side of all steps hoisted, batch on the last axis, cells side by side."""

    def __init__(self, manifold, d_in, d_hidden, gates, nonlinearity, bidirectional, streams):
        super().__init__(manifold, d_in, d_hidden, gates, nonlinearity or "tanh", bidirectional, streams, concat=Concat)
        self.bias = nn.Parameter(torch.zeros(self.weight_ih.shape[:3]))

    def _cell(self) -> Callable[[Tensor, Tensor, Tensor | float], Tensor]:
        """The step (h, u, mask) -> h' with its weights laid out once for all steps."""
        raise NotImplementedError

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        streams, batch, steps, _ = x.shape
        u = self.weight_ih.flatten(1, 2) @ x.permute(2, 0, 3, 1) + self.bias.flatten(1, 2).unsqueeze(-1)
        masks: Sequence[Tensor | float] = [1.0] * steps
        if lengths is not None:
            positions = torch.arange(steps, device=x.device).view(-1, 1, 1, 1)
            masks = (positions < lengths.unsqueeze(1)).to(x.dtype).unbind(0)
        step = self._cell()
        h = x.new_zeros(streams, self.d_hidden, batch)
        states = []
        for u_t, mask in zip(u.unbind(0), masks, strict=True):
            h = step(h, u_t, mask)
            states.append(h)
        states = torch.stack(states)
        if states.requires_grad:
            # the gradient comes with the batch strided, which every step would inherit
            states.register_hook(torch.Tensor.contiguous)
        return states.permute(1, 3, 0, 2)


class RNN(_Recurrent):
    """:class:`RNNCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes."""

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
    ):
        super().__init__(manifold, d_in, d_hidden, 1, nonlinearity, bidirectional, streams)

    def _cell(self):
        weight, phi = self.weight_hh[:, 0], NONLINEARITIES[self.nonlinearity][0]

        def step(h: Tensor, u: Tensor, mask: Tensor | float) -> Tensor:
            new = phi(torch.baddbmm(u, weight, h))
            return torch.lerp(h, new, mask) if isinstance(mask, Tensor) else new

        return step


class GRU(_Recurrent):
    """:class:`GRUCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes."""

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
    ):
        super().__init__(manifold, d_in, d_hidden, 3, nonlinearity, bidirectional, streams)

    def _cell(self):
        size, phi = self.d_hidden, NONLINEARITIES[self.nonlinearity][0]
        w_gates, w_new = self.weight_hh[:, :2].flatten(1, 2), self.weight_hh[:, 2]

        def step(h: Tensor, u: Tensor, mask: Tensor | float) -> Tensor:
            r, z = torch.sigmoid(torch.baddbmm(u[:, : 2 * size], w_gates, h)).split(size, 1)
            new = phi(torch.baddbmm(u[:, 2 * size :], w_new, r * h))
            return torch.lerp(h, new, z * mask)

        return step


class Attention(DistanceAttention):
    """Distance attention with Euclidean distances and the weighted mean (the Euclidean twin of Lopez & Strube)."""

    def __init__(self, manifold: Manifold, d: int, n_positions: int = 0):
        super().__init__(manifold, d, Linear, Embedding, torch.add, n_positions)


class Logits(nn.Module):
    """``scale <x - p_k, a_k>`` for K classes (K = 1: one binary logit); p = 0, a Glorot uniform.

    Args:
        scale: 1 in the code of Ganea et al.; 4, the limit of the hyperbolic formula for c to 0, in Lopez & Strube's.
    """

    def __init__(self, manifold: Manifold, d: int, n_classes: int, scale: float = 1.0):
        super().__init__()
        self.manifold, self.scale = manifold, scale
        self.p = nn.Parameter(torch.zeros(n_classes, d))
        self.a = nn.Parameter(glorot(torch.empty(n_classes, d)))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * nn.functional.linear(x, self.a, -(self.p * self.a).sum(-1))


__all__ = [
    "GRU",
    "RNN",
    "Activation",
    "Attention",
    "Centroid",
    "Concat",
    "Dropout",
    "Embedding",
    "GRUCell",
    "Linear",
    "Logits",
    "RNNCell",
]
