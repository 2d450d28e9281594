"""Whole-sequence Möbius RNN and GRU (Ganea et al. 2018, section 3.3): input side hoisted, gates stacked.

Everything that depends on the inputs alone, ``U (x) x`` for all steps and gates, is made before the loop; the gates of
a step share one product. Several independent cells of one size (S streams, or two directions) run side by side in
batched products. The plain reference versions are the cells of :mod:`hyperbolic.layers.mobius`. On a CPU the same is
done in C++, see :mod:`hyperbolic.kernels.recurrent_native`.

Layout inside: (T, S, G, H, B) with G gates, see :mod:`hyperbolic.kernels.gyro`; states come out as (S, B, T, H).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic import switch
from hyperbolic.kernels import recurrent_native
from hyperbolic.kernels.function import Context, Function
from hyperbolic.kernels.gyro import (
    Saved,
    affine_point,
    affine_point_grad,
    artanhc,
    constants,
    exp_origin,
    exp_origin_grad,
    gated_update,
    gated_update_grad,
    log_origin,
    log_origin_grad,
)
from hyperbolic.kernels.nonlinearity import NONLINEARITIES
from hyperbolic.kernels.recurrent_inputs import at_step, input_side
from hyperbolic.numerics import ball_gap

State = tuple[Tensor, ...]
StateGrad = tuple[State, list[Tensor], list[Tensor], list[Tensor], list[Tensor], Tensor, State]
StepFunction = TypeVar("StepFunction", bound=Callable[..., object])


def _apply(phi: str, tangent: Tensor, unit: Tensor) -> tuple[Tensor, Saved]:
    """``phi(unit v) / unit``: the nonlinearity acts on unscaled tangent vectors, ``unit = 1/sqrt(c)``."""
    if phi == "identity":
        return tangent, ()
    value = NONLINEARITIES[phi][0](unit * tangent)
    return value / unit, (tangent, value)


def _apply_grad(phi: str, saved: Saved, unit: Tensor, grad: Tensor, learned: bool) -> tuple[Tensor, Tensor]:
    """Gradients of the tangent vector, and of unit where the curvature is learned."""
    if phi == "identity":
        return grad, torch.zeros_like(unit)
    tangent, value = saved
    inner = grad * NONLINEARITIES[phi][1](value)
    if not learned:
        return inner, torch.zeros_like(unit)
    return inner, (inner * tangent).sum() / unit - (grad * value).sum() / (unit * unit)


def _held(mask: Tensor | None, *pairs: tuple[Tensor, Tensor]) -> State:
    """The new ones of pairs (old, new); sequences that have ended keep the old."""
    return tuple(new if mask is None else torch.lerp(old, new, mask) for old, new in pairs)


def rnn_step(
    v: Tensor,
    u: Tensor,
    u_gap: Tensor,
    mask: Tensor | None,
    unit: Tensor,
    weight: Tensor,
    b: Tensor,
    b_gap: Tensor,
    phi: str,
) -> tuple[State, Tensor, Saved]:
    """One step of all streams from ``v = log_0(h)`` (S, H, B): (log_0(h'),), h', and what the gradient needs."""
    point, gap, affine = affine_point(weight @ v, u[:, 0], u_gap[:, 0], b[:, 0], b_gap[:, 0])
    tangent, log = log_origin(point, gap)
    new, applied = _apply(phi, tangent, unit)
    (new,) = _held(mask, (v, new))
    point, _, exp = exp_origin(new)
    return (new,), point, (v, affine, log, applied, exp)


def rnn_step_grad(
    saved: Saved,
    mask: Tensor | None,
    unit: Tensor,
    weight: Tensor,
    grad_point: Tensor,
    grad: Tensor,
    phi: str,
    learned: bool,
) -> StateGrad:
    """Gradients of (v,); u, u_gap, b, b_gap, each in parts along the gates and not summed over the batch; unit; (the
    weight,)."""
    v, affine, log, applied, exp = saved
    grad = grad + exp_origin_grad(exp, grad_point, torch.zeros_like(grad_point[:, :1]))
    held = None if mask is None else grad * (1 - mask)
    grad, g_unit = _apply_grad(phi, applied, unit, grad if mask is None else grad * mask, learned)
    g_q, *rest = affine_point_grad(affine, *log_origin_grad(log, grad))
    g_v = weight.transpose(-1, -2) @ g_q
    g_v = g_v if held is None else g_v + held
    g_u, g_u_gap, g_b, g_b_gap = ([g.unsqueeze(1)] for g in rest)
    return (g_v,), g_u, g_u_gap, g_b, g_b_gap, g_unit, (g_q @ v.transpose(-1, -2),)


def gru_step(
    h: Tensor,
    gap: Tensor,
    u: Tensor,
    u_gap: Tensor,
    mask: Tensor | None,
    unit: Tensor,
    w_gates: Tensor,
    w_new: Tensor,
    b: Tensor,
    b_gap: Tensor,
    phi: str,
) -> tuple[State, Tensor, Saved]:
    """One step of all streams from points h (S, H, B) with gaps (S, 1, B): (h', gap'), h', and what the gradient needs.

    Gates: r, z, candidate.
    """
    streams, hidden, batch = h.shape
    v, v_log = log_origin(h, gap)
    q = (w_gates @ v).view(streams, 2, hidden, batch)
    point, point_gap, gate_affine = affine_point(q, u[:, :2], u_gap[:, :2], b[:, :2], b_gap[:, :2])
    log = artanhc(point_gap, constants(h))
    gates = torch.sigmoid((unit * log) * point)
    gate_log = (point, point_gap, log)
    rv = gates[:, 0] * v
    new, new_gap, new_affine = affine_point(w_new @ rv, u[:, 2], u_gap[:, 2], b[:, 2], b_gap[:, 2])
    applied: Saved = ()
    if phi != "identity":
        new_tangent, new_log = log_origin(new, new_gap)
        new_tangent, phi_saved = _apply(phi, new_tangent, unit)
        new, new_gap, new_exp = exp_origin(new_tangent)
        applied = (new_log, phi_saved, new_exp)
    moved, moved_gap, update = gated_update(h, gap, new, new_gap, gates[:, 1])
    state = _held(mask, (h, moved), (gap, moved_gap))
    return state, state[0], (v, v_log, gate_affine, gate_log, gates, rv, new_affine, applied, update)


def gru_step_grad(
    saved: Saved,
    mask: Tensor | None,
    unit: Tensor,
    w_gates: Tensor,
    w_new: Tensor,
    grad_point: Tensor,
    grad: Tensor,
    grad_gap: Tensor,
    phi: str,
    learned: bool,
) -> StateGrad:
    """Gradients of (h, gap); u, u_gap, b, b_gap, each in parts along the gates and not summed over the batch; unit; the
    weights."""
    v, v_log, gate_affine, gate_log, gates, rv, new_affine, applied, update = saved
    grad = grad + grad_point
    held = () if mask is None else (grad * (1 - mask), grad_gap * (1 - mask))
    if mask is not None:
        grad, grad_gap = grad * mask, grad_gap * mask
    g_h, g_gap, g_new, g_new_gap, g_z = gated_update_grad(update, grad, grad_gap)
    g_unit = torch.zeros_like(unit)
    if phi != "identity":
        new_log, phi_saved, new_exp = applied
        g_tangent = exp_origin_grad(new_exp, g_new, g_new_gap)
        g_tangent, g_unit = _apply_grad(phi, phi_saved, unit, g_tangent, learned)
        g_new, g_new_gap = log_origin_grad(new_log, g_tangent)
    g_q_new, *new_rest = affine_point_grad(new_affine, g_new, g_new_gap)
    g_rv = w_new.transpose(-1, -2) @ g_q_new
    g_inner = torch.ops.aten.sigmoid_backward(torch.stack([g_rv * v, g_z], 1), gates)
    if learned:
        g_unit = g_unit + (g_inner * gate_log[0] * gate_log[2]).sum()
    g_q_gates, *gate_rest = affine_point_grad(gate_affine, *log_origin_grad(gate_log, g_inner, unit))
    g_q_gates = g_q_gates.flatten(1, 2)
    g_v = torch.baddbmm(g_rv * gates[:, 0], w_gates.transpose(-1, -2), g_q_gates)
    h_part, gap_part = log_origin_grad(v_log, g_v)
    g_h, g_gap = g_h + h_part, g_gap + gap_part
    rest = ([a, b.unsqueeze(1)] for a, b in zip(gate_rest, new_rest, strict=True))
    g_u, g_u_gap, g_b, g_b_gap = rest
    if held:
        g_h, g_gap = g_h + held[0], g_gap + held[1]
    g_weights = (g_q_gates @ v.transpose(-1, -2), g_q_new @ rv.transpose(-1, -2))
    return (g_h, g_gap), g_u, g_u_gap, g_b, g_b_gap, g_unit, g_weights


# Compiled code keeps only the states: the backward pass computes a step again, in one piece of code with its gradient,
# which takes less time than to write and read what it needs.


def _rnn_forward(*arguments: Any) -> tuple[State, Tensor]:
    return rnn_step(*arguments)[:2]


def _gru_forward(*arguments: Any) -> tuple[State, Tensor]:
    return gru_step(*arguments)[:2]


def _rnn_again(*arguments: Any) -> StateGrad:
    *step, grad_point, grad, phi, learned = arguments
    _, _, _, mask, unit, weight, _, _ = step
    return rnn_step_grad(rnn_step(*(*step, phi))[2], mask, unit, weight, grad_point, grad, phi, learned)


def _gru_again(*arguments: Any) -> StateGrad:
    *step, grad_point, grad, grad_gap, phi, learned = arguments
    _, _, _, _, mask, unit, w_gates, w_new, _, _ = step
    saved = gru_step(*(*step, phi))[2]
    return gru_step_grad(saved, mask, unit, w_gates, w_new, grad_point, grad, grad_gap, phi, learned)


def _step(function: StepFunction, like: Tensor, mask: Tensor | None, *options: Hashable) -> StepFunction:
    """The function, eager or compiled for tensors like this one: (T, S, G, H, B)."""
    sizes = (*like.shape[1:-1], like.dtype, like.device, mask is None, *options)
    return switch.maybe_compiled(function, like.shape[-1], *sizes)


def _detached(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """For compiled code, which looks at the ``grad`` of its arguments, and PyTorch warns of that."""
    return tuple(t.detach() for t in tensors)


class _Cells(Function[Tensor]):
    """The loop over steps. kind: "rnn" or "gru"; streams: of the inputs, cells beyond run from the end to the start;
    weights: products of the state, one for an RNN, two for a GRU."""

    @staticmethod
    def forward(
        ctx: Context, kind: str, phi: str, streams: int, mask: Tensor | None, *tensors: Tensor
    ) -> Tensor:
        learned = any(ctx.needs_input_grad)
        eager, _, brief, _ = _STEPS[kind]
        step = _step(brief, tensors[0], mask, phi) if learned else brief
        if learned and step is brief:  # not compiled
            step = eager
        u, u_gap, unit, b, b_gap, *weights = _detached(tensors)
        states, out = [_start(kind, u)], u.new_empty(u.shape[1], u.shape[4], u.shape[0], u.shape[3])
        saved: list[Saved] = []
        for t in range(u.shape[0]):
            keep = None if mask is None else mask[t]
            state, point, *extra = step(*states[-1], u[t], u_gap[t], keep, unit, *weights, b, b_gap, phi)
            states.append(state)
            saved += extra
            for cell in range(u.shape[1]):
                torch.mul(point[cell].T, unit, out=at_step(t, cell, out, streams))
        ctx.save_for_backward(u, u_gap, unit, b, b_gap, *weights, out)
        ctx.kind, ctx.phi, ctx.streams, ctx.mask = kind, phi, streams, mask
        ctx.states, ctx.saved = states[:-1], saved
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        u, u_gap, unit, b, b_gap, *weights, out = _detached(ctx.saved_tensors)
        learned = ctx.needs_input_grad[6]
        _, eager, _, again = _STEPS[ctx.kind]
        step = eager if ctx.saved else _step(again, u, ctx.mask, ctx.phi, learned)
        g_u, g_u_gap = torch.empty_like(u), torch.empty_like(u_gap)
        g_state = [torch.zeros_like(part) for part in ctx.states[0]]
        g_point = torch.empty_like(u[0, :, 0])
        totals: list[Tensor] = []
        for t in reversed(range(u.shape[0])):
            for cell in range(u.shape[1]):
                torch.mul(at_step(t, cell, grad, ctx.streams).T, unit, out=g_point[cell])
            keep = None if ctx.mask is None else ctx.mask[t]
            weighted = (keep, unit, *weights)
            if ctx.saved:
                arguments = (ctx.saved[t], *weighted)
            else:
                arguments = (*ctx.states[t], u[t], u_gap[t], *weighted, b, b_gap)
            grads = step(*arguments, g_point, *g_state, ctx.phi, learned)
            g_state, u_parts, gap_parts, *b_parts, g_unit, g_weights = grads
            _place(g_u[t], u_parts)
            _place(g_u_gap[t], gap_parts)
            parts = [torch.cat([g.sum(-1, keepdim=True) for g in each], 1) for each in b_parts] + [g_unit, *g_weights]
            totals = [total.add_(part) for total, part in zip(totals, parts, strict=True)] if totals else parts
        g_b, g_b_gap, g_unit, *g_weights = totals
        if learned:
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


# The step with what its gradient needs, its gradient, the step without, and its gradient from the state before.
_STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "rnn": (rnn_step, rnn_step_grad, _rnn_forward, _rnn_again),
    "gru": (gru_step, gru_step_grad, _gru_forward, _gru_again),
}


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
