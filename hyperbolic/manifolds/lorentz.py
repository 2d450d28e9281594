"""The Lorentz model: the upper sheet ``-t^2 + |s|^2 = -1/c`` of the hyperboloid, time coordinate first.

Formulas: :mod:`hyperbolic.manifolds.sheet`. Source: Nickel & Kiela 2018; Chen et al. (HyboNet), section 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic.autocast import leaves_autocast
from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.base import HyperbolicManifold
from hyperbolic.numerics import SHEET_RADIUS, dot, limit, sqnorm, wide
from hyperbolic.smooth import asinhc, safe_sqrt, sinhc


@leaves_autocast
def lorentz_products(queries: Tensor, table: Tensor, bias: Tensor | None = None) -> Tensor:
    """``<q, e>_L = -q_0 e_0 + sum_i q_i e_i`` of all pairs: (..., d+1), (N, d+1) -> (..., N), in the points' dtype;
    plus a bias (N,) of the points.

    The order of the products is that of the distances, nearest first: ``cosh(sqrt(c) d) = -c <q, e>_L``.
    """
    return torch.nn.functional.linear(torch.cat([-queries[..., :1], queries[..., 1:]], -1), table, bias)


def lorentz_distance2(x: Tensor, y: Tensor) -> Tensor:
    """``d_L^2 = |x_s - y_s|^2 - (x_0 - y_0)^2 = -2/c - 2 <x, y>_L`` (Law et al. 2019), (..., D) -> (...), at least 0.

    In the precision of the points: its error is about ``1e-7 x_0 y_0`` in float32, and less between near points.
    """
    difference = (x - y).square()
    return (difference[..., 1:].sum(-1) - difference[..., 0]).clamp_min(0)


def distance(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``2 arsinh(sqrt(q)) / sqrt(c)`` with the q of :func:`sheet.half_sinh_square`, shape (..., 1) in float64."""
    q = sheet.half_sinh_square(x[..., 1:], y[..., 1:], c)
    return 2 * safe_sqrt(q) * asinhc(q) * c.rsqrt()


class Lorentz(HyperbolicManifold):
    """Hyperboloid of curvature ``-c``: points ``x = (t, s)`` in R^(d+1) with ``-t^2 + |s|^2 = -1/c``.

    Args:
        c: positive; the sectional curvature is ``-c`` (``<x, x>_L = -1/c``).
        learn_c: make ``c`` a trained parameter (softplus of a free scalar).

    Only space coordinates are trusted; the time coordinate of every result is recomputed from them.
    ``dist0(expmap0(u)) = |u|``. Stated radius (times ``sqrt(c)``): 20 in float32, 28 in float64.
    """

    name = "Lorentz"

    def ambient_dim(self, d: int) -> int:
        return d + 1

    def intrinsic_dim(self, coordinates: int) -> int:
        return coordinates - 1

    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        return limit(SHEET_RADIUS, dtype) / math.sqrt(self.number())

    def _point(self, space: Tensor, dtype: torch.dtype) -> Tensor:
        """The point with these space coordinates, pulled inside the stated radius."""
        bound = math.sinh(limit(SHEET_RADIUS, dtype))
        square = self.c * sqnorm(space)
        outside = square > bound * bound
        space = space * torch.where(outside, bound * torch.where(outside, square, 1).rsqrt(), 1)
        return torch.cat([sheet.time(space, self.c), space], -1).to(dtype)

    def _tangent(self, x: Tensor, space: Tensor, dtype: torch.dtype) -> Tensor:
        """The tangent vector at x with these space coordinates."""
        s = wide(x[..., 1:])
        lead = torch.broadcast_shapes(x.shape[:-1], space.shape[:-1])
        return torch.cat([dot(s, space) / sheet.time(s, self.c), space.expand(*lead, -1)], -1).to(dtype)

    def projx(self, x: Tensor) -> Tensor:
        """``(sqrt(1/c + |s|^2), s)``: keeps the space coordinates."""
        return self._point(wide(x[..., 1:]), x.dtype)

    def proju(self, x: Tensor, u: Tensor) -> Tensor:
        """``u + c <x, u>_L x``, the orthogonal projection on the tangent space."""
        x_time = sheet.time(x[..., 1:], self.c)
        product = dot(x[..., 1:], u[..., 1:]) - x_time * wide(u[..., :1])
        space = wide(u[..., 1:]) + self.c * product * wide(x[..., 1:])
        return self._tangent(x, space, u.dtype)

    def egrad2rgrad(self, x: Tensor, u: Tensor) -> Tensor:
        """Metric dual ``(-u_0, u_s)`` of the gradient, projected on the tangent space (Nickel & Kiela 2018)."""
        return self.proju(x, torch.cat([-u[..., :1], u[..., 1:]], -1))

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        space = u[..., 1:]
        return sheet.inner(x[..., 1:], space, space if u is v else v[..., 1:], self.c)

    def _dist2(self, x: Tensor, y: Tensor) -> Tensor:
        q = sheet.half_sinh_square(x[..., 1:], y[..., 1:], self.c)
        return 4 * q * asinhc(q).square() / self.c

    def _dist(self, x: Tensor, y: Tensor) -> Tensor:
        return distance(x, y, self.c)

    def _dist0(self, x: Tensor) -> Tensor:
        square = sqnorm(x[..., 1:])
        return safe_sqrt(square) * asinhc(self.c * square)

    def beyond(self, x: Tensor, radius: float) -> Tensor:
        """By the time coordinate, ``cosh(sqrt(c) distance) / sqrt(c)``; near the origin, where that says little, by the
        distance."""
        root = self.c.detach().sqrt()
        if root * radius < 0.1:
            return super().beyond(x, radius)
        return x[..., 0] > float((root * radius).cosh() / root)

    def shorten(self, x: Tensor, radius: float, u: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """In closed form: along the direction e of the space part, ``<u_s, e>`` changes as the time coordinate does."""
        root = self.c.detach().sqrt()
        new_time, new_norm = (root * radius).cosh() / root, (root * radius).sinh() / root
        norm = torch.linalg.vector_norm(x[..., 1:], dim=-1, keepdim=True)
        e = x[..., 1:] / norm
        y = torch.cat([new_time.to(x.dtype).expand_as(norm), new_norm.to(x.dtype) * e], -1)
        if u is None:
            return y, None
        along = dot(u[..., 1:], e)
        rate = along / (root.square() * wide(norm).square() + 1).sqrt()  # along / cosh of the old distance
        space = wide(u[..., 1:]) + (rate * (root * new_time) - along) * wide(e)
        return y, torch.cat([rate * (root * new_norm), space], -1).to(u.dtype)

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        """``cosh(r) x + sinh(r)/r u``, ``r = sqrt(c)|u|_L``; u tangent at x."""
        return self._point(sheet.expmap(x[..., 1:], u[..., 1:], self.c), torch.promote_types(x.dtype, u.dtype))

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        """``d / sinh(d) (y - cosh(d) x)`` with d the distance times sqrt(c)."""
        space = sheet.logmap(x[..., 1:], y[..., 1:], self.c)
        return self._tangent(x, space, torch.promote_types(x.dtype, y.dtype))

    def expmap0(self, u: Tensor) -> Tensor:
        """``(cosh(r), sinh(r)/r sqrt(c) u) / sqrt(c)`` with ``r = sqrt(c)|u|``; u (..., d) without time coordinate."""
        radius = limit(SHEET_RADIUS, u.dtype)
        square = self.c * sqnorm(u)
        outside = square > radius * radius
        scale = torch.where(outside, radius * torch.where(outside, square, 1).rsqrt(), 1)
        return self._point(scale * sinhc(square * scale.square()) * wide(u), u.dtype)

    def logmap0(self, x: Tensor) -> Tensor:
        """``arsinh(sqrt(c)|s|) s / (sqrt(c)|s|)``, (..., d) without time coordinate."""
        space = wide(x[..., 1:])
        return (asinhc(self.c * sqnorm(space)) * space).to(x.dtype)

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """The point whose space coordinates are ``x_s + u_s``."""
        return self._point(wide(x[..., 1:]) + wide(u[..., 1:]), torch.promote_types(x.dtype, u.dtype))

    def transp(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """``v + c <y, v>_L / (1 - c <x, y>_L) (x + y)``."""
        return self._tangent(y, sheet.transport(x[..., 1:], y[..., 1:], v[..., 1:], self.c), v.dtype)

    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        """Transport of ``(0, u)`` from the origin to y."""
        s = wide(y[..., 1:])
        space = wide(u) + self.c * dot(s, u) / (1 + (1 + self.c * sqnorm(s)).sqrt()) * s
        return self._tangent(y, space, u.dtype)

    def _sheet_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        time = sheet.time(x[..., 1:], self.c)
        return torch.ones_like(time), time, x[..., 1:]

    def _to_sheet(self, x: Tensor) -> Tensor:
        return wide(x[..., 1:])

    def _from_sheet(self, space: Tensor, dtype: torch.dtype) -> Tensor:
        return self._point(space, dtype)
