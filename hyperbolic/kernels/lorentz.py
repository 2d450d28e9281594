"""Hot formulas of the Lorentz layers with their derivatives written by hand, and a plain reference beside each.

Points are ``(t, s)`` with the time coordinate first, ``-t^2 + |s|^2 = -1/c``. Row scalars are made such that nothing
cancels in them (``t^2 - 1/c`` is a product of positive terms), big tensors are written once and updated in place.
Every function is differentiable once, also by ``c`` (a float64 scalar tensor).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic.kernels import lorentz_native
from hyperbolic.typing import Context, Function

OFFSET = 1.1  # least time of the points of a linear layer, times sqrt(c) (Chen et al., in their program)
_SHORT = 2.0**-20  # length of a space part below which normalised points shrink to the origin; its square is exact


def _points(x: Tensor, heads: int) -> Tensor:
    """The points of (..., heads * D) as rows (n, D), a view where the strides allow it."""
    size = x.shape[-1] // heads
    return x.reshape(x.numel() // size, size)


class _Normalise(Function[Tensor]):
    """Rows ``(0, u)`` get the length that fits the time by the fused kernel of weight normalisation, forwards and back.

    With ``e = _SHORT`` in the place of the 0, the result is ``w = r (e, u) / |(e, u)|``, ``r^2 = t^2 - 1/c``, of which
    the space part is kept, and the time is ``sqrt(1/c + r^2 - w_0^2)``. In the backward pass the kernel needs the
    gradient of w_0, ``-grad_t w_0 / time``, only multiplied by e; it finds the product of that first entry by the
    entry ``-e w_0 / time`` in the place of e.
    """

    @staticmethod
    def forward(ctx: Context, z: Tensor, scale: Tensor, c: Tensor, offset: float, heads: int) -> Tensor:
        flat, dtype, root = _points(z.detach(), heads), z.dtype, c.rsqrt()
        scale, lowest, radius = ((value * root).to(dtype) for value in (scale, offset - 1, 1))
        gate = flat[:, :1].clone().sigmoid_()
        above = torch.addcmul(lowest, gate, scale)  # t - 1/sqrt(c)
        square = (above + 2 * radius).mul_(above)  # t^2 - 1/c
        length = square.sqrt()
        flat[:, 0] = _SHORT
        y, norm = torch._weight_norm_interface(flat, length, 0)
        lost = _SHORT / norm  # sine of the angle between (e, u) and (0, u)
        time = square.addcmul_(square, lost.square(), value=-1).add_(radius.square()).sqrt_()
        flat[:, :1] = lost.mul_(length).mul_(-_SHORT).div_(time)
        y[:, :1] = time
        ctx.save_for_backward(flat, norm, length, gate, above, time, scale, radius, c)
        y = y.view(z.shape)
        ctx.heads, ctx.result = heads, y.detach() if ctx.needs_input_grad[2] else None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None]:
        flat, norm, length, gate, above, time, scale, radius, c = ctx.saved_tensors
        shape, grad_c = grad.shape, None
        if ctx.needs_input_grad[2]:
            grad_c = (grad.double() * ctx.result).sum() / (-2 * c)  # all of y is proportional to 1/sqrt(c)
        grad = _points(grad, ctx.heads).contiguous()
        out, grad_length = torch.ops.aten._weight_norm_interface_backward(grad, flat, length, norm, 0)
        grad_time = grad_length.div_(length).add_(grad[:, :1] / time).mul_(above + radius)
        out[:, :1] = torch.ops.aten.sigmoid_backward(grad_time, gate).mul_(scale)
        grad_scale = torch.dot(grad_time.view(-1), gate.view(-1)) * radius if ctx.needs_input_grad[1] else None
        return out.view(shape), grad_scale, grad_c, None, None


def normalise_(z: Tensor, scale: Tensor, c: Tensor, offset: float = OFFSET, heads: int = 1) -> Tensor:
    """``(t, sqrt(t^2 - 1/c) u / |u|)`` with ``z = (z_0, u)`` and ``t = (scale sigmoid(z_0) + offset) / sqrt(c)``.

    The normalisation of HyboNet's linear layer (Chen et al., Eq. 9), its constants in units of ``1/sqrt(c)``. For
    ``|u|`` near 0, where that has no limit, ``|u|`` is replaced by ``sqrt(|u|^2 + 2^-40)`` and t follows from the
    space part, so that u = 0 gives the origin and a finite gradient.

    Args: z (..., heads * D), contiguous, whose memory is used up; scale and c scalar tensors; offset above 1; heads:
        points that stand side by side on the last axis.
    """
    if z.numel() == 0:  # the fused kernel divides by the number of rows
        return z * scale
    if lorentz_native.LIBRARY.usable(z):
        return lorentz_native.normalise_(z, scale, c, offset, heads)
    return _Normalise.apply(z, scale, c, offset, heads)


def normalised_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor,
    c: Tensor,
    offset: float = OFFSET,
    heads: int = 1,
    raw: Tensor | None = None,
    added: Tensor | None = None,
) -> Tensor:
    """:func:`normalise_` of ``x W^T + b``: x (n, D_in), weight (heads * D, D_in), bias (heads * D).

    Args:
        raw: (n, D_in), taken in the place of x by the rows of W that make the times.
        added: (n, D) or, to the space parts only, (n, D - 1), is added to the product; with one head.
    Returns: (n, heads * D).
    """
    if x.numel() and lorentz_native.LIBRARY.usable(x, weight, bias, raw):
        return lorentz_native.linear(x, weight, bias, raw, added, scale, c, offset, heads)
    size = len(weight) // heads
    z = torch.nn.functional.linear(x, weight, bias)
    if raw is not None:
        time = torch.nn.functional.linear(raw, weight[::size], None if bias is None else bias[::size])
        z = torch.cat([time.unsqueeze(-1), z.unflatten(-1, (heads, size))[..., 1:]], -1).flatten(-2)
    if added is not None:
        z = z.add_(torch.nn.functional.pad(added, (size - added.shape[-1], 0)))
    return normalise_(z, scale, c, offset, heads)


def normalise_reference(z: Tensor, scale: Tensor, c: Tensor, offset: float = OFFSET) -> Tensor:
    """Plain version of :func:`normalise_`."""
    t = (scale * torch.sigmoid(z[..., :1]) + offset) * c.rsqrt()
    norm = (z[..., 1:].square().sum(-1, keepdim=True) + _SHORT**2).sqrt()
    return lift_reference((t.square() - 1 / c).sqrt() / norm * z[..., 1:], c)


class _SetTime(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, z: Tensor, c: Tensor, heads: int) -> Tensor:
        _write_time(_points(z, heads), c)
        ctx.mark_dirty(z)
        ctx.save_for_backward(z, c)
        ctx.heads = heads
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        y, c = ctx.saved_tensors
        shape, grad, y = grad.shape, _points(grad, ctx.heads), _points(y, ctx.heads)
        slope = grad[:, :1] / y[:, :1]
        out = torch.addcmul(grad, y, slope)
        out[:, 0] = 0
        return out.view(shape), _time_grad(slope, c) if ctx.needs_input_grad[1] else None, None


def _write_time(y: Tensor, c: Tensor) -> None:
    square = torch.linalg.vector_norm(y[..., 1:], dim=-1).double().square_()
    y[..., 0] = square.add_(1 / c).sqrt_()


def _time_grad(slope: Tensor, c: Tensor) -> Tensor:
    """Gradient of c in ``t = sqrt(1/c + |s|^2)``, given grad_t / t."""
    return slope.double().sum() / (-2 * c * c)


def set_time_(z: Tensor, c: Tensor, heads: int = 1) -> Tensor:
    """``(sqrt(1/c + |s|^2), s)`` in place; the first coordinate of z is ignored. z as for :func:`normalise_`."""
    if lorentz_native.LIBRARY.usable(z):
        return lorentz_native.set_time_(z, c, heads)
    return _SetTime.apply(z, c, heads)


class _Lift(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, s: Tensor, c: Tensor, axes: int) -> Tensor:
        sizes = s.shape[s.dim() - axes :]
        y = s.new_empty(*s.shape[: s.dim() - axes], sizes.numel() + 1)
        y[..., 1:].unflatten(-1, sizes).copy_(s)
        _write_time(y, c)
        ctx.save_for_backward(y, c)
        ctx.sizes = sizes
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        y, c = ctx.saved_tensors
        slope = grad[..., :1] / y[..., :1]
        out = torch.addcmul(grad[..., 1:], y[..., 1:], slope).unflatten(-1, ctx.sizes)
        return out, _time_grad(slope, c) if ctx.needs_input_grad[1] else None, None


def lift(s: Tensor, c: Tensor, axes: int = 1) -> Tensor:
    """The points ``(sqrt(1/c + |s|^2), s)`` above space parts s (..., d) -> (..., d+1).

    Args: axes: how many axes of s, from the end, hold the coordinates; 2 joins heads (..., n_heads, d_head).
    """
    if lorentz_native.usable_strided(s):
        return lorentz_native.lift(s, c, axes)
    return _Lift.apply(s, c, axes)


def lift_reference(s: Tensor, c: Tensor, axes: int = 1) -> Tensor:
    """Plain version of :func:`lift`, and of :func:`set_time_` given the space part."""
    s = s.flatten(-axes)
    return torch.cat([(1 / c + s.square().sum(-1, keepdim=True)).sqrt().to(s.dtype), s], -1)


class _Mean(Function[Tensor]):
    """A weighted mean of points, its weights summing to 1, normalised to the sheet."""

    @staticmethod
    def forward(ctx: Context, mean: Tensor, c: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(mean[..., 1:], dim=-1).double()
        time, below = mean[..., 0].double(), (norm.square() + 1 / c).sqrt_()
        square = 1 + c * (time - below).clamp_min_(0).mul_(time + below)  # -c <mean, mean>_L >= 1
        factor = square.rsqrt_()
        y: Tensor = mean * factor.to(mean.dtype).unsqueeze(-1)
        y[..., 0] = norm.mul_(factor).square_().add_(1 / c).sqrt_()
        ctx.save_for_backward(y, factor, c)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        y, factor, c = ctx.saved_tensors
        out = grad * y
        along = out.sum(-1)
        grad_c = along.double().sum() / (-2 * c) if ctx.needs_input_grad[1] else None
        along = (along * factor * c).to(y.dtype)
        torch.mul(grad, factor.to(y.dtype).unsqueeze(-1), out=out)
        out.addcmul_(y, along.unsqueeze(-1))
        out[..., 0].addcmul_(y[..., 0], along, value=-2)
        return out, grad_c


def normalised_mean(mean: Tensor, c: Tensor) -> Tensor:
    """``m / sqrt(-c <m, m>_L)`` for ``m = sum w_i x_i``, ``sum w_i = 1`` (Law et al. 2019; Chen et al., Eq. 4).

    ``-c <m, m>_L = 1 + c (m_0 - t)(m_0 + t)`` with ``t = sqrt(1/c + |m_s|^2) <= m_0``, so it never falls below 1. In
    float32 its relative error is about ``1e-7 c m_0^2``. (..., D) -> (..., D).
    """
    if lorentz_native.usable_strided(mean):
        return lorentz_native.normalised_mean(mean, c)
    return _Mean.apply(mean, c)


def normalised_mean_reference(mean: Tensor, c: Tensor) -> Tensor:
    """Plain version of :func:`normalised_mean`."""
    square = mean[..., :1].square() - mean[..., 1:].square().sum(-1, keepdim=True)
    return mean * (c * square).rsqrt()


class _Dual(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, q: Tensor, factor: Tensor) -> Tensor:
        dual = q * factor.to(q.dtype)
        dual[..., 0].neg_()
        ctx.save_for_backward(dual, factor)
        return dual

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        dual, factor = ctx.saved_tensors
        grad_factor = torch.dot(grad.reshape(-1), dual.reshape(-1)) / factor if ctx.needs_input_grad[1] else None
        out = grad * factor.to(grad.dtype)
        out[..., 0].neg_()
        return out, grad_factor


def dual(q: Tensor, factor: Tensor) -> Tensor:
    """``factor (-q_0, q_s)``, whose dot product with k is ``factor <q, k>_L``; factor a scalar tensor, not 0."""
    if lorentz_native.usable_strided(q):
        return lorentz_native.dual(q, factor)
    return _Dual.apply(q, factor)
