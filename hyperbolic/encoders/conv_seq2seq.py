"""Convolutional sequence to sequence learning (Gehring et al. 2017): gated convolutions with attention in each layer.

The Euclidean baseline of HyboNet's Table 2. Residuals and sums of two are multiplied by sqrt(0.5), which keeps the
variance; weights are normalised (Salimans and Kingma 2016).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from hyperbolic.geometry import Geometry
from hyperbolic.layers.sequence import length_mask
from hyperbolic.manifolds import Euclidean

_HALF = math.sqrt(0.5)


def _linear(d_in: int, d_out: int, keep: float = 1.0) -> nn.Module:
    """A linear layer with weights from N(0, keep / d_in) and weight normalisation; keep: share that dropout leaves."""
    return _normalise(nn.Linear(d_in, d_out), math.sqrt(keep / d_in))


def _normalise(layer: nn.Linear | nn.Conv1d, std: float) -> nn.Module:
    """The layer with weight normalisation; weights from N(0, std^2), biases 0."""
    nn.init.normal_(layer.weight, std=std)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    result: nn.Module = weight_norm(layer)
    return result


class _GatedConvolution(nn.Module):
    """``a sigmoid(b)`` with (a, b) a convolution over k vectors, all of them inside of the input.

    Weights from N(0, 4 keep / (k d)) (section 3.5), as the gate leaves a quarter of the variance.
    """

    def __init__(self, d: int, kernel_size: int, keep: float):
        super().__init__()
        std = math.sqrt(4 * keep / (kernel_size * d))
        self.convolution = _normalise(nn.Conv1d(d, 2 * d, kernel_size), std)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T + k - 1, d) -> (B, T, d)."""
        return nn.functional.glu(self.convolution(x.transpose(1, 2)), 1).transpose(1, 2)


class _Entrance(nn.Module):
    """``dropout(x_t + p_t)`` with a learned table p from N(0, 0.1^2)."""

    def __init__(self, name: str, d: int, n_positions: int, dropout: float):
        super().__init__()
        self.name, self.n_positions = name, n_positions
        if n_positions < 1:
            raise ValueError(f"encoder.n_positions must be at least 1, got {n_positions}")
        self.table = nn.Parameter(0.1 * torch.randn(n_positions, d))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, past: int = 0) -> Tensor:
        steps = past + x.shape[-2]
        if x.dim() != 3 or x.shape[1] == 0:
            raise ValueError(f"{self.name}: takes sequences (B, T, D) with T > 0, got the shape {tuple(x.shape)}")
        if steps > self.n_positions:
            raise ValueError(
                f"{self.name}: a sequence of {steps} positions is longer than n_positions={self.n_positions}"
            )
        result: Tensor = self.dropout(x + self.table[past:steps])
        return result


def _check(geometry: Geometry, n_layers: int, kernel_size: int, dropout: float) -> None:
    geometry.check_manifold("ConvSeq2Seq", Euclidean)
    if n_layers < 1:
        raise ValueError(f"encoder.n_layers must be at least 1, got {n_layers}")
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"encoder.kernel_size must be odd, a position and as many on both sides, got {kernel_size}")
    if not 0 <= dropout < 1:
        raise ValueError(f"encoder.dropout must lie in 0..1 and be less than 1, got {dropout}")


class ConvDecoderLayer(nn.Module):
    """A gated convolution over the positions up to its own, then attention to the memory, with a residual.

    With h the convolution's result and g the target with its positions: ``d_i = sqrt(.5) (W h_i + b + g_i)``, the
    weights ``a_ij = softmax_j <d_i, z_j>``, and ``h_i + W' (sqrt(m) sum_j a_ij v_j) + b'`` of m source positions with
    keys z and values v (section 3.3 and 3.4).

    Args: d_in: size of g, z and v. d: size of the convolutions. kernel_size: positions that a convolution sees.
    """

    def __init__(self, d_in: int, d: int, kernel_size: int, dropout: float):
        super().__init__()
        self.past = kernel_size - 1
        self.dropout = nn.Dropout(dropout)
        self.convolution = _GatedConvolution(d, kernel_size, 1 - dropout)
        self.query, self.context = _linear(d, d_in), _linear(d_in, d)

    def forward(
        self, x: Tensor, target: Tensor, memory: Tensor, mask: Tensor | None, cache: ConvCache | None = None
    ) -> Tensor:
        """
        Args:
            x: (B, T, d). target: (B, T, d_in), with positions. memory: (B, N, 2 d_in), keys and values.
            mask: (B, N), true where a point of the memory counts. cache: of earlier positions; x holds the next ones.
        Returns: (B, T, d).
        """
        dropped = self.dropout(x)
        earlier = None if cache is None else cache.inputs
        if earlier is None:
            earlier = dropped.new_zeros(len(x), self.past, x.shape[-1])
        window = torch.cat([earlier, dropped], 1)
        h = self.convolution(window)
        query = (self.query(h) + target) * _HALF
        keys, values = memory.chunk(2, -1)
        score = query @ keys.mT
        weights = torch.softmax(score if mask is None else score.masked_fill(~mask.unsqueeze(1), -torch.inf), -1)
        m = memory.shape[1] if mask is None else mask.sum(-1).view(-1, 1, 1).to(x.dtype)
        context = self.context(weights @ values * m**0.5)
        if cache is not None:
            cache.inputs = window[:, window.shape[1] - self.past :]
            cache.align(weights)
        result: Tensor = ((h + context) * _HALF + x) * _HALF
        return result


class ConvCache:
    """What a decoder layer keeps from step to step: the inputs that its convolution sees, and where it attends."""

    def __init__(self, alignment: bool) -> None:
        self.keeps_alignment = alignment
        self.inputs: Tensor | None = None
        self.alignment: Tensor | None = None

    def align(self, weights: Tensor) -> None:
        if self.keeps_alignment:
            self.alignment = weights if self.alignment is None else torch.cat([self.alignment, weights], 1)

    def reorder(self, index: Tensor) -> None:
        if self.inputs is not None:
            self.inputs = self.inputs.index_select(0, index)
        if self.alignment is not None:
            self.alignment = self.alignment.index_select(0, index)


class ConvDecoderState:
    """What a decoder keeps from step to step; see :class:`hyperbolic.encoders.transformer_layers.DecoderState`."""

    def __init__(self, n_layers: int, alignment: bool):
        self.length = 0
        self.layers = [ConvCache(alignment and i == n_layers - 1) for i in range(n_layers)]

    @property
    def alignment(self) -> Tensor | None:
        """Weights (B, T, N) of the T positions decoded so far in the last layer; None where they are not kept."""
        return self.layers[-1].alignment

    def reorder(self, index: Tensor) -> None:
        """Rows of the batch in another order (B',), as a beam search needs it."""
        for layer in self.layers:
            layer.reorder(index)


class ConvDecoder(nn.Module):
    """Decoder over target vectors that attends to an encoder's keys and values in each layer.

    Args: as for :class:`ConvSeq2Seq`, and d_in is that of the encoder.
    """

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        kernel_size: int,
        dropout: float,
        n_positions: int,
    ):
        super().__init__()
        _check(geometry, n_layers, kernel_size, dropout)
        self.d_in, self.d_out = d_in, d_hidden
        self.entrance = _Entrance("ConvDecoder", d_in, n_positions, dropout)
        self.first, self.last = _linear(d_in, d_hidden, 1 - dropout), _linear(d_hidden, d_hidden)
        self.layers = nn.ModuleList(ConvDecoderLayer(d_in, d_hidden, kernel_size, dropout) for _ in range(n_layers))
        self.dropout = nn.Dropout(dropout)

    def start(self, alignment: bool = False) -> ConvDecoderState:
        """An empty state, for decoding step by step.

        Args: alignment: the state also keeps with which weights the last layer attends to the memory.
        """
        return ConvDecoderState(len(self.layers), alignment)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        state: ConvDecoderState | None = None,
    ) -> Tensor:
        """
        Args:
            x: (B, T, d_in) target vectors. memory: (B, N, 2 d_in), states of the encoder.
            memory_lengths: (B,), true lengths 1..N.
            state: of :meth:`start`, updated here; x holds the positions that follow those decoded so far.
        Returns: (B, T, d_hidden).
        Raises:
            ValueError: empty sequences, longer ones than n_positions (with those decoded so far), lengths outside 1..N,
                a memory of another batch or size.
        """
        if memory.dim() != 3 or memory.shape[0] != x.shape[0] or memory.shape[2] != 2 * self.d_in:
            raise ValueError(
                f"ConvDecoder: takes points (B, T, {self.d_in}) and a memory (B, N, {2 * self.d_in}), got the shapes "
                f"{tuple(x.shape)} and {tuple(memory.shape)}"
            )
        mask = length_mask(memory_lengths, memory)
        target = self.entrance(x, 0 if state is None else state.length)
        h = self.first(target)
        for i, layer in enumerate(self.layers):
            h = layer(h, target, memory, mask, None if state is None else state.layers[i])
        if state is not None:
            state.length += x.shape[1]
        result: Tensor = self.dropout(self.last(h))
        return result


class ConvSeq2Seq(nn.Module):
    """Encoder of gated convolutions; its states are what a :class:`ConvDecoder` attends to.

    With ``e_t = x_t + p_t`` and z the result of the layers at the size of e, keys are z and values ``sqrt(.5) (z + e)``
    (section 3.3). The gradient of z is divided by the number of attentions, one for each layer of the decoder
    (section 3.4).

    Args:
        geometry: a flat one. d_in: size of the vectors; d_hidden: of the convolutions.
        n_layers: of the encoder, and of its decoder. kernel_size: positions that a convolution sees, odd.
        dropout: of inputs with positions, of the convolutions' inputs, and of the decoder's result.
        n_positions: longest sequence. streams: 1.

    Raises:
        ValueError: another manifold, several streams, or settings that cannot be.
    """

    kind = "translations"  # its states are keys and values of another size than a sequence's points
    decoder = ConvDecoder  # that belongs to this encoder; it takes the same settings, but no streams

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        kernel_size: int,
        dropout: float,
        n_positions: int,
        streams: int,
    ):
        super().__init__()
        _check(geometry, n_layers, kernel_size, dropout)
        if streams != 1:
            raise ValueError(f"ConvSeq2Seq has one stream, got streams={streams}")
        self.d_out, self.margin = 2 * d_in, kernel_size // 2
        self.entrance = _Entrance("ConvSeq2Seq", d_in, n_positions, dropout)
        self.first, self.last = _linear(d_in, d_hidden, 1 - dropout), _linear(d_hidden, d_in)
        self.layers = nn.ModuleList(_GatedConvolution(d_hidden, kernel_size, 1 - dropout) for _ in range(n_layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args: x (B, T, d_in); lengths (B,), true lengths 1..T, padding stands at the end.
        Returns: keys and values side by side (B, T, 2 d_in), and their mean before the true end (B, 2 d_in).
        Raises:
            ValueError: empty sequences, longer ones than n_positions, lengths outside 1..T.
        """
        e = self.entrance(x)
        mask = length_mask(lengths, x)
        counted = None if mask is None else mask.unsqueeze(-1)
        h = self.first(e)
        for layer in self.layers:
            inside = self.dropout(h) if counted is None else self.dropout(h).masked_fill(~counted, 0)
            h = (layer(nn.functional.pad(inside, (0, 0, self.margin, self.margin))) + h) * _HALF
        z = self.last(h)
        share = 1 / len(self.layers)
        z = z * share + z.detach() * (1 - share)
        states = torch.cat([z, (z + e) * _HALF], -1)
        if counted is None:
            return states, states.mean(1)
        return states, states.masked_fill(~counted, 0).sum(1) / counted.sum(1)
