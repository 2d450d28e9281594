"""Hyperbolic multinomial logistic regression as one matrix product (Ganea et al. 2018, Eq. 23).

With the lift ``X = [2x/g_x, 2(1 + c|x|^2)/g_x]``, ``g_x = 1 - c|x|^2``, and per class
``W = sqrt(c)/|a| [a + 2c<p,a>/g_p p, -<p,a>/g_p]``, the argument of arsinh is exactly ``<X, W>``:

``logit_k = 2|a_k|/sqrt(c) arsinh(2 sqrt(c) <-p_k (+) x, a_k> / ((1 - c|-p_k (+) x|^2) |a_k|)) = s_k arsinh(<X, W_k>)``

No tensor of batch x classes x dimension is formed. Gaps and squared norms are taken in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.manifolds.poincare import mobius_add
from hyperbolic.numerics import ball_gap, dot, sqnorm, wide

_TINY = 1e-76  # keeps |a| positive; its root is below every float32 number


def lift_points(x: Tensor, c: Tensor) -> Tensor:
    """``[2x/g, 2(1 + c|x|^2)/g]``: (..., d) -> (..., d+1)."""
    gap = ball_gap(x, c)
    return torch.cat([2 / gap * wide(x), 2 * (2 - gap) / gap], -1).to(x.dtype)


def lift_hyperplanes(p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """W (K, d+1) and the scales ``s = 2|a|/sqrt(c)`` (K,) of hyperplanes through points p with normals a, both (K, d).

    At a = 0 the logit is 0 and its gradient is finite.
    """
    shift = dot(p, a) / ball_gap(p, c)
    norm = (sqnorm(a) + _TINY).sqrt()
    root = c**0.5
    w = torch.cat([wide(a) + 2 * c * shift * wide(p), -shift], -1) * (root / norm)
    return w.to(a.dtype), (2 / root * norm).squeeze(-1).to(a.dtype)


class _ScaledAsinh(torch.autograd.Function):
    """``s arsinh(z)`` with s broadcast over the last axis; ``torch.asinh`` costs many times more on CPU."""

    @staticmethod
    def forward(ctx, z: Tensor, s: Tensor) -> Tensor:
        size = z.abs()
        value = torch.hypot(size, torch.ones_like(size)).add_(1).reciprocal_().mul_(size).mul_(size)
        value = value.add_(size).log1p_().copysign_(z)
        ctx.save_for_backward(value, s)
        return value * s

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
        value, s = ctx.saved_tensors
        return grad * s / torch.cosh(value), (grad * value).sum_to_size(s.shape)


def mlr_logits(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Logits of Ganea et al. 2018, Eq. 23, with the normals given at the origin (``a'`` after Eq. 23).

    Args: x (..., d) ball points; p (K, d) ball points; a (K, d) tangent vectors at the origin; c curvature.
    Returns: (..., K).
    """
    w, s = lift_hyperplanes(p, a, c)
    return _ScaledAsinh.apply(lift_points(x, c) @ w.T, s)


def mlr_logits_reference(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Plain version of :func:`mlr_logits`, with a Möbius sum per pair; float64 arithmetic is advisable."""
    m = mobius_add(-p, x.unsqueeze(-2), c)
    norm = a.norm(dim=-1)
    argument = 2 * c**0.5 * (m * a).sum(-1) / ((1 - c * m.square().sum(-1)) * norm)
    return 2 * norm / c**0.5 * torch.asinh(argument)
