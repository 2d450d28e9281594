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

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperbolic.numerics import BALL_EPS, limit


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-2, keepdim=True)


class _Constants(NamedTuple):
    """0-dim tensors and limits of a dtype: on CPU an operation with a Python number costs twice one with a tensor."""

    one: Tensor
    two: Tensor
    half: Tensor
    small: Tensor  # squared norm under which the slope of artanh(r)/r comes from its series
    series: tuple[Tensor, ...]  # that slope is -sum_n (n + 1)/(2n + 3) r^(2n)
    near: Tensor  # squared norm up to which 1 - |x|^2 keeps nearly all digits
    tiny: float  # keeps 0/0 from happening
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
        one, two, half, small, near = (x.new_tensor(value) for value in (1.0, 2.0, 0.5, 0.02, 0.9))
        tiny = torch.finfo(x.dtype).tiny
        _CONSTANTS[key] = _Constants(one, two, half, small, series, near, tiny, bound, least)
    return _CONSTANTS[key]


def tanhc(square: Tensor, k: _Constants) -> tuple[Tensor, Tensor]:
    """``tanh(r)/r`` and ``sech(r)^2`` from ``r^2``, kept inside the boundary margin."""
    r = square.clamp_min(k.tiny).sqrt_()
    scale = torch.tanh(r).clamp_max_(k.bound).div_(r)
    return scale, r.cosh_().reciprocal_().square_().clamp_min_(k.least_gap)


def tanhc_slope(square: Tensor, scale: Tensor, gap: Tensor, k: _Constants) -> Tensor:
    """Twice the derivative of ``tanh(r)/r`` with respect to ``r^2``, ``(sech^2 - tanh(r)/r) / r^2``.

    Its rounding error grows like ``1/r^2`` but is only ever multiplied by products of two vectors of length r.
    """
    return (gap - scale).div_(square.clamp_min(k.tiny))


def artanhc(gap: Tensor, k: _Constants) -> Tensor:
    """``artanh(r)/r = log(1 + 2r(1+r)/g) / (2r)`` from the gap ``g = 1 - r^2``: accurate at 0 and at the boundary."""
    r = torch.sub(k.one, gap).clamp_min_(k.tiny).sqrt_()
    return torch.addcmul(r, r, r).div_(gap).mul_(k.two).log1p_().mul_(k.half).div_(r)


def artanhc_slope(gap: Tensor, scale: Tensor, k: _Constants) -> Tensor:
    """Derivative of ``artanh(r)/r`` with respect to the gap: ``-(1/g - artanh(r)/r) / (2 r^2)``, by series near 0."""
    square = torch.sub(k.one, gap)
    series = k.series[-1]
    for coefficient in reversed(k.series[:-1]):
        series = torch.addcmul(coefficient, series, square)
    closed = torch.sub(scale, gap.reciprocal()).mul_(k.half).div_(square.clamp_min(k.tiny))
    return torch.where(torch.lt(square, k.small), series, closed)


Saved = tuple[Any, ...]  # tensors, and what the steps inside saved


def log_origin(x: Tensor, gap: Tensor) -> tuple[Tensor, Saved]:
    """``log_0(x) = artanh(|x|)/|x| x`` of points x (..., H, B) with known gap (..., 1, B)."""
    scale = artanhc(gap, constants(x))
    return scale * x, (x, gap, scale)


def log_origin_grad(saved: Saved, grad: Tensor, unit: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``grad`` is that of ``unit log_0(x)`` where a unit is given."""
    x, gap, scale = saved
    slope = artanhc_slope(gap, scale, constants(x)).mul_(_dot(grad, x))
    if unit is None:
        return scale * grad, slope
    return (unit * scale) * grad, slope.mul_(unit)


def exp_origin(u: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """``exp_0(u) = tanh(|u|)/|u| u`` of vectors u (..., H, B), and its gap ``sech(|u|)^2``."""
    square = _dot(u, u)
    scale, gap = tanhc(square, constants(u))
    return scale * u, gap, (u, square, scale, gap)


def exp_origin_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> Tensor:
    u, square, scale, gap = saved
    k = constants(u)
    twice = tanhc_slope(square, scale, gap, k).mul_(_dot(grad, u)).addcmul_(grad_gap * gap, scale, value=-2)
    g_u: Tensor = (scale * grad).addcmul_(twice, u)
    return g_u


def affine_point(q: Tensor, u: Tensor, u_gap: Tensor, b: Tensor, b_gap: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """``o = (exp_0(q) (+) u) (+) b`` and its gap: the affine part of every gate (Ganea et al. 2018, Eq. 27, 29, 30).

    Each sum is ``x (+) y = (|s|^2 x + g_x s) / (|s|^2 + g_x g_y)``, ``s = x + y``, with gap ``g_x g_y / (...)``:
    nothing cancels, not even for opposite points at the boundary.

    Args:
        q: (..., H, B) tangent vectors ``W log_0(h)``.
        u: (..., H, B) points ``U (x) x`` with gaps u_gap (..., 1, B).
        b: (..., H, 1) bias point with gap b_gap (..., 1, 1).
    """
    k = constants(q)
    square = _dot(q, q)
    f, x_gap = tanhc(square, k)
    s1 = torch.addcmul(u, f, q)
    n1 = _dot(s1, s1)
    i1 = torch.addcmul(n1, x_gap, u_gap).reciprocal_()
    a1, b1 = n1.mul_(i1), x_gap * i1
    m = (b1 * s1).addcmul_(a1 * f, q)
    m_gap = b1 * u_gap
    s2 = m + b
    n2 = _dot(s2, s2)
    i2 = torch.addcmul(n2, m_gap, b_gap).reciprocal_()
    a2, b2 = n2.mul_(i2), m_gap * i2
    saved = (q, u_gap, b_gap, square, f, x_gap, s1, i1, a1, b1, m, m_gap, s2, i2, a2, b2)
    return (a2 * m).addcmul_(b2, s2), b2 * b_gap, saved


def affine_point_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> tuple[Tensor, ...]:
    """Gradients of q, u, u_gap, b, b_gap; those of the bias not yet summed over the batch."""
    q, u_gap, b_gap, square, f, x_gap, s1, i1, a1, b1, m, m_gap, s2, i2, a2, b2 = saved
    k = constants(q)
    # o = a2 m + b2 s2, gap = b2 b_gap with a2 = n2 i2, b2 = m_gap i2, 1/i2 = n2 + m_gap b_gap, n2 = |s2|^2, s2 = m + b
    g_a, g_b = _dot(grad, m), _dot(grad, s2).addcmul_(grad_gap, b_gap)
    g_d = (g_a * a2).addcmul_(g_b, b2).mul_(i2).neg_()
    g_b_gap = (grad_gap * b2).addcmul_(g_d, m_gap)
    g_m_gap = g_b.mul_(i2).addcmul_(g_d, b_gap)
    g_bias = (b2 * grad).addcmul_(g_d.addcmul_(g_a, i2), s2, value=2)  # also the gradient of s2
    g_m = torch.addcmul(g_bias, a2, grad)
    # m = a1 f q + b1 s1, m_gap = b1 u_gap: the same with x = f q and u in the places of m and b
    g_a, g_b = _dot(g_m, q).mul_(f), _dot(g_m, s1).addcmul_(g_m_gap, u_gap)
    g_d = (g_a * a1).addcmul_(g_b, b1).mul_(i1).neg_()
    g_u_gap = (g_m_gap * b1).addcmul_(g_d, x_gap)
    g_x_gap = g_b.mul_(i1).addcmul_(g_d, u_gap)
    g_u = (b1 * g_m).addcmul_(g_d.addcmul_(g_a, i1), s1, value=2)
    g_x = torch.addcmul(g_u, a1, g_m)
    g_square = tanhc_slope(square, f, x_gap, k).mul_(_dot(g_x, q)).addcmul_(g_x_gap.mul_(x_gap), f, value=-2)
    return g_x.mul_(f).addcmul_(g_square, q), g_u, g_u_gap, g_bias, g_b_gap


def add_points(x: Tensor, x_gap: Tensor, y: Tensor, y_gap: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """``x (+) y`` and its gap, kept inside the boundary margin; the sum is that of :func:`affine_point`.

    Args: x, y (..., H, B) points with gaps (..., 1, B).
    """
    k = constants(x)
    s = x + y
    n = _dot(s, s)
    i = torch.addcmul(n, x_gap, y_gap).reciprocal_()  # 1 / D
    a, b = n.mul_(i), x_gap * i
    new = (a * x).addcmul_(b, s)
    norm2 = _dot(new, new)
    # away from the boundary the coordinates give the gap just as well, and carried errors end there
    gap = torch.where(torch.lt(norm2, k.near), torch.sub(k.one, norm2), b * y_gap)
    inside = gap.clamp_min(k.least_gap)
    cut = torch.ne(inside, gap)
    outside = norm2 > k.bound**2
    shrink = torch.where(outside, k.bound * norm2.rsqrt_(), k.one)
    new.mul_(shrink)
    return new, inside, (x, x_gap, y_gap, s, i, a, b, new, outside, shrink, cut)


def add_points_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> tuple[Tensor, ...]:
    """Gradients of x, x_gap, y, y_gap."""
    x, x_gap, y_gap, s, i, a, b, new, outside, shrink, cut = saved
    k = constants(x)
    # the margin: of the gradient at a point that was pulled back, only the part orthogonal to the point survives
    radial = _dot(grad, new).mul_(outside).div_(k.bound**2)
    grad = grad.addcmul(radial, new, value=-1).mul_(shrink)
    grad_gap = grad_gap.masked_fill(cut, 0)
    # x (+) y = a x + b s, gap = b y_gap with a = n i, b = x_gap i, 1/i = n + x_gap y_gap, n = |s|^2, s = x + y
    g_a, g_b = _dot(grad, x), _dot(grad, s).addcmul_(grad_gap, y_gap)
    g_d = (g_a * a).addcmul_(g_b, b).mul_(i).neg_()
    g_y_gap = (grad_gap * b).addcmul_(g_d, x_gap)
    g_x_gap = g_b.mul_(i).addcmul_(g_d, y_gap)
    g_y = (b * grad).addcmul_(g_d.addcmul_(g_a, i), s, value=2)  # of s
    return torch.addcmul(g_y, a, grad), g_x_gap, g_y, g_y_gap


def gated_update(h: Tensor, h_gap: Tensor, o: Tensor, o_gap: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """``h' = h (+) exp_0(z * log_0((-h) (+) o))`` and its gap, kept inside the boundary margin
    (the update gate of Ganea et al. 2018, Eq. 31).

    Args: h, o (..., H, B) points with gaps (..., 1, B); z (..., H, B) in [0, 1].
    """
    k = constants(h)
    e = o - h
    e2 = _dot(e, e)
    i = torch.addcmul(e2, h_gap, o_gap).reciprocal_()  # 1 / D of (-h) (+) o
    m = (h_gap * e).addcmul_(e2, h, value=-1).mul_(i)
    m_gap = (h_gap * o_gap).mul_(i)
    scale = artanhc(m_gap, k)
    step = scale * m  # log_0((-h) (+) o)
    point, point_gap, exp = exp_origin(z * step)
    new, gap, added = add_points(h, h_gap, point, point_gap)
    return new, gap, (h, h_gap, o_gap, z, e, e2, i, m, m_gap, scale, step, exp, added)


def gated_update_grad(saved: Saved, grad: Tensor, grad_gap: Tensor) -> tuple[Tensor, ...]:
    """Gradients of h, h_gap, o, o_gap, z."""
    h, h_gap, o_gap, z, e, e2, i, m, m_gap, scale, step, exp, added = saved
    k = constants(h)
    g_h, g_h_gap, g_point, g_point_gap = add_points_grad(added, grad, grad_gap)
    g_gated = exp_origin_grad(exp, g_point, g_point_gap)
    g_z = g_gated * step
    g_step = g_gated.mul_(z)
    # log_0(m) with m = (h_gap e - e2 h)/D, gap = h_gap o_gap/D, D = e2 + h_gap o_gap
    g_m = scale * g_step
    g_m_gap = artanhc_slope(m_gap, scale, k).mul_(_dot(g_step, m))
    g_d = _dot(g_m, m).addcmul_(g_m_gap, m_gap).mul_(i).neg_()
    g_mi = g_m.mul_(i)
    g_e2 = g_d - _dot(g_mi, h)
    g_gi = g_m_gap.mul_(i).add_(g_d)
    g_h_gap.addcmul_(g_gi, o_gap).add_(_dot(g_mi, e))
    g_o = (h_gap * g_mi).addcmul_(g_e2, e, value=2)
    g_h.sub_(g_o).addcmul_(e2, g_mi, value=-1)
    return g_h, g_h_gap, g_o, g_gi.mul_(h_gap), g_z
