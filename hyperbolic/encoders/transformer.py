"""Transformer encoder and decoder, written once against a geometry."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.encoders.transformer_layers import (
    DecoderState,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    TransformerLayer,
)
from hyperbolic.geometry import Geometry
from hyperbolic.layers.sequence import length_mask


class _Stack(nn.Module):
    """Linear layer where the sizes differ, positions, the layers, and where the norm stands in front one at the end."""

    def __init__(
        self,
        layer: type[TransformerLayer],
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        n_heads: int,
        d_feed_forward: int,
        dropout: float,
        attention_dropout: float,
        n_positions: int,
        norm: str,
    ):
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"encoder.n_layers must be at least 1, got {n_layers}")
        for name, p in (("dropout", dropout), ("attention_dropout", attention_dropout)):
            if not 0 <= p < 1:
                raise ValueError(f"encoder.{name} must lie in 0..1 and be less than 1, got {p}")
        self.project = geometry.linear(d_in, d_hidden) if d_in != d_hidden else None
        self.positions = geometry.position_encoding(d_hidden, n_positions, dropout=dropout)
        sizes = (d_hidden, n_heads, d_feed_forward, dropout, attention_dropout)
        self.layers = nn.ModuleList(layer(geometry, *sizes, norm) for _ in range(n_layers))
        self.norm = geometry.norm(d_hidden) if norm == "pre" else None

    def enter(self, x: Tensor, past: int = 0) -> Tensor:
        """Points (B, T, D) that stand at the positions past..past+T-1."""
        x = x if self.project is None else self.project(x)
        result: Tensor = self.positions(x, torch.arange(past, past + x.shape[-2], device=x.device) if past else None)
        return result

    def leave(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)

    def states(self, x: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Points (B, T, D) as they enter, and the result of each layer in turn; the last is the stack's."""
        x = self.enter(x)
        states = [x]
        for layer in self.layers:
            x = layer(x, mask)
            states.append(x)
        return [*states[:-1], self.leave(x)]


def _check(name: str, x: Tensor, past: int, n_positions: int) -> None:
    """Refuse sequences that do not fit.

    Raises:
        ValueError: an empty sequence, or one that is longer than the table of positions.
    """
    steps = past + x.shape[-2]
    if x.shape[-2] == 0:
        raise ValueError(f"{name}: empty sequences, got a tensor of shape {tuple(x.shape)}")
    if steps > n_positions:
        raise ValueError(f"{name}: a sequence of {steps} positions is longer than n_positions={n_positions}")


class TransformerDecoder(nn.Module):
    """Transformer over target points that attends to an encoder's states; position t sees 0..t only.

    Args: as for :class:`TransformerEncoder`; the memory has the size d_hidden.
    """

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        n_heads: int,
        d_feed_forward: int,
        dropout: float,
        attention_dropout: float,
        n_positions: int,
        norm: str,
    ):
        super().__init__()
        self.d_out, self.n_positions = d_hidden, n_positions
        drops = (dropout, attention_dropout)
        sizes = (d_in, d_hidden, n_layers, n_heads, d_feed_forward, *drops, n_positions, norm)
        self.stack = _Stack(TransformerDecoderLayer, geometry, *sizes)

    def start(self, alignment: bool = False) -> DecoderState:
        """An empty state, for decoding step by step.

        Args: alignment: the state also keeps with which weights the last layer attends to the memory.
        """
        return DecoderState(len(self.stack.layers), alignment)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        state: DecoderState | None = None,
    ) -> Tensor:
        """
        Args:
            x: (B, T, D) target points. Padding stands at the end, where no true position sees it.
            memory: (B, N, D'), states of the encoder. memory_lengths: (B,), true lengths 1..N.
            state: of :meth:`start`, updated here; x holds the positions that follow those decoded so far, and memory
                is the same in every call.
        Returns: states (B, T, D').
        Raises:
            ValueError: empty sequences, longer ones than n_positions (with those decoded so far), lengths outside 1..N,
                a memory of another batch.
        """
        if memory.shape[0] != x.shape[0]:
            raise ValueError(
                f"TransformerDecoder: points {tuple(x.shape)} and memory {tuple(memory.shape)} differ in their batch"
            )
        past = 0 if state is None else state.length
        _check("TransformerDecoder", x, past, self.n_positions)
        memory_mask = length_mask(memory_lengths, memory)
        x = self.stack.enter(x, past)
        for i, layer in enumerate(self.stack.layers):
            x = layer(x, memory, memory_mask=memory_mask, cache=None if state is None else state.layers[i])
        return self.stack.leave(x)


class TransformerEncoder(nn.Module):
    """Transformer over a sequence of points, and the centroid of its states as the summary.

    Args:
        geometry: of inputs and states. d_in, d_hidden: intrinsic sizes; a linear layer joins them where they differ.
        n_layers, n_heads: heads divide d_hidden. d_feed_forward: inner size of the feed-forward blocks.
        dropout: of residuals, feed-forward blocks and positions. attention_dropout: of the weights of the attention.
        n_positions: longest sequence. norm: "post", "pre" or "none".
        streams: independent encoders of equal size, on inputs (S, B, T, D).

    ``embeds_positions``: it has an entrance, :meth:`enter`, where points get their positions.

    Raises:
        ValueError: n_heads that does not divide d_hidden, an unknown norm, a layer the family does not have.
    """

    embeds_positions = True
    decoder = TransformerDecoder  # that belongs to this encoder; it takes the same settings, but no streams

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        n_heads: int,
        d_feed_forward: int,
        dropout: float,
        attention_dropout: float,
        n_positions: int,
        norm: str,
        streams: int,
    ):
        super().__init__()
        self.d_out, self.streams, self.n_positions = d_hidden, streams, n_positions
        drops = (dropout, attention_dropout)
        sizes = (d_in, d_hidden, n_layers, n_heads, d_feed_forward, *drops, n_positions, norm)
        self.stacks = nn.ModuleList(_Stack(TransformerEncoderLayer, geometry, *sizes) for _ in range(streams))
        self.centroid = geometry.centroid()

    def enter(self, x: Tensor) -> Tensor:
        """Points as the first layer gets them: through the linear layer where the sizes differ, with their positions.

        What else a model wants to bring into the same space goes through here (the mentions of HyboNet's typing model,
        Chen et al., A.2, share this with their contexts).

        Args: x (B, T, D) or (S, B, T, D). Returns: (..., T, D').
        Raises:
            ValueError: empty sequences, longer ones than n_positions, another number of streams.
        """
        parts = self._streams(x)
        entered = torch.stack([stack.enter(part) for stack, part in zip(self._each_stack, parts, strict=True)])
        return entered[0] if x.dim() == 3 else entered

    @property
    def _each_stack(self) -> list[_Stack]:
        return [stack for stack in self.stacks if isinstance(stack, _Stack)]

    def _streams(self, x: Tensor) -> Tensor:
        """x with an axis of streams, (S, B, T, D), after a check of its shape."""
        parts = x.unsqueeze(0) if x.dim() == 3 else x
        if parts.dim() != 4 or parts.shape[0] != self.streams:
            raise ValueError(f"this encoder has {self.streams} streams, got inputs of shape {tuple(parts.shape)}")
        _check("TransformerEncoder", parts, 0, self.n_positions)
        return parts

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args: x (B, T, D) or (S, B, T, D); lengths (B,) or (S, B), true lengths 1..T, padding stands at the end.
        Returns: states (..., T, D') and the centroid of those before the true end (..., D').
        Raises:
            ValueError: empty sequences, longer ones than n_positions, lengths outside 1..T, another number of streams.
        """
        single, x = x.dim() == 3, self._streams(x)
        if single and lengths is not None:
            lengths = lengths.unsqueeze(0)
        mask = length_mask(lengths, x)
        masks = [None] * self.streams if mask is None else mask
        states = torch.stack([stack.states(*part)[-1] for stack, *part in zip(self._each_stack, x, masks, strict=True)])
        summary = self.centroid(states, mask=mask)
        return (states[0], summary[0]) if single else (states, summary)

    def layer_states(self, x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
        """The points that enter the first layer, with their positions, and the result of each layer in turn.

        The last are the states of :meth:`forward`; where the norm stands in front, they alone have passed one.

        Args: x (B, T, D); lengths (B,), true lengths 1..T.
        Returns: n_layers + 1 tensors (B, T, D').
        Raises:
            ValueError: as :meth:`forward`; an encoder of several streams.
        """
        if x.dim() != 3 or self.streams != 1:
            raise ValueError(
                f"TransformerEncoder.layer_states: takes points (B, T, D) of one stream, got the shape "
                f"{tuple(x.shape)} for {self.streams} streams"
            )
        _check("TransformerEncoder", x, 0, self.n_positions)
        (stack,) = self._each_stack
        return stack.states(x, length_mask(lengths, x))
