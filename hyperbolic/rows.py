"""Row sums and row scalings of float32 tensors in float64 arithmetic, without float64 copies of the tensors.

On a CPU a large temporary costs more than the arithmetic on it: there a C++ kernel makes each in one pass, or, without
a compiler, PyTorch's operations take the rows in blocks that stay in the cache.
Each function gives what the plain expression beside it gives, and falls back on it for small, float64, compiled and GPU
tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import torch
from torch import Tensor

from hyperbolic import fusion, native, switch
from hyperbolic.typing import Context, Function

_BLOCK = 1 << 14  # entries of a block for each CPU thread
_WIDE = torch.float64
_LIBRARY = native.Library("row_operations")
_local = threading.local()


def blocked(*tensors: Tensor) -> bool:
    """Whether blocks pay: large float32 tensors of one shape on a CPU, where nothing follows the operations."""
    first = tensors[0]
    return (
        not torch.compiler.is_compiling()  # which would record the next comparison
        and first.dtype is torch.float32
        and first.numel() > _BLOCK
        and first.device.type == "cpu"
        and all(t.dtype is torch.float32 and t.shape == first.shape for t in tensors[1:])
        and not switch.is_followed(*tensors)
    )


def _blocks(n: int, d: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK * torch.get_num_threads() // max(d, 1))
    return ((start, min(start + step, n)) for start in range(0, n, step))


def _space(size: int, device: torch.device) -> Tensor:
    """Memory for float64 copies, kept by the thread, as fresh memory costs more than the arithmetic done in it."""
    space: Tensor | None = getattr(_local, "space", None)
    if space is None or len(space) < size:
        space = _local.space = torch.empty(size, dtype=_WIDE, device=device)
    return space


def _call(symbol: str, tensors: tuple[Tensor | None, ...], *sizes: int) -> bool:
    """Runs a C++ kernel on the addresses of contiguous tensors; False where there is none."""
    if not _LIBRARY.usable(*(t for t in tensors if t is not None and t.dtype is torch.float32)):
        return False
    _LIBRARY.run(symbol, *tensors, *sizes)
    return True


def _row_dot(x: Tensor, y: Tensor) -> Tensor:
    x2, y2 = (t.reshape(-1, t.shape[-1]).contiguous() for t in (x, y))
    n, d = x2.shape
    out = x.new_empty(n, 1, dtype=_WIDE)
    if _call("row_dot", (x2, y2, out), n, d):
        return out.view(*x.shape[:-1], 1)
    blocks = list(_blocks(n, d))
    most = blocks[0][1] * d
    first, second = _space(2 * most, x.device)[: 2 * most].split(most)
    for start, end in blocks:
        a = first[: (end - start) * d].view(-1, d).copy_(x2[start:end])
        if x is y:
            a.square_()
        else:
            a.mul_(second[: (end - start) * d].view(-1, d).copy_(y2[start:end]))
        torch.sum(a, -1, keepdim=True, out=out[start:end])
    return out.view(*x.shape[:-1], 1)


def _narrow_scale(scale: Tensor, x: Tensor) -> Tensor:
    """``scale x`` in the dtype of x, with a scale that may be rounded to it: for gradients."""
    if not torch.is_grad_enabled() and (out := _scaled(scale, x)) is not None:
        return out
    limit = torch.finfo(x.dtype).max
    return scale.clamp(-limit, limit).to(x.dtype) * x


def _scaled(scale: Tensor, x: Tensor) -> Tensor | None:
    """``scale x`` by the C++ kernel."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    tensors = (scale.contiguous(), x.contiguous(), out)
    return out if _call("row_scale", tensors, scale.numel(), x.shape[-1]) else None


def _row_scale(scale: Tensor, x: Tensor) -> Tensor:
    if (out := _scaled(scale, x)) is not None:
        return out
    high = scale.to(x.dtype)
    if not torch.isfinite(high).all():
        return (scale * x.to(_WIDE)).to(x.dtype)
    return (x * (scale - high).to(x.dtype)).addcmul_(x, high)  # both halves of the scale: it is not rounded


class _RowDot(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return _row_dot(x, y)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        x, y = ctx.saved_tensors
        if x is y:
            return _narrow_scale(2 * grad, x), None
        return _narrow_scale(grad, y), _narrow_scale(grad, x)


class _RowScale(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, scale: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(scale, x)
        return _row_scale(scale, x)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        scale, x = ctx.saved_tensors
        if not torch.is_grad_enabled() and all(ctx.needs_input_grad):
            tensors = (scale.contiguous(), x.contiguous(), grad.contiguous())
            grads = (torch.empty_like(tensors[0]), torch.empty_like(tensors[1]))
            if _call("row_scale_grad", (*tensors, *grads), scale.numel(), x.shape[-1]):
                return grads
        grad_scale = row_dot(grad, x) if ctx.needs_input_grad[0] else None
        return grad_scale, _narrow_scale(scale, grad) if ctx.needs_input_grad[1] else None


class _WeightedSum(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, weights: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(weights, x)
        n, d = x.shape[-2:]
        w2, x2 = weights.reshape(-1, 1, n).contiguous(), x.reshape(-1, n, d).contiguous()
        out = x.new_empty(x2.shape[0], 1, d, dtype=_WIDE)
        if _call("weighted_sum", (w2, x2, out), len(x2), n, d):
            return out.view(*x.shape[:-2], d)
        for start, end in _blocks(x2.shape[0], n * d):
            torch.bmm(w2[start:end], x2[start:end].to(_WIDE), out=out[start:end])
        return out.view(*x.shape[:-2], d)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        weights, x = ctx.saved_tensors
        if torch.is_grad_enabled():
            values: tuple[Tensor | None, Tensor | None] = fusion.gradients(
                _plain_weighted_sum, (weights, x), [grad], ctx.needs_input_grad
            )
            return values
        n, d = x.shape[-2:]
        parts = (weights.reshape(-1, n, 1), x.reshape(-1, n, d), grad.reshape(-1, 1, d))
        w2, x2, g2 = (part.contiguous() for part in parts)
        grad_x = torch.empty_like(x2) if ctx.needs_input_grad[1] else None
        grad_weights = x.new_empty(w2.shape, dtype=_WIDE) if ctx.needs_input_grad[0] else None
        done = _call("weighted_sum_grad", (w2, x2, g2, grad_weights, grad_x), len(x2), n, d)
        for start, end in () if done else _blocks(x2.shape[0], n * d):
            if grad_weights is not None:
                torch.bmm(x2[start:end].to(_WIDE), g2[start:end].transpose(1, 2), out=grad_weights[start:end])
            if grad_x is not None:
                grad_x[start:end] = w2[start:end] * g2[start:end]
        shaped = None if grad_weights is None else grad_weights.view(weights.shape)
        return shaped, None if grad_x is None else grad_x.view(x.shape)


def row_dot(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y>`` over the last axis in float64, shape (..., 1)."""
    if blocked(x, y):
        return _RowDot.apply(x, y)
    product = x.to(_WIDE).square() if x is y else x.to(_WIDE) * y.to(_WIDE)
    return product.sum(-1, keepdim=True)


def row_scale(scale: Tensor, x: Tensor) -> Tensor:
    """``scale x`` for float64 scales (..., 1), in the dtype of x and right to a unit in its last place."""
    if blocked(x) and scale.shape == (*x.shape[:-1], 1):
        return _RowScale.apply(scale, x)
    return (scale * x.to(_WIDE)).to(x.dtype)


def weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    """``sum_i w_i x_i`` of points (..., N, D) with float64 weights (..., N): float64, (..., D)."""
    if blocked(x) and weights.shape == x.shape[:-1] and x.shape[-2] * x.shape[-1] <= 4 * _BLOCK:
        return _WeightedSum.apply(weights, x)
    return _plain_weighted_sum(weights, x)


def _plain_weighted_sum(weights: Tensor, x: Tensor) -> Tensor:
    return (weights.unsqueeze(-2) @ x.to(_WIDE)).squeeze(-2)
