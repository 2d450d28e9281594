"""The formulas of :mod:`hyperbolic.kernels.lorentz_attention` in PyTorch operations."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.lorentz_rows import dual, normalised_mean

_LEAST_SHARE = 1e-4  # of the weights of a row, after dropout
_MATMUL_LENGTH = 64  # on CPU, up to this many keys, two matrix products are faster than the fused attention


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    factor: Tensor,
    c: Tensor,
    mask: Tensor | None,
    kept: Tensor | None,
    causal: bool,
) -> Tensor:
    """Centroids of v with the weights ``softmax_j(factor <q_i, k_j>_L)``, those that are not kept left out."""
    q = dual(q, factor)
    if kept is None and (q.is_cuda or k.shape[-2] > _MATMUL_LENGTH):
        mean = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=1.0)
        return normalised_mean(mean, c)
    weights = softmax(q @ k.mT, mask, causal)
    return normalised_mean((weights if kept is None else keep_weights(weights, kept)) @ v, c)


def softmax(score: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    if causal:
        mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    return torch.softmax(score if mask is None else score.masked_fill(~mask, -torch.inf), -1)


def drop_weights(weights: Tensor, p: float) -> Tensor:
    """Weights (..., T, N) of which each is left out with probability p; see :func:`keep_weights`."""
    return keep_weights(weights, torch.rand(weights.shape, device=weights.device) >= p)


def keep_weights(weights: Tensor, kept: Tensor) -> Tensor:
    """Weights (..., T, N) without those that are not kept; those of a row sum to 1 again.

    A row that keeps less than 1e-4 keeps all: its centroid's gradient grows with one over what is kept.
    """
    remaining = torch.where(kept, weights, 0)
    total = remaining.sum(-1, keepdim=True)
    enough = total > _LEAST_SHARE
    return torch.where(enough, remaining / torch.where(enough, total, 1), weights)
