"""The formulas of :mod:`hyperbolic.kernels.lorentz_rows` in PyTorch operations.

Row scalars are float64 and made such that nothing cancels in them: ``t^2 - 1/c`` is a product of positive terms.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.numerics import straight_through

OFFSET = 1.1  # least time of the points of a linear layer, times sqrt(c) (Chen et al., in their program)
_SHORT = 2.0**-40  # what the square of a space part counts as more where it is normalised


def normalise(z: Tensor, scale: Tensor, c: Tensor, offset: float = OFFSET, heads: int = 1) -> Tensor:
    """``(t, sqrt(t^2 - 1/c) u / |u|)`` with ``z = (z_0, u)`` and ``t = (scale sigmoid(z_0) + offset) / sqrt(c)``.

    The normalisation of HyboNet's linear layer (Chen et al., Eq. 9), its constants in units of ``1/sqrt(c)``. For
    ``|u|`` near 0, where that has no limit, ``|u|`` is replaced by ``sqrt(|u|^2 + 2^-40)`` and t follows from the
    space part, so that u = 0 gives the origin and a finite gradient.

    Args: z (..., heads * D); scale and c scalar tensors; offset above 1; heads: points that stand side by side on the
        last axis.
    """
    points = z.unflatten(-1, (heads, z.shape[-1] // heads))
    u, radius = points[..., 1:], c.rsqrt()
    above = (scale * points[..., :1].double().sigmoid() + (offset - 1)) * radius  # t - 1/sqrt(c)
    length = above * (above + 2 * radius)  # t^2 - 1/c
    square = u.double().square().sum(-1, keepdim=True) + _SHORT
    time = (length - length * (_SHORT / square) + 1 / c).sqrt()
    return torch.cat([time.to(z.dtype), (length / square).sqrt().to(z.dtype) * u], -1).flatten(-2)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, raw: Tensor | None, added: Tensor | None,
    scale: Tensor, c: Tensor, offset: float, heads: int,
) -> Tensor:  # fmt: skip
    """:func:`normalise` of ``z = W x + b`` (Chen et al., Eq. 9): x (..., D) -> (..., heads * D'). raw (..., D): taken
    in the place of x for z_0. added (..., d): to the last d numbers of z."""
    size = weight.shape[0] // heads
    z = torch.nn.functional.linear(x, weight, bias)
    if raw is not None:
        time = torch.nn.functional.linear(raw, weight[::size], None if bias is None else bias[::size])
        z = torch.cat([time.unsqueeze(-1), z.unflatten(-1, (heads, size))[..., 1:]], -1).flatten(-2)
    if added is not None:
        z = z + torch.nn.functional.pad(added, (size - added.shape[-1], 0))
    return normalise(z, scale, c, offset, heads)


def set_time(z: Tensor, c: Tensor, heads: int = 1) -> Tensor:
    """``(sqrt(1/c + |s|^2), s)`` of the points ``(., s)`` that stand side by side in z (..., heads * D)."""
    return lift(z.unflatten(-1, (heads, z.shape[-1] // heads))[..., 1:], c).flatten(-2)


def lift(s: Tensor, c: Tensor, axes: int = 1) -> Tensor:
    """``(sqrt(1/c + |s|^2), s)`` of space parts s, whose last `axes` axes become one."""
    s = s.flatten(-axes)
    return torch.cat([(1 / c + s.double().square().sum(-1, keepdim=True)).sqrt().to(s.dtype), s], -1)


def mean(mean: Tensor, c: Tensor) -> Tensor:
    """``m / sqrt(-c <m, m>_L)`` of means m (..., D) of points: their centroid, on the sheet (Law et al. 2019)."""
    space = mean[..., 1:]
    square, time = space.double().square().sum(-1, keepdim=True), mean[..., :1].double()
    below = (square + 1 / c).sqrt()
    gap = time - below  # not negative but for rounding, which is taken away from the value alone
    gap = straight_through(gap, gap.clamp_min(0))
    factor = (1 + c * gap * (time + below)).rsqrt()  # -c <mean, mean>_L >= 1
    time = (square * factor.square() + 1 / c).sqrt()
    return torch.cat([time.to(mean.dtype), factor.to(mean.dtype) * space], -1)


def dual(q: Tensor, factor: Tensor) -> Tensor:
    """``factor (-q_0, q_s)``, whose dot product with k is ``factor <q, k>_L``; factor a scalar tensor."""
    time = torch.arange(q.shape[-1], device=q.device) == 0
    return q * torch.where(time, -factor, factor).to(q.dtype)
