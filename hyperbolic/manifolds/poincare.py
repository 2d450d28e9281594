"""The Poincaré ball ``{x : c|x|^2 < 1}`` with metric ``(2 / (1 - c|x|^2))^2 <u, v>``.

Formulas first, as pure functions of tensors and a curvature; then the class. In the formulas, ``g_x`` is the gap
``1 - c|x|^2`` (so the conformal factor is ``2/g_x``) and ``e = y - x``: Möbius operations are written with ``e``
instead of ``<x, y>``, which removes every cancellation between nearby points.

Sources: Ganea, Bécigneul & Hofmann 2018 (gyrovector operations, exp, log, transport); Ungar 2008.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic.autocast import leaves_autocast
from hyperbolic.fusion import fuse
from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.ball_rows import BallAdd, BallDistanceSquare, inside
from hyperbolic.manifolds.base import HyperbolicManifold
from hyperbolic.numerics import BALL_EPS, ball_gap, dot, limit, rescale, sqnorm, wide, wide_curvature
from hyperbolic.smooth import artanhc, asinhc, cosh_sqrt, safe_sqrt, tanhc
from hyperbolic.switch import is_followed

_LONG = 10.0  # step of expmap, times sqrt(c)/2, from which on a float64 number has lost half of the digits of its gap


@fuse
def project(x: Tensor, c: float | Tensor) -> Tensor:
    """The nearest point with ``sqrt(c)|x| <= 1 - eps`` (eps by dtype, see ``numerics.BALL_EPS``)."""
    bound = 1 - limit(BALL_EPS, x.dtype)
    square = c * sqnorm(x)
    outside = square > bound * bound
    scale = torch.where(outside, bound * torch.where(outside, square, 1).rsqrt(), 1)
    return rescale(scale, x)


def mobius_add(x: Tensor, y: Tensor, c: float | Tensor) -> Tensor:
    """Möbius sum ``x (+) y = (g_x s + c|s|^2 x) / (c|s|^2 + g_x g_y)`` with ``s = x + y``.

    The same point as ``((1 + 2c<x,y> + c|y|^2) x + (1 - c|x|^2) y) / (1 + 2c<x,y> + c^2|x|^2|y|^2)``
    (Ganea et al. 2018, Eq. 4), but exact also for ``y`` near ``-x``.
    """
    result: Tensor = BallAdd.run(x, y, wide_curvature(c))
    return result


def pull_inside(x: Tensor, gap: Tensor, dtype: torch.dtype) -> Tensor:
    """A point with this gap, which is to be one of this dtype, inside its boundary margin."""
    return inside(gap, dtype) * x


@fuse
def expmap0(u: Tensor, c: Tensor) -> Tensor:
    """``exp_0(u) = tanh(sqrt(c)|u|) u / (sqrt(c)|u|)`` (Ganea et al. 2018, Eq. 11); distance from the origin 2|u|."""
    square = c * sqnorm(u)
    return rescale(_bounded_tanhc(square, u.dtype), u)


def _bounded_tanhc(square: Tensor, dtype: torch.dtype) -> Tensor:
    bound = 1 - limit(BALL_EPS, dtype)
    return torch.minimum(tanhc(square), bound * square.clamp_min(0.25).rsqrt())  # 2 * bound > 1 for short vectors


@fuse
def logmap0(x: Tensor, c: Tensor) -> Tensor:
    """``log_0(x) = artanh(sqrt(c)|x|) x / (sqrt(c)|x|)`` (Ganea et al. 2018, Eq. 11)."""
    return rescale(artanhc(ball_gap(x, c)), x)


@fuse
def expmap(x: Tensor, u: Tensor, c: Tensor) -> Tensor:
    """``exp_x(u) = x (+) tanh(sqrt(c)|u|/g_x) u / (sqrt(c)|u|)`` (Ganea et al. 2018, Eq. 10)."""
    gap, dtype = ball_gap(x, c), torch.promote_types(x.dtype, u.dtype)
    step = wide(u) / gap
    square = c * sqnorm(step)
    end, long = mobius_add(wide(x), _bounded_tanhc(square, torch.float64) * step, c), square > _LONG**2
    if not long.is_cpu or is_followed(x, u) or long.any():
        end = torch.where(long, _long_step(wide(x), gap, step, square, c), end)
    return project(end.to(dtype), c)


def _long_step(x: Tensor, gap: Tensor, step: Tensor, square: Tensor, c: Tensor) -> Tensor:
    """:func:`mobius_add` of x and ``y = tanh(|step|) step / |step|``, where ``1 - c|y|^2`` is lost in rounding y: its
    gap is taken from ``sech^2(|step|)``, and the length of the sum from its own gap. Steps of at most 40 / sqrt(c)."""
    total = x + tanhc(square) * step
    length, gaps = c * sqnorm(total), gap / cosh_sqrt(square.clamp_max(1600)).square()
    end, end_gap = (gap * total + length * x) / (length + gaps), gaps / (length + gaps)
    with torch.no_grad():  # 1 but for rounding
        right = torch.where(end_gap < 0.5, ((1 - end_gap) / (c * sqnorm(end)).clamp_min(0.5)).sqrt(), 1)
    return right * end


@fuse
def logmap(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``log_x(y) = g_x artanh(sqrt(c)|m|) m / (sqrt(c)|m|)`` with ``m = (-x) (+) y`` (Ganea et al. 2018, Eq. 10)."""
    gap_x, gap_y = ball_gap(x, c), ball_gap(y, c)
    e = wide(y) - wide(x)
    square = c * sqnorm(e)
    denominator = square + gap_x * gap_y
    scale = gap_x * artanhc(gap_x * gap_y / denominator) / denominator
    return (scale * (gap_x * e - square * wide(x))).to(torch.promote_types(x.dtype, y.dtype))


def distance_square(x: Tensor, y: Tensor, c: float | Tensor) -> Tensor:
    """``t = |x - y|^2 / (g_x g_y)``, shape (..., 1) in float64; the distance is ``2 arsinh(sqrt(c t)) / sqrt(c)``."""
    result: Tensor = BallDistanceSquare.run(x, y, wide_curvature(c))
    return result


def distance(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``2 arsinh(sqrt(c t)) / sqrt(c)`` with the t of :func:`distance_square`, shape (..., 1) in float64."""
    t = distance_square(x, y, c)
    return 2 * safe_sqrt(t) * asinhc(c * t)


def gyration(x: Tensor, y: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``gyr[y, -x] v``, the rotation that parallel transport from x to y applies; float64, free of cancellation."""
    return sheet.gyrate(wide(x), wide(y) - wide(x), ball_gap(x, c), ball_gap(y, c), wide(v), c)


class PoincareBall(HyperbolicManifold):
    """Poincaré ball of curvature ``-c``: points ``x`` in R^d with ``c|x|^2 < 1``.

    Args:
        c: positive; the sectional curvature is ``-c`` and the ball has radius ``1/sqrt(c)``.
        learn_c: make ``c`` a trained parameter (softplus of a free scalar).

    The tangent space at the origin carries the metric ``4<u, v>``: ``dist0(expmap0(u)) = 2|u|``. Stated radius
    (largest distance from the origin times ``sqrt(c)``): 13.1 in float32, 28.3 in float64.
    """

    name = "PoincareBall"
    origin_scale = 2.0

    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        return 2 * math.atanh(1 - limit(BALL_EPS, dtype)) / math.sqrt(self.number())

    def projx(self, x: Tensor) -> Tensor:
        return project(x, self.c)

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """``(g_x / 2)^2 u`` (Nickel & Kiela 2017)."""
        return rescale((ball_gap(x, self.c) / 2).square(), u)

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return (2 / ball_gap(x, self.c)).square() * dot(u, v)

    def _dist2(self, x: Tensor, y: Tensor) -> Tensor:
        t = distance_square(x, y, self.c)
        return 4 * t * asinhc(self.c * t).square()

    def _dist(self, x: Tensor, y: Tensor) -> Tensor:
        return distance(x, y, self.c)

    def _dist0(self, x: Tensor) -> Tensor:
        return 2 * safe_sqrt(sqnorm(x)) * artanhc(ball_gap(x, self.c))

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        return expmap(x, u, self.c)

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        return logmap(x, y, self.c)

    def expmap0(self, u: Tensor) -> Tensor:
        return expmap0(u, self.c)

    def logmap0(self, x: Tensor) -> Tensor:
        return logmap0(x, self.c)

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """``projx(x + u)``, the first-order retraction."""
        return project(x + u, self.c)

    def transp(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """``(g_y / g_x) gyr[y, -x] v`` (Ganea et al. 2018, Eq. 14 for x = 0)."""
        ratio = ball_gap(y, self.c) / ball_gap(x, self.c)
        return (ratio * gyration(x, y, v, self.c)).to(v.dtype)

    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        """``g_y u``, transport from the origin (Ganea et al. 2018, Eq. 14)."""
        return rescale(ball_gap(y, self.c), u)

    def _sheet_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gap = ball_gap(x, self.c)
        return 2 / gap, (2 - gap) / gap * self.c.rsqrt(), x

    def _from_sheet(self, space: Tensor, dtype: torch.dtype) -> Tensor:
        return project(sheet.to_ball(space, self.c).to(dtype), self.c)

    def mobius_add(self, x: Tensor, y: Tensor) -> Tensor:
        """Möbius sum ``x (+) y``, see :func:`mobius_add`."""
        return mobius_add(x, y, self.c)

    def mobius_scalar(self, r: Tensor | float, x: Tensor) -> Tensor:
        """``r (x) x = exp_0(r log_0(x))`` (Ganea et al. 2018, Eq. 12)."""
        u = r * (artanhc(ball_gap(x, self.c)) * wide(x))  # float64: rounding u would spoil gradients near the boundary
        return (_bounded_tanhc(self.c * sqnorm(u), x.dtype) * u).to(x.dtype)

    @leaves_autocast
    def mobius_matvec(self, weight: Tensor, x: Tensor) -> Tensor:
        """``W (x) x = exp_0(W log_0(x))`` for W of shape (d_out, d_in) (Ganea et al. 2018, Lemma 6)."""
        y = torch.nn.functional.linear(x, weight)
        scale = artanhc(ball_gap(x, self.c))  # log_0: its length in float64, so that gradients along x keep digits
        scale = scale * _bounded_tanhc(self.c * scale.square() * sqnorm(y), x.dtype)
        return scale.to(y.dtype) * y
