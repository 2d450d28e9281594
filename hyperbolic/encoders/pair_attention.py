"""Attention of one sentence to the words of another (Patel et al., Attention Networks in Hyperbolic Space)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyperbolic.encoders.kinds import require_sequences
from hyperbolic.geometry import Geometry
from hyperbolic.layers.guard import check_choice
from hyperbolic.layers.sequence import length_mask

COMBINATIONS, NORMS = ("sum", "mean"), ("key", "none")
_SHORTEST = 1e-12  # square of a length under which a direction fades to 0


class PairAttention(nn.Module):
    """The last state q of the hypothesis attends to the states k_i of the premise, which are the values, too:
    ``(w_1 (x) k_1 (+) w_2 (x) k_2) (+) ...`` with ``w = softmax(s)``, ``s_i = <log_0 q, log_0 k_i> / |log_0 k_i|``
    (section 7.4, Eq. 1). What is attended to stands in the place of the premise, q in that of the hypothesis.

    Args:
        geometry: of inputs and states. d_in, d_hidden: intrinsic sizes.
        reader: makes the encoder of both sentences, called with geometry, d_in, d_hidden and streams.
        combine: "sum": as above; "mean": 1/n times that, with n words in the premise, as the program does.
        norm: "key": as above; "none": ``s_i = <log_0 q, log_0 k_i>``, in flat space the report's baseline.
        streams: 2, premise and hypothesis.

    Raises:
        ValueError: an unknown combination or norm, another number of streams, a reader that does not read sequences.
    """

    kind = "pairs"

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        reader: Callable[..., nn.Module],
        combine: str,
        norm: str,
        streams: int,
    ):
        super().__init__()
        for key, value, choices in (("combine", combine, COMBINATIONS), ("norm", norm, NORMS)):
            check_choice(f"encoder.{key}", value, choices)
        if streams != 2:
            raise ValueError(f"an encoder of pairs has 2 streams, premise and hypothesis, got streams={streams}")
        require_sequences("reader", reader)
        self.manifold, self.combine, self.norm = geometry.manifold, combine, norm
        self.reader = reader(geometry=geometry, d_in=d_in, d_hidden=d_hidden, streams=streams)
        self.d_out, self.averages = self.reader.d_out, bool(getattr(self.reader, "averages", False))
        self.sum = geometry.ordered_sum()

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """
        Args: x (2, B, T, D), premise first; lengths (2, B), true lengths 1..T, padding stands at the end.
        Returns: states (2, B, T, D') of the reader; what is attended to in the premise, and the last state of the
            hypothesis, (2, B, D').
        """
        states, last = self.reader(x, lengths)
        mask = length_mask(lengths[0], states[0], self)
        attended = self.sum(states[0], self._weights(states[0], last[1], mask), mask)
        if self.combine == "mean":
            attended = self.manifold.expmap0(self.manifold.logmap0(attended) / lengths[0].unsqueeze(-1))
        return states, torch.stack([attended, last[1]])

    def weights(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The weights (B, T) of the premise's words, which sum to 1 and are 0 behind its end; as :meth:`forward`."""
        states, last = self.reader(x, lengths)
        return self._weights(states[0], last[1], length_mask(lengths[0], states[0], self))

    def _weights(self, keys: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
        """keys (B, T, D'), query (B, D'), mask (B, T) or None -> (B, T)."""
        k = self.manifold.logmap0(keys)
        scores = (k * self.manifold.logmap0(query).unsqueeze(-2)).sum(-1)
        if self.norm == "key":
            square = k.square().sum(-1)
            scores = scores * torch.where(square > 0, (square + _SHORTEST).rsqrt(), 0)
        return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1)
