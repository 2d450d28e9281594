"""Whole-sequence Möbius RNN and GRU (Ganea et al. 2018, section 3.3): input side hoisted, gates stacked.

Everything that depends on the inputs alone, ``U (x) x`` for all steps and gates, is made before the loop; the gates of
a step share one product. Several independent cells of one size (S streams, or two directions) run side by side in
batched products. The plain reference versions are the cells of :mod:`hyperbolic.layers.mobius`. On a CPU the same is
done in C++, see :mod:`hyperbolic.kernels.recurrent_native`.

Layout inside: (T, S, G, H, B) with G gates, see :mod:`hyperbolic.kernels.gyro`; states come out as (S, B, T, H).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic import switch
from hyperbolic.kernels import recurrent_native
from hyperbolic.kernels.gyro import Saved
from hyperbolic.kernels.recurrent_inputs import at_step, input_side
from hyperbolic.kernels.recurrent_steps import STEPS, Cell
from hyperbolic.numerics import ball_gap
from hyperbolic.typing import Context, Function

StepFunction = TypeVar("StepFunction", bound=Callable[..., object])


def _step(function: StepFunction, like: Tensor, mask: Tensor | None, *options: Hashable) -> StepFunction:
    """The function, eager or compiled for tensors like this one: (T, S, G, H, B)."""
    sizes = (*like.shape[1:-1], like.dtype, like.device, mask is None, *options)
    return switch.maybe_compiled(function, like.shape[-1], *sizes)


def _detached(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """For compiled code, which looks at the ``grad`` of its arguments, and PyTorch warns of that."""
    return tuple(t.detach() for t in tensors)


class _Cells(Function[Tensor]):
    """The loop over steps. kind: "rnn" or "gru"; streams: of the inputs, cells beyond run from the end to the start;
    tensors: u, u_gap, unit, b, b_gap, the weights."""

    @staticmethod
    def forward(ctx: Context, kind: str, phi: str, streams: int, mask: Tensor | None, *tensors: Tensor) -> Tensor:
        learned = any(ctx.needs_input_grad)
        eager, _, brief, _ = STEPS[kind]
        step = _step(brief, tensors[0], mask, phi) if learned else brief
        if learned and step is brief:  # not compiled
            step = eager
        u, u_gap, unit, b, b_gap, *weights = _detached(tensors)
        cell = Cell(unit, tuple(weights), b, b_gap, phi, ctx.needs_input_grad[6])
        states, out = [_start(kind, u)], u.new_empty(u.shape[1], u.shape[4], u.shape[0], u.shape[3])
        saved: list[Saved] = []
        for t in range(u.shape[0]):
            keep = None if mask is None else mask[t]
            state, point, *extra = step(*states[-1], u[t], u_gap[t], keep, cell)
            states.append(state)
            saved += extra
            for s in range(u.shape[1]):
                torch.mul(point[s].T, unit, out=at_step(t, s, out, streams))
        ctx.save_for_backward(u, u_gap, unit, b, b_gap, *weights, out)
        ctx.kind, ctx.phi, ctx.streams, ctx.mask = kind, phi, streams, mask
        ctx.states, ctx.saved = states[:-1], saved
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, u_gap, unit, b, b_gap, *weights, out = _detached(ctx.saved_tensors)
        cell = Cell(unit, tuple(weights), b, b_gap, ctx.phi, ctx.needs_input_grad[6])
        _, eager, _, again = STEPS[ctx.kind]
        step = eager if ctx.saved else _step(again, u, ctx.mask, ctx.phi, cell.learned)
        g_u, g_u_gap = torch.empty_like(u), torch.empty_like(u_gap)
        g_state = [torch.zeros_like(part) for part in ctx.states[0]]
        g_point = torch.empty_like(u[0, :, 0])
        totals: list[Tensor] = []
        for t in reversed(range(u.shape[0])):
            for s in range(u.shape[1]):
                torch.mul(at_step(t, s, grad, ctx.streams).T, unit, out=g_point[s])
            keep = None if ctx.mask is None else ctx.mask[t]
            before = (ctx.saved[t],) if ctx.saved else (*ctx.states[t], u[t], u_gap[t])
            grads = step(*before, keep, cell, g_point, *g_state)
            g_state, u_parts, gap_parts, *b_parts, g_unit, g_weights = grads
            _place(g_u[t], u_parts)
            _place(g_u_gap[t], gap_parts)
            parts = [torch.cat([g.sum(-1, keepdim=True) for g in each], 1) for each in b_parts] + [g_unit, *g_weights]
            totals = [total.add_(part) for total, part in zip(totals, parts, strict=True)] if totals else parts
        g_b, g_b_gap, g_unit, *g_weights = totals
        if cell.learned:
            g_unit = g_unit + (grad * out).sum() / unit
        return None, None, None, None, g_u, g_u_gap, g_unit, g_b, g_b_gap, *g_weights


def _place(out: Tensor, parts: list[Tensor]) -> None:
    """Writes parts beside each other along axis 1, the gates."""
    for place, part in zip(out.split([part.shape[1] for part in parts], 1), parts, strict=True):
        place.copy_(part)


def _start(kind: str, u: Tensor) -> tuple[Tensor, ...]:
    """The origin: its tangent vector, or the point and its gap."""
    zero = u.new_zeros(u.shape[1], *u.shape[3:])
    return (zero,) if kind == "rnn" else (zero, u.new_ones(u.shape[1], 1, u.shape[4]))


def _run(
    kind: str,
    x: Tensor,
    lengths: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    c: Tensor,
    nonlinearity: str,
) -> Tensor:
    streams, both = len(x), len(weight_ih) > len(x)
    root = c.sqrt().to(x.dtype)
    b = (root * bias).unsqueeze(-1)
    b_gap = ball_gap(bias, c).to(x.dtype).unsqueeze(-1)
    if recurrent_native.usable(x, lengths, weight_ih, weight_hh, bias, nonlinearity):
        out = recurrent_native.run(x, lengths, weight_ih, weight_hh, b, b_gap, c, nonlinearity)
    else:
        weights = [weight_hh[:, 0]] if kind == "rnn" else [weight_hh[:, :2].flatten(1, 2), weight_hh[:, 2]]
        mask = None if lengths is None else _inside(x, lengths, both)
        u, u_gap = input_side(x, weight_ih, c)
        out = _Cells.apply(kind, nonlinearity, streams, mask, u, u_gap, 1 / root, b, b_gap, *weights)
    if lengths is not None and both:
        ended = (torch.arange(x.shape[2], device=x.device) >= lengths.unsqueeze(-1)).unsqueeze(-1)
        ahead, back = out.split(streams)
        out = torch.cat([ahead, torch.where(ended, back[:, :, :1], back)])
    return out


def _inside(x: Tensor, lengths: Tensor, both: bool) -> Tensor:
    """1 where the position that a cell reads in a step is inside of the sequence, else 0: (T, S, 1, B)."""
    inside = torch.arange(x.shape[2], device=x.device).view(-1, 1, 1, 1) < lengths.unsqueeze(1)
    return (torch.cat([inside, inside.flip(0)], 1) if both else inside).to(x.dtype)


def mobius_rnn(
    x: Tensor,
    lengths: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    c: Tensor,
    nonlinearity: str = "identity",
) -> Tensor:
    """``h_t = phi((W (x) h_{t-1} (+) U (x) x_t) (+) b)`` with the Möbius version of phi (Eq. 27), h_0 = 0.

    Args:
        x: (S, B, T, D) ball points; lengths: (S, B), states after the end repeat the last one. With 2S cells for S
            streams, the second half runs from the end to the start, and its states are those of the same position.
        weight_ih: (S, 1, H, D); weight_hh: (S, 1, H, H); bias: (S, 1, H) ball points; c: curvature.
        nonlinearity: a key of ``NONLINEARITIES``.
    Returns: (S, B, T, H) states of S cells.
    """
    return _run("rnn", x, lengths, weight_ih, weight_hh, bias, c, nonlinearity)


def mobius_gru(
    x: Tensor,
    lengths: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    c: Tensor,
    nonlinearity: str = "identity",
) -> Tensor:
    """Möbius GRU (Eq. 29-31), gates in the order r, z, candidate, h_0 = 0.

    ``r, z = sigma(log_0((W (x) h (+) U (x) x) (+) b))``, ``h~ = phi((W diag(r) (x) h (+) U (x) x) (+) b)`` and
    ``h' = h (+) diag(z) (x) ((-h) (+) h~)``.

    Args:
        x: (S, B, T, D) ball points; lengths: (S, B), states after the end repeat the last one. With 2S cells for S
            streams, the second half runs from the end to the start, and its states are those of the same position.
        weight_ih: (S, 3, H, D); weight_hh: (S, 3, H, H); bias: (S, 3, H) ball points; c: curvature.
        nonlinearity: a key of ``NONLINEARITIES``.
    Returns: (S, B, T, H) states of S cells.
    """
    return _run("gru", x, lengths, weight_ih, weight_hh, bias, c, nonlinearity)
