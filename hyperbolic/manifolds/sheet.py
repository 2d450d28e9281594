"""Formulas of the hyperboloid in its space coordinates, which the Lorentz, Klein and Poincaré models share.

A point of the sheet ``-t^2 + |s|^2 = -1/c``, ``t > 0`` is given by its space part ``s`` alone, a tangent vector by
its space part likewise: the time parts ``t = sqrt(1/c + |s|^2)`` and ``<s, u>/t`` follow. Nothing here subtracts
two large numbers that are nearly equal: differences are taken between space parts before they are squared.
All values are float64; ``c`` is a float or broadcasts to (..., 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.numerics import WIDE, ball_gap, dot, reject, sqnorm, wide
from hyperbolic.rows import weighted_sum
from hyperbolic.smooth import asinhc, cosh_sqrt, safe_sqrt, sinhc
from hyperbolic.switch import is_followed

_LONGEST, _NEAR = 64.0, 10.0
_SUMMABLE = 1e9  # c t^2 up to which t^2 - |s|^2 keeps 1e-7 in float64


def time(s: Tensor, c: float | Tensor) -> Tensor:
    """``sqrt(1/c + |s|^2)``, shape (..., 1)."""
    return (1 / c + sqnorm(s)).sqrt()


def half_sinh_square(x: Tensor, y: Tensor, c: Tensor, careful: bool | None = None) -> Tensor:
    """``sinh^2(sqrt(c) d(x, y) / 2)``, shape (..., 1), as the sum of a radial and an angular part.

    With ``a, b`` the distances of x and y from the origin (times sqrt(c)) and ``theta`` the angle between them,
    ``sinh^2(d/2) = sinh^2((a-b)/2) + sinh(a) sinh(b) sin^2(theta/2)``, where
    ``sinh(a-b) = <x-y, x+y> / (|x| t_y + |y| t_x)`` and, for acute angles, the angular part comes from
    the part of the shorter vector (or of the difference, if that is shorter still) orthogonal to the longer one.
    ``careful`` (default: for float64 points) takes that part without any rounding of the shorter vector.

    At the origin both parts have a kink that their sum has not. For the sake of second derivatives it is there, where x
    or y is far shorter than the other, ``c/2 (|x|^2 t_y / (t_x + R) + |y|^2 R / (t_y + R) - <x, y>)`` with
    ``R = 1/sqrt(c)``, which is smooth in both and of which nothing cancels there.
    """
    careful = x.dtype is WIDE and y.dtype is WIDE if careful is None else careful
    x, y = wide(x), wide(y)
    difference, total = x - y, x + y
    along = dot(difference, total)  # |x|^2 - |y|^2
    xx, yy, x_time, y_time, radius = sqnorm(x), sqnorm(y), time(x, c), time(y, c), c**-0.5
    x_norm, y_norm = safe_sqrt(xx), safe_sqrt(yy)
    denominator = x_norm * y_time + y_norm * x_time
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
    part, safe_large2 = torch.where(swap, y, x), torch.where(acute, large2, 1)
    if careful:
        orthogonal = reject(part, torch.where(acute, large, 1))
    else:
        part = torch.where(sqnorm(difference) < small2, difference, part)
        orthogonal = part - dot(part, large) / safe_large2 * large
    angular = torch.where(  # 2|x||y|(1 - cos theta)
        acute,
        2 * safe_large2 * sqnorm(orthogonal) / torch.where(acute, x_norm * y_norm + product, 1),
        2 * (x_norm * y_norm - product),
    )
    from_origin = xx * y_time / (x_time + radius) + radius * yy / (y_time + radius) - product
    shorter = torch.minimum(xx, yy) <= 1e-6 * torch.maximum(xx, yy).clamp_max(1 / c)
    return torch.where(shorter, c / 2 * from_origin, radial_part + c / 4 * angular)


def inner(x: Tensor, u: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``<u, v>_L`` of tangent vectors at x: ``<u, v> - c <x, u><x, v> / (c t^2)`` near the origin; away from it the
    part orthogonal to x plus the radial part over ``c t^2``."""
    square, xu, xv = sqnorm(x), dot(x, u), dot(x, v)
    near = c * square < 1
    safe = torch.where(near, 1, square)
    if x.dtype is WIDE:
        ray = torch.where(near, 1, x)
        across = reject(u, ray)
        orthogonal = dot(across, across if u is v else reject(v, ray))
    else:
        across = wide(u) - xu / safe * wide(x)
        orthogonal = dot(across, across if u is v else wide(v) - xv / safe * wide(x))
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
    end = cosh_sqrt(square) * wide(x) + sinhc(square) * shrink * wide(u)
    back = (c * sqnorm(x) > 1) & (dot(x, u) < 0) & (square > 0.25) & ~far
    if back.is_cpu and not is_followed(x, u) and not back.any():
        return end
    return torch.where(back, _step_back(x, u, square, c, back), end)


def _step_back(x: Tensor, u: Tensor, square: Tensor, c: Tensor, back: Tensor) -> Tensor:
    """:func:`expmap` where a long step leads back towards the origin, so that both of its terms are huge.

    With a the distance of x from the origin, r the length of the step and tau its part along the ray (all times
    sqrt(c)), the part of the end along the ray is ``sinh(a - r) + sinh(r) cosh(a) c|u_across|^2 / (r (r - tau))``.
    """
    xx, xu = sqnorm(x), dot(x, u)
    x, square, xx = torch.where(back, x, 1), torch.where(back, square, 1), torch.where(back, xx, 1)
    across, r, size = reject(wide(u), wide(x)), square.sqrt(), xx.sqrt()
    cosh, tau = (1 + c * xx).sqrt(), torch.where(back, xu, -1) * c**0.5 / (size * (1 + c * xx).sqrt())
    turned = c * sqnorm(across) / (r - tau) * sinhc(square) * cosh
    along = torch.sinh(c**0.5 * size * asinhc(c * xx) - r) + turned
    return along / (c**0.5 * size) * x + sinhc(square) * across


def logmap(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``d / sinh(d) (e - 2 sinh^2(d/2) x)`` with ``e = y - x`` and d in units of 1/sqrt(c)."""
    x, y = wide(x), wide(y)
    q = half_sinh_square(x, y, c)
    return asinhc(q) / (1 + q).sqrt() * (y - x - 2 * q * x)


def transport(x: Tensor, y: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """Parallel transport (space part): to the origin along the ray, the rotation ``gyr[y, -x]``, out along the ray.

    The same vector as ``v + c <y, v>_L / (1 - c <x, y>_L) (x + y)``, in which everything cancels when v is long.
    """
    square, along = sqnorm(x), dot(x, v)
    time_x, time_y = (1 + c * square).sqrt(), (1 + c * sqnorm(y)).sqrt()
    near = c * square < 1
    safe = torch.where(near, 1, square)
    at_origin = wide(v) - c * along / (time_x * (1 + time_x)) * wide(x)
    e = wide(y) - wide(x)
    ball_x, gaps = wide(x) / (1 + time_x), (2 / (1 + time_x), 2 / (1 + time_y))
    ball_e = (e - c * dot(e, wide(x) + wide(y)) / (time_x + time_y) * ball_x) / (1 + time_y)
    if x.dtype is WIDE:  # away from the origin a long v becomes short: take its part across the ray by itself
        ray = torch.where(near, 1, x)
        at_origin = torch.where(near, at_origin, reject(v, ray) + along / (safe * time_x) * ray)
        turned = rotate(ball_x, y / (1 + time_y), ball_e, reject(y, ray) / (1 + time_y), *gaps, at_origin, c)
    else:  # float64 has digits to spare: set its part along the ray to what it has to be
        rest = (along / time_x - dot(x, at_origin)) / safe
        turned = gyrate(ball_x, ball_e, *gaps, at_origin + torch.where(near, 0, rest) * wide(x), c)
    return turned + c * dot(y, turned) / (1 + time_y) * y


def rotate(
    x: Tensor, y: Tensor, e: Tensor, across: Tensor, gap_x: Tensor, gap_y: Tensor, v: Tensor, c: Tensor
) -> Tensor:
    """``gyr[y, -x] v`` for points of the ball with these gaps, ``e = y - x``, ``across`` the part of y orthogonal to x.

    For x close to the origin by :func:`gyrate`. Elsewhere as the rotation it is, in the plane of x and ``across`` by
    ``-2 arg(C + i|x||across|)``, ``C = 1 - c<x, y>``: right also for neighbours whose ``e`` rounding has spoilt.
    """
    square, product = c * sqnorm(x), c * dot(x, y)
    near = square < 0.18
    n = square * c * sqnorm(across)
    acute = product > 0
    cosine = torch.where(acute, (gap_x + gap_y - gap_x * gap_y + n) / (1 + product.clamp_min(0)), 1 - product)
    xv, av = dot(x, v), dot(across, v)
    by_x = cosine * av - c * sqnorm(across) * xv
    by_across = cosine * xv + square * av
    turned = v + 2 * c / (cosine.square() + n) * (by_x * x - by_across * across)
    return torch.where(near, gyrate(x, e, gap_x, gap_y, v, c), turned)


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
    ``-c <., .>_L = 1 + 4 Q + 4 Q^2 / (c t_p^2)``. Far out, points in almost the same direction lose digits in q_i: with
    an angle of 1e-6, relative errors are 4e-15 at 8/sqrt(c) and 1e-10 at 16 and 20; without that rounding
    (`careful`) it would take 1.2 to 1.6 times as long.
    """
    x = wide(x)
    w = x.new_ones(*x.shape[:-1], 1) if weights is None else weights.to(WIDE).unsqueeze(-1)
    total = w.sum(-2, keepdim=True)
    mean = (w * x).sum(-2, keepdim=True) / total  # space part of the reference point and direction of the result
    q = (w * half_sinh_square(mean, x, c, careful=False)).sum(-2, keepdim=True) / total
    with torch.no_grad():  # what rounding left of sum w_i (x_i - mean), which is 0
        rest = (w * (x - mean)).sum(-2, keepdim=True) / total
        rounding = c * inner(mean, rest, rest, c)
    square = 1 + 4 * q + 4 * q.square() / (1 + c * sqnorm(mean)) - rounding
    return (mean / square.sqrt()).squeeze(-2)


def centroid_of_parts(scale: Tensor, times: Tensor, v: Tensor, weights: Tensor | None, c: Tensor) -> Tensor | None:
    """:func:`centroid` of the points with space parts ``scale v`` and these times, as sums of products.

    ``S / sqrt(c (T^2 - |S|^2))`` with the weighted means S and T of space parts and times; None where a point is so far
    from the origin that the difference would lose more than a float32 number can show, or where weights have more
    leading axes than the points.

    Args: scale, times: (..., N, 1) float64; v: (..., N, d) float32; weights: (..., N) or None for equal ones.
    """
    scale, times = scale.squeeze(-1), times.squeeze(-1)
    if weights is not None and torch.broadcast_shapes(weights.shape, times.shape) != times.shape:
        return None
    w = torch.ones_like(times) if weights is None else weights.to(WIDE).expand(times.shape)
    w = w / w.sum(-1, keepdim=True)
    mean_time = (w * times).sum(-1, keepdim=True)
    if mean_time.numel() and not float((c * mean_time.square()).detach().max()) < _SUMMABLE:
        return None
    mean = weighted_sum(w * scale, v)
    return mean * (c * (mean_time.square() - sqnorm(mean))).rsqrt()


def exp0_parts(u: Tensor, c: Tensor, unit: float) -> tuple[Tensor, Tensor] | None:
    """The ``scale`` and time of ``exp_0(unit u)``, whose space part is ``scale u``, (..., 1) float64; None where such a
    point is further than 10 / sqrt(c) from the origin, from where differences of such numbers lose digits.

    Args: u: (..., d). unit: the length of unit vectors at the origin.
    """
    square = c * unit**2 * sqnorm(u)
    if u.numel() and not float(square.detach().max()) <= _NEAR**2:
        return None
    ratio = sinhc(square)
    return unit * ratio, ((1 + square * ratio.square()) / c).sqrt()


def half_sinh_square_of_parts(s: Tensor, scale: Tensor, times: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``sinh^2(sqrt(c) d / 2) = (cosh(sqrt(c) d) - 1) / 2`` (..., 1) between the point with the space part s (d,) and
    those with ``scale v`` and these times. By what times are above ``1/sqrt(c)``: near the origin nothing cancels.

    Args: scale, times: (..., 1) float64; v: (..., d) in the dtype of s.
    """
    root, here = c.sqrt(), time(s, c)
    rise = c * sqnorm(v) * scale.square() / (1 + root * times)
    h = rise * root * here + c * sqnorm(s) / (1 + root * here) - c * scale * dot(v, s.expand_as(v))
    return (h / 2).clamp_min(0)


def from_ball(x: Tensor, c: float | Tensor) -> Tensor:
    """Poincaré ball to hyperboloid: ``s = 2x / (1 - c|x|^2)``."""
    return 2 * wide(x) / ball_gap(x, c)


def to_ball(s: Tensor, c: float | Tensor) -> Tensor:
    """Hyperboloid to Poincaré ball: ``x = s / (1 + sqrt(1 + c|s|^2))``."""
    return wide(s) / (1 + (1 + c * sqnorm(s)).sqrt())


def from_klein(x: Tensor, c: float | Tensor) -> Tensor:
    """Klein disk to hyperboloid: ``s = x / sqrt(1 - c|x|^2)``."""
    return wide(x) * ball_gap(x, c).rsqrt()


def to_klein(s: Tensor, c: float | Tensor) -> Tensor:
    """Hyperboloid to Klein disk: ``x = s / sqrt(1 + c|s|^2)``."""
    return wide(s) * (1 + c * sqnorm(s)).rsqrt()
