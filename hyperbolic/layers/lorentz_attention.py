"""Attention of the Lorentz family: HyboNet's heads, and the pooling attentions with Lorentz linear layers."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn

from hyperbolic import switch
from hyperbolic.kernels.lorentz_rows import dual, lift, normalised_mean
from hyperbolic.layers import attention
from hyperbolic.layers.attention import DistanceAttention
from hyperbolic.layers.constants import ConstantLayer
from hyperbolic.layers.guard import check_choice, name_of, takes_points
from hyperbolic.layers.lorentz_linear import Linear
from hyperbolic.layers.multihead import MultiHead, drop_scores
from hyperbolic.manifolds import Lorentz
from hyperbolic.manifolds.sheet import half_sinh_square

TEMPERATURES = ("learned", "head", "model")
_MATMUL_LENGTH = 64  # on CPU, up to this many keys, two matrix products are faster than the fused attention


def lorentz_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    temperature: Tensor,
    c: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Centroids of v with the weights ``softmax_j((2/c + 2 <q_i, k_j>_L) / temperature)`` (Chen et al., Eq. 5).

    The dot-product attention of ``2/temperature (-q_0, q_s)``, k and v, with its rows normalised to the sheet; the
    constant 2/c drops out of the softmax.

    Args:
        q (..., T, D); k, v (..., N, D) points; temperature: scalar tensor. mask: boolean, broadcast to (..., T, N),
            true where a key counts. causal: query t sees the keys 0..t.
        dropout: probability with which a weight is left out; see :func:`hyperbolic.layers.multihead.drop_scores`.
    Returns: (..., T, D).
    """
    if causal and mask is not None:
        mask, causal = mask & torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(), False
    q = dual(q, 2 / temperature)
    fused = q.is_cuda or k.shape[-2] > _MATMUL_LENGTH
    if fused and not dropout and (q.is_cuda or not switch.is_forward_mode()):  # which on a CPU it does not have
        mean = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=1.0)
        return normalised_mean(mean, c)
    scores = _hide(q @ k.mT, mask, causal)
    if dropout:
        scores = drop_scores(scores, dropout)
    return normalised_mean(torch.softmax(scores, -1) @ v, c)


def attention_weights(q: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights of :func:`lorentz_attention`, (..., T, N)."""
    return torch.softmax(_hide(dual(q, 2 / temperature) @ k.mT, mask, False), -1)


def _hide(score: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The scores (..., T, N), -inf where a query sees no key."""
    if causal:
        mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    if mask is None:
        return score
    return score + torch.zeros_like(mask, dtype=score.dtype).masked_fill(~mask, -torch.inf)  # needs no backward pass


class MultiHeadAttention(ConstantLayer, MultiHead):
    """Lorentz attention with several heads (Chen et al., Eq. 5, 6).

    Each head has its own Lorentz linear layers for queries, keys and values, whose results are points of dimension
    d / n_heads. The logits are ``-d_L^2(q, k) / s = (2/c + 2 <q, k>_L) / s``, the result is the Lorentz centroid of the
    values; the heads are joined by their space parts, side by side, with the time coordinate recomputed. HL of Eq. 6
    is the ``Residual`` that follows.

    Args:
        manifold: hyperboloid, any c. d: intrinsic size. n_heads: divides d.
        dropout: of the attention weights (a query that loses nearly all of them keeps them).
        input_dropout: of the coordinates that go into queries, keys and values; what the released program does with
            its option ``attention_dropout``.
        temperature: s > 0. "learned", from sqrt(d) (released program), as the exponential of a trained number; "head":
            sqrt(d / n_heads), "model": sqrt(d), fixed.
        variant: of the linear layers, see :class:`Linear`.

    Raises:
        ValueError: n_heads that does not divide d, or another temperature.
    """

    def __init__(
        self,
        manifold: Lorentz,
        d: int,
        n_heads: int,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        temperature: str = "learned",
        variant: str = "paper",
    ):
        super().__init__(manifold, d, n_heads)
        check_choice(f"{name_of(self)}.temperature", temperature, TEMPERATURES)
        self.query, self.key, self.value = (
            Linear(manifold, d, d // n_heads, dropout=input_dropout, variant=variant, heads=n_heads) for _ in range(3)
        )
        self.dropout = nn.Dropout(dropout)
        start = math.sqrt(d // n_heads if temperature == "head" else d)
        self.log_temperature = None
        if temperature == "learned":
            self.log_temperature = nn.Parameter(torch.tensor(start).log())
        else:
            self.keep_constant("fixed_temperature", start)

    fixed_temperature: Tensor

    @property
    def temperature(self) -> Tensor:
        """s, a positive scalar."""
        return self.fixed_temperature if self.log_temperature is None else self.log_temperature.exp()

    def divide(self, points: Tensor) -> Tensor:
        return (points if self.n_heads > 1 else points.unsqueeze(-2)).transpose(-3, -2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        drop = self.dropout.p if self.training else 0.0
        return lorentz_attention(q, k, v, self.temperature, self.manifold.c, mask, causal, drop)

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        return attention_weights(q, k, self.temperature, mask)

    def merge(self, heads: Tensor) -> Tensor:
        return lift(heads[..., 1:].transpose(-3, -2), self.manifold.c, axes=2)

    forward = takes_points("d", "d")(MultiHead.forward)


class _Positions(nn.Embedding):
    """Positions as vectors from N(0, 0.02^2) that serve as bias of a Lorentz linear layer."""

    def __init__(self, manifold: Lorentz, n: int, d: int):
        super().__init__(n, d, _weight=0.02 * torch.randn(n, d))


class _Shift(nn.Module):
    """A point and a position, joined by a Lorentz linear layer that has the position as its bias."""

    def __init__(self, manifold: Lorentz, d: int, variant: str):
        super().__init__()
        self.affine = Linear(manifold, d, d, bias=False, variant=variant)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        return self.affine.join(x, position)


class Attention(DistanceAttention):
    """Distance attention with Lorentz linear queries and keys, the geodesic distance and the Lorentz centroid.

    Positions come in as in HyboNet's position encoding: ``r_i`` is a Lorentz linear layer of ``x_i`` whose only bias is
    the vector of the position.

    Args:
        variant: of the linear layers, see :class:`Linear`.
    """

    manifold: Lorentz
    embedding = _Positions

    def __init__(
        self, manifold: Lorentz, d: int, n_positions: int = 0, score: str = "distance", variant: str = "paper"
    ):
        self.linear = functools.partial(Linear, variant=variant)
        add = _Shift(manifold, d, variant) if n_positions else None
        super().__init__(manifold, d, n_positions, score)
        self.add = add

    def add_positions(self, x: Tensor, p: Tensor) -> Tensor:
        assert self.add is not None  # as there are positions
        placed: Tensor = self.add(x, p)
        return placed

    def squared_distance(self, q: Tensor, k: Tensor) -> Tensor:
        """``-2/c - 2 <q, k>_L = 4/c sinh^2(sqrt(c) d(q, k) / 2)``, without cancellation."""
        c = self.manifold.c
        return (4 / c * half_sinh_square(q[..., 1:], k[..., 1:], c)).squeeze(-1).to(q.dtype)

    forward = takes_points("d")(DistanceAttention.forward)


class ContextAttention(attention.ContextAttention):
    """Attention to a learned context point with Lorentz linear keys; see
    :class:`hyperbolic.layers.attention.ContextAttention`."""

    linear = Linear


__all__ = [
    "TEMPERATURES",
    "Attention",
    "ContextAttention",
    "MultiHeadAttention",
    "attention_weights",
    "lorentz_attention",
]
