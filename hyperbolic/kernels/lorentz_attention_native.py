"""The function of :mod:`hyperbolic.kernels.lorentz_attention` for short sequences, in C++ passes."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic import native
from hyperbolic.typing import Context, Function

LENGTH = 128  # queries and keys up to which the passes are quicker than products and softmax of all heads at once
_BYTES = 128  # of a row of a panel, as in native/product.h
_LIBRARY = native.Library("lorentz_attention", forward="pppppppp" + "dd", backward="p" * 12 + "dd")


def usable(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether :func:`attention` takes these."""
    return (
        q.dim() == 4
        and k.shape == v.shape
        and q.shape[:2] == k.shape[:2]
        and max(q.shape[2], k.shape[2]) <= LENGTH
        and q.numel() * k.numel() > 0
        and _LIBRARY.usable(*(t.new_empty(0) for t in (q, k, v)))
        and (mask is None or mask.is_cpu)
    )


def attention(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, c: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    """Centroids (B, H, T, D) of v with the weights ``softmax_j(factor <q_i, k_j>_L)``.

    Args: q (B, H, T, D); k, v (B, H, N, D); mask: boolean, broadcast to (B, H, T, N).
    """
    if mask is not None:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    return _Attention.apply(*(_close(x) for x in (q, k, v)), factor, c, mask, causal)


def _close(x: Tensor) -> Tensor:
    """x with its coordinates next to each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _shape(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, grad: Tensor | None = None
) -> ctypes.Array[ctypes.c_int64]:
    """The struct Shape of native/lorentz_attention.cpp."""
    b, h, t, d = q.shape
    strides = [s for x in (q, k, v, q if grad is None else grad) for s in x.stride()[:3]]
    at_mask = (0, 0, 0, 0) if mask is None else mask.stride()
    numbers = (b, h, t, k.shape[2], d, *strides, *at_mask, int(causal))
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _heads(x: Tensor) -> Tensor:
    """Room for results like x (B, H, T, D), in memory (B, T, H, D) as linear layers give them."""
    b, h, t, d = x.shape
    return x.new_empty(b, t, h, d).transpose(1, 2)


class _Attention(Function[Tensor]):
    @staticmethod
    def forward(
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        factor: Tensor,
        c: Tensor,
        mask: Tensor | None,
        causal: bool,
    ) -> Tensor:
        lanes = _BYTES // q.element_size()
        panels = (*q.shape[:2], -(-q.shape[2] // lanes))
        y, weights = _heads(q), q.new_empty(*panels, k.shape[2], lanes)
        factors = torch.empty(*panels, lanes, dtype=torch.float64)
        places = (x.data_ptr() for x in (q, k, v))
        at_mask = None if mask is None else mask.data_ptr()
        shape = _shape(q, k, v, mask, causal)
        ctx.numbers = (float(factor), float(c))
        _LIBRARY.run(
            "forward", *places, at_mask, y.data_ptr(), weights, factors, shape, *ctx.numbers, dtype=q.dtype
        )
        ctx.save_for_backward(q, k, v, y, weights, factors, factor, c)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, y, weights, factors, factor, c = ctx.saved_tensors
        grad, sums = _close(grad), (ctypes.c_double * 2)()
        outs = [_heads(x) for x in (q, k, v)]
        places = [x.data_ptr() for x in (q, k, v, grad, y)]
        shape = _shape(q, k, v, None, False, grad)
        _LIBRARY.run(
            "backward", *places, weights, factors, *(x.data_ptr() for x in outs), sums, shape, *ctx.numbers,
            dtype=q.dtype,
        )  # fmt: skip
        grad_factor = torch.full_like(factor, sums[0] / ctx.numbers[0]) if ctx.needs_input_grad[3] else None
        grad_c = torch.full_like(c, sums[1] / (-2 * ctx.numbers[1])) if ctx.needs_input_grad[4] else None
        return *outs, grad_factor, grad_c, None, None
