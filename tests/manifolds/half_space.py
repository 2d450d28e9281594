"""A manifold from outside of the package: the upper half-space, written against the interface alone."""

import math

import torch

from hyperbolic.geometry import FAMILIES, LayerFamily, make_geometry, register_family, register_manifold
from hyperbolic.layers import tangent
from hyperbolic.manifolds import Manifold
from hyperbolic.numerics import dot, sqnorm, wide
from hyperbolic.smooth import safe_sqrt

__all__ = ["HalfSpace", "Linear", "make_geometry"]


class HalfSpace(Manifold):
    """Points (x, y) of R^d with y > 0 last and the metric ``<u, v> / (c y^2)``; the origin is (0, height)."""

    name = "HalfSpace"

    def __init__(self, c: float = 1.0, learn_c: bool = False, height: float = 1.0):
        super().__init__(c, learn_c)
        self.height = height

    def max_radius(self, dtype=torch.float32):
        return 8 / math.sqrt(float(self.c.detach()))

    def projx(self, x):
        return torch.cat([x[..., :-1], x[..., -1:].clamp_min(1e-6)], -1)

    def egrad2rgrad(self, x, u):
        return (self.c * wide(x[..., -1:]).square() * u).to(u.dtype)

    def _inner(self, x, u, v):
        return dot(u, v) / (self.c * wide(x[..., -1:]).square())

    def _half(self, x, y):
        """``sinh^2(sqrt(c) d(x, y) / 2)``."""
        return sqnorm(wide(x) - wide(y)) / (4 * wide(x[..., -1:]) * wide(y[..., -1:]))

    def _dist(self, x, y):
        return 2 * torch.asinh(safe_sqrt(self._half(x, y))) / self.c.sqrt()

    def _dist2(self, x, y):
        return self._dist(x, y).square()

    def _dist0(self, x):
        return self._dist(x, self._start(x))

    def _start(self, x):
        return torch.cat([torch.zeros_like(x[..., 1:]), torch.full_like(x[..., :1], self.height)], -1)

    def _at_start(self, u):
        return (self.height * self.c.sqrt() * u).to(u.dtype)

    def expmap(self, x, u):
        y, v = wide(x[..., -1:]), wide(u) / wide(x[..., -1:])
        square = sqnorm(v)
        length = safe_sqrt(square)
        slope = torch.where(square > 0, torch.sinh(length) / torch.where(square > 0, length, 1), 1)
        height = y / (torch.cosh(length) - slope * v[..., -1:])
        return self.projx(torch.cat([x[..., :-1] + height * slope * v[..., :-1], height], -1).to(u.dtype))

    def logmap(self, x, y):
        low, high, half = wide(x[..., -1:]), wide(y[..., -1:]), self._half(x, y)
        length = 2 * torch.asinh(safe_sqrt(half))
        slope = torch.where(half > 0, length / torch.where(half > 0, torch.sinh(length), 1), 1)
        away = wide(y) - wide(x)
        return (low * slope * torch.cat([away[..., :-1] / high, away[..., -1:] / high + 2 * half], -1)).to(y.dtype)

    def expmap0(self, u):
        return self.expmap(self._start(u), self._at_start(u))

    def logmap0(self, x):
        return (self.logmap(self._start(x), x) / (self.height * self.c.sqrt())).to(x.dtype)

    def retr(self, x, u):
        return self.expmap(x, u)

    def transp(self, x, y, v):
        """The geodesic's plane turns by the angle from its first direction e to its last f, measured by height."""
        a, e, f = wide(v) / wide(x[..., -1:]), self.logmap(x, y), -self.logmap(y, x)
        e, f = (torch.nn.functional.normalize(wide(t), dim=-1) for t in (e, f))
        both = e + f
        return (wide(y[..., -1:]) * (a - dot(both, a) / (1 + dot(e, f)) * both + 2 * dot(e, a) * f)).to(v.dtype)

    def transp0(self, y, u):
        return self.transp(self._start(u), y, self._at_start(u))

    def centroid(self, x, weights=None):
        """The point in the direction of the weighted sum of ``(|x|^2 + 1, |x|^2 - 1, 2 x_flat) / 2 y`` (Law et al.)."""
        x, dtype = wide(x) / self.height, x.dtype
        flat, y, square = x[..., :-1], x[..., -1:], sqnorm(x)
        rows = torch.cat([square + 1, square - 1, 2 * flat], -1) / (2 * y)
        total = rows.sum(-2) if weights is None else (wide(weights).unsqueeze(-1) * rows).sum(-2)
        time, up, flat = total[..., :1], total[..., 1:2], total[..., 2:]
        root = (time.square() - up.square() - sqnorm(flat)).sqrt()
        return (self.height * torch.cat([flat, root], -1) / (time - up)).to(dtype)


class Linear(tangent.Linear):
    """A layer of a new family, beside those that it shares with another."""


register_manifold(HalfSpace)
register_family(LayerFamily("halfspace", (HalfSpace,), {**FAMILIES["tangent"].layers, "Linear": Linear}))
