# mypy: ignore-errors
"""Whole sequences through Möbius RNNs and GRUs on a GPU: a program takes a block of sequences through all steps.

The weights of the state stay on the chip. The products with the inputs, for all steps and gates, are one matrix product
before, ``y``; so are, after the backward pass, those that give the gradients of weights and inputs. The backward pass
computes each step again from the state before. Formulas: :mod:`hyperbolic.kernels.recurrent.plain`.

Layouts: x (S', B, T, D); y (S', B, T, DIRS, G, H); out, states (S, B, T, H) and gaps (S, B, T) after each step, in order
of position; cell = DIRS' * S' + stream.
"""

from __future__ import annotations

import triton
import triton.language as tl

from hyperbolic.kernels.recurrent.triton_steps import (
    FLOOR,
    LEAST,
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
    tanhc_slope,
)


@triton.jit
def _bias(bias_ptr, place, h, H, c, root):
    """b scaled to the unit ball (1, BH), its gap, and ``|b|^2`` in float64."""
    b = tl.load(bias_ptr + place * H + h, mask=h < H, other=0.0)[None, :]
    wide = b.to(tl.float64)
    square = tl.sum(tl.sum(wide * wide, 1), 0)
    return root * b, tl.maximum(1 - c * square, FLOOR).to(tl.float32), square


@triton.jit
def _weight(w_ptr, place, h, H):
    """``W^T`` (BH, BH)."""
    at = w_ptr + place * H * H + h[None, :] * H + h[:, None]
    return tl.load(at, mask=(h[:, None] < H) & (h[None, :] < H), other=0.0)


@triton.jit
def _norm2(x_ptr, row, live, D, BD: tl.constexpr):
    """``|x|^2`` (B, 1) in float64."""
    total = tl.zeros_like(row).to(tl.float64)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        x = tl.load(x_ptr + row * D + d[None, :], mask=live & (d[None, :] < D), other=0.0).to(tl.float64)
        total += tl.sum(x * x, 1)[:, None]
    return total


@triton.jit
def _gap(norm2, c):
    return tl.minimum(tl.maximum((1 - c * norm2).to(tl.float32), LEAST), 1.0)


@triton.jit
def _input(y, scale):
    """``u = exp_0(scale y)`` and its gap, its factor and ``|scale y|^2``."""
    y = scale * y
    square = dot(y, y)
    factor, gap = tanhc(square)
    return factor * y, gap, factor, square


@triton.jit
def _input_grad(u, gap, factor, square, scale, grad, grad_gap):
    """Gradients of y and of scale."""
    along = dot(grad, u)
    twice = tanhc_slope(square, factor, gap) * along / factor - 2 * grad_gap * gap * factor
    return grad * (factor * scale) + u * (twice / factor * scale), (along + twice * square) / scale


@triton.jit
def _active(lengths_ptr, stream, b, B, position, ENDED: tl.constexpr):
    """Whether the position is inside of the sequence, (B, 1)."""
    if ENDED:
        return position < tl.load(lengths_ptr + stream * B + b, mask=b < B, other=1)
    else:
        return b < B


@triton.jit
def rnn_forward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, states_ptr, S, B, T, D, H,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(1).to(tl.int64)
    stream, direction = cell % S, cell // S
    b, h = (tl.program_id(0) * BB + tl.arange(0, BB))[:, None], tl.arange(0, BH)
    live = (b < B) & (h[None, :] < H)
    c = tl.load(c_ptr)
    root = tl.sqrt(c).to(tl.float32)
    unit = 1 / root
    bias, bias_gap, _ = _bias(bias_ptr, cell, h, H, c, root)
    w = _weight(w_ptr, cell, h, H)
    v = tl.zeros([BB, BH], tl.float32)
    for t in range(T):
        position = t + direction * (T - 1 - 2 * t)
        row, place = (stream * B + b) * T + position, ((cell * B + b) * T + position) * H + h[None, :]
        scale = artanhc(_gap(_norm2(x_ptr, row, b < B, D, BD), c)) * root
        y = tl.load(y_ptr + (row * DIRS + direction) * H + h[None, :], mask=live, other=0.0)
        u, u_gap, _, _ = _input(y, scale)
        point, gap = affine(product(v, w), u, u_gap, bias, bias_gap)
        new = artanhc(gap) * point
        if PHI > 0:
            new = tl.where(live, bend(new, unit, PHI) / unit, 0.0)
        v = tl.where(_active(lengths_ptr, stream, b, B, position, ENDED), new, v)
        factor, _ = tanhc(dot(v, v))
        tl.store(out_ptr + place, unit * (factor * v), mask=live)
        tl.store(states_ptr + place, v, mask=live)


@triton.jit
def gru_forward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, gaps_ptr, S, B, T, D, H,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(1).to(tl.int64)
    stream, direction = cell % S, cell // S
    b, h = (tl.program_id(0) * BB + tl.arange(0, BB))[:, None], tl.arange(0, BH)
    live = (b < B) & (h[None, :] < H)
    c = tl.load(c_ptr)
    root = tl.sqrt(c).to(tl.float32)
    unit = 1 / root
    b_r, b_r_gap, _ = _bias(bias_ptr, cell * 3, h, H, c, root)
    b_z, b_z_gap, _ = _bias(bias_ptr, cell * 3 + 1, h, H, c, root)
    b_n, b_n_gap, _ = _bias(bias_ptr, cell * 3 + 2, h, H, c, root)
    w_r, w_z, w_n = _weight(w_ptr, cell * 3, h, H), _weight(w_ptr, cell * 3 + 1, h, H), _weight(w_ptr, cell * 3 + 2, h, H)
    state = tl.zeros([BB, BH], tl.float32)
    state_gap = tl.full([BB, 1], 1.0, tl.float32)
    for t in range(T):
        position = t + direction * (T - 1 - 2 * t)
        row, place = (stream * B + b) * T + position, (cell * B + b) * T + position
        scale = artanhc(_gap(_norm2(x_ptr, row, b < B, D, BD), c)) * root
        at_y = y_ptr + (row * DIRS + direction) * 3 * H + h[None, :]
        u_r, u_r_gap, _, _ = _input(tl.load(at_y, mask=live, other=0.0), scale)
        u_z, u_z_gap, _, _ = _input(tl.load(at_y + H, mask=live, other=0.0), scale)
        u_n, u_n_gap, _, _ = _input(tl.load(at_y + 2 * H, mask=live, other=0.0), scale)
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
        active = _active(lengths_ptr, stream, b, B, position, ENDED)
        state, state_gap = tl.where(active, new, state), tl.where(active, new_gap, state_gap)
        tl.store(out_ptr + place * H + h[None, :], unit * state, mask=live)
        tl.store(gaps_ptr + place, state_gap, mask=b < B)


@triton.jit
def _leave_input(x_ptr, g_x_ptr, row, place, live, D, factor, BD: tl.constexpr):
    """Writes ``factor x``, what the gap of x adds to its gradient."""
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        some = live & (d[None, :] < D)
        x = tl.load(x_ptr + row * D + d[None, :], mask=some, other=0.0)
        tl.store(g_x_ptr + place * D + d[None, :], factor * x, mask=some)


@triton.jit
def _leave_bias(g_bias_ptr, place, h, H, bias, g_b, g_gap, square, c, root):
    """Writes the gradient of a bias of these rows, and returns the parts of c's in it."""
    g_b, gap = tl.sum(g_b, 0), tl.sum(tl.sum(g_gap, 1), 0)
    b = tl.sum(bias, 0)  # of one row
    tl.store(g_bias_ptr + place * H + h, root * (g_b - 2 * gap * b), mask=h < H)
    return tl.sum(g_b * b, 0).to(tl.float64) / (2 * c) - gap.to(tl.float64) * square


@triton.jit
def rnn_backward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, states_ptr, S, B, T, D, H,
    grad_ptr, g_x_ptr, g_y_ptr, g_q_ptr, into_ptr, g_bias_ptr, g_c_ptr,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(1).to(tl.int64)
    stream, direction = cell % S, cell // S
    b, h = (tl.program_id(0) * BB + tl.arange(0, BB))[:, None], tl.arange(0, BH)
    live = (b < B) & (h[None, :] < H)
    c = tl.load(c_ptr)
    root = tl.sqrt(c).to(tl.float32)
    unit = 1 / root
    bias, bias_gap, bias_square = _bias(bias_ptr, cell, h, H, c, root)
    w = _weight(w_ptr, cell, h, H)
    w_back = tl.trans(w)
    g_v, g_b = tl.zeros([BB, BH], tl.float32), tl.zeros([BB, BH], tl.float32)
    g_b_gap, g_unit = tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32)
    g_c = tl.zeros([BB, 1], tl.float64)
    for i in range(T):
        t = T - 1 - i
        position = t + direction * (T - 1 - 2 * t)
        before = position - 1 + 2 * direction
        row, place = (stream * B + b) * T + position, ((cell * B + b) * T + position) * H + h[None, :]
        norm2 = _norm2(x_ptr, row, b < B, D, BD)
        gap_x = _gap(norm2, c)
        log = artanhc(gap_x)
        scale = log * root
        at_y = (row * DIRS + direction) * H + h[None, :]
        u, u_gap, factor, square = _input(tl.load(y_ptr + at_y, mask=live, other=0.0), scale)
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
        active = _active(lengths_ptr, stream, b, B, position, ENDED)
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
        tl.store(g_q_ptr + place, g_q, mask=live)
        tl.store(into_ptr + place, v, mask=live)
        g_y, g_scale = _input_grad(u, u_gap, factor, square, scale, g_u, g_u_gap)
        tl.store(g_y_ptr + at_y, g_y, mask=live)
        g_norm2 = artanhc_slope(gap_x, log) * g_scale * root
        g_c += g_scale.to(tl.float64) * log / (2 * tl.sqrt(c)) - g_norm2.to(tl.float64) * norm2
        at_x = (cell * B + b) * T + position
        _leave_input(x_ptr, g_x_ptr, row, at_x, b < B, D, -2 * c.to(tl.float32) * g_norm2, BD)
    program = cell * tl.num_programs(0) + tl.program_id(0)
    of_bias = _leave_bias(g_bias_ptr, program, h, H, bias, g_b, g_b_gap, bias_square, c, root)
    g_c -= g_unit.to(tl.float64) / (2 * c * tl.sqrt(c))
    tl.store(g_c_ptr + program, tl.sum(tl.sum(g_c, 1), 0) + of_bias)


@triton.jit
def _leave_gate(
    g_q_ptr, into_ptr, g_y_ptr, place, at_y, live, g_q, into, u, u_gap, factor, square, scale, g_u, g_u_gap
):  # fmt: skip
    """Writes what the products after the pass take of a gate; returns the gradient of the inputs' scale."""
    tl.store(g_q_ptr + place, g_q, mask=live)
    tl.store(into_ptr + place, into, mask=live)
    g_y, g_scale = _input_grad(u, u_gap, factor, square, scale, g_u, g_u_gap)
    tl.store(g_y_ptr + at_y, g_y, mask=live)
    return g_scale


@triton.jit
def gru_backward(
    x_ptr, y_ptr, lengths_ptr, w_ptr, bias_ptr, c_ptr, out_ptr, gaps_ptr, S, B, T, D, H,
    grad_ptr, g_x_ptr, g_y_ptr, g_q_ptr, into_ptr, g_bias_ptr, g_c_ptr,
    DIRS: tl.constexpr, PHI: tl.constexpr, ENDED: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(1).to(tl.int64)
    stream, direction = cell % S, cell // S
    b, h = (tl.program_id(0) * BB + tl.arange(0, BB))[:, None], tl.arange(0, BH)
    live = (b < B) & (h[None, :] < H)
    c = tl.load(c_ptr)
    root = tl.sqrt(c).to(tl.float32)
    unit = 1 / root
    b_r, b_r_gap, b_r_square = _bias(bias_ptr, cell * 3, h, H, c, root)
    b_z, b_z_gap, b_z_square = _bias(bias_ptr, cell * 3 + 1, h, H, c, root)
    b_n, b_n_gap, b_n_square = _bias(bias_ptr, cell * 3 + 2, h, H, c, root)
    w_r, w_z, w_n = _weight(w_ptr, cell * 3, h, H), _weight(w_ptr, cell * 3 + 1, h, H), _weight(w_ptr, cell * 3 + 2, h, H)
    g_state = tl.zeros([BB, BH], tl.float32)
    g_b_r, g_b_z, g_b_n = tl.zeros([BB, BH], tl.float32), tl.zeros([BB, BH], tl.float32), tl.zeros([BB, BH], tl.float32)
    g_gap, g_unit = tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32)
    g_gap_r, g_gap_z, g_gap_n = tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32), tl.zeros([BB, 1], tl.float32)
    g_c = tl.zeros([BB, 1], tl.float64)
    for i in range(T):
        t = T - 1 - i
        position = t + direction * (T - 1 - 2 * t)
        before = (cell * B + b) * T + position - 1 + 2 * direction
        row, at = (stream * B + b) * T + position, (cell * B + b) * T + position
        norm2 = _norm2(x_ptr, row, b < B, D, BD)
        gap_x = _gap(norm2, c)
        log = artanhc(gap_x)
        scale = log * root
        at_y = (row * DIRS + direction) * 3 * H + h[None, :]
        u_r, u_r_gap, factor_r, square_r = _input(tl.load(y_ptr + at_y, mask=live, other=0.0), scale)
        u_z, u_z_gap, factor_z, square_z = _input(tl.load(y_ptr + at_y + H, mask=live, other=0.0), scale)
        u_n, u_n_gap, factor_n, square_n = _input(tl.load(y_ptr + at_y + 2 * H, mask=live, other=0.0), scale)
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
        active = _active(lengths_ptr, stream, b, B, position, ENDED)
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
        g_q_r, g_u_r, g_u_r_gap, g_bt, g_bt_gap = affine_grad(q_r, u_r, u_r_gap, b_r, b_r_gap, unit * log_r * g_r, slope)
        g_b_r += g_bt
        g_gap_r += g_bt_gap
        g_z = g_z * z * (1 - z)
        along = dot(g_z, p_z)
        g_unit += log_z * along
        slope = unit * artanhc_slope(p_z_gap, log_z) * along
        g_q_z, g_u_z, g_u_z_gap, g_bt, g_bt_gap = affine_grad(q_z, u_z, u_z_gap, b_z, b_z_gap, unit * log_z * g_z, slope)
        g_b_z += g_bt
        g_gap_z += g_bt_gap
        g_v = g_rv * r + product(g_q_r, tl.trans(w_r)) + product(g_q_z, tl.trans(w_z))
        g_state += tl.where(active, 0.0, whole) + state_log * g_v
        g_gap += tl.where(active, 0.0, whole_gap) + artanhc_slope(state_gap, state_log) * dot(g_v, state)
        # results, gates one after another
        at_r, next_gate = ((cell * 3 * B + b) * T + position) * H + h[None, :], B * T * H
        g_scale = _leave_gate(
            g_q_ptr, into_ptr, g_y_ptr, at_r, at_y, live, g_q_r, v, u_r, u_r_gap, factor_r, square_r, scale, g_u_r, g_u_r_gap
        )  # fmt: skip
        g_scale += _leave_gate(
            g_q_ptr, into_ptr, g_y_ptr, at_r + next_gate, at_y + H, live, g_q_z, v, u_z, u_z_gap, factor_z, square_z, scale,
            g_u_z, g_u_z_gap,
        )  # fmt: skip
        g_scale += _leave_gate(
            g_q_ptr, into_ptr, g_y_ptr, at_r + 2 * next_gate, at_y + 2 * H, live, g_q_n, rv, u_n, u_n_gap, factor_n, square_n,
            scale, g_u_n, g_u_n_gap,
        )  # fmt: skip
        g_norm2 = artanhc_slope(gap_x, log) * g_scale * root
        g_c += g_scale.to(tl.float64) * log / (2 * tl.sqrt(c)) - g_norm2.to(tl.float64) * norm2
        _leave_input(x_ptr, g_x_ptr, row, at, b < B, D, -2 * c.to(tl.float32) * g_norm2, BD)
    program = cell * tl.num_programs(0) + tl.program_id(0)
    of_bias = _leave_bias(g_bias_ptr, program * 3, h, H, b_r, g_b_r, g_gap_r, b_r_square, c, root)
    of_bias += _leave_bias(g_bias_ptr, program * 3 + 1, h, H, b_z, g_b_z, g_gap_z, b_z_square, c, root)
    of_bias += _leave_bias(g_bias_ptr, program * 3 + 2, h, H, b_n, g_b_n, g_gap_n, b_n_square, c, root)
    g_c -= g_unit.to(tl.float64) / (2 * c * tl.sqrt(c))
    tl.store(g_c_ptr + program, tl.sum(tl.sum(g_c, 1), 0) + of_bias)
