"""Deep averaging: a sentence is the mean of its words, taken by the geometry's own sum (Iyyer et al. 2015)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.guard import check_sequence
from hyperbolic.layers.sequence import length_mask


class DeepAveragingEncoder(nn.Module):
    """``(1/n) (x) (((x_1 (+) x_2) (+) x_3) (+) ...)``, then a linear layer (Patel et al., Attention Networks in
    Hyperbolic Space, and their program HyperA). In a gyrovector family the order of the words counts; in flat space it
    is the mean.

    Args:
        geometry: of inputs and states.
        d_in, d_hidden: intrinsic sizes.
        linear: a linear layer for each stream, on its mean; the states are then what it makes of the inputs. Without
            it states are the inputs themselves, and d_in = d_hidden.
        streams: independent encoders of equal size, on inputs (S, B, T, D).

    Raises:
        ValueError: sizes that differ where there is no linear layer.
    """

    averages = True  # a sentence is a mean, and not the state of a recurrence

    def __init__(self, geometry: Geometry, d_in: int, d_hidden: int, linear: bool, streams: int):
        super().__init__()
        if not linear and d_in != d_hidden:
            raise ValueError(
                f"encoder.linear=false needs words and sentences of one size, and they have {d_in} and {d_hidden}; "
                "make them equal or take encoder.linear=true"
            )
        self.manifold, self.d_out, self.streams = geometry.manifold, d_hidden, streams
        self.sum = geometry.ordered_sum()
        self.linear = nn.ModuleList(geometry.linear(d_in, d_hidden) for _ in range(streams if linear else 0))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args: x (B, T, D) or (S, B, T, D); lengths (B,) or (S, B), true lengths 1..T, padding stands at the end.
        Returns: states (..., T, D') and the means of those before the true end (..., D').
        Raises:
            ValueError: empty sequences, lengths outside 1..T, another number of streams.
        """
        single = x.dim() == 3
        if single:
            x, lengths = x.unsqueeze(0), None if lengths is None else lengths.unsqueeze(0)
        if x.dim() != 4 or x.shape[0] != self.streams:
            raise ValueError(f"this encoder has {self.streams} streams, got inputs of shape {tuple(x.shape)}")
        check_sequence(self, x)
        mask = length_mask(lengths, x, self)
        number = x.shape[-2] if lengths is None else lengths.unsqueeze(-1)
        mean = self.manifold.expmap0(self.manifold.logmap0(self.sum(x, mask=mask)) / number)
        states, last = self._linear(x), self._linear(mean)
        return (states[0], last[0]) if single else (states, last)

    def _linear(self, x: Tensor) -> Tensor:
        """Points (S, ..., D) -> (S, ..., D')."""
        if not self.linear:
            return x
        return torch.stack([layer(part) for layer, part in zip(self.linear, x, strict=True)])
