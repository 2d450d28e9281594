"""Whole-sequence Möbius RNN and GRU (Ganea et al. 2018, section 3.3): input side hoisted, gates stacked.

Everything that depends on the inputs alone, ``U (x) x`` for all steps and gates, is one product before the loop;
the gates of a step share one product; ``log_0(h)`` and the gap ``1 - c|h|^2`` are carried from step to step; the
gradient of a weight is one product after the loop. Several independent cells of one size (S streams) run side by
side in batched products. The plain reference versions are the cells of :mod:`hyperbolic.layers.mobius`.

Layout inside: (T, S, G, H, B) with G gates, see :mod:`hyperbolic.kernels.gyro`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hyperbolic.kernels import switch
from hyperbolic.kernels.gyro import (
    affine_point,
    affine_point_grad,
    constants,
    exp_origin,
    exp_origin_grad,
    gated_update,
    gated_update_grad,
    log_origin,
    log_origin_grad,
    log_point,
    log_point_grad,
)
from hyperbolic.kernels.nonlinearity import NONLINEARITIES
from hyperbolic.numerics import ball_gap


def _apply(phi: str, tangent: Tensor, unit: Tensor) -> tuple[Tensor, tuple]:
    """``phi(unit v) / unit``: the nonlinearity acts on unscaled tangent vectors, ``unit = 1/sqrt(c)``."""
    if phi == "identity":
        return tangent, ()
    value = NONLINEARITIES[phi][0](unit * tangent)
    return value / unit, (tangent, value)


def _apply_grad(phi: str, saved: tuple, unit: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the tangent vector and of unit."""
    if phi == "identity":
        return grad, torch.zeros_like(unit)
    tangent, value = saved
    inner = grad * NONLINEARITIES[phi][1](value)
    return inner, (inner * tangent).sum() / unit - (grad * value).sum() / (unit * unit)


def rnn_step(v, u, u_gap, mask, unit, weight, b, b_gap, phi: str) -> tuple[Tensor, tuple]:
    """``log_0(h')`` from ``v = log_0(h)``, (S, H, B)."""
    point, gap, affine = affine_point(weight @ v, u, u_gap, b, b_gap)
    tangent, log = log_origin(point, gap)
    new, phi_saved = _apply(phi, tangent, unit)
    return new if mask is None else torch.lerp(v, new, mask), (affine, log, phi_saved)


def rnn_step_grad(saved: tuple, mask, unit, weight, grad, phi: str) -> tuple[Tensor, ...]:
    """Gradients of v, u, u_gap, b, b_gap, of unit, and of ``weight @ v``."""
    affine, log, phi_saved = saved
    grad_v = None if mask is None else grad * (1 - mask)
    if mask is not None:
        grad = grad * mask
    grad, g_unit = _apply_grad(phi, phi_saved, unit, grad)
    g_q, *rest = affine_point_grad(affine, *log_origin_grad(log, grad))
    back = weight.transpose(-1, -2) @ g_q
    return (back if grad_v is None else grad_v + back, *rest, g_unit, g_q)


def gru_step(h, gap, v, u, u_gap, mask, unit, w_gates, w_new, b, b_gap, phi: str):
    """One step of all streams: (h', gap', log_0 h') and what the gradient needs. Gates: r, z, candidate."""
    streams, hidden, batch = h.shape
    q = (w_gates @ v).view(streams, 2, hidden, batch)
    point, point_gap, gate_affine = affine_point(q, u[:, :2], u_gap[:, :2], b[:, :2], b_gap[:, :2])
    tangent, gate_log = log_origin(point, point_gap)
    gates = torch.sigmoid(unit * tangent)
    r, z = gates[:, 0], gates[:, 1]
    rv = r * v
    new, new_gap, new_affine = affine_point(w_new @ rv, u[:, 2], u_gap[:, 2], b[:, 2], b_gap[:, 2])
    phi_saved: tuple = ()
    if phi != "identity":
        new_tangent, new_log = log_origin(new, new_gap)
        new_tangent, apply_saved = _apply(phi, new_tangent, unit)
        new, new_gap, new_exp = exp_origin(new_tangent)
        phi_saved = (new_log, apply_saved, new_exp)
    moved, moved_gap, update = gated_update(h, gap, new, new_gap, z)
    moved_v, state_log = log_origin(moved, moved_gap)
    if mask is not None:  # sequences that have ended keep their state
        moved, moved_gap, moved_v = (
            torch.lerp(old, new, mask) for old, new in ((h, moved), (gap, moved_gap), (v, moved_v))
        )
    return (
        moved,
        moved_gap,
        moved_v,
        (gate_affine, gate_log, new_affine, update, state_log, tangent, gates, v, rv, phi_saved),
    )


def gru_step_grad(saved: tuple, mask, unit, w_gates, w_new, grad, grad_gap, grad_v, phi: str):
    """Gradients of h, gap, v; of u, u_gap, b, b_gap (gates stacked on axis 1); of unit; of the weight products."""
    gate_affine, gate_log, new_affine, update, state_log, tangent, gates, v, _, phi_saved = saved
    kept = ()
    if mask is not None:
        kept = [g * (1 - mask) for g in (grad, grad_gap, grad_v)]
        grad, grad_gap, grad_v = grad * mask, grad_gap * mask, grad_v * mask
    g_h, g_gap = log_origin_grad(state_log, grad_v)
    g_h, g_gap, g_new, g_new_gap, g_z = gated_update_grad(update, grad + g_h, grad_gap + g_gap)
    g_unit = torch.zeros_like(unit)
    if phi != "identity":
        new_log, apply_saved, new_exp = phi_saved
        g_tangent, g_unit = _apply_grad(phi, apply_saved, unit, exp_origin_grad(new_exp, g_new, g_new_gap))
        g_new, g_new_gap = log_origin_grad(new_log, g_tangent)
    g_q_new, *new_rest = affine_point_grad(new_affine, g_new, g_new_gap)
    g_rv = w_new.transpose(-1, -2) @ g_q_new
    g_inner = torch.stack([g_rv * v, g_z], 1) * (gates * (1 - gates))
    g_unit = g_unit + (g_inner * tangent).sum()
    g_q_gates, *gate_rest = affine_point_grad(gate_affine, *log_origin_grad(gate_log, unit * g_inner))
    g_q_gates = g_q_gates.flatten(1, 2)
    g_v = g_rv * gates[:, 0] + w_gates.transpose(-1, -2) @ g_q_gates
    rest = [torch.cat([a, b.unsqueeze(1)], 1) for a, b in zip(gate_rest, new_rest, strict=True)]
    if kept:
        g_h, g_gap, g_v = (g + k for g, k in zip((g_h, g_gap, g_v), kept, strict=True))
    return g_h, g_gap, g_v, *rest, g_unit, g_q_gates, g_q_new


def _step(function: Callable, like: Tensor, mask: Tensor | None = None, phi: str | None = None) -> Callable:
    """The function, eager or compiled for tensors like this one: (..., B)."""
    sizes = (*like.shape[1:-1], like.dtype, like.device, mask is None, phi)
    if phi is None:  # of a whole sequence at once
        return switch.maybe_compiled(function, like.shape[0] * like.shape[-1], *sizes)
    return switch.maybe_compiled(function, like.shape[-1], *sizes)


def _detached(tensors) -> tuple[Tensor, ...]:
    """For compiled code, which looks at the ``grad`` of what it is given, and PyTorch warns of that."""
    return tuple(t.detach() for t in tensors)


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, u_gap, mask, unit, weight, b, b_gap, phi):
        step = _step(rnn_step, u, mask, phi) if ctx.needs_input_grad[4] else rnn_step
        u, u_gap, unit, weight, b, b_gap = _detached((u, u_gap, unit, weight, b, b_gap))
        v = u.new_zeros(u.shape[1], *u.shape[3:])
        ctx.steps, ctx.phi, ctx.mask, states = [], phi, mask, [v]
        for t in range(u.shape[0]):
            keep = None if mask is None else mask[t]
            v, saved = step(v, u[t, :, 0], u_gap[t, :, 0], keep, unit, weight, b[:, 0], b_gap[:, 0], phi)
            ctx.steps.append(saved)
            states.append(v)
        states = torch.stack(states)
        ctx.save_for_backward(weight, unit, states)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        weight, unit, states = _detached(ctx.saved_tensors)
        grad = grad.contiguous()  # it comes with the batch strided, which every step would inherit
        step = _step(rnn_step_grad, grad, ctx.mask, ctx.phi)
        g_v = torch.zeros_like(grad[0])
        parts = []
        for t in reversed(range(len(ctx.steps))):
            mask = None if ctx.mask is None else ctx.mask[t]
            g_v, *rest = step(ctx.steps[t], mask, unit, weight, g_v + grad[t], ctx.phi)
            parts.append(rest)
        g_u, g_ug, g_b, g_bg, g_unit, g_q = zip(*parts, strict=True)
        per_step = [torch.stack(part[::-1]).unsqueeze(2) for part in (g_u, g_ug)]
        g_weight = _weight_grad(g_q, states[:-1].unbind(0)[::-1])
        return *per_step, None, sum(g_unit), g_weight, _bias_grad(g_b).unsqueeze(1), _bias_grad(g_bg).unsqueeze(1), None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, u_gap, mask, unit, w_gates, w_new, b, b_gap, phi):
        step = _step(gru_step, u, mask, phi) if ctx.needs_input_grad[4] else gru_step
        u, u_gap, unit, w_gates, w_new, b, b_gap = _detached((u, u_gap, unit, w_gates, w_new, b, b_gap))
        h, v = u.new_zeros(u.shape[1], *u.shape[3:]), u.new_zeros(u.shape[1], *u.shape[3:])
        gap = u.new_ones(u.shape[1], 1, u.shape[4])
        ctx.steps, ctx.phi, ctx.mask, states = [], phi, mask, []
        for t in range(u.shape[0]):
            keep = None if mask is None else mask[t]
            h, gap, v, saved = step(h, gap, v, u[t], u_gap[t], keep, unit, w_gates, w_new, b, b_gap, phi)
            ctx.steps.append(saved)
            states.append(h)
        ctx.save_for_backward(w_gates, w_new, unit)
        return torch.stack(states)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        w_gates, w_new, unit = _detached(ctx.saved_tensors)
        grad = grad.contiguous()  # it comes with the batch strided, which every step would inherit
        step = _step(gru_step_grad, grad, ctx.mask, ctx.phi)
        g_h, g_v = torch.zeros_like(grad[0]), torch.zeros_like(grad[0])
        g_gap = torch.zeros_like(grad[0][:, :1])
        parts, v_in, rv_in = [], [], []
        for t in reversed(range(len(ctx.steps))):
            mask = None if ctx.mask is None else ctx.mask[t]
            saved = ctx.steps[t]
            v_in.append(saved[7])
            rv_in.append(saved[8])
            g_h, g_gap, g_v, *rest = step(saved, mask, unit, w_gates, w_new, g_h + grad[t], g_gap, g_v, ctx.phi)
            parts.append(rest)
        g_u, g_ug, g_b, g_bg, g_unit, g_gates, g_new = zip(*parts, strict=True)
        per_step = [torch.stack(part[::-1]) for part in (g_u, g_ug)]
        weights = _weight_grad(g_gates, v_in), _weight_grad(g_new, rv_in)
        return *per_step, None, sum(g_unit), *weights, _bias_grad(g_b), _bias_grad(g_bg), None


def _bias_grad(parts) -> Tensor:
    """Sum over steps and batch."""
    return torch.stack(parts).sum((0, -1)).unsqueeze(-1)


def _weight_grad(outputs, inputs) -> Tensor:
    """``sum_t g_t v_t^T`` as one product over all steps: (S, out, H)."""
    return torch.cat(outputs, -1) @ torch.cat(inputs, -1).transpose(-1, -2)


class _ExpOrigin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u):
        step = _step(exp_origin, u) if ctx.needs_input_grad[0] else exp_origin
        point, gap, saved = step(u.detach())
        ctx.save_for_backward(*saved)
        return point, gap

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, grad_gap):
        step = _step(exp_origin_grad, grad)
        return step(_detached(ctx.saved_tensors), grad.contiguous(), grad_gap.contiguous())


class _LogPoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c):
        v, saved = log_point(x, c)
        ctx.save_for_backward(*saved)
        return v

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return log_point_grad(ctx.saved_tensors, grad)


def _inputs(x: Tensor, lengths: Tensor | None, weight: Tensor, bias: Tensor, c: Tensor):
    """What a loop over steps needs of the inputs: u, u_gap, mask, and the bias point with its gap, scaled."""
    constants(x)
    streams, batch, steps, size = x.shape
    gates, hidden = weight.shape[1:3]
    root = c.sqrt().to(x.dtype)
    v = root * _LogPoint.apply(x.permute(2, 0, 3, 1).contiguous(), c)  # (T, S, D, B)
    y = (weight.reshape(streams, gates * hidden, size) @ v).view(steps, streams, gates, hidden, batch)
    u, u_gap = _ExpOrigin.apply(y)
    b = (root * bias).unsqueeze(-1)
    b_gap = ball_gap(bias, c).to(x.dtype).unsqueeze(-1)
    mask = None
    if lengths is not None:
        positions = torch.arange(steps, device=x.device).view(-1, 1, 1, 1)
        mask = (positions < lengths.unsqueeze(1)).to(x.dtype)  # (T, S, 1, B)
    return u, u_gap, mask, 1 / root, b, b_gap


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
        x: (S, B, T, D) ball points; lengths: (S, B), states after the end repeat the last one.
        weight_ih: (S, 1, H, D); weight_hh: (S, 1, H, H); bias: (S, 1, H) ball points; c: curvature.
        nonlinearity: a key of ``NONLINEARITIES``.
    Returns: (S, B, T, H) states.
    """
    u, u_gap, mask, unit, b, b_gap = _inputs(x, lengths, weight_ih, bias, c)
    v = _RNN.apply(u, u_gap, mask, unit, weight_hh[:, 0], b, b_gap, nonlinearity)
    return unit * _ExpOrigin.apply(v)[0].permute(1, 3, 0, 2)


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
        x: (S, B, T, D) ball points; lengths: (S, B), states after the end repeat the last one.
        weight_ih: (S, 3, H, D); weight_hh: (S, 3, H, H); bias: (S, 3, H) ball points; c: curvature.
        nonlinearity: a key of ``NONLINEARITIES``.
    Returns: (S, B, T, H) states.
    """
    u, u_gap, mask, unit, b, b_gap = _inputs(x, lengths, weight_ih, bias, c)
    w_gates, w_new = weight_hh[:, :2].flatten(1, 2), weight_hh[:, 2]
    h = _GRU.apply(u, u_gap, mask, unit, w_gates, w_new, b, b_gap, nonlinearity)
    return unit * h.permute(1, 3, 0, 2)
