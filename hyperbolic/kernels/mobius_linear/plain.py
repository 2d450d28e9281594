"""The formula of :mod:`hyperbolic.kernels.mobius_linear` in PyTorch operations.

Points are float64 and travel with their gaps ``1 - c|x|^2``, as in :mod:`hyperbolic.kernels.gyro`: that of ``exp_0`` is
``sech^2``, that of a sum ``g_x g_y / D``, and none is made from coordinates.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from hyperbolic.kernels.gyro import tanhc
from hyperbolic.manifolds.poincare import pull_inside
from hyperbolic.numerics import WIDE, ball_gap, sqnorm
from hyperbolic.smooth import artanhc

Point = tuple[Tensor, Tensor]  # (..., D) and its gap (..., 1)


def affine(c: Tensor, points: Tensor | None, factors: Tensor | None, *tensors: Tensor) -> Tensor:
    """points: (P, D); factors: (N, P') of the last P' of them; tensors: the x_i (N, D_i), then the W_i (D, D_i)."""
    n, dtype = len(tensors) // 2, tensors[0].dtype
    terms = [_times(artanhc(ball_gap(x, c)), x, w, c) for x, w in zip(tensors[:n], tensors[n:], strict=True)]
    if points is not None:
        gaps, scaled = ball_gap(points, c), 0 if factors is None else factors.shape[-1]
        first = points.shape[0] - scaled
        terms += zip(points.to(WIDE)[:first], gaps[:first], strict=True)
        if factors is not None and scaled:
            logs = artanhc(gaps[first:])
            terms += [_times(factors[:, j : j + 1] * logs[j], points[first + j], None, c) for j in range(scaled)]
    total, gap = functools.reduce(lambda x, y: _add(x, y, c), terms)
    return pull_inside(total, gap, dtype).to(dtype)


def _times(factor: Tensor, x: Tensor, w: Tensor | None, c: Tensor) -> Point:
    """``exp_0(factor W x)`` in float64: float32 points near the boundary would lose what they add up to."""
    u = factor * (x if w is None else torch.nn.functional.linear(x, w))
    scale, gap = tanhc(c * sqnorm(u))
    return scale * u, gap


def _add(x: Point, y: Point, c: Tensor) -> Point:
    """``x (+) y = (|s|^2 x + g_x s) / D``, ``D = |s|^2 + g_x g_y`` with ``s = x + y`` and lengths times sqrt(c)."""
    s, gaps = x[0] + y[0], x[1] * y[1]
    square = c * sqnorm(s)
    one_over = 1 / (square + gaps)
    return (square * one_over) * x[0] + (x[1] * one_over) * s, gaps * one_over
