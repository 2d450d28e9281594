"""The input side of the Möbius RNN and GRU for all steps: ``u = exp_0(U log_0(x))`` in one pass over the inputs.

``log_0`` and ``exp_0`` only scale a point, so ``u`` is the product ``U x`` times one number a row, and no tangent
vector is kept. A product is made one step at a time and finished while it lies in the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic.kernels.gyro import artanhc, artanhc_slope, constants, tanhc, tanhc_slope
from hyperbolic.numerics import sqnorm
from hyperbolic.typing import Context, Function


def _columns(values: Tensor) -> Tensor:
    """Row numbers (S, B, T, 1) as (T, S, 1, B)."""
    return values.permute(2, 0, 3, 1).contiguous()


def at_step(t: int, cell: int, x: Tensor, streams: int) -> Tensor:
    """What a cell reads or writes at step t in x, inputs (S', B, T, D) or states (S, B, T, H): cells beyond the streams
    of the inputs go from the end to the start."""
    return x[cell % len(x), :, t if cell < streams else x.shape[2] - 1 - t]


class _InputSide(Function[tuple[Tensor, Tensor]]):
    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        (streams, batch, steps, _), (cells, gates, hidden, _) = x.shape, weight.shape
        k = constants(x)
        gap = _columns((1 - c * sqnorm(x)).clamp_min_(k.least_gap).to(x.dtype))
        log = artanhc(gap, k)
        scale = _for_cells(log * c.sqrt().to(x.dtype), cells)
        u = x.new_empty(steps, cells, gates, hidden, batch)
        u_gap, square, factor = x.new_empty(3, steps, cells, gates, 1, batch).unbind(0)
        for t in range(steps):
            for cell in range(cells):
                torch.mm(weight[cell].flatten(0, 1), at_step(t, cell, x, streams).T, out=u[t, cell].flatten(0, 1))
            length = (u[t] * u[t]).sum(-2, keepdim=True)
            square[t] = length.mul_(scale[t]).mul_(scale[t])
            f, u_gap[t] = tanhc(length, k)
            factor[t] = f
            u[t].mul_(f.mul_(scale[t]))
        ctx.save_for_backward(x, weight, c, gap, log, u, u_gap, square, factor)
        return u, u_gap

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor, grad_gap: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight, c, gap, log, u, u_gap, square, factor = ctx.saved_tensors
        needs_x, needs_weight, needs_c = ctx.needs_input_grad
        (streams, _, steps, _), (cells, _, _, _) = x.shape, weight.shape
        k, root = constants(x), c.sqrt().to(x.dtype)
        scale = _for_cells(log * root, cells)
        g_x = torch.zeros_like(x, memory_format=torch.contiguous_format) if needs_x else None
        g_weight = torch.zeros_like(weight) if needs_weight else None
        slope = tanhc_slope(square, factor, u_gap, k)
        own = (grad_gap * u_gap).mul_(factor).mul_(-2)
        g_scale = torch.empty_like(own) if needs_x or needs_c else None
        for t in range(steps):
            # of y = scale U x with u = f y: f g_u + twice y
            along = (grad[t] * u[t]).sum(-2, keepdim=True)
            twice = torch.addcmul(own[t], slope[t], along / factor[t])
            if g_scale is not None:
                torch.addcmul(along, twice, square[t], out=g_scale[t]).div_(scale[t])
            product = (grad[t] * (factor[t] * scale[t])).addcmul_(u[t], twice.div_(factor[t]).mul_(scale[t]))
            for cell in range(cells):
                part, inputs = product[cell].flatten(0, 1), at_step(t, cell, x, streams)
                if g_weight is not None:
                    g_weight[cell].flatten(0, 1).addmm_(part, inputs)
                if g_x is not None:
                    at_step(t, cell, g_x, streams).addmm_(part.T, weight[cell].flatten(0, 1))
        if g_scale is None:
            return None, g_weight, None
        g_scale = _for_streams(g_scale.sum(2), streams)  # (T, S', 1, B)
        g_gap = _rows(artanhc_slope(gap, log, k).mul_(g_scale).mul_(root))
        if g_x is not None:
            g_x.addcmul_(c.to(x.dtype) * g_gap, x, value=-2)
        g_c = None
        if needs_c:
            g_c = (g_scale * log).sum(dtype=torch.float64) / (2 * c.sqrt()) - (g_gap.double() * sqnorm(x)).sum()
        return g_x, g_weight, g_c


def _for_cells(values: Tensor, cells: int) -> Tensor:
    """Numbers of the inputs (T, S', 1, B) for each of the cells that read them: (T, S, 1, 1, B)."""
    if cells > values.shape[1]:
        values = torch.cat([values, values.flip(0)], 1)
    return values.unsqueeze(2)


def _for_streams(values: Tensor, streams: int) -> Tensor:
    """The reverse: the sum over the cells that read an input."""
    if values.shape[1] > streams:
        values = values[:, :streams] + values[:, streams:].flip(0)
    return values


def _rows(values: Tensor) -> Tensor:
    """The reverse of :func:`_columns`."""
    return values.permute(1, 3, 0, 2)


def input_side(x: Tensor, weight: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """``sqrt(c) U (x) x`` of all inputs, steps, cells and gates, with gaps ``1 - c|u|^2``.

    Args:
        x: (S', B, T, D) ball points. weight: (S, G, H, D), S = S', or S = 2S' where the second half of the cells reads
            the steps from the last to the first. c: curvature.
    Returns: u (T, S, G, H, B) and its gaps (T, S, G, 1, B), in the order in which a cell reads its inputs.
    """
    return _InputSide.apply(x, weight, c)
