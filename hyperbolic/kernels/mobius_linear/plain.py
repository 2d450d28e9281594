"""The formula of :mod:`hyperbolic.kernels.mobius_linear` in PyTorch operations."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from hyperbolic.manifolds.poincare import expmap0, logmap0, mobius_add, project
from hyperbolic.numerics import WIDE, artanhc, ball_gap, sqnorm, tanhc


def affine(c: Tensor, points: Tensor | None, factors: Tensor | None, *tensors: Tensor) -> Tensor:
    """points: (P, D); factors: (N, P') of the last P' of them; tensors: the x_i (N, D_i), then the W_i (D, D_i)."""
    n, dtype = len(tensors) // 2, tensors[0].dtype
    terms = [_product(x, w, c) for x, w in zip(tensors[:n], tensors[n:], strict=True)]
    points = None if points is None else points.to(WIDE)
    if points is not None:
        scaled = 0 if factors is None else factors.shape[-1]
        terms += points[: points.shape[0] - scaled].unbind(0)
        if factors is not None and scaled:
            terms += expmap0(factors.unsqueeze(-1) * logmap0(points[-scaled:], c), c).unbind(-2)
    return project(functools.reduce(lambda x, y: mobius_add(x, y, c), terms).to(dtype), c)


def _product(x: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """``W (x) x = exp_0(W log_0(x))`` in float64: float32 points near the boundary would lose what they add up to."""
    u = artanhc(ball_gap(x, c)) * torch.nn.functional.linear(x, w)
    return tanhc(c * sqnorm(u)) * u
