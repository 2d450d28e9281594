"""Recurrent layers of the Euclidean family.

The cells are those of Ganea et al. 2018 (Eq. 28: the reset gate acts before the matrix, which is not
``torch.nn.GRU``), so that they are the limit of the Möbius cells.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.euclidean_linear import Concat
from hyperbolic.layers.flat_recurrent import euclidean_gru, euclidean_rnn
from hyperbolic.layers.guard import takes_points
from hyperbolic.layers.initial import glorot
from hyperbolic.layers.sequence import Recurrence
from hyperbolic.manifolds import Manifold
from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity


class _Cell(nn.Module):
    gates: int

    def __init__(self, manifold: Manifold, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__()
        self.manifold, self.nonlinearity = manifold, check_nonlinearity(nonlinearity or "tanh")
        self.d_in, self.d_hidden = d_in, d_hidden
        self.weight_ih = nn.Parameter(glorot(torch.empty(self.gates, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(self.gates, d_hidden, d_hidden)))
        self.bias = nn.Parameter(torch.zeros(self.gates, d_hidden))

    extra_repr = shows("d_in", "d_hidden", "nonlinearity")

    def _affine(self, gate: int, x: Tensor, h: Tensor) -> Tensor:
        return h @ self.weight_hh[gate].T + x @ self.weight_ih[gate].T + self.bias[gate]


class RNNCell(_Cell):
    """``h' = phi(W h + U x + b)`` (Ganea et al. 2018, before Eq. 27)."""

    gates = 1

    @takes_points("d_in", "d_hidden", flat=True)
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return NONLINEARITIES[self.nonlinearity](self._affine(0, x, h))


class GRUCell(_Cell):
    """``r, z = sigma(W h + U x + b)``, ``h~ = phi(W (r h) + U x + b)``, ``h' = h + z (h~ - h)`` (Eq. 28).

    Parameters are stacked in the order r, z, candidate.
    """

    stacked_axes = dict.fromkeys(("weight_ih", "weight_hh", "bias"), 1)  # gates
    gates = 3

    @takes_points("d_in", "d_hidden", flat=True)
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        r, z = torch.sigmoid(self._affine(0, x, h)), torch.sigmoid(self._affine(1, x, h))
        new = NONLINEARITIES[self.nonlinearity](self._affine(2, x, r * h))
        return h + z * (new - h)


class _Recurrent(Recurrence):
    gates: int
    kernel: Callable[..., Tensor]

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        join: str = "linear",
    ):
        sizes = (d_in, d_hidden, self.gates)
        super().__init__(manifold, *sizes, nonlinearity or "tanh", bidirectional, streams, join, concat=Concat)
        self.bias = nn.Parameter(torch.zeros(self.weight_ih.shape[:3]))

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.kernel(x, lengths, self.weight_ih, self.weight_hh, self.bias, self.nonlinearity)

    forward = takes_points("d_in", flat=True, full=True)(Recurrence.forward)


class RNN(_Recurrent):
    """:class:`RNNCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes."""

    gates, kernel = 1, staticmethod(euclidean_rnn)


class GRU(_Recurrent):
    """:class:`GRUCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes.

    Args:
        gate_bias: what the biases of r start at, and those of z at its negative: above 0 a state first lasts longer
            (1.0 in ``tf.contrib.rnn.GRUCell``, whose z is the share of the old state).
    """

    gates, kernel = 3, staticmethod(euclidean_gru)

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        join: str = "linear",
        gate_bias: float = 0.0,
    ):
        super().__init__(manifold, d_in, d_hidden, nonlinearity, bidirectional, streams, join)
        self.bias.data[:, 0], self.bias.data[:, 1] = gate_bias, -gate_bias
