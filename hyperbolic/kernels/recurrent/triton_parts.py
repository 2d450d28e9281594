# mypy: ignore-errors
"""What the kernels of ``triton.py`` read and write around a step."""

from __future__ import annotations

import triton
import triton.language as tl

from hyperbolic.kernels.recurrent.triton_steps import FLOOR, LEAST, dot, tanhc, tanhc_slope


@triton.jit
def block_of(S, B, H, BB: tl.constexpr, BH: tl.constexpr):
    """Of a program: its cell, with stream and direction; numbers of sequences (BB, 1) and of coordinates (BH); and
    which of both there are (BB, BH)."""
    cell = tl.program_id(1).to(tl.int64)
    b, h = (tl.program_id(0) * BB + tl.arange(0, BB))[:, None], tl.arange(0, BH)
    return cell, cell % S, cell // S, b, h, (b < B) & (h[None, :] < H)


@triton.jit
def curvature_of(c_ptr):
    """c, and ``sqrt(c)`` and ``1/sqrt(c)`` in float32."""
    c = tl.load(c_ptr)
    root = tl.sqrt(c).to(tl.float32)
    return c, root, 1 / root


@triton.jit
def bias_of(bias_ptr, place, h, H, c, root):
    """b scaled to the unit ball (1, BH), its gap, and ``|b|^2`` in float64."""
    b = tl.load(bias_ptr + place * H + h, mask=h < H, other=0.0)[None, :]
    wide = b.to(tl.float64)
    square = tl.sum(tl.sum(wide * wide, 1), 0)
    return root * b, tl.maximum(1 - c * square, FLOOR).to(tl.float32), square


@triton.jit
def weight_of(w_ptr, place, h, H):
    """``W^T`` (BH, BH)."""
    at = w_ptr + place * H * H + h[None, :] * H + h[:, None]
    return tl.load(at, mask=(h[:, None] < H) & (h[None, :] < H), other=0.0)


@triton.jit
def norm2_of(x_ptr, row, live, D, BD: tl.constexpr):
    """``|x|^2`` (B, 1) in float64."""
    total = tl.zeros_like(row).to(tl.float64)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        x = tl.load(x_ptr + row * D + d[None, :], mask=live & (d[None, :] < D), other=0.0).to(tl.float64)
        total += tl.sum(x * x, 1)[:, None]
    return total


@triton.jit
def gap_of(norm2, c):
    return tl.minimum(tl.maximum((1 - c * norm2).to(tl.float32), LEAST), 1.0)


@triton.jit
def enter(y, scale):
    """``u = exp_0(scale y)`` and its gap."""
    y = scale * y
    factor, gap = tanhc(dot(y, y))
    return factor * y, gap


@triton.jit
def enter_grad(y, scale, grad, grad_gap):
    """Gradients of y and of scale."""
    y = scale * y
    square = dot(y, y)
    factor, gap = tanhc(square)
    along = dot(grad, y)
    twice = tanhc_slope(square, factor, gap) * along - 2 * grad_gap * gap * factor
    return scale * (factor * grad + twice * y), (factor * along + twice * square) / scale


@triton.jit
def active_at(lengths_ptr, stream, b, B, position, ENDED: tl.constexpr):
    """Whether the position is inside of the sequence, (B, 1)."""
    if ENDED:
        return position < tl.load(lengths_ptr + stream * B + b, mask=b < B, other=1)
    else:
        return b < B


@triton.jit
def leave_input(x_ptr, g_x_ptr, row, place, live, D, factor, BD: tl.constexpr):
    """Writes ``factor x``, what the gap of x adds to its gradient."""
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        some = live & (d[None, :] < D)
        x = tl.load(x_ptr + row * D + d[None, :], mask=some, other=0.0)
        tl.store(g_x_ptr + place * D + d[None, :], factor * x, mask=some)


@triton.jit
def leave_bias(g_bias_ptr, place, h, H, bias, g_b, g_gap, square, c, root):
    """Writes the gradient of a bias of these rows, and returns the parts of c's in it."""
    g_b, gap = tl.sum(g_b, 0), tl.sum(tl.sum(g_gap, 1), 0)
    b = tl.sum(bias, 0)  # of one row
    tl.store(g_bias_ptr + place * H + h, root * (g_b - 2 * gap * b), mask=h < H)
    return tl.sum(g_b * b, 0).to(tl.float64) / (2 * c) - gap.to(tl.float64) * square


@triton.jit
def leave_gate(g_q_ptr, into_ptr, g_y_ptr, place, at_y, live, g_q, into, y, scale, g_u, g_u_gap):
    """Writes what the products after the pass take of a gate; returns the gradient of the inputs' scale."""
    tl.store(g_q_ptr + place, g_q, mask=live)
    tl.store(into_ptr + place, into, mask=live)
    g_y, g_scale = enter_grad(y, scale, g_u, g_u_gap)
    tl.store(g_y_ptr + at_y, g_y, mask=live)
    return g_scale
