"""The passes of :mod:`hyperbolic.kernels.recurrent` on a GPU, by the kernels of ``triton.py``.

The forward pass is a matrix product for the inputs of all steps and one kernel for the loop; the backward pass is a
kernel and one product each for the gradients of inputs and weights, and a sum for the biases': 7 launches in all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.kernels.gpu import available
from hyperbolic.kernels.recurrent import plain
from hyperbolic.typing import Context

HIDDEN = 64  # coordinates up to which the weights of a cell stay on the chip
ROWS = 4  # sequences of a program: one number of a state for each of its threads, and few enough for all registers


def _launch(name: str, grid: tuple[int, int], arguments: tuple[Any, ...], constants: dict[str, int]) -> None:
    from hyperbolic.kernels.recurrent import triton as kernels

    warps = constants["BB"] * constants["BH"] // 32
    with torch.cuda.device_of(arguments[0]):
        getattr(kernels, name)[grid](*arguments, **constants, num_warps=warps, enable_fp_fusion=True)


def fits(*arguments: Any) -> bool:
    at = plain.Arguments(*arguments)
    tensors = [t for t in (at.x, at.weight_ih, at.weight_hh, at.bias, at.lengths, at.c) if t is not None]
    return (
        at.compiles()
        and at.weight_ih.shape[2] <= HIDDEN
        and at.margin == 0
        and at.x.numel() > 0
        and at.c.dtype is torch.float64
        and all(t.dtype is torch.float32 for t in tensors[:4])
        and all(t.device == at.x.device for t in tensors)
        and switch.fast()
        and available(at.x.device.index)
    )


class _Sizes:
    """What the kernels are told besides tensors."""

    def __init__(self, x: Tensor, lengths: Tensor | None, weight_ih: Tensor, nonlinearity: int):
        self.streams, self.batch, self.steps, self.d_in = x.shape
        self.cells, self.gates, self.hidden, _ = weight_ih.shape
        self.directions = self.cells // self.streams
        self.name = "rnn" if self.gates == 1 else "gru"
        self.grid = (-(-self.batch // ROWS), self.cells)
        self.numbers = (self.streams, self.batch, self.steps, self.d_in, self.hidden)
        self.constants = {
            "DIRS": self.directions,
            "PHI": nonlinearity,
            "ENDED": lengths is not None,
            "BB": ROWS,
            "BH": max(16, 1 << (self.hidden - 1).bit_length()),
            "BD": min(64, max(16, 1 << (self.d_in - 1).bit_length())),
        }

    def by_stream(self, weight: Tensor) -> Tensor:
        """Weights (S, G, H, D) as (S', DIRS G H, D), all that read one input beside each other."""
        split = weight.reshape(self.directions, self.streams, self.gates * self.hidden, self.d_in)
        return split.transpose(0, 1).reshape(self.streams, -1, self.d_in)

    def by_cell(self, weight: Tensor) -> Tensor:
        """The reverse."""
        split = weight.view(self.streams, self.directions, self.gates, self.hidden, self.d_in)
        return split.transpose(0, 1).reshape(self.cells, self.gates, self.hidden, self.d_in)


def forward(ctx: Context, *arguments: Any) -> Tensor:
    x, lengths, weight_ih, weight_hh, bias, c, nonlinearity, _ = plain.Arguments(*arguments)
    at = ctx.at = _Sizes(x, lengths, weight_ih, nonlinearity)
    x, weight_hh, bias = x.contiguous(), weight_hh.contiguous(), bias.contiguous()
    lengths = None if lengths is None else lengths.contiguous()
    weight = at.by_stream(weight_ih)
    y = x.flatten(1, 2) @ weight.mT
    out = x.new_empty(at.cells, at.batch, at.steps, at.hidden)
    states = torch.empty_like(out) if at.gates == 1 else x.new_empty(out.shape[:3])
    tensors = (x, y, lengths, weight_hh, bias, c, out, states)
    _launch(f"{at.name}_forward", at.grid, (*tensors, *at.numbers), at.constants)
    ctx.save_for_backward(*tensors, weight)
    return out


def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, weight = ctx.saved_tensors
    at, needs, x, y, c = ctx.at, ctx.needs_input_grad, tensors[0], tensors[1], tensors[5]
    g_x = x.new_empty(at.directions, *x.shape)
    g_y, g_q = torch.empty_like(y), x.new_empty(at.cells, at.gates, at.batch * at.steps, at.hidden)
    into, programs = torch.empty_like(g_q), at.grid[0]
    g_bias, g_c = x.new_empty(at.cells, programs, at.gates, at.hidden), c.new_empty(at.cells, programs)
    results = (grad.contiguous(), g_x, g_y, g_q, into, g_bias, g_c)
    _launch(f"{at.name}_backward", at.grid, (*tensors, *at.numbers, *results), at.constants)
    gradients: list[Tensor | None] = [None] * len(needs)
    if needs[0]:
        base = g_x[0] if at.directions == 1 else g_x.sum(0)
        gradients[0] = base.flatten(1, 2).baddbmm_(g_y, weight).view(x.shape)
    if needs[2]:
        gradients[2] = at.by_cell(g_y.mT @ x.flatten(1, 2))
    if needs[3]:
        products = torch.bmm(g_q.flatten(0, 1).mT, into.flatten(0, 1))
        gradients[3] = products.view(at.cells, at.gates, at.hidden, at.hidden)
    if needs[4]:
        gradients[4] = g_bias.sum(1)
    if needs[5]:
        gradients[5] = g_c.sum()
    return tuple(gradients)
