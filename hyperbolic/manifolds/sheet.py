"""Formulas of the hyperboloid in its space coordinates, which the Lorentz, Klein and Poincaré models share.

A point of the sheet ``-t^2 + |s|^2 = -1/c``, ``t > 0`` is given by its space part ``s`` alone, a tangent vector by
its space part likewise: the time parts ``t = sqrt(1/c + |s|^2)`` and ``<s, u>/t`` follow. Nothing here subtracts
two large numbers that are nearly equal: differences are taken between space parts before they are squared.
All values are float64; ``c`` is a float or broadcasts to (..., 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.numerics import asinhc, ball_gap, cosh_sqrt, dot, sinhc, sqnorm, wide

_LONGEST = 64.0


def time(s: Tensor, c: Tensor) -> Tensor:
    """``sqrt(1/c + |s|^2)``, shape (..., 1)."""
    return (1 / c + sqnorm(s)).sqrt()


def half_sinh_square(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``sinh^2(sqrt(c) d(x, y) / 2)``, shape (..., 1), as the sum of a radial and an angular part.

    With ``a, b`` the distances of x and y from the origin (times sqrt(c)) and ``theta`` the angle between them,
    ``sinh^2(d/2) = sinh^2((a-b)/2) + sinh(a) sinh(b) sin^2(theta/2)``, where
    ``sinh(a-b) = <x-y, x+y> / (|x| t_y + |y| t_x)`` and, for acute angles, the angular part comes from
    the part of the shorter vector (or of the difference, if that is shorter still) orthogonal to the longer one.
    """
    x, y = wide(x), wide(y)
    difference, total = x - y, x + y
    along = dot(difference, total)  # |x|^2 - |y|^2
    x_norm, y_norm = _norm(x), _norm(y)
    denominator = x_norm * time(y, c) + y_norm * time(x, c)
    empty = denominator == 0
    sinh_radial = torch.where(empty, 0, along / torch.where(empty, 1, denominator))
    cosh_radial = (1 + sinh_radial.square()).sqrt()
    radial_part = sinh_radial.square() / (2 * (1 + cosh_radial))  # sinh^2(r/2) = (cosh r - 1)/2
    product = dot(x, y)
    acute = product > 0
    swap = x_norm > y_norm
    large, large2 = torch.where(swap, x, y), torch.where(swap, x_norm, y_norm).square()
    small2 = torch.where(swap, y_norm, x_norm).square()
    # the part of the shorter vector orthogonal to the longer one; of their difference where that is shorter still
    part = torch.where(sqnorm(difference) < small2, difference, torch.where(swap, y, x))
    safe_large2 = torch.where(acute, large2, 1)
    orthogonal = part - dot(part, large) / safe_large2 * large
    angular = torch.where(  # 2|x||y|(1 - cos theta)
        acute,
        2 * safe_large2 * sqnorm(orthogonal) / torch.where(acute, x_norm * y_norm + product, 1),
        2 * (x_norm * y_norm - product),
    )
    return radial_part + c / 4 * angular


def _norm(x: Tensor) -> Tensor:
    square = sqnorm(x)
    empty = square == 0
    return torch.where(empty, 0, torch.where(empty, 1, square).sqrt())


def inner(x: Tensor, u: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``<u, v>_L`` of tangent vectors at x: ``<u, v> - c <x, u><x, v> / (c t^2)`` near the origin; away from it the
    part orthogonal to x plus the radial part over ``c t^2``."""
    x, u, v = wide(x), wide(u), wide(v)
    square, xu, xv = sqnorm(x), dot(x, u), dot(x, v)
    near = c * square < 1
    safe = torch.where(near, 1, square)
    orthogonal = dot(u - xu / safe * x, v - xv / safe * x)
    along = xu * xv / (1 + c * square)
    return torch.where(near, dot(u, v) - c * along, orthogonal + along / safe)


def expmap(x: Tensor, u: Tensor, c: Tensor) -> Tensor:
    """``cosh(r) x + sinh(r)/r u`` with ``r^2 = c <u, u>_L``.

    Steps longer than 64 are cut to 64, where cosh is finite: they leave the stated radius of every model anyway.
    """
    square = c * inner(x, u, u, c)
    far = square > _LONGEST**2
    shrink = torch.where(far, _LONGEST * torch.where(far, square, 1).rsqrt(), 1)
    square = square.clamp_max(_LONGEST**2)
    return cosh_sqrt(square) * wide(x) + sinhc(square) * shrink * wide(u)


def logmap(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``d / sinh(d) (e - 2 sinh^2(d/2) x)`` with ``e = y - x`` and d in units of 1/sqrt(c)."""
    x, y = wide(x), wide(y)
    q = half_sinh_square(x, y, c)
    return asinhc(q) / (1 + q).sqrt() * (y - x - 2 * q * x)


def transport(x: Tensor, y: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """Parallel transport (space part): to the origin along the ray, the rotation ``gyr[y, -x]``, out along the ray.

    The same vector as ``v + c <y, v>_L / (1 - c <x, y>_L) (x + y)``, in which everything cancels when v is long.
    """
    x, y, v = wide(x), wide(y), wide(v)
    time_x, time_y = (1 + c * sqnorm(x)).sqrt(), (1 + c * sqnorm(y)).sqrt()
    e, e_time = y - x, c * dot(y - x, x + y) / (time_x + time_y)
    ball_x = x / (1 + time_x)
    ball_e = (e - e_time * ball_x) / (1 + time_y)  # the difference of the points in the ball
    along = dot(x, v)
    at_origin = v - c * along / (time_x * (1 + time_x)) * x
    square = sqnorm(x)
    far = c * square > 1  # there a long v becomes short: set its part along x to what it has to be
    rest = (along / time_x - dot(x, at_origin)) / torch.where(far, square, 1)
    at_origin = at_origin + torch.where(far, rest, 0) * x
    turned = gyrate(ball_x, ball_e, 2 / (1 + time_x), 2 / (1 + time_y), at_origin, c)
    return turned + c * dot(y, turned) / (1 + time_y) * y


def gyrate(x: Tensor, e: Tensor, gap_x: Tensor, gap_y: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``gyr[y, -x] v`` for points x and y = x + e of the ball with these gaps ``1 - c|.|^2``: no cancellation."""
    ee, xv, ev, xe = sqnorm(e), dot(x, v), dot(e, v), dot(x, e)
    along_e = -c * gap_x * xv - c * c * (sqnorm(x) * ev - 2 * xe * xv)
    along_x = c * gap_x * ev - c * c * ee * xv
    return v + 2 / (c * ee + gap_x * gap_y) * (along_e * e + along_x * x)


def centroid(x: Tensor, weights: Tensor | None, c: Tensor) -> Tensor:
    """``sum w_i x_i / sqrt(-c <sum w_i x_i, sum w_i x_i>_L)`` over axis -2 (Law et al. 2019), space part.

    With p the point above the weighted mean m of the space parts and ``q_i = sinh^2(d(p, x_i)/2)``, the mean time is
    ``t_p + 2 Q / (c t_p)``, Q the weighted mean of the q_i, so the Lorentz norm is a sum of positive terms:
    ``-c <., .>_L = 1 + 4 Q + 4 Q^2 / (c t_p^2)``.
    """
    x = wide(x)
    w = x.new_ones(*x.shape[:-1], 1) if weights is None else wide(weights).unsqueeze(-1)
    total = w.sum(-2, keepdim=True)
    mean = (w * x).sum(-2, keepdim=True) / total  # space part of the reference point and direction of the result
    q = (w * half_sinh_square(mean, x, c)).sum(-2, keepdim=True) / total
    with torch.no_grad():  # what rounding left of sum w_i (x_i - mean), which is 0
        rest = (w * (x - mean)).sum(-2, keepdim=True) / total
        rounding = c * inner(mean, rest, rest, c)
    square = 1 + 4 * q + 4 * q.square() / (1 + c * sqnorm(mean)) - rounding
    return (mean / square.sqrt()).squeeze(-2)


def from_ball(x: Tensor, c: Tensor) -> Tensor:
    """Poincaré ball to hyperboloid: ``s = 2x / (1 - c|x|^2)``."""
    return 2 * wide(x) / ball_gap(x, c)


def to_ball(s: Tensor, c: Tensor) -> Tensor:
    """Hyperboloid to Poincaré ball: ``x = s / (1 + sqrt(1 + c|s|^2))``."""
    return wide(s) / (1 + (1 + c * sqnorm(s)).sqrt())


def from_klein(x: Tensor, c: Tensor) -> Tensor:
    """Klein disk to hyperboloid: ``s = x / sqrt(1 - c|x|^2)``."""
    return wide(x) * ball_gap(x, c).rsqrt()


def to_klein(s: Tensor, c: Tensor) -> Tensor:
    """Hyperboloid to Klein disk: ``x = s / sqrt(1 + c|s|^2)``."""
    return wide(s) * (1 + c * sqnorm(s)).rsqrt()
