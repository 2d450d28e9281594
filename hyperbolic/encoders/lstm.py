"""A long short-term memory in flat space (Hochreiter and Schmidhuber 1997), a baseline of recurrent encoders."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hyperbolic.geometry import Geometry
from hyperbolic.layers.guard import check_choice, check_sequence
from hyperbolic.layers.sequence import check_lengths
from hyperbolic.manifolds import Euclidean

POOLS = ("last", "mean")


class LSTMEncoder(nn.Module):
    """``torch.nn.LSTM`` on sequences of vectors.

    Args:
        geometry: a flat one. d_in, d_hidden: sizes.
        bidirectional: join the states of both directions into 2 d_hidden.
        pool: what stands for the sequence: "last", the state at its end (of the backward direction, at its beginning);
            "mean", the mean of all states.
        streams: independent layers of equal size, on inputs (S, B, T, D).

    Raises:
        ValueError: another manifold, or an unknown pool.
    """

    def __init__(self, geometry: Geometry, d_in: int, d_hidden: int, bidirectional: bool, pool: str, streams: int):
        super().__init__()
        geometry.check_manifold("LSTM", Euclidean)
        check_choice("encoder.pool", pool, POOLS)
        self.pool, self.streams = pool, streams
        self.d_out = d_hidden * (2 if bidirectional else 1)
        self.layers = nn.ModuleList(
            nn.LSTM(d_in, d_hidden, batch_first=True, bidirectional=bidirectional) for _ in range(streams)
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args: x (B, T, D) or (S, B, T, D); lengths (B,) or (S, B), true lengths 1..T, padding stands at the end.
        Returns: states (..., T, D'), 0 behind the end, and what stands for each sequence (..., D').
        Raises:
            ValueError: empty sequences, lengths outside 1..T, another number of streams.
        """
        if x.dim() == 3:
            states, last = self.forward(x.unsqueeze(0), None if lengths is None else lengths.unsqueeze(0))
            return states[0], last[0]
        if x.dim() != 4 or x.shape[0] != self.streams:
            raise ValueError(f"this encoder has {self.streams} streams, got inputs of shape {tuple(x.shape)}")
        check_sequence(self, x)
        check_lengths(lengths, x, self)
        if lengths is None:
            lengths = torch.full(x.shape[:2], x.shape[2])
        pairs = [self._run(layer, *part) for layer, *part in zip(self.layers, x, lengths, strict=True)]
        return torch.stack([states for states, _ in pairs]), torch.stack([last for _, last in pairs])

    def _run(self, layer: nn.Module, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, T, D), lengths (B,) -> states (B, T, D') and (B, D')."""
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, (last, _) = layer(packed)
        states, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        if self.pool == "mean":
            return states, states.sum(1) / lengths.to(x.device).unsqueeze(-1)
        return states, last.transpose(0, 1).flatten(1)
