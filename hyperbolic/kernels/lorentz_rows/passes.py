"""The passes of :mod:`hyperbolic.kernels.lorentz_rows` in C++: forward, and backward by the same formulas."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.lorentz_rows import plain
from hyperbolic.kernels.scratch import aligned_size, plus_product, row_blocks, rows_of, set_product
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

Sums = ctypes.Array[ctypes.c_double]
LIBRARY = native.Library("lorentz")


def _sums(count: int = 1) -> Sums:
    return (ctypes.c_double * count)()


def _across(x: Tensor) -> bool:
    """Whether x (..., H, T, D) lies in memory as (..., T, H, D), as heads do."""
    return x.dim() > 2 and not x.is_contiguous() and x.transpose(-3, -2).is_contiguous()


@operator(
    "lorentz_linear(Tensor x, Tensor weight, Tensor? bias, Tensor? raw, Tensor? added, Tensor scale, Tensor c, "
    "float offset, int heads) -> Tensor"
)
class Linear(Operator):
    """:func:`plain.linear` of rows x (N, D)."""

    plain = staticmethod(plain.linear)

    @staticmethod
    def fits(x: Tensor, weight: Tensor, *others: Any) -> bool:
        bias, raw, added, *_, heads = others
        return (
            x.dim() == weight.dim() == 2
            and min(x.numel(), weight.numel()) > 0
            and len(weight) % heads == 0
            and (bias is None or bias.shape == weight.shape[:1])
            and (raw is None or raw.shape == x.shape)
            and (added is None or (heads == 1 and added.shape[:-1] == x.shape[:-1]))
            and LIBRARY.readable(x, weight, bias, raw, added)
        )

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, *others: Any) -> Tensor:
        bias, raw, added, scale, c, offset, heads = others
        x, weight, raw = x.contiguous(), weight.contiguous(), None if raw is None else raw.contiguous()
        width, y = len(weight), x.new_empty(len(x), len(weight))
        size, radius, points = width // heads, float(c) ** -0.5, len(x) * heads
        ctx.constants = (points, size, float(scale) * radius, (offset - 1) * radius, radius)  # of the times, see C++
        row_numbers = x.new_empty(2, points, dtype=torch.float64)
        for rows, space in row_blocks(y, y.dtype, size=aligned_size(width)):
            z = space[:, :width]
            if bias is None:
                torch.mm(rows_of(x, rows), weight.T, out=z)
            else:
                torch.addmm(bias, rows_of(x, rows), weight.T, out=z)
            if raw is not None:
                times = None if bias is None else bias[::size]
                z[:, ::size] = torch.nn.functional.linear(rows_of(raw, rows), weight[::size], times)
            if added is not None:
                z[:, size - added.shape[-1] :].add_(rows_of(added, rows))
            place = (y, row_numbers, rows.start * heads, rows.stop * heads)
            LIBRARY.run("normalise", space, space.shape[1], heads, *place, *ctx.constants)
        ctx.save_for_backward(x, weight, raw, y, row_numbers, scale, c)
        ctx.heads, ctx.added = heads, 0 if added is None else added.shape[-1]
        return y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, raw, y, row_numbers, scale, c = ctx.saved_tensors
        grad, sums, needs, heads = grad.contiguous(), _sums(2), ctx.needs_input_grad, ctx.heads
        size = weight.shape[0] // heads
        grad_x, grad_weight, grad_raw = torch.empty_like(x) if needs[0] else None, None, None
        grad_bias = torch.zeros_like(y[0]) if needs[2] else None
        apart = raw is not None or needs[4]
        blocks = [(slice(0, grad.shape[0]), torch.empty_like(grad))] if apart else row_blocks(grad, grad.dtype)
        for rows, out in blocks:
            place = (rows.start * heads, rows.stop * heads, out, sums, grad_bias if heads == 1 else None)
            LIBRARY.run("normalise_grad", grad, y, row_numbers, *place, *ctx.constants)
            if grad_bias is not None and heads > 1:
                grad_bias.add_(out.sum(0))
            time = None if raw is None else out[:, ::size].clone()
            if time is not None:
                out[:, ::size] = 0
            if grad_x is not None:
                set_product(rows_of(grad_x, rows), out, weight)
            if needs[1]:
                grad_weight = plus_product(grad_weight, out.T, rows_of(x, rows))
            if time is not None:
                grad_raw = time @ weight[::size] if needs[3] else None
                if grad_weight is not None:
                    torch.mm(time.T, raw, out=grad_weight[::size])
                out[:, ::size] = time
        grad_added = out[:, size - ctx.added :] if needs[4] else None
        grad_scale = torch.full_like(scale, sums[0] * ctx.constants[-1]) if needs[5] else None
        grad_c = torch.full_like(c, sums[1] / (-2 * float(c))) if needs[6] else None
        return grad_x, grad_weight, grad_bias, grad_raw, grad_added, grad_scale, grad_c, None, None


@operator("lorentz_lift(Tensor s, Tensor c, int axes) -> Tensor")
class Lift(Operator):
    plain = staticmethod(plain.lift)

    @staticmethod
    def fits(s: Tensor, c: Tensor, axes: int) -> bool:
        return LIBRARY.readable(s)

    @staticmethod
    def forward(ctx: Context, s: Tensor, c: Tensor, axes: int) -> Tensor:
        lead, sizes = s.shape[: s.dim() - axes], s.shape[s.dim() - axes :]
        y = s.new_empty(*lead, sizes.numel() + 1)
        at, heads = _two_leading(s.detach(), axes), sizes[0] if axes == 2 else 1
        strides = (at.stride(0), at.stride(1), at.stride(2) if axes == 2 else 0)
        shape = (lead.numel(), at.shape[1], heads, sizes[-1])
        LIBRARY.run("lift", native.Strided(at), y, *shape, *strides, float(c))
        ctx.save_for_backward(y, c)
        ctx.shape = s.shape
        return y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        y, c = ctx.saved_tensors
        out, total, size = grad.new_empty(ctx.shape), _sums(), y.shape[-1]
        LIBRARY.run("lift_grad", grad.contiguous(), y, out, total, y.numel() // size, size)
        return out, torch.full_like(c, total[0] / (-2 * float(c) ** 2)), None  # t = sqrt(1/c + |s|^2)


def _two_leading(s: Tensor, axes: int) -> Tensor:
    """s with two axes before the last ones, a view where its strides allow it, its coordinates next to each other."""
    if s.dim() != axes + 2:
        s = s.reshape(1, s.shape[: s.dim() - axes].numel(), *s.shape[s.dim() - axes :])
    return s if s.stride(-1) == 1 else s.contiguous()


@operator("lorentz_mean(Tensor mean, Tensor c) -> Tensor")
class Mean(Operator):
    plain = staticmethod(plain.mean)

    @staticmethod
    def fits(mean: Tensor, c: Tensor) -> bool:
        return mean.numel() > 0 and LIBRARY.readable(mean)

    @staticmethod
    def forward(ctx: Context, mean: Tensor, c: Tensor) -> Tensor:
        ctx.across = _across(mean)
        mean = mean.transpose(-3, -2) if ctx.across else mean.contiguous()
        y, size = torch.empty_like(mean), mean.shape[-1]
        factors = mean.new_empty(mean.numel() // size, dtype=torch.float64)
        LIBRARY.run("mean", mean, y, factors, len(factors), size, float(c))
        ctx.save_for_backward(y, factors, c)
        return y.transpose(-3, -2) if ctx.across else y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        y, factors, c = ctx.saved_tensors
        grad, total = (grad.transpose(-3, -2) if ctx.across else grad).contiguous(), _sums()
        out = torch.empty_like(y)
        LIBRARY.run("mean_grad", grad, y, factors, out, total, len(factors), y.shape[-1], float(c))
        return out.transpose(-3, -2) if ctx.across else out, torch.full_like(c, total[0] / (-2 * float(c)))
