"""The Klein (Beltrami-Klein) disk ``{x : c|x|^2 < 1}``, in which geodesics are straight lines.

With ``g = 1 - c|x|^2`` the metric is ``<u, v>/g + c <x, u><x, v>/g^2``. Maps between points go through the
hyperboloid, ``s = x / sqrt(g)``. Source: Ungar 2008; Gulcehre et al. 2019; Zhang & Gao (Hype-HAN), section 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.base import HyperbolicManifold
from hyperbolic.manifolds.poincare import expmap0, logmap0, project
from hyperbolic.numerics import BALL_EPS, ball_gap, careful_dot, difference_along, dot, limit, reject, sqnorm, wide
from hyperbolic.smooth import artanhc, asinhc, safe_sqrt, tanhc
from hyperbolic.switch import is_followed


class Klein(HyperbolicManifold):
    """Klein disk of curvature ``-c``: points ``x`` in R^d with ``c|x|^2 < 1``.

    Args:
        c: positive; the sectional curvature is ``-c``.
        learn_c: make ``c`` a trained parameter (softplus of a free scalar).

    ``dist0(expmap0(u)) = |u|``. Stated radius (times ``sqrt(c)``): 6.6 in float32, 14.2 in float64, half of the
    Poincaré ball's, because ``|x| = tanh(radius)`` here and ``tanh(radius/2)`` there: the model, not the formulas,
    runs out of floating-point numbers first.
    """

    name = "Klein"

    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        return math.atanh(1 - limit(BALL_EPS, dtype)) / math.sqrt(self.number())

    def projx(self, x: Tensor) -> Tensor:
        return project(x, self.c)

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """``g (u - c <x, u> x)``, the inverse metric applied to the gradient."""
        return (ball_gap(x, self.c) * _shrink(x, wide(u), self.c)).to(u.dtype)

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        gap = ball_gap(x, self.c)
        return dot(u, v) / gap + self.c * careful_dot(x, u) * careful_dot(x, v) / gap.square()

    def _sinh_square(self, x: Tensor, y: Tensor) -> Tensor:
        """``sinh^2(sqrt(c) d) / c = (g_x|e|^2 + c<x, e>^2) / (g_x g_y)`` with ``e = y - x``: a sum, nothing cancels."""
        gap_x, gap_y = ball_gap(x, self.c), ball_gap(y, self.c)
        e = wide(y) - wide(x)
        return (gap_x * sqnorm(e) + self.c * difference_along(x, y).square()) / (gap_x * gap_y)

    def _dist2(self, x: Tensor, y: Tensor) -> Tensor:
        t = self._sinh_square(x, y)
        return t * asinhc(self.c * t).square()

    def _dist(self, x: Tensor, y: Tensor) -> Tensor:
        t = self._sinh_square(x, y)
        return safe_sqrt(t) * asinhc(self.c * t)

    def _dist0(self, x: Tensor) -> Tensor:
        return safe_sqrt(sqnorm(x)) * artanhc(ball_gap(x, self.c))

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        """``x + k u / (1 + k c <x, u> / g)`` with ``k = tanh(r)/r``, ``r = sqrt(c)|u|_x``: straight along u."""
        gap, square, along = ball_gap(x, self.c), self.c * self._inner(x, u, u), self.c * careful_dot(x, u)
        k = tanhc(square)
        pace, back = 1 + k * along / gap, (along < 0) & (square > 1) & (gap < 0.5)
        if not back.is_cpu or is_followed(x, u) or back.any():
            pace = torch.where(back, self._pace_back(x, u, gap, square, along, back), pace)
        step = k / pace
        return project((wide(x) + step * wide(u)).to(torch.promote_types(x.dtype, u.dtype)), self.c)

    def _pace_back(self, x: Tensor, u: Tensor, gap: Tensor, square: Tensor, along: Tensor, back: Tensor) -> Tensor:
        """``1 + k c <x, u> / g`` of inward u, by positive terms: with the distance a of x from the origin (times
        sqrt(c)) and the angle f of u and the ray, ``1 - tanh(a) tanh(r) + tanh(a) tanh(r) (1 + cos f)``."""
        square, gap, along = torch.where(back, square, 1), torch.where(back, gap, 0.25), torch.where(back, along, -1)
        r, tanh = square.sqrt(), (1 - gap).sqrt()
        cosine = along / (tanh * gap * r)
        sine_square = self.c * sqnorm(reject(u, torch.where(back, x, 1))) / (gap * square)
        rest = 2 * torch.sigmoid(-2 * r)  # 1 - tanh(r)
        return gap / (1 + tanh) + tanh * rest + tanh * (1 - rest) * sine_square / (1 - cosine)

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        """``sqrt(g_x / g_y) r / sinh(r) (y - x)`` with ``r = sqrt(c) d``: along the straight line."""
        scale = (ball_gap(x, self.c) / ball_gap(y, self.c)).sqrt() * asinhc(self.c * self._sinh_square(x, y))
        return (scale * (wide(y) - wide(x))).to(torch.promote_types(x.dtype, y.dtype))

    def expmap0(self, u: Tensor) -> Tensor:
        """``tanh(sqrt(c)|u|) u / (sqrt(c)|u|)``; distance from the origin |u|."""
        return expmap0(u, self.c)

    def logmap0(self, x: Tensor) -> Tensor:
        """``artanh(sqrt(c)|x|) x / (sqrt(c)|x|)``."""
        return logmap0(x, self.c)

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """``projx(x + u)``: a straight line is a geodesic here, travelled at another speed."""
        return project(x + u, self.c)

    def transp(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Parallel transport: to the origin along the ray, the rotation ``gyr[y, -x]``, out along the ray."""
        gap_x, gap_y = ball_gap(x, self.c), ball_gap(y, self.c)
        root_x, root_y = gap_x.sqrt(), gap_y.sqrt()
        at_origin = (wide(v) + self.c * careful_dot(x, v) / (root_x + gap_x) * wide(x)) / root_x
        e, ball_x, ball_y = wide(y) - wide(x), wide(x) / (1 + root_x), wide(y) / (1 + root_y)
        ball_e = (e + self.c * dot(e, wide(x) + wide(y)) / (root_x + root_y) * ball_x) / (1 + root_y)
        ray = torch.where(gap_x > 0.9, 1, x)
        across = reject(y, ray) / (1 + root_y)
        gaps = 2 * root_x / (1 + root_x), 2 * root_y / (1 + root_y)
        return self._out(y, sheet.rotate(ball_x, ball_y, ball_e, across, *gaps, at_origin, self.c)).to(v.dtype)

    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        """``sqrt(g) (u - (1 - sqrt(g)) <y, u> y / |y|^2)``."""
        return self._out(y, u).to(u.dtype)

    def _out(self, y: Tensor, u: Tensor) -> Tensor:
        root = ball_gap(y, self.c).sqrt()
        inward = self.c * dot(y, u) / (1 + root)  # (1 - sqrt g)/|y|^2 = c / (1 + sqrt g)
        return root * (wide(u) - inward * wide(y))

    def _sheet_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = ball_gap(x, self.c).rsqrt()
        return scale, scale * self.c.rsqrt(), x

    def _from_sheet(self, space: Tensor, dtype: torch.dtype) -> Tensor:
        return project(sheet.to_klein(space, self.c).to(dtype), self.c)


def _shrink(x: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """``v - c <x, v> x``: the part of v orthogonal to x plus ``1 - c|x|^2`` times the part along x."""
    square, xv = sqnorm(x), dot(x, v)
    near = c * square < 0.5
    along = xv / torch.where(near, 1, square) * wide(x)
    return torch.where(near, v - c * xv * wide(x), (v - along) + ball_gap(x, c) * along)
