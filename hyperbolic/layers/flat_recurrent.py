"""Whole-sequence Euclidean RNN and GRU: the twins of :mod:`hyperbolic.kernels.recurrent`, in the same layout.

The input side of all steps is hoisted, the batch stands on the last axis, independent cells run side by side. The plain
reference versions are the cells of :mod:`hyperbolic.layers.euclidean`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hyperbolic.nonlinearity import NONLINEARITIES

Step = Callable[[Tensor, Tensor, Tensor | float], Tensor]


def _run(x: Tensor, lengths: Tensor | None, weight_ih: Tensor, bias: Tensor, step: Step) -> Tensor:
    """States (S, B, T, H) of the steps (h, u, mask) -> h' over inputs (S, B, T, D), from h = 0."""
    streams, batch, steps, _ = x.shape
    u = weight_ih.flatten(1, 2) @ x.permute(2, 0, 3, 1) + bias.flatten(1, 2).unsqueeze(-1)
    masks: Sequence[Tensor | float] = [1.0] * steps
    if lengths is not None:
        positions = torch.arange(steps, device=x.device).view(-1, 1, 1, 1)
        masks = (positions < lengths.unsqueeze(1)).to(u.dtype).unbind(0)
    h = u.new_zeros(streams, weight_ih.shape[2], batch)
    steps_h = []
    for u_t, mask in zip(u.unbind(0), masks, strict=True):
        h = step(h, u_t, mask)
        steps_h.append(h)
    states = torch.stack(steps_h)
    if states.requires_grad:
        # the gradient comes with the batch strided, which every step would inherit
        states.register_hook(torch.Tensor.contiguous)
    return states.permute(1, 3, 0, 2)


def euclidean_rnn(
    x: Tensor, lengths: Tensor | None, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, nonlinearity: str = "tanh"
) -> Tensor:
    """``h_t = phi(W h_{t-1} + U x_t + b)``, h_0 = 0.

    Args: x (S, B, T, D); lengths (S, B), states after the end repeat the last one; weight_ih (S, 1, H, D),
        weight_hh (S, 1, H, H), bias (S, 1, H); nonlinearity: a key of ``NONLINEARITIES``.
    Returns: (S, B, T, H) states.
    """
    weight, phi = weight_hh[:, 0], NONLINEARITIES[nonlinearity]

    def step(h: Tensor, u: Tensor, mask: Tensor | float) -> Tensor:
        new = phi(torch.baddbmm(u, weight, h))
        return torch.lerp(h, new, mask) if isinstance(mask, Tensor) else new

    return _run(x, lengths, weight_ih, bias, step)


def euclidean_gru(
    x: Tensor, lengths: Tensor | None, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, nonlinearity: str = "tanh"
) -> Tensor:
    """``r, z = sigma(W h + U x + b)``, ``h~ = phi(W (r h) + U x + b)``, ``h' = h + z (h~ - h)``, h_0 = 0.

    Args: x (S, B, T, D); lengths (S, B), states after the end repeat the last one; weight_ih (S, 3, H, D),
        weight_hh (S, 3, H, H), bias (S, 3, H), gates r, z, candidate; nonlinearity: a key of ``NONLINEARITIES``.
    Returns: (S, B, T, H) states.
    """
    size, phi = weight_hh.shape[2], NONLINEARITIES[nonlinearity]
    w_gates, w_new = weight_hh[:, :2].flatten(1, 2), weight_hh[:, 2]

    def step(h: Tensor, u: Tensor, mask: Tensor | float) -> Tensor:
        r, z = map(torch.sigmoid, torch.baddbmm(u[:, : 2 * size], w_gates, h).split(size, 1))
        new = phi(torch.baddbmm(u[:, 2 * size :], w_new, r * h))
        return torch.lerp(h, new, z * mask)

    return _run(x, lengths, weight_ih, bias, step)
