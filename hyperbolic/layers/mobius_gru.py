"""The Möbius GRU with the input first, as in the program of Patel et al. (HyperA), by plain operations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic.manifolds import PoincareBall


def input_first_gru(
    ball: PoincareBall,
    x: Tensor,
    lengths: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    bias_hh: Tensor,
    phi: Callable[[Tensor], Tensor],
) -> Tensor:
    """``u = U (x) x (+) b``, ``w = W (x) h (+) b'`` for each gate; ``r, z = sigma(log_0(u (+) w))``,
    ``h~ = phi(diag(r) (x) w (+) u)`` and ``h' = h (+) diag(z) (x) ((-h) (+) h~)``, h_0 = 0.

    The reset gate acts after the matrix, as in ``torch.nn.GRU``, which this is for c to 0 with phi = tanh and 1 - z.

    Args:
        x: (S, B, T, D) ball points. lengths: (S, B), states after the end repeat the last one.
        weight_ih: (S, 3, H, D); weight_hh: (S, 3, H, H); bias, bias_hh: (S, 3, H) ball points; gates r, z, candidate.
        phi: points to points.
    Returns: (S, B, T, H).
    """
    plus, exp, log = ball.mobius_add, ball.expmap0, ball.logmap0
    inputs = plus(exp(torch.einsum("sbtd,sghd->stgbh", log(x), weight_ih)), bias[:, None, :, None])
    h = x.new_zeros(*x.shape[:2], weight_hh.shape[-1])
    states = []
    for t, u in enumerate(inputs.unbind(1)):
        w = plus(exp(torch.einsum("sbh,sgkh->sgbk", log(h), weight_hh)), bias_hh[:, :, None])
        r, z = torch.sigmoid(log(plus(u[:, :2], w[:, :2]))).unbind(1)
        candidate = phi(plus(exp(r * log(w[:, 2])), u[:, 2]))
        moved = plus(h, exp(z * log(plus(-h, candidate))))
        h = moved if lengths is None else torch.where((t < lengths).unsqueeze(-1), moved, h)
        states.append(h)
    return torch.stack(states, 2)
