"""Attention of HyboNet's heads: weights by the squared Lorentz distance, and the Lorentz centroid of the values."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels import lorentz_attention_native
from hyperbolic.kernels.lorentz import dual, normalised_mean, normalised_mean_reference

_LEAST_SHARE = 1e-4  # of the weights of a row, after dropout
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
        dropout: probability with which a weight is left out; see :func:`drop_weights`.
    Returns: (..., T, D).
    """
    if not dropout and lorentz_attention_native.usable(q, k, v, mask):
        return lorentz_attention_native.attention(q, k, v, 2 / temperature, c, mask, causal)
    q = dual(q, 2 / temperature)
    if dropout:
        weights = drop_weights(_softmax(q @ k.mT, mask, causal), dropout)
        return normalised_mean(weights @ v, c)
    if not q.is_cuda and k.shape[-2] <= _MATMUL_LENGTH:
        return normalised_mean(_softmax(q @ k.mT, mask, causal) @ v, c)
    mean = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=1.0)
    return normalised_mean(mean, c)


def attention_weights(q: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights of :func:`lorentz_attention`, (..., T, N)."""
    return _softmax(dual(q, 2 / temperature) @ k.mT, mask, False)


def _softmax(score: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    if causal:
        mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    return torch.softmax(score if mask is None else score.masked_fill(~mask, -torch.inf), -1)


def drop_weights(weights: Tensor, p: float) -> Tensor:
    """Weights (..., T, N) of which each is left out with probability p; those of a row sum to 1 again.

    A row that keeps less than 1e-4 keeps all: its centroid's gradient grows with one over what is kept.
    """
    remaining = torch.nn.functional.dropout(weights, p)
    total = remaining.sum(-1, keepdim=True)
    enough = total > _LEAST_SHARE
    return torch.where(enough, remaining / torch.where(enough, total, 1), weights)


def lorentz_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, temperature: Tensor, c: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Plain version of :func:`lorentz_attention`, pair by pair; float64 arithmetic is advisable."""
    pairs = (q.unsqueeze(-2) * k.unsqueeze(-3) * torch.tensor([-1.0] + [1.0] * (q.shape[-1] - 1)).to(q)).sum(-1)
    weights = _softmax((2 / c + 2 * pairs) / temperature, mask, causal)
    return normalised_mean_reference((weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2), c)
