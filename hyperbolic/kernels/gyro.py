"""Gyrovector steps of the Möbius RNN and GRU with their derivatives written by hand.

Layout: coordinates on axis -2 and the batch on the last axis, (..., H, B), so that a cell of 5 coordinates still
works on contiguous rows; row scalars are (..., 1, B). Points are scaled to the unit ball (``sqrt(c) x``), where
the operations of every curvature are those of ``c = 1``.

Points travel with their gap ``g = 1 - |x|^2``. The gap of a Möbius sum is a product, ``g_x g_y / D``, so it keeps
its relative accuracy in float32 up to the boundary, where ``1 - |x|^2`` computed from the coordinates has none.
Every step is a pure function that returns its results and what its derivative needs, and has a ``..._grad`` that
maps the gradients of the results to those of the arguments. :mod:`hyperbolic.kernels.recurrent` chains them; tests
check each against plain Möbius operations in value and gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic.numerics import BALL_EPS, limit, wide


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-2, keepdim=True)


class _Constants(NamedTuple):
    """0-dim tensors and limits of a dtype: on CPU an operation with a Python number costs twice one with a tensor."""

    one: Tensor
    two: Tensor
    half: Tensor
    small: Tensor  # squared norm under which the slope of artanh(r)/r comes from its series
    series: tuple[Tensor, ...]  # that slope is -sum_n (n + 1)/(2n + 3) r^(2n)
    tiny: float  # keeps 0/0 from happening
    least_denominator: float  # of a Möbius sum; smaller ones belong to points outside of the boundary margin
    bound: float  # largest norm of a point
    least_gap: float  # and its gap


_CONSTANTS: dict[tuple[torch.dtype, torch.device], _Constants] = {}


def constants(x: Tensor) -> _Constants:
    """The constants for tensors like x; made at the first call, which has to happen outside of compiled code."""
    key = (x.dtype, x.device)
    if key not in _CONSTANTS:
        bound = 1 - limit(BALL_EPS, x.dtype)
        least = 1 - bound * bound
        terms = 5 if x.dtype == torch.float32 else 9
        series = tuple(x.new_tensor(-(n + 1) / (2 * n + 3)) for n in range(terms))
        numbers = [x.new_tensor(value) for value in (1.0, 2.0, 0.5, 0.02)]
        _CONSTANTS[key] = _Constants(*numbers, series, torch.finfo(x.dtype).tiny, least * least / 4, bound, least)
    return _CONSTANTS[key]


def _tanhc(square: Tensor, k: _Constants) -> tuple[Tensor, Tensor]:
    """``tanh(r)/r`` and ``sech(r)^2`` from ``r^2``, kept inside the boundary margin."""
    r = square.clamp_min(k.tiny).sqrt_()
    scale = torch.tanh(r).clamp_max_(k.bound).div_(r)
    return scale, r.cosh_().reciprocal_().square_().clamp_min_(k.least_gap)


def _tanhc_slope(square: Tensor, scale: Tensor, gap: Tensor, k: _Constants) -> Tensor:
    """Twice the derivative of ``tanh(r)/r`` with respect to ``r^2``, ``(sech^2 - tanh(r)/r) / r^2``.

    Its rounding error grows like ``1/r^2`` but is only ever multiplied by products of two vectors of length r.
    """
    return (gap - scale).div_(square.clamp_min(k.tiny))


def _artanhc(gap: Tensor, k: _Constants) -> Tensor:
    """``artanh(r)/r = log(1 + 2r(1+r)/g) / (2r)`` from the gap ``g = 1 - r^2``: accurate at 0 and at the boundary."""
    r = torch.sub(k.one, gap).clamp_min_(k.tiny).sqrt_()
    return torch.addcmul(r, r, r).div_(gap).mul_(k.two).log1p_().mul_(k.half).div_(r)


def _artanhc_slope(gap: Tensor, scale: Tensor, k: _Constants) -> Tensor:
    """Derivative of ``artanh(r)/r`` with respect to the gap: ``-(1/g - artanh(r)/r) / (2 r^2)``, by series near 0."""
    square = torch.sub(k.one, gap)
    series = k.series[-1]
    for coefficient in reversed(k.series[:-1]):
        series = torch.addcmul(coefficient, series, square)
    closed = torch.sub(scale, gap.reciprocal()).mul_(k.half).div_(square.clamp_min(k.tiny))
    return torch.where(torch.lt(square, k.small), series, closed)


Saved = tuple[Tensor, ...]


def log_origin(x: Tensor, gap: Tensor) -> tuple[Tensor, Saved]:
    """``log_0(x) = artanh(|x|)/|x| x`` of points x (..., H, B) with known gap (..., 1, B)."""
    scale = _artanhc(gap, constants(x))
    return scale * x, (x, gap, scale)


def log_origin_grad(saved: Saved, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, gap, scale = saved
    return scale * grad, _artanhc_slope(gap, scale, constants(x)).mul_(_dot(grad, x))


def log_point(x: Tensor) -> tuple[Tensor, Saved]:
    """``log_0(x)`` of points x (..., H, B) whose gap is not known: it is computed in float64."""
    k = constants(x)
    gap = (1 - wide(x).square().sum(-2, keepdim=True)).clamp_min_(k.least_gap).to(x.dtype)
    return log_origin(x, gap)


def log_point_grad(saved: Saved, grad: Tensor) -> Tensor:
    x = saved[0]
    direct, g_gap = log_origin_grad(saved, grad)
    return direct.addcmul_(g_gap, x, value=-2)


def exp_origin(u: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """``exp_0(u) = tanh(|u|)/|u| u`` of vectors u (..., H, B), and its gap ``sech(|u|)^2``."""
    square = _dot(u, u)
    scale, gap = _tanhc(square, constants(u))
    return scale * u, gap, (u, square, scale, gap)


def exp_origin_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> Tensor:
    u, square, scale, gap = saved
    k = constants(u)
    twice = _tanhc_slope(square, scale, gap, k).mul_(_dot(grad, u)).addcmul_(grad_gap * gap, scale, value=-2)
    return (scale * grad).addcmul_(twice, u)


def affine_point(
    q: Tensor, u: Tensor, u_gap: Tensor, ub: Tensor, b: Tensor, b_gap: Tensor
) -> tuple[Tensor, Tensor, Saved]:
    """``o = (exp_0(q) (+) u) (+) b`` and its gap: the affine part of every gate (Ganea et al. 2018, Eq. 27, 29, 30).

    Args:
        q: (..., H, B) tangent vectors ``W log_0(h)``.
        u: (..., H, B) points ``U (x) x`` with gaps u_gap and products ub = <u, b>, both (..., 1, B).
        b: (..., H, 1) bias point with gap b_gap (..., 1, 1).
    """
    k = constants(q)
    square = _dot(q, q)
    f, x_gap = _tanhc(square, k)
    qu, qb = _dot(q, u), _dot(q, b)
    x2, u2, b2 = torch.sub(k.one, x_gap), torch.sub(k.one, u_gap), torch.sub(k.one, b_gap)
    t1 = torch.addcmul(k.one, f, qu, value=2)
    i1 = torch.addcmul(t1, x2, u2).clamp_min_(k.least_denominator).reciprocal_()  # 1 / D of x (+) u
    a1 = t1.add_(u2).mul_(i1)
    b1 = x_gap * i1
    m_gap = b1 * u_gap
    m2 = torch.sub(k.one, m_gap)
    a1f = a1 * f
    t2 = torch.addcmul(k.one, torch.addcmul(b1 * ub, a1f, qb), k.two)
    i2 = torch.addcmul(t2, m2, b2).clamp_min_(k.least_denominator).reciprocal_()  # 1 / D of m (+) b
    a2 = t2.add_(b2).mul_(i2)
    c_b = m_gap * i2
    gap = c_b * b_gap
    c_q, c_u = a2 * a1f, a2 * b1
    o = (c_q * q).addcmul_(c_u, u).addcmul_(c_b, b)
    saved = (q, u, u_gap, ub, b, b_gap, square, f, x_gap, qu, qb, x2, u2, b2, m2)
    return o, gap, (*saved, i1, a1, b1, m_gap, a1f, i2, a2, c_b, c_q, c_u, gap)


def affine_point_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> tuple[Tensor, ...]:
    """Gradients of q, u, u_gap, ub, b, b_gap; those of the bias not yet summed over the batch."""
    q, u, u_gap, ub, b, b_gap, square, f, x_gap, qu, qb, x2, u2, b2, m2 = saved[:15]
    i1, a1, b1, m_gap, a1f, i2, a2, c_b, c_q, c_u, gap = saved[15:]
    k = constants(q)
    g_cq, g_cu, g_cb = _dot(grad, q), _dot(grad, u), _dot(grad, b)
    # second sum: a2 = (t2 + b2)/D2, c_b = m_gap/D2, gap = m_gap b_gap/D2, D2 = t2 + m2 b2, t2 = 1 + 2<m, b>
    g_a2 = torch.addcmul(g_cq * a1f, g_cu, b1)
    g_d2 = torch.addcmul(grad_gap * gap, g_a2, a2).addcmul_(g_cb, c_b).mul_(i2).neg_()
    g_a2i = g_a2.mul_(i2)
    g_m_gap = torch.addcmul(g_cb, grad_gap, b_gap).mul_(i2).addcmul_(g_d2, b2, value=-1)
    g_mb = (g_a2i + g_d2).mul_(k.two)
    g_b_gap = (grad_gap * c_b).sub_(g_a2i).addcmul_(g_d2, m2, value=-1)
    # <m, b> = a1 f <q, b> + b1 <u, b>
    g_a1f = (g_cq * a2).addcmul_(g_mb, qb)
    g_b1 = (g_cu * a2).addcmul_(g_mb, ub)
    # first sum: a1 = (t1 + u2)/D1, b1 = x_gap/D1, m_gap = x_gap u_gap/D1, D1 = t1 + x2 u2, t1 = 1 + 2 f <q, u>
    g_a1 = g_a1f * f
    g_d1 = torch.addcmul(g_m_gap * m_gap, g_a1, a1).addcmul_(g_b1, b1).mul_(i1).neg_()
    g_a1i = g_a1.mul_(i1)
    g_w = (g_a1i + g_d1).mul_(k.two)
    g_x_gap = torch.addcmul(g_b1, g_m_gap, u_gap).mul_(i1).addcmul_(g_d1, u2, value=-1)
    g_u_gap = (g_m_gap * b1).sub_(g_a1i).addcmul_(g_d1, x2, value=-1)
    g_f = (g_a1f * a1).addcmul_(g_w, qu)
    g_square = _tanhc_slope(square, f, x_gap, k).mul_(g_f).addcmul_(g_x_gap.mul_(x_gap), f, value=-2)
    g_qu, g_qb = g_w * f, g_mb * a1f
    g_q = (c_q * grad).addcmul_(g_square, q).addcmul_(g_qu, u).addcmul_(g_qb, b)
    g_u = (c_u * grad).addcmul_(g_qu, q)
    g_b = (c_b * grad).addcmul_(g_qb, q)
    return g_q, g_u, g_u_gap, g_mb.mul_(b1), g_b, g_b_gap


def gated_update(h: Tensor, h_gap: Tensor, o: Tensor, o_gap: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """``h' = h (+) exp_0(z * log_0((-h) (+) o))`` and its gap, kept inside the boundary margin
    (the update gate of Ganea et al. 2018, Eq. 31).

    Args: h, o (..., H, B) points with gaps (..., 1, B); z (..., H, B) in [0, 1].
    """
    k = constants(h)
    e = o - h
    e2 = _dot(e, e)
    i1 = torch.addcmul(e2, h_gap, o_gap).reciprocal_()  # 1 / D of (-h) (+) o
    m = (h_gap * e).addcmul_(e2, h, value=-1).mul_(i1)
    m_gap = (h_gap * o_gap).mul_(i1)
    scale = _artanhc(m_gap, k)
    step = scale * m  # log_0((-h) (+) o)
    gated = z * step
    square = _dot(gated, gated)
    f, s_gap = _tanhc(square, k)
    hl = _dot(h, gated)
    h2, s2 = torch.sub(k.one, h_gap), torch.sub(k.one, s_gap)
    t = torch.addcmul(k.one, f, hl, value=2)
    i2 = torch.addcmul(t, h2, s2).clamp_min_(k.least_denominator).reciprocal_()  # 1 / D of h (+) s
    a = t.add_(s2).mul_(i2)
    b = h_gap * i2
    bf = b * f
    new = (a * h).addcmul_(bf, gated)
    gap = b * s_gap
    inside = gap.clamp_min(k.least_gap)
    shrink = torch.where(torch.eq(inside, gap), k.one, k.bound * torch.sub(k.one, gap).rsqrt_())
    new.mul_(shrink)
    saved = (h, h_gap, o_gap, z, e, e2, i1, m, m_gap, scale, step, gated, square, f, s_gap, hl, h2, s2, i2, a, b, bf)
    return new, inside, (*saved, new, shrink)


def gated_update_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> tuple[Tensor, ...]:
    """Gradients of h, h_gap, o, o_gap, z."""
    h, h_gap, o_gap, z, e, e2, i1, m, m_gap, scale, step, gated, square, f, s_gap, hl, h2, s2, i2, a, b, bf = saved[:22]
    new, shrink = saved[22:]
    k = constants(h)
    # the margin: of the gradient at a point that was pulled back, only the part orthogonal to the point survives
    outside = torch.ne(shrink, k.one)
    radial = _dot(grad, new).mul_(outside).div_(k.bound**2)
    grad = grad.addcmul(radial, new, value=-1).mul_(shrink)
    grad_gap = grad_gap.masked_fill(outside, 0)
    g_a, g_bf = _dot(grad, h), _dot(grad, gated)
    # h (+) s: a = (t + s2)/D, b = h_gap/D, gap = h_gap s_gap/D, D = t + h2 s2, t = 1 + 2 f <h, l>
    g_b = (g_bf * f).addcmul_(grad_gap, s_gap)
    g_d = torch.addcmul(g_b * b, g_a, a).mul_(i2).neg_()
    g_ai = g_a.mul_(i2)
    g_t = (g_ai + g_d).mul_(k.two)
    g_h_gap = g_b.mul_(i2).addcmul_(g_d, s2, value=-1)
    g_s_gap = (grad_gap * b).sub_(g_ai).addcmul_(g_d, h2, value=-1)
    g_f = (g_bf * b).addcmul_(g_t, hl)
    g_square = _tanhc_slope(square, f, s_gap, k).mul_(g_f).addcmul_(g_s_gap.mul_(s_gap), f, value=-2)
    g_hl = g_t.mul_(f)
    g_gated = (bf * grad).addcmul_(g_hl, h).addcmul_(g_square, gated)
    g_h = (a * grad).addcmul_(g_hl, gated)
    g_z = g_gated * step
    g_step = g_gated.mul_(z)
    # log_0(m) with m = (h_gap e - e2 h)/D, gap = h_gap o_gap/D, D = e2 + h_gap o_gap
    g_m = scale * g_step
    g_m_gap = _artanhc_slope(m_gap, scale, k).mul_(_dot(g_step, m))
    g_d = _dot(g_m, m).addcmul_(g_m_gap, m_gap).mul_(i1).neg_()
    g_mi = g_m.mul_(i1)
    g_e2 = g_d - _dot(g_mi, h)
    g_gi = g_m_gap.mul_(i1).add_(g_d)
    g_h_gap.addcmul_(g_gi, o_gap).add_(_dot(g_mi, e))
    g_o = (h_gap * g_mi).addcmul_(g_e2, e, value=2)
    g_h.sub_(g_o).addcmul_(e2, g_mi, value=-1)
    return g_h, g_h_gap, g_o, g_gi.mul_(h_gap), g_z
