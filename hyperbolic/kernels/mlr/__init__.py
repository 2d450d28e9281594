"""Hyperbolic multinomial logistic regression as one matrix product (Ganea et al. 2018, Eq. 23).

With the lift ``X = [2x/g_x, 2(1 + c|x|^2)/g_x]``, ``g_x = 1 - c|x|^2``, and per class
``W = sqrt(c)/|a| [a + 2c<p,a>/g_p p, -<p,a>/g_p]``, the argument of arsinh is exactly ``<X, W>``:

``logit_k = 2|a_k|/sqrt(c) arsinh(2 sqrt(c) <-p_k (+) x, a_k> / ((1 - c|-p_k (+) x|^2) |a_k|)) = s_k arsinh(<X, W_k>)``

No tensor of batch x classes x dimension is formed. Row scalars (gaps, squared norms, products) are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.fusion import fuse
from hyperbolic.kernels.mlr import passes
from hyperbolic.kernels.mlr.plain import arsinh
from hyperbolic.numerics import ball_gap, rescale, wide_curvature


@fuse
def lift_points(x: Tensor, c: Tensor) -> Tensor:
    """``[2x/g, 2(1 + c|x|^2)/g]``: (..., d) -> (..., d+1)."""
    gap = ball_gap(x, wide_curvature(c).to(x.device))
    return torch.cat([rescale(2 / gap, x), (4 / gap - 2).to(x.dtype)], -1)


def lift_hyperplanes(p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """W (K, d+1) and the scales ``s = 2|a|/sqrt(c)`` (K,) of hyperplanes through points p with normals a, both (K, d).

    At a = 0 the logit is 0 and its gradient is finite.
    """
    w, scale = passes.LiftHyperplanes.run(p, a, wide_curvature(c).to(a.device))
    return w, scale


def class_logits(x: Tensor, w: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """``s_k arsinh(<x, w_k>)`` where a scale is given, else ``<x, w_k> + b_k``; (..., e), (K, e), (K,) -> (..., K).

    Scales are positive, as those of :func:`lift_hyperplanes`.
    """
    if scale is None:
        return torch.nn.functional.linear(x, w, bias)
    logits: Tensor = passes.Logits.run(x.reshape(-1, x.shape[-1]), w, scale)
    return logits.view(*x.shape[:-1], w.shape[0])


def mlr_logits(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Logits of Ganea et al. 2018, Eq. 23, with the normals given at the origin (``a'`` after Eq. 23).

    Args: x (..., d) ball points; p (K, d) ball points; a (K, d) tangent vectors at the origin; c curvature.
    Returns: (..., K).
    """
    return class_logits(lift_points(x, c), *lift_hyperplanes(p, a, c))


__all__ = ["arsinh", "class_logits", "lift_hyperplanes", "lift_points", "mlr_logits"]
