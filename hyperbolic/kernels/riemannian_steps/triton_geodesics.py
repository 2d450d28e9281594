# mypy: ignore-errors
"""One geodesic step of points and the transport of tangent vectors along it, in Triton, by the float64 numbers of each
row: of the hyperboloid, and the way there and back from the other models. Names and sources: geodesic_steps.h."""

from __future__ import annotations

import triton
import triton.language as tl

# kinds of points; of jobs, flat tensors have smaller numbers
SHEET: tl.constexpr = tl.constexpr(2)
BALL: tl.constexpr = tl.constexpr(3)
KLEIN: tl.constexpr = tl.constexpr(4)
TINY: tl.constexpr = tl.constexpr(1e-300)
LONGEST_MOMENTUM: tl.constexpr = tl.constexpr(1e36)
LONGEST_STEP: tl.constexpr = tl.constexpr(64.0)
FAR: tl.constexpr = tl.constexpr(2e9)  # of cosh(distance)^2: from further out longer steps lose all digits
LONGEST_FAR: tl.constexpr = tl.constexpr(11.5)


@triton.jit
def sinhc(r):
    """``sinh(r) / r`` and ``cosh(r)`` of r >= 0."""
    q = r * r
    short = 1 + q / 6 * (1 + q / 20 * (1 + q / 42 * (1 + q / 72 * (1 + q / 110 * (1 + q / 156)))))
    grown = tl.exp(r)
    is_short = r < 0.5
    ratio = tl.where(is_short, short, (grown - 1 / grown) / (2 * tl.where(is_short, 1.0, r)))
    return ratio, tl.where(is_short, tl.sqrt(1 + q * short * short), (grown + 1 / grown) / 2)


@triton.jit
def asinh(y):
    """Of y >= 0, as ``log(1 + z)`` with ``z = y + y^2 / (1 + sqrt(1 + y^2))``."""
    z = y + y * y / (1 + tl.sqrt(1 + y * y))
    w = 1 + z
    exact = w == 1
    return tl.where(exact, z, tl.log(w) * z / tl.where(exact, 1.0, w - 1))


@triton.jit
def gradient(kind, c, gap, xx, xh, hh, inverse, time):
    """``<g, g>_x``, p and q of the Riemannian gradient ``g = p x + q h``."""
    p, q = tl.zeros_like(xx), tl.zeros_like(xx) + 1
    square = hh + xh * xh * inverse
    if kind == SHEET:
        e = 1 + c * xx
        p = c * (xh + tl.sqrt(e / c) * time)
        radial = xh + xx * p
        square = hh + radial * radial * inverse / e
    elif kind == BALL:
        q = gap * gap / 4
        square = q * square
    else:
        p, q = -c * gap * xh, gap
        square = gap * (hh + xh * xh * gap * inverse)
    return square, p, q


@triton.jit
def sheet_step(c, ss, sn, nn, scale, keep, bound):
    """From s along ``scale n`` after decay, ``s' = on s + b n_o`` and ``n' = v s + w n_o``, and ``|s'|^2``. n is given
    by ``<s, n>`` and ``|n_o|^2``. What ends beyond the bound is moved back along the geodesic from the origin."""
    e = 1 + c * ss
    inverse = tl.where(ss < 1e-30, 0.0, 1 / tl.maximum(ss, 1e-30))
    decay = tl.zeros_like(ss) + 1
    if keep != 1:
        reach = tl.sqrt(tl.maximum(c * ss, TINY))
        shorter = asinh(reach) * keep
        ratio, grown = sinhc(shorter)
        decay = ratio * shorter / reach
        sn *= grown / tl.sqrt(e)
        e = grown * grown
    beta = sn * inverse
    n2 = nn + sn * beta / e
    r = tl.maximum(tl.sqrt(c * n2) * tl.abs(scale), TINY)
    cut = tl.minimum(tl.where(e > FAR, LONGEST_FAR, LONGEST_STEP) / r, 1.0)
    ratio, grown = sinhc(r * cut)
    b = ratio * cut * scale
    on = grown * decay + b * beta
    v, w = c * b * n2 * decay + grown * beta, grown
    end = on * on * ss + b * b * nn
    over = 1 / tl.maximum(end, 1e-30)
    inside = tl.minimum(tl.sqrt(bound * over), 1.0)
    along = (on * v * ss + b * w * nn) * tl.sqrt(over / (1 + c * end))
    lengths = tl.sqrt(tl.maximum(n2 - nn * ss * decay * decay * over, 0.0))
    sign = tl.where(tl.where(ss > 1.01 * bound, along, scale) < 0, -1.0, 1.0)
    along = tl.where((r > 0.5) & (c * ss >= 1e8), lengths * sign, along) * tl.sqrt((1 + c * bound) * over)
    outside = end > bound
    v = tl.where(outside, along * on - decay * nn * b * over, v)
    w = tl.where(outside, along * b + decay * ss * on * over, w)
    square = tl.maximum(v * v * ss + w * w * nn, 1.0)
    fits = tl.minimum(1.0 / (tl.sqrt(square) / LONGEST_MOMENTUM), 1.0)
    return on * inside, b * inside, v * fits, w * fits, end * inside * inside


@triton.jit
def lifting(kind, gap):
    """alpha and rho, see the top."""
    alpha, rho = tl.zeros_like(gap) + 1, tl.zeros_like(gap) + 1
    if kind == BALL:
        alpha, rho = 2 / gap, 2 * (2 - gap) / (gap * gap)
    elif kind == KLEIN:
        alpha = 1 / tl.sqrt(gap)
        rho = alpha / gap
    return alpha, rho


@triton.jit
def lowering(kind, t):
    """``x = low s``; a vector n falls to ``low (n - turn c <s, n> s)``, with ``t = sqrt(1 + c|s|^2)``."""
    low, turn = tl.zeros_like(t) + 1, tl.zeros_like(t)
    if kind == BALL:
        low = 1 / (1 + t)
        turn = low / t
    elif kind == KLEIN:
        low = 1 / t
        turn = low * low
    return low, turn
