# mypy: ignore-errors
"""Whole sequences through Möbius RNNs and GRUs on a GPU: a program takes a block of sequences through all steps.

The weights of the state stay on the chip. The products with the inputs, for all steps and gates, are one matrix product
before, ``y``; so are, after the backward pass, those that give the gradients of weights and inputs. The backward pass
computes each step again from the state before. Formulas: :mod:`hyperbolic.kernels.recurrent.plain`.

Layouts: x (S', B, T, D); y (S', B, T, DIRS, G, H); out, states (S, B, T, H) and gaps (S, B, T) after each step, in the
order of positions; a cell is direction * S' + stream.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hyperbolic.kernels.recurrent.triton_parts import (
    active_at,
    bias_of,
    block_of,
    curvature_of,
    enter,
    gap_of,
    leave_bias,
    leave_gate,
    leave_input,
    norm2_of,
    weight_of,
)
from hyperbolic.kernels.recurrent.triton_steps import (
    affine,
    affine_grad,
    artanhc,
    artanhc_slope,
    bend,
    bend_slope,
    dot,
    exp_grad,
    gated,
    gated_grad,
    product,
    tanhc,
)


@triton.jit
def rnn_forward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, states_ptr, S, B, T, D, H,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell, stream, direction, b, h, live = block_of(S, B, H, BB, BH)
    c, root, unit = curvature_of(c_ptr)
    bias, bias_gap, _bias_square = bias_of(bias_ptr, cell, h, H, c, root)
    w = weight_of(w_ptr, cell, h, H)
    v = tl.zeros([BB, BH], tl.float32)
    for t in range(T):
        position = t + direction * (T - 1 - 2 * t)
        row, place = (stream * B + b) * T + position, ((cell * B + b) * T + position) * H + h[None, :]
        scale = artanhc(gap_of(norm2_of(x_ptr, row, b < B, D, BD), c)) * root
        y = tl.load(y_ptr + (row * DIRS + direction) * H + h[None, :], mask=live, other=0.0)
        u, u_gap = enter(y, scale)
        point, gap = affine(product(v, w), u, u_gap, bias, bias_gap)
        new = artanhc(gap) * point
        if PHI > 0:
            new = tl.where(live, bend(new, unit, PHI) / unit, 0.0)
        v = tl.where(active_at(lengths_ptr, stream, b, B, position, ENDED), new, v)
        factor, _ = tanhc(dot(v, v))
        tl.store(out_ptr + place, unit * (factor * v), mask=live)
        tl.store(states_ptr + place, v, mask=live)


@triton.jit
def gru_forward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, gaps_ptr, S, B, T, D, H,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell, stream, direction, b, h, live = block_of(S, B, H, BB, BH)
    c, root, unit = curvature_of(c_ptr)
    b_r, b_r_gap, _b_r_square = bias_of(bias_ptr, cell * 3, h, H, c, root)
    b_z, b_z_gap, _b_z_square = bias_of(bias_ptr, cell * 3 + 1, h, H, c, root)
    b_n, b_n_gap, _b_n_square = bias_of(bias_ptr, cell * 3 + 2, h, H, c, root)
    w_r, w_z = weight_of(w_ptr, cell * 3, h, H), weight_of(w_ptr, cell * 3 + 1, h, H)
    w_n = weight_of(w_ptr, cell * 3 + 2, h, H)
    state = tl.zeros([BB, BH], tl.float32)
    state_gap = tl.full([BB, 1], 1.0, tl.float32)
    for t in range(T):
        position = t + direction * (T - 1 - 2 * t)
        row, place = (stream * B + b) * T + position, (cell * B + b) * T + position
        scale = artanhc(gap_of(norm2_of(x_ptr, row, b < B, D, BD), c)) * root
        at_y = y_ptr + (row * DIRS + direction) * 3 * H + h[None, :]
        u_r, u_r_gap = enter(tl.load(at_y, mask=live, other=0.0), scale)
        u_z, u_z_gap = enter(tl.load(at_y + H, mask=live, other=0.0), scale)
        u_n, u_n_gap = enter(tl.load(at_y + 2 * H, mask=live, other=0.0), scale)
        v = artanhc(state_gap) * state
        p_r, p_r_gap = affine(product(v, w_r), u_r, u_r_gap, b_r, b_r_gap)
        p_z, p_z_gap = affine(product(v, w_z), u_z, u_z_gap, b_z, b_z_gap)
        r, z = tl.sigmoid(unit * artanhc(p_r_gap) * p_r), tl.sigmoid(unit * artanhc(p_z_gap) * p_z)
        o, o_gap = affine(product(r * v, w_n), u_n, u_n_gap, b_n, b_n_gap)
        if PHI > 0:
            bent = tl.where(live, bend(artanhc(o_gap) * o, unit, PHI) / unit, 0.0)
            factor, o_gap = tanhc(dot(bent, bent))
            o = factor * bent
        new, new_gap = gated(state, state_gap, o, o_gap, z)
        active = active_at(lengths_ptr, stream, b, B, position, ENDED)
        state, state_gap = tl.where(active, new, state), tl.where(active, new_gap, state_gap)
        tl.store(out_ptr + place * H + h[None, :], unit * state, mask=live)
        tl.store(gaps_ptr + place, state_gap, mask=b < B)


@triton.jit
def rnn_backward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, states_ptr, S, B, T, D, H,
    grad_ptr, g_x_ptr, g_y_ptr, g_q_ptr, into_ptr, g_bias_ptr, g_c_ptr,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell, stream, direction, b, h, live = block_of(S, B, H, BB, BH)
    c, root, unit = curvature_of(c_ptr)
    bias, bias_gap, bias_square = bias_of(bias_ptr, cell, h, H, c, root)
    w = weight_of(w_ptr, cell, h, H)
    w_back = tl.trans(w)
    g_v, g_b = tl.zeros([BB, BH], tl.float32), tl.zeros([BB, BH], tl.float32)
    g_b_gap, g_unit = tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32)
    g_c = tl.zeros([BB, 1], tl.float64)
    for i in range(T):
        t = T - 1 - i
        position = t + direction * (T - 1 - 2 * t)
        before = position - 1 + 2 * direction
        row, place = (stream * B + b) * T + position, ((cell * B + b) * T + position) * H + h[None, :]
        norm2 = norm2_of(x_ptr, row, b < B, D, BD)
        gap_x = gap_of(norm2, c)
        log = artanhc(gap_x)
        scale = log * root
        at_y = (row * DIRS + direction) * H + h[None, :]
        y = tl.load(y_ptr + at_y, mask=live, other=0.0)
        u, u_gap = enter(y, scale)
        v = tl.load(states_ptr + ((cell * B + b) * T + before) * H + h[None, :], mask=live & (b + t > b), other=0.0)
        after = tl.load(states_ptr + place, mask=live, other=0.0)
        grad = tl.load(grad_ptr + place, mask=live, other=0.0)
        q = product(v, w)
        point, gap = affine(q, u, u_gap, bias, bias_gap)
        point_log = artanhc(gap)
        length = dot(after, after)
        exp, exp_gap = tanhc(length)
        g_unit += exp * dot(grad, after)
        whole = g_v + exp_grad(after, length, exp, exp_gap, unit * grad, 0.0)
        active = active_at(lengths_ptr, stream, b, B, position, ENDED)
        g_new = tl.where(active, whole, 0.0)
        if PHI > 0:
            tangent = point_log * point
            value = tl.where(live, bend(tangent, unit, PHI), 0.0)
            inner = g_new * bend_slope(value, PHI)
            g_unit += dot(inner, tangent) / unit - dot(g_new, value) / (unit * unit)
            g_new = inner
        slope = artanhc_slope(gap, point_log) * dot(g_new, point)
        g_q, g_u, g_u_gap, g_bt, g_bt_gap = affine_grad(q, u, u_gap, bias, bias_gap, point_log * g_new, slope)
        g_v = tl.where(active, 0.0, whole) + product(g_q, w_back)
        g_b += g_bt
        g_b_gap += g_bt_gap
        g_scale = leave_gate(g_q_ptr, into_ptr, g_y_ptr, place, at_y, live, g_q, v, y, scale, g_u, g_u_gap)
        g_norm2 = artanhc_slope(gap_x, log) * g_scale * root
        g_c += g_scale.to(tl.float64) * log / (2 * tl.sqrt(c)) - g_norm2.to(tl.float64) * norm2
        at_x = (cell * B + b) * T + position
        leave_input(x_ptr, g_x_ptr, row, at_x, b < B, D, -2 * c.to(tl.float32) * g_norm2, BD)
    program = cell * tl.num_programs(0) + tl.program_id(0)
    of_bias = leave_bias(g_bias_ptr, program, h, H, bias, g_b, g_b_gap, bias_square, c, root)
    g_c -= g_unit.to(tl.float64) / (2 * c * tl.sqrt(c))
    tl.store(g_c_ptr + program, tl.sum(tl.sum(g_c, 1), 0) + of_bias)


@triton.jit
def gru_backward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, gaps_ptr, S, B, T, D, H,
    grad_ptr, g_x_ptr, g_y_ptr, g_q_ptr, into_ptr, g_bias_ptr, g_c_ptr,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell, stream, direction, b, h, live = block_of(S, B, H, BB, BH)
    c, root, unit = curvature_of(c_ptr)
    b_r, b_r_gap, b_r_square = bias_of(bias_ptr, cell * 3, h, H, c, root)
    b_z, b_z_gap, b_z_square = bias_of(bias_ptr, cell * 3 + 1, h, H, c, root)
    b_n, b_n_gap, b_n_square = bias_of(bias_ptr, cell * 3 + 2, h, H, c, root)
    w_r, w_z = weight_of(w_ptr, cell * 3, h, H), weight_of(w_ptr, cell * 3 + 1, h, H)
    w_n = weight_of(w_ptr, cell * 3 + 2, h, H)
    g_state = tl.zeros([BB, BH], tl.float32)
    g_b_r, g_b_z, g_b_n = tl.zeros([BB, BH], tl.float32), tl.zeros([BB, BH], tl.float32), tl.zeros([BB, BH], tl.float32)
    g_gap, g_unit = tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32)
    g_gap_r, g_gap_z = tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32)
    g_gap_n = tl.zeros([BB, 1], tl.float32)
    g_c = tl.zeros([BB, 1], tl.float64)
    for i in range(T):
        t = T - 1 - i
        position = t + direction * (T - 1 - 2 * t)
        before = (cell * B + b) * T + position - 1 + 2 * direction
        row, at = (stream * B + b) * T + position, (cell * B + b) * T + position
        norm2 = norm2_of(x_ptr, row, b < B, D, BD)
        gap_x = gap_of(norm2, c)
        log = artanhc(gap_x)
        scale = log * root
        at_y = (row * DIRS + direction) * 3 * H + h[None, :]
        y_r = tl.load(y_ptr + at_y, mask=live, other=0.0)
        u_r, u_r_gap = enter(y_r, scale)
        y_z = tl.load(y_ptr + at_y + H, mask=live, other=0.0)
        u_z, u_z_gap = enter(y_z, scale)
        y_n = tl.load(y_ptr + at_y + 2 * H, mask=live, other=0.0)
        u_n, u_n_gap = enter(y_n, scale)
        state = root * tl.load(out_ptr + before * H + h[None, :], mask=live & (b + t > b), other=0.0)
        state_gap = tl.load(gaps_ptr + before, mask=(b < B) & (b + t > b), other=1.0)
        # the step again
        state_log = artanhc(state_gap)
        v = state_log * state
        q_r, q_z = product(v, w_r), product(v, w_z)
        p_r, p_r_gap = affine(q_r, u_r, u_r_gap, b_r, b_r_gap)
        p_z, p_z_gap = affine(q_z, u_z, u_z_gap, b_z, b_z_gap)
        log_r, log_z = artanhc(p_r_gap), artanhc(p_z_gap)
        r, z = tl.sigmoid(unit * log_r * p_r), tl.sigmoid(unit * log_z * p_z)
        rv = r * v
        q_n = product(rv, w_n)
        p_n, p_n_gap = affine(q_n, u_n, u_n_gap, b_n, b_n_gap)
        o, o_gap = p_n, p_n_gap
        if PHI > 0:
            log_n = artanhc(p_n_gap)
            value = tl.where(live, bend(log_n * p_n, unit, PHI), 0.0)
            bent = value / unit
            length = dot(bent, bent)
            exp, o_gap = tanhc(length)
            o = exp * bent
        # and its gradient
        place = at * H + h[None, :]
        grad = tl.load(grad_ptr + place, mask=live, other=0.0)
        g_unit += root * dot(grad, tl.load(out_ptr + place, mask=live, other=0.0))
        active = active_at(lengths_ptr, stream, b, B, position, ENDED)
        whole, whole_gap = g_state + unit * grad, g_gap
        g_state, g_gap, g_o, g_o_gap, g_z = gated_grad(
            state, state_gap, o, o_gap, z, tl.where(active, whole, 0.0), tl.where(active, whole_gap, 0.0)
        )
        if PHI > 0:
            g_bent = exp_grad(bent, length, exp, o_gap, g_o, g_o_gap)
            inner = g_bent * bend_slope(value, PHI)
            along = dot(inner, p_n)
            g_unit += log_n * along / unit - dot(g_bent, value) / (unit * unit)
            g_o, g_o_gap = log_n * inner, artanhc_slope(p_n_gap, log_n) * along
        g_q_n, g_u_n, g_u_n_gap, g_bt, g_bt_gap = affine_grad(q_n, u_n, u_n_gap, b_n, b_n_gap, g_o, g_o_gap)
        g_b_n += g_bt
        g_gap_n += g_bt_gap
        g_rv = product(g_q_n, tl.trans(w_n))
        g_r = g_rv * v * r * (1 - r)
        along = dot(g_r, p_r)
        g_unit += log_r * along
        slope = unit * artanhc_slope(p_r_gap, log_r) * along
        g_q_r, g_u_r, g_u_r_gap, g_bt, g_bt_gap = affine_grad(
            q_r, u_r, u_r_gap, b_r, b_r_gap, unit * log_r * g_r, slope
        )
        g_b_r += g_bt
        g_gap_r += g_bt_gap
        g_z = g_z * z * (1 - z)
        along = dot(g_z, p_z)
        g_unit += log_z * along
        slope = unit * artanhc_slope(p_z_gap, log_z) * along
        g_q_z, g_u_z, g_u_z_gap, g_bt, g_bt_gap = affine_grad(
            q_z, u_z, u_z_gap, b_z, b_z_gap, unit * log_z * g_z, slope
        )
        g_b_z += g_bt
        g_gap_z += g_bt_gap
        g_v = g_rv * r + product(g_q_r, tl.trans(w_r)) + product(g_q_z, tl.trans(w_z))
        g_state += tl.where(active, 0.0, whole) + state_log * g_v
        g_gap += tl.where(active, 0.0, whole_gap) + artanhc_slope(state_gap, state_log) * dot(g_v, state)
        # results, gates one after another
        at_r = ((cell * 3 * B + b) * T + position) * H + h[None, :]
        next_gate = (cell * 0 + B) * T * H  # int64, as cell is
        to = (g_q_ptr, into_ptr, g_y_ptr)
        g_scale = leave_gate(*to, at_r, at_y, live, g_q_r, v, y_r, scale, g_u_r, g_u_r_gap)
        g_scale += leave_gate(*to, at_r + next_gate, at_y + H, live, g_q_z, v, y_z, scale, g_u_z, g_u_z_gap)
        g_scale += leave_gate(*to, at_r + 2 * next_gate, at_y + 2 * H, live, g_q_n, rv, y_n, scale, g_u_n, g_u_n_gap)
        g_norm2 = artanhc_slope(gap_x, log) * g_scale * root
        g_c += g_scale.to(tl.float64) * log / (2 * tl.sqrt(c)) - g_norm2.to(tl.float64) * norm2
        leave_input(x_ptr, g_x_ptr, row, at, b < B, D, -2 * c.to(tl.float32) * g_norm2, BD)
    program = cell * tl.num_programs(0) + tl.program_id(0)
    of_bias = leave_bias(g_bias_ptr, program * 3, h, H, b_r, g_b_r, g_gap_r, b_r_square, c, root)
    of_bias += leave_bias(g_bias_ptr, program * 3 + 1, h, H, b_z, g_b_z, g_gap_z, b_z_square, c, root)
    of_bias += leave_bias(g_bias_ptr, program * 3 + 2, h, H, b_n, g_b_n, g_gap_n, b_n_square, c, root)
    g_c -= g_unit.to(tl.float64) / (2 * c * tl.sqrt(c))
    tl.store(g_c_ptr + program, tl.sum(tl.sum(g_c, 1), 0) + of_bias)
