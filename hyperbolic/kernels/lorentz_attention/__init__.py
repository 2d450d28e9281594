"""Attention of HyboNet's heads: weights by the squared Lorentz distance, and the Lorentz centroid of the values."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.fusion import fused
from hyperbolic.kernels.lorentz_attention.passes import Attention
from hyperbolic.kernels.lorentz_attention.plain import drop_weights, softmax
from hyperbolic.kernels.lorentz_rows import dual


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
    kept = None
    if dropout:
        lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        kept = torch.rand(*lead, q.shape[-2], k.shape[-2], device=q.device) >= dropout
    y: Tensor = Attention.run(q, k, v, _twice_inverse(temperature), c, mask, kept, causal)
    return y


def attention_weights(q: Tensor, k: Tensor, temperature: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights of :func:`lorentz_attention`, (..., T, N)."""
    return softmax(dual(q, 2 / temperature) @ k.mT, mask, False)


@fused
def _twice_inverse(temperature: Tensor) -> Tensor:
    return 2 / temperature


__all__ = ["attention_weights", "drop_weights", "lorentz_attention"]
