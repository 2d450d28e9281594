"""The formula of :mod:`hyperbolic.kernels.mobius_sum` in PyTorch operations."""

from __future__ import annotations

from torch import Tensor

from hyperbolic.kernels.gyro import add, constants


def ball_sum(x: Tensor, gap: Tensor, last: Tensor | None) -> Tensor:
    """``(x_1 (+) x_2) (+) ...`` in the unit ball; see :class:`~hyperbolic.kernels.mobius_sum.passes.BallSum`."""
    least = constants(x).least_gap
    total, total_gap = x[0], gap[0]
    result = total if last is None else total * last[0]
    for t in range(1, x.shape[0]):
        total, new_gap = add(total, total_gap, x[t], gap[t])
        total_gap = new_gap.clamp_min(least)
        total = total + 0.5 * (new_gap - total_gap) * total  # back inside: |x|^2 = 1 - gap, both near 1
        result = total if last is None else result + total * last[t]
    return result
