"""Recurrent encoders: sequences of points to states and a last state."""

from __future__ import annotations

from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.guard import check_choice


class RecurrentEncoder(nn.Module):
    """RNN or GRU of a geometry (for the Möbius family: Ganea et al. 2018, section 3.3).

    Args:
        geometry: of inputs and states.
        d_in, d_hidden: intrinsic sizes.
        cell: "rnn" or "gru".
        nonlinearity: a name in ``NONLINEARITIES``, or None for the family's own (identity for Möbius cells as in the
            published command, tanh for Euclidean ones).
        bidirectional: join both directions into 2 d_hidden.
        streams: independent cells of equal size run side by side, on inputs (S, B, T, D).
    """

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        cell: str,
        nonlinearity: str | None,
        bidirectional: bool,
        streams: int,
    ):
        super().__init__()
        makers = {"rnn": geometry.rnn, "gru": geometry.gru}
        check_choice("encoder.cell", cell, makers)
        self.d_out = d_hidden * (2 if bidirectional else 1)
        self.layer = makers[cell](
            d_in, d_hidden, nonlinearity=nonlinearity, bidirectional=bidirectional, streams=streams
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args: x (B, T, D) or (S, B, T, D); lengths (B,) or (S, B), true lengths 1..T.
        Returns: states (..., T, D') and the state at the true end (..., D').
        """
        result: tuple[Tensor, Tensor] = self.layer(x, lengths)
        return result
