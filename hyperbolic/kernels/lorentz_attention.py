"""Attention of HyboNet's heads: weights by the squared Lorentz distance, and the Lorentz centroid of the values."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.lorentz_rows import dual, normalised_mean

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
    q = dual(q, 2 / temperature)
    if not dropout and (q.is_cuda or k.shape[-2] > _MATMUL_LENGTH):
        mean = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=1.0)
        return normalised_mean(mean, c)
    score = _hide(q @ k.mT, mask, causal)
    if dropout:  # the weights of those that are kept, over their sum: a softmax of their scores alone
        kept = torch.rand(score.shape, device=q.device) >= dropout
        with torch.no_grad():
            enough = torch.where(kept, torch.softmax(score, -1), 0).sum(-1, keepdim=True) > _LEAST_SHARE
        score = score.masked_fill(enough & ~kept, -torch.inf)
    return normalised_mean(torch.softmax(score, -1) @ v, c)


def attention_weights(q: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights of :func:`lorentz_attention`, (..., T, N)."""
    return torch.softmax(_hide(dual(q, 2 / temperature) @ k.mT, mask, False), -1)


def _hide(score: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The scores (..., T, N), -inf where a query sees no key."""
    if causal:
        mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    return score if mask is None else score.masked_fill(~mask, -torch.inf)


def drop_weights(weights: Tensor, p: float) -> Tensor:
    """Weights (..., T, N) of which each is left out with probability p; those of a row sum to 1 again.

    A row that keeps less than 1e-4 keeps all: its centroid's gradient grows with one over what is kept.
    """
    remaining = torch.where(torch.rand(weights.shape, device=weights.device) >= p, weights, 0)
    total = remaining.sum(-1, keepdim=True)
    enough = total > _LEAST_SHARE
    return torch.where(enough, remaining / torch.where(enough, total, 1), weights)
