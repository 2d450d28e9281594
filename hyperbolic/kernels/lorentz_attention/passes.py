"""The passes of :mod:`hyperbolic.kernels.lorentz_attention` for short sequences, in C++."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.lorentz_attention import plain
from hyperbolic.kernels.operator import Operator, operator
from hyperbolic.native import Strided
from hyperbolic.typing import Context

LENGTH = 128  # queries and keys up to which the passes are quicker than products and softmax of all heads at once
_BYTES = 128  # of a row of a panel, as in native/product.h
_LIBRARY = native.Library("lorentz_attention")


def _close(x: Tensor) -> Tensor:
    """x with its coordinates next to each other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _shape(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, grad: Tensor | None = None
) -> tuple[int, ...]:
    """The struct Shape of lorentz_attention.cpp."""
    b, h, t, d = q.shape
    strides = [s for x in (q, k, v, q if grad is None else grad) for s in x.stride()[:3]]
    at_mask = (0, 0, 0, 0) if mask is None else mask.stride()
    return (b, h, t, k.shape[2], d, *strides, *at_mask, int(causal))


def _heads(x: Tensor) -> Tensor:
    """Room for results like x (B, H, T, D), in memory (B, T, H, D) as linear layers give them."""
    b, h, t, d = x.shape
    return x.new_empty(b, t, h, d).transpose(1, 2)


@operator(
    "lorentz_attention(Tensor q, Tensor k, Tensor v, Tensor factor, Tensor c, Tensor? mask, Tensor? kept, "
    "bool causal) -> Tensor"
)
class Attention(Operator):
    """q (B, H, T, D); k, v (B, H, N, D); mask, kept: boolean, broadcast to (B, H, T, N)."""

    plain = staticmethod(plain.attention)

    @staticmethod
    def fits(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        factor: Tensor,
        c: Tensor,
        mask: Tensor | None,
        kept: Tensor | None,
        causal: bool,
    ) -> bool:
        return (
            q.dim() == 4
            and k.shape == v.shape
            and q.shape[:2] == k.shape[:2]
            and max(q.shape[2], k.shape[2]) <= LENGTH
            and q.numel() * k.numel() > 0
            and _LIBRARY.readable(q, k, v)
            and all(m is None or m.is_cpu for m in (mask, kept))
        )

    @staticmethod
    def forward(
        ctx: Context,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        factor: Tensor,
        c: Tensor,
        mask: Tensor | None,
        kept: Tensor | None,
        causal: bool,
    ) -> Tensor:
        q, k, v = (_close(x) for x in (q, k, v))
        lead = (*q.shape[:3], k.shape[2])
        mask, kept = (None if m is None else m.expand(lead) for m in (mask, kept))
        lanes = _BYTES // q.element_size()
        panels = (*q.shape[:2], -(-q.shape[2] // lanes))
        y, weights = _heads(q), q.new_empty(*panels, k.shape[2], lanes)
        factors = torch.empty(*panels, lanes, dtype=torch.float64)
        shape, ctx.numbers = _shape(q, k, v, mask, causal), (float(factor), float(c))
        masks = (None if mask is None else Strided(mask), None if kept is None else kept.contiguous())
        _LIBRARY.run("forward", *map(Strided, (q, k, v)), *masks, Strided(y), weights, factors, shape, *ctx.numbers)
        ctx.save_for_backward(q, k, v, y, weights, factors, factor, c)
        return y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, y, weights, factors, factor, c = ctx.saved_tensors
        grad, sums = _close(grad), (ctypes.c_double * 2)()
        outs = [_heads(x) for x in (q, k, v)]
        points, shape = map(Strided, (q, k, v, grad, y)), _shape(q, k, v, None, False, grad)
        _LIBRARY.run("backward", *points, weights, factors, *map(Strided, outs), sums, shape, *ctx.numbers)
        grad_factor = torch.full_like(factor, sums[0] / ctx.numbers[0]) if ctx.needs_input_grad[3] else None
        grad_c = torch.full_like(c, sums[1] / (-2 * ctx.numbers[1])) if ctx.needs_input_grad[4] else None
        return *outs, grad_factor, grad_c, None, None, None
