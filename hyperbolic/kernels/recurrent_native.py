"""Möbius RNN and GRU in C++, input side and loop in one pass (``native/recurrent.h``).

A thread takes a block of sequences, 128 bytes of numbers wide, through all steps: products, row scalars and gyrovector
steps work on what lies in its caches. Kept for the gradient are the states alone, and the backward pass computes each
step again. Formulas and layouts are those of :mod:`hyperbolic.kernels.recurrent` and the files it names.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic import native
from hyperbolic.kernels.gyro import constants
from hyperbolic.typing import Context, Function

_LANES = {torch.float32: 32, torch.float64: 16}  # sequences of a block
_SIGNATURES = {"forward": "p" * 10, "backward": "p" * 16}
_LIBRARIES = {
    torch.float32: native.Library("recurrent_float", **_SIGNATURES),
    torch.float64: native.Library("recurrent_double", **_SIGNATURES),
}
_PHI = ("identity", "tanh", "relu", "sigmoid")
_MAX_BYTES = 1 << 22  # bytes of a cell's weights that stay in the caches; with larger ones the products of PyTorch win


def usable(x: Tensor, lengths: Tensor | None, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, phi: str) -> bool:
    """Whether :func:`run` is for these: small weights and shapes that fit; PyTorch reports mistakes in others."""
    cells, gates, hidden, d_in = weight_ih.shape
    return (
        phi in _PHI
        and native.usable(weight_ih, weight_hh, bias)
        and (x.dtype, x.device) == (weight_ih.dtype, weight_ih.device)
        and gates * hidden * (d_in + hidden) * x.element_size() <= _MAX_BYTES
        and weight_hh.shape == (cells, gates, hidden, hidden)
        and bias.shape == (cells, gates, hidden)
        and x.dim() == 4
        and x.shape[-1] == d_in
        and cells in (len(x), 2 * len(x))
        and (lengths is None or lengths.shape == x.shape[:2])
        and native.library(_LIBRARIES[x.dtype].name) is not None
    )


def run(
    x: Tensor,
    lengths: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    b: Tensor,
    b_gap: Tensor,
    c: Tensor,
    phi: str,
) -> Tensor:
    """States (S, B, T, H) of all cells, those of a second direction in order of position and the origin in padding.

    Args:
        x: (S', B, T, D) ball points; lengths: (S', B). weight_ih: (S, G, H, D), G = 1 for an RNN and 3 for a GRU;
            weight_hh: (S, G, H, H). b: (S, G, H, 1) bias points scaled to the unit ball, with gaps b_gap (S, G, 1, 1).
        c: curvature. phi: a name.
    """
    return _Cells.apply(x, lengths, weight_ih, weight_hh, b, b_gap, c, phi)


class _Cells(Function[Tensor]):
    @staticmethod
    def forward(
        ctx: Context,
        x: Tensor,
        lengths: Tensor | None,
        weight_ih: Tensor,
        weight_hh: Tensor,
        b: Tensor,
        b_gap: Tensor,
        c: Tensor,
        phi: str,
    ) -> Tensor:
        (streams, batch, steps, d_in), (cells, gates, hidden, _) = x.shape, weight_ih.shape
        lengths = None if lengths is None else lengths.to(x.device, torch.int64)
        inputs = [t if t is None else t.contiguous() for t in (x, lengths, weight_ih, weight_hh, b, b_gap)]
        ctx.sizes = (ctypes.c_int64 * 8)(streams, cells, batch, steps, d_in, hidden, gates, _PHI.index(phi))
        ctx.numbers = (ctypes.c_double * 2)(float(c), constants(x).bound)
        out, states = x.new_empty(cells, batch, steps, hidden), None
        if any(ctx.needs_input_grad):
            lanes = _LANES[x.dtype]
            states = x.new_empty(cells, -(-batch // lanes), steps, hidden + (gates == 3), lanes)
        _LIBRARIES[x.dtype].run("forward", ctx.sizes, ctx.numbers, *inputs, out, states)
        ctx.save_for_backward(*inputs, c, out if ctx.needs_input_grad[6] else None, states)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, c, out, states = ctx.saved_tensors
        x, _, *parameters = inputs
        grad = grad.contiguous()
        g_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        g_parameters = [torch.zeros_like(p) for p in parameters]
        scalars = c.new_zeros(2, dtype=torch.float64) if ctx.needs_input_grad[6] else None
        tensors = (*inputs, states, grad, g_x, *g_parameters, scalars)
        _LIBRARIES[x.dtype].run("backward", ctx.sizes, ctx.numbers, *tensors)
        g_c = None
        if scalars is not None:  # out = unit h, and the other places of unit = 1/sqrt(c)
            g_unit = scalars[0] + (grad * out).sum(dtype=torch.float64) * c.sqrt()
            g_c = (scalars[1] - g_unit / (2 * c * c.sqrt())).to(c.dtype)
        return g_x, None, *g_parameters, g_c, None
