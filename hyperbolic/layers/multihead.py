"""Multi-head attention, the part all families share: heads, masks, the cache of incremental decoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.layers.guard import name_of
from hyperbolic.manifolds import Manifold


class AttentionCache:
    """Keys and values of earlier positions, for decoding step by step.

    Args:
        static: keys and values are those of the first call (attention to an encoder's output); otherwise those of
            every call are appended (attention of a decoder to itself).
    """

    def __init__(self, static: bool = False):
        self.static = static
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of positions held."""
        return 0 if self.keys is None else self.keys.shape[-2]

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Adds positions: (B, n_heads, N, D_head)."""
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)
        self.keys, self.values = keys, values

    def reorder(self, index: Tensor) -> None:
        """Rows of the batch in another order (B',), as a beam search needs it."""
        if self.keys is not None:
            self.keys, self.values = self.keys.index_select(0, index), self.values.index_select(0, index)


class MultiHead(nn.Module):
    """Base of the families' ``MultiHeadAttention``: queries, keys and values, heads attended side by side and joined.

    Args:
        manifold: space of inputs and outputs. d: intrinsic size. n_heads: divides d.

    Subclasses implement ``queries``, ``keys``, ``values``: (B, T, D) -> (B, n_heads, T, D_head); ``attend``;
    ``weights``; and ``merge``: (B, n_heads, T, D_head) -> (B, T, D), without the linear layer that follows in a
    Transformer (that is a ``Residual``).

    Raises:
        ValueError: n_heads that does not divide d.
    """

    def __init__(self, manifold: Manifold, d: int, n_heads: int):
        super().__init__()
        self.manifold, self.d, self.n_heads = manifold, d, n_heads
        if n_heads < 1 or d % n_heads:
            raise ValueError(f"{name_of(self)}: the size {d} cannot be divided among {n_heads} heads")

    def queries(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def keys(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def values(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Weighted centroid of the values: (B, n_heads, T, D_head).

        Args: mask: None, or boolean and broadcast to (B, n_heads, T, N), true where a key counts; causal: position t
            sees the keys 0..t (given only without a mask, and with as many queries as keys).
        """
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """The attention weights (B, n_heads, T, N), each row summing to 1."""
        raise NotImplementedError

    def merge(self, heads: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: AttentionCache | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """
        Args:
            x: (B, T, D) points that ask. memory: (B, N, D) points that are attended to; x itself when left out.
            mask: (B, N), true where a point of memory counts. With a growing cache it covers the cached positions too.
            causal: position t attends to positions 0..t only; cached positions come before those of x. A position from
                which the mask hides all it could see (padding at the start) attends as if there were no mask.
            cache: holds keys and values of earlier calls.
            return_weights: also return the weights (B, n_heads, T, N).
        Returns: (B, T, D).
        Raises:
            ValueError: not (B, T, D), another batch in memory, sequences of length 0, a mask of another shape or one
                that hides every position of a row.
        """
        if x.dim() != 3 or (memory is not None and (memory.dim() != 3 or memory.shape[0] != x.shape[0])):
            given = "" if memory is None else f" and a memory of shape {tuple(memory.shape)}"
            raise ValueError(
                f"{name_of(self)}: takes points (B, T, D) and a memory (B, N, D), got shape {tuple(x.shape)}{given}"
            )
        past = cache.length if cache is not None else 0
        q = self.queries(x)
        if cache is not None and cache.static and past:
            k, v, past = cache.keys, cache.values, 0
        else:
            source = x if memory is None else memory
            k, v = self.keys(source), self.values(source)
            if cache is not None:
                cache.append(k, v)
                k, v = cache.keys, cache.values
        steps, length = q.shape[-2], k.shape[-2]
        if steps == 0 or length == 0:
            raise ValueError(f"{name_of(self)}: empty sequence: {steps} queries, {length} keys")
        hidden = _padding(self, mask, x.shape[0], length)
        causal = causal and length > past + 1  # otherwise there is no later key
        plain = causal and hidden is None and past == 0 and steps == length
        if causal and (not plain or return_weights):
            seen = torch.ones(steps, length, dtype=torch.bool, device=x.device).tril(past)
            if hidden is not None:
                both = hidden & seen
                seen = both | (seen & ~both.any(-1, keepdim=True))
            hidden = seen
        out = self.merge(self.attend(q, k, v, None if plain else hidden, plain))
        return (out, self.weights(q, k, hidden)) if return_weights else out


def _padding(layer: nn.Module, mask: Tensor | None, batch: int, length: int) -> Tensor | None:
    """The mask as (B, 1, 1, N)."""
    if mask is None:
        return None
    if mask.shape != (batch, length):
        raise ValueError(f"{name_of(layer)}: the mask must have the shape {(batch, length)}, got {tuple(mask.shape)}")
    if not mask.is_cuda and not bool(mask.any(-1).all()):  # on a GPU the check would wait for the device
        raise ValueError(f"{name_of(layer)}: the mask hides every position of at least one row")
    return mask[:, None, None, :]
