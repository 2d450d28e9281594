"""Multi-head attention, the part all families share: heads, masks, the cache of incremental decoding."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_mask, name_of
from hyperbolic.manifolds import Manifold
from hyperbolic.switch import is_followed

_LOG_REST = math.log(1e-4)  # of what remains of an attention weight that dropout leaves out


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

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values held so far with these (B, n_heads, N, D_head) after them; the cache is left as it is."""
        if self.keys is None or self.values is None:
            return keys, values
        return torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)

    def reorder(self, index: Tensor) -> None:
        """Rows of the batch in another order (B',), as a beam search needs it."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, index), self.values.index_select(0, index)


class MultiHead(nn.Module):
    """Base of the families' ``MultiHeadAttention``: queries, keys and values, heads attended side by side and joined.

    Args:
        manifold: space of inputs and outputs. d: intrinsic size. n_heads: divides d.

    Subclasses make the linear layers ``query``, ``key`` and ``value`` and implement ``divide``: what these give ->
    (B, n_heads, T, D_head); ``attend``; ``weights``; and ``merge``: (B, n_heads, T, D_head) -> (B, T, D), without the
    linear layer that follows in a Transformer (that is a ``Residual``).

    Raises:
        ValueError: n_heads that does not divide d.
    """

    query: nn.Module
    key: nn.Module
    value: nn.Module

    def __init__(self, manifold: Manifold, d: int, n_heads: int):
        super().__init__()
        self.manifold, self.d, self.n_heads = manifold, d, n_heads
        if n_heads < 1 or d % n_heads:
            raise ValueError(f"{name_of(self)}: the size {d} cannot be divided among {n_heads} heads")

    extra_repr = shows("d", "n_heads")

    def divide(self, points: Tensor) -> Tensor:
        """What `query`, `key` and `value` make, (..., T, .), as points of each head: (..., n_heads, T, .)."""
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
        """The points of the heads (..., n_heads, T, .) as one, (..., T, .)."""
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
            mask: (B, N), boolean, true where a point of memory counts. With a growing cache it covers the cached
                positions too.
            causal: position t attends to positions 0..t only; cached positions come before those of x. The memory then
                has a point for each of x. A position from which the mask hides all it could see (padding at the start)
                attends as if there were no mask.
            cache: holds keys and values of earlier calls; a call that fails leaves it as it was.
            return_weights: also return the weights (B, n_heads, T, N).
        Returns: (B, T, D).
        Raises:
            ValueError: not (B, T, D), another batch in memory or cache, sequences of length 0, causal with a memory
                that is longer or shorter than x, a mask that is not boolean, of another shape, or (without causal) that
                hides every position of a row (the last on a GPU: a device-side assertion).
        """
        length = self._check(x, memory, mask, causal, cache)
        past = cache.length if cache is not None else 0
        source = x if memory is None else memory
        q = self.divide(self.query(x))
        if cache is not None and cache.static and cache.keys is not None and cache.values is not None:
            k, v, past = cache.keys, cache.values, 0
        else:
            k, v = self.divide(self.key(source)), self.divide(self.value(source))
            if cache is not None:
                k, v = cache.extend(k, v)
        plain = causal and mask is None and past == 0 and length > 1
        visible = None
        if return_weights or not plain:
            visible = _visible(mask, x.shape[1], length, past if causal else None, x.device)
        out = self.merge(self.attend(q, k, v, None if plain else visible, plain))
        result = (out, self.weights(q, k, visible)) if return_weights else out
        if cache is not None:
            cache.keys, cache.values = k, v
        return result

    def _check(
        self, x: Tensor, memory: Tensor | None, mask: Tensor | None, causal: bool, cache: AttentionCache | None
    ) -> int:
        """The number of keys, after a check of all that ``forward`` takes."""
        if x.dim() != 3 or (memory is not None and (memory.dim() != 3 or memory.shape[0] != x.shape[0])):
            other = "" if memory is None else f" and a memory of shape {tuple(memory.shape)}"
            raise ValueError(
                f"{name_of(self)}: takes points (B, T, D) and a memory (B, N, D), got shape {tuple(x.shape)}{other}"
            )
        past, static = (0, False) if cache is None else (cache.length, cache.static)
        steps, new = x.shape[1], x.shape[1] if memory is None else memory.shape[1]
        length = past if past and static else past + new
        if steps == 0 or length == 0:
            raise ValueError(f"{name_of(self)}: empty sequence: {steps} queries, {length} keys")
        earlier = 0 if static else past
        if causal and length != earlier + steps:
            raise ValueError(
                f"{name_of(self)}: causal order needs a key for each query, got {steps} queries and {length - earlier} "
                "keys; attend to a memory of another length without causal, or hide positions with a mask"
            )
        if cache is not None and cache.keys is not None and cache.keys.shape[0] != x.shape[0]:
            raise ValueError(
                f"{name_of(self)}: the cache holds a batch of {cache.keys.shape[0]}, got points of shape "
                f"{tuple(x.shape)}: use one cache for each batch, or reorder it"
            )
        if mask is not None:
            check_mask(self, mask, (x.shape[0], length), hidden_rows=causal)
        return length


def _visible(mask: Tensor | None, steps: int, length: int, past: int | None, device: torch.device) -> Tensor | None:
    """Which keys each query counts, broadcast to (B, n_heads, T, N); None for all of them.

    Args: mask: (B, N). past: None, or query t sees the keys 0..past+t, all of them where the mask leaves it none.
    """
    counted = None if mask is None else mask[:, None, None, :]
    if past is None or (counted is None and length <= past + 1):
        return counted
    earlier = None if length <= past + 1 else torch.ones(steps, length, dtype=torch.bool, device=device).tril(past)
    if earlier is None or counted is None:  # no later key, or no mask
        return earlier if counted is None else counted | ~counted.any(-1, keepdim=True)
    both = counted & earlier
    return both | (earlier & ~both.any(-1, keepdim=True))


def drop_scores(scores: Tensor, p: float) -> Tensor:
    """Scores (..., T, N) of a softmax that leaves each weight out with probability p: ``scores + log(1e-4) b``, b from
    Bernoulli(p). The weights of a row sum to 1.

    Of a weight that is left out 1e-4 remains. Else a row that loses all its weights would have none, and one that loses
    nearly all a gradient beyond all numbers.
    """
    return torch.add(scores, _chosen(scores, p), alpha=_LOG_REST)


def _chosen(like: Tensor, p: float) -> Tensor:
    """True with probability p, in the shape of a tensor.

    On a CPU four entries come from one random number of 64 bits, which takes half the time; p then counts in steps of
    2^-16 and is at most 1 - 2^-16.
    """
    if like.device.type != "cpu" or is_followed(like):
        return torch.rand_like(like) < p
    numbers = torch.empty(like.numel() // 4 + 1, dtype=torch.int64, device="cpu").random_(-(2**63), None)
    least = min(round(p * 2**16), 2**16 - 1) - 2**15
    return numbers.view(torch.int16)[: like.numel()].view(like.shape) < least
