# mypy: ignore-errors
"""The gyrovector steps of :mod:`hyperbolic.kernels.gyro` and their gradients as device functions of Triton, float32.

Layout: points are rows (B, H), row scalars (B, 1); coordinates beyond H are 0. A gradient computes again what it needs
of the step; the compiler keeps one copy of what stands twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from hyperbolic.kernels.gyro import constants
from hyperbolic.numerics import BALL_EPS

_LIMITS = constants(torch.empty(0, dtype=torch.float32))
BOUND = tl.constexpr(_LIMITS.bound)
LEAST = tl.constexpr(_LIMITS.least_gap)
LONGEST = tl.constexpr(_LIMITS.longest)
NEAR = tl.constexpr(0.9)
SMALL = tl.constexpr(0.02)
FLOOR = tl.constexpr(BALL_EPS[torch.float32] / 4)  # of the gap of a bias, as in numerics.ball_gap


@triton.jit
def dot(x, y):
    return tl.sum(x * y, 1)[:, None]


@triton.jit
def product(x, w):
    """x W of rows (B, H) in the precision of float32."""
    return tl.dot(x, w, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def tanhc(square):
    small = square < SMALL
    near = 1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    r = tl.sqrt(tl.where(small, 1.0, square))
    e = tl.exp(-2 * tl.minimum(r, LONGEST))
    scale = tl.minimum((1 - e) / (1 + e), BOUND) / r
    gap = tl.maximum(4 * e / ((1 + e) * (1 + e)), LEAST)
    return tl.where(small, near, scale), tl.where(small, 1 - square * near * near, gap)


@triton.jit
def tanhc_slope(square, scale, gap):
    """Twice the derivative of ``tanh(r)/r`` with respect to ``r^2``."""
    small = square < SMALL
    near = -2 / 3 + square * (8 / 15 + square * (-34 / 105 + square * (496 / 2835)))
    return tl.where(small, near, (gap - scale) / tl.where(small, 1.0, square))


@triton.jit
def artanhc(gap):
    square = 1 - gap
    small = square < SMALL
    near = 1 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9))))
    r = tl.sqrt(tl.where(small, 0.5, square))
    return tl.where(small, near, tl.log((1 + r) * (1 + r) / gap) / (2 * r))


@triton.jit
def artanhc_slope(gap, scale):
    """Derivative of ``artanh(r)/r`` with respect to the gap."""
    square = 1 - gap
    small = square < SMALL
    near = -(1 / 3 + square * (2 / 5 + square * (3 / 7 + square * (4 / 9 + square * (5 / 11)))))
    return tl.where(small, near, (scale - 1 / gap) / (2 * tl.where(small, 1.0, square)))


@triton.jit
def exp_grad(u, square, scale, gap, grad, grad_gap):
    twice = tanhc_slope(square, scale, gap) * dot(grad, u) - 2 * grad_gap * gap * scale
    return scale * grad + twice * u


@triton.jit
def add(x, x_gap, y, y_gap):
    s = x + y
    n = dot(s, s)
    i = 1 / (n + x_gap * y_gap)
    return n * i * x + x_gap * i * s, x_gap * y_gap * i


@triton.jit
def add_grad(x, x_gap, y, y_gap, grad, grad_gap):
    """Gradients of x, x_gap, y, y_gap; that of y has a row for each of x."""
    s = x + y
    n = dot(s, s)
    i = 1 / (n + x_gap * y_gap)
    a, b = n * i, x_gap * i
    g_a, g_b = dot(grad, x), dot(grad, s) + grad_gap * y_gap
    g_d = -(g_a * a + g_b * b) * i
    g_y = b * grad + 2 * (g_d + g_a * i) * s
    return g_y + a * grad, g_b * i + g_d * y_gap, g_y, grad_gap * b + g_d * x_gap


@triton.jit
def affine(q, u, u_gap, b, b_gap):
    f, gap = tanhc(dot(q, q))
    m, m_gap = add(f * q, gap, u, u_gap)
    return add(m, m_gap, b, b_gap)


@triton.jit
def affine_grad(q, u, u_gap, b, b_gap, grad, grad_gap):
    """Gradients of q, u, u_gap, b, b_gap."""
    square = dot(q, q)
    f, gap = tanhc(square)
    m, m_gap = add(f * q, gap, u, u_gap)
    g_m, g_m_gap, g_b, g_b_gap = add_grad(m, m_gap, b, b_gap, grad, grad_gap)
    g_x, g_x_gap, g_u, g_u_gap = add_grad(f * q, gap, u, u_gap, g_m, g_m_gap)
    return exp_grad(q, square, f, gap, g_x, g_x_gap), g_u, g_u_gap, g_b, g_b_gap


@triton.jit
def between(h, h_gap, o, o_gap):
    """``(-h) (+) o`` and its gap."""
    e = o - h
    e2 = dot(e, e)
    i = 1 / (e2 + h_gap * o_gap)
    return (h_gap * e - e2 * h) * i, h_gap * o_gap * i


@triton.jit
def inside(x, gap):
    square = dot(x, x)
    gap = tl.where(square < NEAR, 1 - square, gap)
    shrink = tl.where(square > BOUND * BOUND, tl.rsqrt(tl.maximum(square, NEAR)) * BOUND, 1.0)
    return shrink * x, tl.maximum(gap, LEAST)


@triton.jit
def inside_grad(x, gap, grad, grad_gap):
    """Of the gradient at a point that was pulled back, only the part orthogonal to the point survives."""
    square = dot(x, x)
    outside = square > BOUND * BOUND
    shrink = tl.where(outside, tl.rsqrt(tl.maximum(square, NEAR)) * BOUND, 1.0)
    radial = tl.where(outside, dot(grad, x) / tl.maximum(square, NEAR), 0.0)
    held = tl.where(square < NEAR, 1 - square, gap)
    return shrink * (grad - radial * x), tl.where(held < LEAST, 0.0, grad_gap)


@triton.jit
def gated(h, h_gap, o, o_gap, z):
    m, m_gap = between(h, h_gap, o, o_gap)
    t = z * (artanhc(m_gap) * m)
    f, gap = tanhc(dot(t, t))
    new, new_gap = add(h, h_gap, f * t, gap)
    return inside(new, new_gap)


@triton.jit
def gated_grad(h, h_gap, o, o_gap, z, grad, grad_gap):
    """Gradients of h, h_gap, o, o_gap, z."""
    e = o - h
    e2 = dot(e, e)
    i = 1 / (e2 + h_gap * o_gap)
    m, m_gap = (h_gap * e - e2 * h) * i, h_gap * o_gap * i
    scale = artanhc(m_gap)
    step = scale * m
    t = z * step
    square = dot(t, t)
    f, gap = tanhc(square)
    new, new_gap = add(h, h_gap, f * t, gap)
    grad, grad_gap = inside_grad(new, new_gap, grad, grad_gap)
    g_h, g_h_gap, g_point, g_point_gap = add_grad(h, h_gap, f * t, gap, grad, grad_gap)
    g_t = exp_grad(t, square, f, gap, g_point, g_point_gap)
    g_step = g_t * z
    g_m = scale * g_step
    g_m_gap = artanhc_slope(m_gap, scale) * dot(g_step, m)
    g_d = -(dot(g_m, m) + g_m_gap * m_gap) * i
    g_mi = g_m * i
    g_gi = g_m_gap * i + g_d
    g_o = h_gap * g_mi + 2 * (g_d - dot(g_mi, h)) * e
    return g_h - g_o - e2 * g_mi, g_h_gap + g_gi * o_gap + dot(g_mi, e), g_o, g_gi * h_gap, g_t * step


@triton.jit
def bend(v, unit, PHI: tl.constexpr):
    """``phi(unit v)``; PHI as in ``plain.PHI``."""
    x = unit * v
    if PHI == 1:
        square = x * x
        near = 1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
        e = tl.exp(-2 * tl.abs(x))
        far = tl.where(x < 0, -1.0, 1.0) * (1 - e) / (1 + e)
        return tl.where(square < SMALL, x * near, far)
    elif PHI == 2:
        return tl.maximum(x, 0.0)
    else:
        return tl.sigmoid(x)


@triton.jit
def bend_slope(y, PHI: tl.constexpr):
    """The derivative of phi from its value."""
    if PHI == 1:
        return 1 - y * y
    elif PHI == 2:
        return tl.where(y > 0, 1.0, 0.0)
    else:
        return y * (1 - y)
