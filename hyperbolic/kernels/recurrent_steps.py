"""One step of the Möbius RNN and GRU with its gradient, for :mod:`hyperbolic.kernels.recurrent`.

Layout: (S, G, H, B) with G gates, see :mod:`hyperbolic.kernels.gyro`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

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

State = tuple[Tensor, ...]
Step = tuple[State, Tensor, Saved]
StepGrad = tuple[State, list[Tensor], list[Tensor], list[Tensor], list[Tensor], Tensor, State]


class Cell(NamedTuple):
    """What all steps share. weights: products of the state, one for an RNN, two for a GRU."""

    unit: Tensor
    weights: tuple[Tensor, ...]
    b: Tensor
    b_gap: Tensor
    phi: str
    learned: bool  # the curvature


def _apply(phi: str, tangent: Tensor, unit: Tensor) -> tuple[Tensor, Saved]:
    """``phi(unit v) / unit``: the nonlinearity acts on unscaled tangent vectors, ``unit = 1/sqrt(c)``."""
    if phi == "identity":
        return tangent, ()
    value = NONLINEARITIES[phi][0](unit * tangent)
    return value / unit, (tangent, value)


def _apply_grad(cell: Cell, saved: Saved, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the tangent vector, and of unit where the curvature is learned."""
    unit, phi = cell.unit, cell.phi
    if phi == "identity":
        return grad, torch.zeros_like(unit)
    tangent, value = saved
    inner = grad * NONLINEARITIES[phi][1](value)
    if not cell.learned:
        return inner, torch.zeros_like(unit)
    return inner, (inner * tangent).sum() / unit - (grad * value).sum() / (unit * unit)


def _held(mask: Tensor | None, *pairs: tuple[Tensor, Tensor]) -> State:
    """The new ones of pairs (old, new); sequences that have ended keep the old."""
    return tuple(new if mask is None else torch.lerp(old, new, mask) for old, new in pairs)


def rnn_step(v: Tensor, u: Tensor, u_gap: Tensor, mask: Tensor | None, cell: Cell) -> Step:
    """One step of all streams from ``v = log_0(h)`` (S, H, B): (log_0(h'),), h', and what the gradient needs."""
    point, gap, affine = affine_point(cell.weights[0] @ v, u[:, 0], u_gap[:, 0], cell.b[:, 0], cell.b_gap[:, 0])
    tangent, log = log_origin(point, gap)
    new, applied = _apply(cell.phi, tangent, cell.unit)
    (new,) = _held(mask, (v, new))
    point, _, exp = exp_origin(new)
    return (new,), point, (v, affine, log, applied, exp)


def rnn_step_grad(saved: Saved, mask: Tensor | None, cell: Cell, grad_point: Tensor, grad: Tensor) -> StepGrad:
    """Gradients of (v,); u, u_gap, b, b_gap, each in parts along the gates and not summed over the batch; unit; (the
    weight,)."""
    v, affine, log, applied, exp = saved
    grad = grad + exp_origin_grad(exp, grad_point, torch.zeros_like(grad_point[:, :1]))
    held = None if mask is None else grad * (1 - mask)
    grad, g_unit = _apply_grad(cell, applied, grad if mask is None else grad * mask)
    g_q, *rest = affine_point_grad(affine, *log_origin_grad(log, grad))
    g_v = cell.weights[0].transpose(-1, -2) @ g_q
    g_v = g_v if held is None else g_v + held
    g_u, g_u_gap, g_b, g_b_gap = ([g.unsqueeze(1)] for g in rest)
    return (g_v,), g_u, g_u_gap, g_b, g_b_gap, g_unit, (g_q @ v.transpose(-1, -2),)


def gru_step(h: Tensor, gap: Tensor, u: Tensor, u_gap: Tensor, mask: Tensor | None, cell: Cell) -> Step:
    """One step of all streams from points h (S, H, B) with gaps (S, 1, B): (h', gap'), h', and what the gradient needs.

    Gates: r, z, candidate.
    """
    (streams, hidden, batch), (unit, (w_gates, w_new), b, b_gap, phi, _) = h.shape, cell
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
    saved: Saved, mask: Tensor | None, cell: Cell, grad_point: Tensor, grad: Tensor, grad_gap: Tensor
) -> StepGrad:
    """Gradients of (h, gap); u, u_gap, b, b_gap, each in parts along the gates and not summed over the batch; unit; the
    weights."""
    v, v_log, gate_affine, gate_log, gates, rv, new_affine, applied, update = saved
    unit, (w_gates, w_new), _, _, phi, learned = cell
    grad = grad + grad_point
    held = () if mask is None else (grad * (1 - mask), grad_gap * (1 - mask))
    if mask is not None:
        grad, grad_gap = grad * mask, grad_gap * mask
    g_h, g_gap, g_new, g_new_gap, g_z = gated_update_grad(update, grad, grad_gap)
    g_unit = torch.zeros_like(unit)
    if phi != "identity":
        new_log, phi_saved, new_exp = applied
        g_tangent = exp_origin_grad(new_exp, g_new, g_new_gap)
        g_tangent, g_unit = _apply_grad(cell, phi_saved, g_tangent)
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


def _rnn_again(
    v: Tensor, u: Tensor, u_gap: Tensor, mask: Tensor | None, cell: Cell, grad_point: Tensor, grad: Tensor
) -> StepGrad:
    return rnn_step_grad(rnn_step(v, u, u_gap, mask, cell)[2], mask, cell, grad_point, grad)


def _gru_again(
    h: Tensor, gap: Tensor, u: Tensor, u_gap: Tensor, mask: Tensor | None, cell: Cell, *grads: Tensor
) -> StepGrad:
    return gru_step_grad(gru_step(h, gap, u, u_gap, mask, cell)[2], mask, cell, *grads)


# The step with what its gradient needs, its gradient, the step without, and its gradient from the state before.
STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "rnn": (rnn_step, rnn_step_grad, _rnn_forward, _rnn_again),
    "gru": (gru_step, gru_step_grad, _gru_forward, _gru_again),
}
