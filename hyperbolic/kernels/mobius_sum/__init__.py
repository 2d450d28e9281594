"""The Möbius sum of many points from the left, ``((x_1 (+) x_2) (+) x_3) (+) ...``, with its derivative by hand.

Gyrovector addition neither commutes nor associates, so there is one step a point; all rows go side by side. Layout
inside: (T, D, B), points scaled to the unit ball, with their gaps ``1 - |x|^2`` (T, 1, B); see
:mod:`hyperbolic.kernels.gyro`. A step takes the point and the gap of the sum so far, and nothing in it cancels; errors
of the gap die out inside the ball and add up near its boundary, at one rounding a step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.gyro import constants
from hyperbolic.kernels.mobius_sum.passes import BallSum
from hyperbolic.manifolds.poincare import project
from hyperbolic.numerics import rescale, sqnorm
from hyperbolic.smooth import artanhc, cosh_sqrt, tanhc


def mobius_sum(x: Tensor, c: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """``((w_1 (x) x_1 (+) w_2 (x) x_2) (+) w_3 (x) x_3) (+) ...`` of ball points.

    Args:
        x: (..., T, D), T > 0. c: curvature. weights: (..., T), of any sign; 1 when left out.
        mask: (..., T), boolean, true for points that count; the sum of none is 0.
    Returns: (..., D), inside the boundary margin. What stands behind the last point that counts does not touch it.
    """
    *lead, steps, size = x.shape
    points, gap = _weigh(x, weights, c)
    last = None
    if mask is not None:
        points, gap = torch.where(mask.unsqueeze(-1), points, 0), torch.where(mask.unsqueeze(-1), gap, 1)
        position = torch.arange(1, steps + 1, device=x.device) * mask
        last = _columns((position == position.amax(-1, keepdim=True).clamp_min(1)).unsqueeze(-1).to(x.dtype))
    total = BallSum.run(_columns(c.sqrt().to(x.dtype) * points), _columns(gap), last)
    return project(c.rsqrt().to(x.dtype) * total.T, c).view(*lead, size)


def _weigh(x: Tensor, weights: Tensor | None, c: Tensor) -> tuple[Tensor, Tensor]:
    """``w (x) x`` and its gaps (..., T, 1)."""
    (bound, least, *_), square = constants(x), sqnorm(x)
    gap = (1 - c * square).clamp_min(least)
    if weights is None:
        return x, gap.to(x.dtype)
    scale = weights.unsqueeze(-1) * artanhc(gap)
    square = c * scale.square() * square
    gap = cosh_sqrt(square.clamp_max(400)).square().reciprocal().clamp_min(least)
    factor = torch.minimum(tanhc(square), bound * square.clamp_min(0.25).rsqrt())
    return rescale(scale * factor, x), gap.to(x.dtype)


def _columns(values: Tensor) -> Tensor:
    """(..., T, D) -> (T, D, B), the rows on the last axis."""
    return values.reshape(-1, *values.shape[-2:]).permute(1, 2, 0).contiguous()
