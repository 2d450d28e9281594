"""The recurrent layers of the Möbius family (Ganea, Bécigneul & Hofmann 2018, Eq. 27-31), and the GRU with the input
first, as in the program of Patel et al. (HyperA)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyperbolic.kernels.recurrent import mobius_cell, mobius_gru, mobius_rnn
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_choice, name_of, takes_points
from hyperbolic.layers.initial import glorot
from hyperbolic.layers.mobius_linear import Activation, Concat, ball_parameter
from hyperbolic.layers.points import PointLayer
from hyperbolic.layers.sequence import Recurrence
from hyperbolic.manifolds import PoincareBall
from hyperbolic.nonlinearity import check_nonlinearity


class _Cell(PointLayer):
    gates: int

    def __init__(self, manifold: PoincareBall, d_in: int, d_hidden: int, nonlinearity: str | None = None):
        super().__init__()
        self.manifold, self.d_in, self.d_hidden = manifold, d_in, d_hidden
        self.nonlinearity = check_nonlinearity(nonlinearity or "identity")
        self.weight_ih = nn.Parameter(glorot(torch.empty(self.gates, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(self.gates, d_hidden, d_hidden)))
        self.bias = ball_parameter(manifold, self.gates, d_hidden)

    extra_repr = shows("d_in", "d_hidden", "nonlinearity")

    @takes_points("d_in", "d_hidden")
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        weights = (self.weight_ih, self.weight_hh, self.inside(self.bias))
        return mobius_cell(x, h, *weights, self.manifold.c, self.nonlinearity)


class RNNCell(_Cell):
    """``h' = phi((W (x) h (+) U (x) x) (+) b)`` with the Möbius version of phi (Ganea et al. 2018, Eq. 27).

    Args:
        nonlinearity: the identity when left out, as in the published command.
    """

    gates = 1


class GRUCell(_Cell):
    """Möbius GRU (Ganea et al. 2018, Eq. 29-31), parameters stacked in the order r, z, candidate.

    ``r, z = sigma(log_0((W (x) h (+) U (x) x) (+) b))``, ``h~ = phi((W diag(r) (x) h (+) U (x) x) (+) b)`` and
    ``h' = h (+) diag(z) (x) ((-h) (+) h~)``.

    Args:
        nonlinearity: the identity when left out, as in the published command.
    """

    stacked_axes = dict.fromkeys(("weight_ih", "weight_hh", "bias"), 1)  # gates
    gates = 3


class _Recurrent(PointLayer, Recurrence):
    gates: int
    manifold: PoincareBall
    kernel: Callable[..., Tensor]

    def __init__(
        self,
        manifold: PoincareBall,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        join: str = "linear",
        bias_std: float = 0.0,
    ):
        sizes = (d_in, d_hidden, self.gates)
        super().__init__(manifold, *sizes, nonlinearity or "identity", bidirectional, streams, join, concat=Concat)
        self.bias = ball_parameter(manifold, *self.weight_ih.shape[:3], std=bias_std)

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        weights = (self.weight_ih, self.weight_hh, self.inside(self.bias))
        return self.kernel(x, lengths, *weights, self.manifold.c, self.nonlinearity)

    run_both = run  # the kernels know the second direction by the number of cells

    forward = takes_points("d_in")(Recurrence.forward)


class RNN(_Recurrent):
    """:class:`RNNCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes.

    Two directions are joined by the Möbius concatenation, or with join="plain" side by side. Runs
    :func:`hyperbolic.kernels.recurrent.mobius_rnn`.

    Args:
        margin: above 0, at most 0.05: what states are made of is clipped to ``sqrt(c)|x| <= 1 - margin``, and nothing
            is learned from how far beyond it was, as in the program of Ganea et al. (1e-5); see the kernel. 0: the
            margin of the dtype, beyond which the gradient goes on, so that long products of matrices can make it
            explode.

    Raises:
        ValueError: a margin that is not in [0, 0.05].
    """

    gates = 1

    def __init__(
        self,
        manifold: PoincareBall,
        d_in: int,
        d_hidden: int,
        nonlinearity: str | None = None,
        bidirectional: bool = False,
        streams: int = 1,
        join: str = "linear",
        bias_std: float = 0.0,
        margin: float = 0.0,
    ):
        super().__init__(manifold, d_in, d_hidden, nonlinearity, bidirectional, streams, join, bias_std)
        if not 0 <= margin <= 0.05:
            raise ValueError(f"{name_of(self)}: margin must be 0 or more and at most 0.05, got {margin}")
        self.kernel = functools.partial(mobius_rnn, margin=margin)


class GRU(_Recurrent):
    """:class:`GRUCell` over a sequence; see :class:`hyperbolic.layers.sequence.Recurrence` for shapes.

    Two directions are joined by the Möbius concatenation, or with join="plain" side by side. Runs
    :func:`hyperbolic.kernels.recurrent.mobius_gru`.

    Args:
        variant: "paper"; or "hypera", the order of operands and the second bias of the program of Patel et al., see
            :func:`input_first_gru`; several times slower.

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
        join: str = "linear",
        bias_std: float = 0.0,
        variant: str = "paper",
    ):
        super().__init__(manifold, d_in, d_hidden, nonlinearity, bidirectional, streams, join, bias_std)
        check_choice(f"{name_of(self)}.variant", variant, ("paper", "hypera"))
        self.variant = variant
        if variant == "hypera":
            self.bias_hh = ball_parameter(manifold, *self.bias.shape, std=bias_std)
            self.phi = Activation(manifold, self.nonlinearity)

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        if self.variant == "paper":
            return super().run(x, lengths)
        weights = (self.weight_ih, self.weight_hh, self.inside(self.bias), self.inside(self.bias_hh))
        return input_first_gru(self.manifold, x, lengths, *weights, self.phi)

    def run_both(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.run(x, lengths) if self.variant == "paper" else Recurrence.run_both(self, x, lengths)


def input_first_gru(
    ball: PoincareBall,
    x: Tensor,
    lengths: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    bias_hh: Tensor,
    phi: Callable[[Tensor], Tensor],
) -> Tensor:
    """``u = U (x) x (+) b``, ``w = W (x) h (+) b'`` for each gate; ``r, z = sigma(log_0(u (+) w))``,
    ``h~ = phi(diag(r) (x) w (+) u)`` and ``h' = h (+) diag(z) (x) ((-h) (+) h~)``, h_0 = 0.

    The reset gate acts after the matrix, as in ``torch.nn.GRU``, which this is for c to 0 with phi = tanh and 1 - z.

    Args:
        x: (S, B, T, D) ball points. lengths: (S, B), states after the end repeat the last one.
        weight_ih: (S, 3, H, D); weight_hh: (S, 3, H, H); bias, bias_hh: (S, 3, H) ball points; gates r, z, candidate.
        phi: points to points.
    Returns: (S, B, T, H).
    """
    plus, exp, log = ball.mobius_add, ball.expmap0, ball.logmap0
    inputs = plus(exp(torch.einsum("sbtd,sghd->stgbh", log(x), weight_ih)), bias[:, None, :, None])
    h = x.new_zeros(*x.shape[:2], weight_hh.shape[-1])
    states = []
    for t, u in enumerate(inputs.unbind(1)):
        w = plus(exp(torch.einsum("sbh,sgkh->sgbk", log(h), weight_hh)), bias_hh[:, :, None])
        r, z = map(torch.sigmoid, log(plus(u[:, :2], w[:, :2])).unbind(1))
        candidate = phi(plus(exp(r * log(w[:, 2])), u[:, 2]))
        moved = plus(h, exp(z * log(plus(-h, candidate))))
        h = moved if lengths is None else torch.where((t < lengths).unsqueeze(-1), moved, h)
        states.append(h)
    return torch.stack(states, 2)
