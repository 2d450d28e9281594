"""Row sums and row scalings of float32 tensors in float64 arithmetic, without float64 copies of the tensors.

On a CPU a large temporary costs more than the arithmetic on it: there a C++ kernel makes each in one pass. Small,
float64 and GPU tensors go by the plain formula, and so does compiled code, whose compiler makes one pass of it, too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native, switch
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

_LARGE = 1 << 14  # entries, from which on a kernel of its own pays
_WIDE = torch.float64
_LIBRARY = native.Library("row_operations")


def row_dot(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y>`` over the last axis in float64, shape (..., 1)."""
    other = None if x is y else y
    result: Tensor = RowDot.run(x, other) if large(x, y) else RowDot.plain(x, other)
    return result


def row_scale(scale: Tensor, x: Tensor) -> Tensor:
    """``scale x`` for float64 scales (..., 1), in the dtype of x and right to a unit in its last place."""
    result: Tensor = RowScale.run(scale, x) if large(x) else RowScale.plain(scale, x)
    return result


def weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """``sum_i w_i x_i`` of points (..., N, D) with float64 weights (..., N): float64, (..., D)."""
    result: Tensor = WeightedSum.run(weights, x) if large(x) else WeightedSum.plain(weights, x)
    return result


def blocked(*tensors: Tensor) -> bool:
    """Whether float64 copies of the tensors are to be avoided: large float32 tensors of one shape on a CPU, where
    nothing follows the operations."""
    return large(*tensors) and not switch.is_followed(*tensors)


def large(*tensors: Tensor) -> bool:
    """Whether these are float32 tensors of one shape on a CPU, so large that C++ pays; false in compiled code."""
    first = tensors[0]
    return (
        first.dtype is torch.float32
        and not torch.compiler.is_compiling()  # which would record the next comparison
        and first.numel() > _LARGE
        and first.device.type == "cpu"
        and all(t.dtype is torch.float32 and t.shape == first.shape for t in tensors[1:])
    )


def _usable(*tensors: Tensor | None) -> bool:
    present = [t for t in tensors if t is not None]
    return large(*present) and _LIBRARY.readable(*present)


def _scale(scale: Tensor, x: Tensor) -> Tensor:
    """``scale x`` in the dtype of x, by C++."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _LIBRARY.run("row_scale", scale.contiguous(), x.contiguous(), out, scale.numel(), x.shape[-1])
    return out


@operator("row_dot(Tensor x, Tensor? y) -> Tensor")
class RowDot(Operator):
    """``<x_i, y_i>`` of rows x, y (..., d): (..., 1) in float64. y: None for x itself."""

    fuses = opaque = False
    fits = staticmethod(_usable)

    @staticmethod
    def plain(x: Tensor, y: Tensor | None) -> Tensor:
        product = x.to(_WIDE).square() if y is None else x.to(_WIDE) * y.to(_WIDE)
        return product.sum(-1, keepdim=True)

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, y)
        out = x.new_empty(*x.shape[:-1], 1, dtype=_WIDE)
        x = x.contiguous()
        _LIBRARY.run("row_dot", x, x if y is None else y.contiguous(), out, out.numel(), x.shape[-1])
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        if y is None:
            return _scale(2 * grad, x), None
        needs_x, needs_y = ctx.needs_input_grad
        return _scale(grad, y) if needs_x else None, _scale(grad, x) if needs_y else None


@operator("row_scale(Tensor scale, Tensor x) -> Tensor")
class RowScale(Operator):
    """``scale_i x_i`` for scale (..., 1) in float64 and rows x (..., d): (..., d) in the dtype of x."""

    fuses = opaque = False

    @staticmethod
    def plain(scale: Tensor, x: Tensor) -> Tensor:
        return (scale * x.to(_WIDE)).to(x.dtype)

    @staticmethod
    def fits(scale: Tensor, x: Tensor) -> bool:
        return scale.dtype is _WIDE and scale.shape == (*x.shape[:-1], 1) and _usable(x)

    @staticmethod
    def forward(ctx: Context, scale: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(scale, x)
        return _scale(scale, x)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        scale, x = ctx.saved_tensors
        needs_scale, needs_x = ctx.needs_input_grad
        if not needs_scale:
            return None, _scale(scale, grad)
        x, grad = x.contiguous(), grad.contiguous()
        grad_scale, grad_x = scale.new_empty(scale.shape), torch.empty_like(x) if needs_x else None
        tensors = (scale.contiguous(), x, grad, grad_scale, grad_x)
        _LIBRARY.run("row_scale_grad", *tensors, scale.numel(), x.shape[-1])
        return grad_scale, grad_x


@operator("weighted_sum(Tensor weights, Tensor x) -> Tensor")
class WeightedSum(Operator):
    """``sum_i w_i x_i`` for weights (..., n) in float64 and rows x (..., n, d): (..., d) in float64."""

    fuses = opaque = False

    @staticmethod
    def plain(weights: Tensor, x: Tensor) -> Tensor:
        return (weights.unsqueeze(-2) @ x.to(_WIDE)).squeeze(-2)

    @staticmethod
    def fits(weights: Tensor, x: Tensor) -> bool:
        return weights.dtype is _WIDE and x.dim() > 1 and weights.shape == x.shape[:-1] and _usable(x)

    @staticmethod
    def forward(ctx: Context, weights: Tensor, x: Tensor) -> Tensor:
        weights, x = weights.contiguous(), x.contiguous()
        ctx.save_for_backward(weights, x)
        *batch, n, d = x.shape
        out = x.new_empty(*batch, d, dtype=_WIDE)
        _LIBRARY.run("weighted_sum", weights, x, out, out.numel() // d, n, d)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        weights, x = ctx.saved_tensors
        n, d = x.shape[-2:]
        grad_weights, grad_x = (
            torch.empty_like(t) if need else None
            for t, need in zip((weights, x), ctx.needs_input_grad, strict=True)
        )
        tensors = (weights, x, grad.contiguous(), grad_weights, grad_x)
        _LIBRARY.run("weighted_sum_grad", *tensors, grad.numel() // d, n, d)
        return grad_weights, grad_x
