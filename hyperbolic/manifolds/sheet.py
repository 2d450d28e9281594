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
    ``sinh(a-b) = <x-y, x+y> / (|x| t_y + |y| t_x)`` and, for acute angles, the angular part
    comes from the part of ``x - y`` orthogonal to ``x + y``.
    """
    x, y = wide(x), wide(y)
    difference, total = x - y, x + y
    total2 = sqnorm(total)
    along = dot(difference, total)  # |x|^2 - |y|^2
    x_norm, y_norm = _norm(x), _norm(y)
    denominator = x_norm * time(y, c) + y_norm * time(x, c)
    empty = denominator == 0
    sinh_radial = torch.where(empty, 0, along / torch.where(empty, 1, denominator))
    cosh_radial = (1 + sinh_radial.square()).sqrt()
    radial_part = sinh_radial.square() / (2 * (1 + cosh_radial))  # sinh^2(r/2) = (cosh r - 1)/2
    empty = total2 == 0
    safe_total2 = torch.where(empty, 1, total2)
    orthogonal = difference - torch.where(empty, 0, along / safe_total2) * total
    norms = x_norm + y_norm
    norm_gap = along / torch.where(norms == 0, 1, norms)
    acute = dot(x, y) > 0
    spread = torch.where(acute, total2 - norm_gap.square(), 1)  # 2|x||y|(1 + cos theta)
    angular = torch.where(
        acute, sqnorm(orthogonal) * total2 / spread, 2 * (x_norm * y_norm - dot(x, y))
    )  # 2|x||y|(1 - cos theta)
    return radial_part + c / 4 * angular.clamp_min(0)


def _norm(x: Tensor) -> Tensor:
    square = sqnorm(x)
    empty = square == 0
    return torch.where(empty, 0, torch.where(empty, 1, square).sqrt())


def inner(x: Tensor, u: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``<u, v>_L`` of tangent vectors at x: the part orthogonal to x plus the radial part over ``c t^2``."""
    x, u, v = wide(x), wide(u), wide(v)
    square = sqnorm(x)
    empty = square == 0
    square = torch.where(empty, 1, square)
    xu, xv = dot(x, u), dot(x, v)
    orthogonal = dot(u - xu / square * x, v - xv / square * x)
    return orthogonal + xu * xv / (square * (1 + c * square)) * (~empty)


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
    """``v + c <y, v>_L / (1 - c <x, y>_L) (x + y)`` (space part), with ``<y, v>_L = <y - x, v>_L``."""
    x, y, v = wide(x), wide(y), wide(v)
    e, total = y - x, x + y
    time_x, time_y = time(x, c), time(y, c)
    e_time = dot(e, total) / (time_x + time_y)
    product = dot(e, v) - e_time * dot(x, v) / time_x
    return v + c * product / (2 + 2 * half_sinh_square(x, y, c)) * total


def centroid(x: Tensor, weights: Tensor | None, c: Tensor) -> Tensor:
    """``sum w_i x_i / sqrt(-c <sum w_i x_i, sum w_i x_i>_L)`` over axis -2 (Law et al. 2019), space part.

    The Lorentz norm is taken in the tangent space at the point whose space part is the weighted mean, where nothing
    cancels: with ``v_i = log_p(x_i)`` it is ``(sum w_i cosh r_i)^2 - |sum w_i sinh(r_i)/r_i v_i|^2``.
    """
    x = wide(x)
    w = x.new_ones(*x.shape[:-1], 1) if weights is None else wide(weights).unsqueeze(-1)
    total = w.sum(-2, keepdim=True)
    mean = (w * x).sum(-2, keepdim=True) / total  # space part of the reference point and direction of the result
    q = half_sinh_square(mean, x, c)
    cosh = 1 + 2 * q
    offset = (w * (x - mean - 2 * q * mean)).sum(-2, keepdim=True) / total  # sinh(r)/r v_i = e_i - 2 q_i p
    height = (w * cosh).sum(-2, keepdim=True) / total
    square = height.square() - c * inner(mean, offset, offset, c)
    return (mean / square.clamp_min(1e-30).sqrt()).squeeze(-2)


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
