"""Layers of the Transformer: encoder and decoder layers against a geometry, and what a decoder keeps between steps.

A block is ``inner = attention or linear layer``, then the geometry's ``residual``: it holds the linear layer that ends
the block and joins its result with the block's input (Vaswani et al. 2017; Chen et al. 2022, HyboNet). Families without
a norm (theirs is the identity) give the same for every placement of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.guard import check_choice
from hyperbolic.layers.multihead import AttentionCache

NORMS = ("post", "pre", "none")


class TransformerLayer(nn.Module):
    """What encoder and decoder layers share: self-attention, the feed-forward block, and where the norm stands.

    ``norm_i`` follows (post: ``norm(join(f(x), x))``) or precedes (pre: ``join(f(norm(x)), x)``) block i.

    Args:
        geometry: of inputs and outputs. d: intrinsic size. n_heads: divides d. d_feed_forward: inner size.
        dropout: of the residuals. attention_dropout: of the attention. norm: "post", "pre" or "none".
    """

    n_blocks: int

    def __init__(
        self,
        geometry: Geometry,
        d: int,
        n_heads: int,
        d_feed_forward: int,
        dropout: float,
        attention_dropout: float,
        norm: str,
    ):
        super().__init__()
        check_choice("encoder.norm", norm, NORMS)
        self.placement = norm
        self.norms = nn.ModuleList(geometry.norm(d) for _ in range(self.n_blocks if norm != "none" else 0))
        self.attention = geometry.multi_head_attention(d, n_heads, dropout=attention_dropout)
        self.merge = geometry.residual(d, d, dropout=dropout)
        self.feed_forward = geometry.feed_forward(d, d_feed_forward, activation="relu", dropout=dropout)

    def before(self, block: int, x: Tensor) -> Tensor:
        return self.norms[block](x) if self.placement == "pre" else x

    def after(self, block: int, x: Tensor) -> Tensor:
        return self.norms[block](x) if self.placement == "post" else x


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then the feed-forward block; in flat space ``torch.nn.TransformerEncoderLayer`` with ReLU.

    Args: geometry, d, n_heads, d_feed_forward, dropout, attention_dropout, norm; see the base class.
    """

    n_blocks = 2

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """
        Args: x (B, T, D); mask (B, T), true where a point counts.
        Returns: (B, T, D).
        """
        x = self.after(0, self.merge(self.attention(self.before(0, x), mask=mask), x))
        return self.after(1, self.feed_forward(self.before(1, x), x))


class LayerCache:
    """What one decoder layer keeps from step to step: its earlier positions, and the memory's keys and values.

    Args: alignment: also keep how much each position attends to each point of the memory.
    """

    def __init__(self, alignment: bool = False) -> None:
        self.own, self.memory = AttentionCache(), AttentionCache(static=True)
        self.keeps_alignment = alignment
        self.alignment: Tensor | None = None

    def align(self, weights: Tensor) -> None:
        """Adds weights (B, n_heads, T, N) of the next positions to the alignment, as their mean over the heads."""
        new = weights.mean(1)
        self.alignment = new if self.alignment is None else torch.cat([self.alignment, new], 1)

    def reorder(self, index: Tensor) -> None:
        self.own.reorder(index)
        self.memory.reorder(index)
        if self.alignment is not None:
            self.alignment = self.alignment.index_select(0, index)


class DecoderState:
    """What a decoder keeps from step to step, a :class:`LayerCache` a layer.

    Args: alignment: the last layer keeps its attention to the memory.
    """

    def __init__(self, n_layers: int, alignment: bool = False):
        self.layers = [LayerCache(alignment and i == n_layers - 1) for i in range(n_layers)]

    @property
    def length(self) -> int:
        """Number of positions decoded so far."""
        return self.layers[0].own.length

    @property
    def alignment(self) -> Tensor | None:
        """Weights (B, T, N) with which the T positions decoded so far attend to the memory in the last layer, the mean
        over its heads; None before the first step, or where they are not kept."""
        return self.layers[-1].alignment

    def reorder(self, index: Tensor) -> None:
        """Rows of the batch in another order (B',), as a beam search needs it."""
        for layer in self.layers:
            layer.reorder(index)


class TransformerDecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the encoder's output, then the feed-forward block.

    In flat space ``torch.nn.TransformerDecoderLayer`` with ReLU. Args: as for :class:`TransformerEncoderLayer`.
    """

    n_blocks = 3

    def __init__(
        self,
        geometry: Geometry,
        d: int,
        n_heads: int,
        d_feed_forward: int,
        dropout: float,
        attention_dropout: float,
        norm: str,
    ):
        super().__init__(geometry, d, n_heads, d_feed_forward, dropout, attention_dropout, norm)
        self.cross_attention = geometry.multi_head_attention(d, n_heads, dropout=attention_dropout)
        self.cross_merge = geometry.residual(d, d, dropout=dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """
        Args:
            x: (B, T, D). memory: (B, N, D), the encoder's output; both masks are true where a point counts.
            mask: (B, T), with a cache over the cached positions too. memory_mask: (B, N).
            cache: of earlier positions; x holds the next ones.
        Returns: (B, T, D).
        """
        own = None if cache is None else cache.own
        inner = self.attention(self.before(0, x), mask=mask, causal=True, cache=own)
        x = self.after(0, self.merge(inner, x))
        x = self.after(1, self.cross_merge(self._attend_to_memory(self.before(1, x), memory, memory_mask, cache), x))
        return self.after(2, self.feed_forward(self.before(2, x), x))

    def _attend_to_memory(self, x: Tensor, memory: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        if cache is None or not cache.keeps_alignment:
            inner: Tensor = self.cross_attention(x, memory, mask=mask, cache=None if cache is None else cache.memory)
            return inner
        inner, weights = self.cross_attention(x, memory, mask=mask, cache=cache.memory, return_weights=True)
        cache.align(weights)
        return inner
