"""The operators of :mod:`hyperbolic.kernels.recurrent`, and their passes in C++ (``recurrent.cpp``).

Those for a GPU are in :mod:`hyperbolic.kernels.recurrent.cuda`.

A thread takes a block of sequences, 128 bytes of numbers wide, through all steps: products, row scalars and gyrovector
steps work on what lies in its caches. Kept for the gradient are the states alone, and the backward pass computes each
step again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.gyro import constants
from hyperbolic.kernels.recurrent import cuda as on_gpu
from hyperbolic.kernels.recurrent import plain
from hyperbolic.numerics import ball_gap, sqnorm
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

_LANES = {torch.float32: 32, torch.float64: 16}  # sequences of a block
_LIBRARY = native.Library("recurrent")
_MAX_BYTES = 1 << 24  # of the weights of a cell; with larger ones the products of PyTorch win
_ARGUMENTS = "Tensor x, Tensor? lengths, Tensor weight_ih, Tensor weight_hh, Tensor bias, Tensor c, int nonlinearity"


class _Sequence(Operator):
    plain = staticmethod(plain.sequence)
    cuda: ClassVar[Any] = on_gpu

    @staticmethod
    def fake(x: Tensor, lengths: Tensor | None, weight_ih: Tensor, *_: Any) -> Tensor:
        return x.new_empty(weight_ih.shape[0], *x.shape[1:3], weight_ih.shape[2])

    @staticmethod
    def fits(*arguments: Any) -> bool:
        at = plain.Arguments(*arguments)
        return (
            at.compiles()
            and (at.weight_ih[:1].numel() + at.weight_hh[:1].numel()) * at.x.element_size() <= _MAX_BYTES
            and _LIBRARY.readable(at.x, at.weight_ih, at.weight_hh, at.bias)
        )

    @staticmethod
    def forward(ctx: Context, *arguments: Any) -> Tensor:
        x, lengths, weight_ih, weight_hh, bias, c, nonlinearity, margin = plain.Arguments(*arguments)
        (streams, batch, steps, d_in), (cells, gates, hidden, _) = x.shape, weight_ih.shape
        lengths = None if lengths is None else lengths.to(x.device, torch.int64)
        b, b_gap = c.sqrt().to(x.dtype) * bias, ball_gap(bias, c).to(x.dtype)
        inputs = [t if t is None else t.contiguous() for t in (x, lengths, weight_ih, weight_hh, b, b_gap)]
        ctx.sizes = (streams, cells, batch, steps, d_in, hidden, gates, nonlinearity)
        ctx.numbers = (float(c), constants(x, margin).bound, float(margin > 0))
        out, states = x.new_empty(cells, batch, steps, hidden), None
        if any(ctx.needs_input_grad):
            lanes = _LANES[x.dtype]
            states = x.new_empty(cells, -(-batch // lanes), steps, hidden + (gates == 3), lanes)
        _LIBRARY.run("forward", inputs[0], ctx.sizes, ctx.numbers, *inputs[1:], out, states)
        ctx.save_for_backward(*inputs, bias, c, out if ctx.needs_input_grad[5] else None, states)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, bias, c, out, states = ctx.saved_tensors
        x, _, *parameters = inputs
        needs, grad = ctx.needs_input_grad, grad.contiguous()
        g_x = torch.zeros_like(x) if needs[0] else None
        g_in, g_state, g_b, g_gap = [torch.zeros_like(p) for p in parameters]
        scalars = c.new_zeros(2, dtype=torch.float64) if needs[5] else None
        tensors = (*inputs[1:], states, grad, g_x, g_in, g_state, g_b, g_gap, scalars)
        _LIBRARY.run("backward", x, ctx.sizes, ctx.numbers, *tensors)
        root, g_c = c.sqrt(), None
        if scalars is not None:  # out = unit h, and the other places of unit = 1/sqrt(c)
            g_unit = scalars[0] + (grad * out).sum(dtype=torch.float64) * root
            of_bias = (g_b * bias).sum(dtype=torch.float64) / (2 * root) - (g_gap * sqnorm(bias)).sum()
            g_c = (scalars[1] + of_bias - g_unit / (2 * c * root)).to(c.dtype)
        g_bias = (root * g_b - (2 * c) * g_gap * bias).to(bias.dtype) if needs[4] else None
        return (g_x, None, g_in, g_state, g_bias, g_c, None, None)[: len(needs)]


@operator(f"mobius_rnn({_ARGUMENTS}, float margin) -> Tensor")
class Rnn(_Sequence):
    """The operator of :func:`hyperbolic.kernels.recurrent.mobius_rnn`, with the origin in the padding of a second
    direction."""


@operator(f"mobius_gru({_ARGUMENTS}) -> Tensor")
class Gru(_Sequence):
    """The operator of :func:`hyperbolic.kernels.recurrent.mobius_gru`, with the origin in the padding of a second
    direction."""
