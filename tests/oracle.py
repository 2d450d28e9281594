"""What the numbers should be: textbook definitions in 120-digit arithmetic, on the exact bits of float tensors.

Nothing here is written for accuracy or speed, and nothing follows the rearranged formulas of the product. The
Poincaré ball and the Klein disk are gyrovector spaces (Ungar 2008): every map is a definition in terms of the sum of
the space (Möbius or Einstein addition) and of the differential of ``y -> x + y`` at 0. The hyperboloid is arcosh,
cosh and sinh of Minkowski products. Vectors are lists of ``mpf``; a space is an object with a curvature, and its
methods have the names of the product's. One convention of the product is shared: of a hyperboloid point only the
space coordinates are read, and of a tangent vector at it likewise.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.arithmetic import ONE, ZERO, Vector, combine, dot, mp, norm, scale


def weighted(weights: Vector, points: list[Vector]) -> Vector:
    return [mp.fsum(w * p[i] for w, p in zip(weights, points, strict=True)) for i in range(len(points[0]))]


def ratio(function: Callable, r):
    """``function(r) / r``, 1 at 0."""
    return function(r) / r if r else ONE


class Gyrovectors:
    """What Poincaré ball and Klein disk share; ``units`` is the distance from 0 per unit of ``artanh(sqrt(c)|x|)``."""

    units: int

    def __init__(self, c):
        self.c = mp.mpf(c)
        self.root = mp.sqrt(self.c)

    def gap(self, x: Vector):
        return 1 - self.c * dot(x, x)

    def gyration(self, a: Vector, b: Vector, v: Vector) -> Vector:
        """``-(a + b) + (a + (b + v))``, linear in v: v is first made short enough to be a point."""
        length = norm(v)
        if not length:
            return v
        point = scale(1 / (2 * self.root * length), v)
        moved = self.add(scale(-1, self.add(a, b)), self.add(a, self.add(b, point)))
        return scale(2 * self.root * length, moved)

    def difference(self, x: Vector, y: Vector) -> Vector:
        return self.add(scale(-1, x), y)

    def dist(self, x: Vector, y: Vector):
        return self.units * mp.atanh(self.root * norm(self.difference(x, y))) / self.root

    def dist2(self, x: Vector, y: Vector):
        return self.dist(x, y) ** 2

    def dist0(self, x: Vector):
        return self.units * mp.atanh(self.root * norm(x)) / self.root

    def expmap0(self, u: Vector) -> Vector:
        return scale(ratio(mp.tanh, self.root * norm(u)), u)

    def logmap0(self, x: Vector) -> Vector:
        return scale(ratio(mp.atanh, self.root * norm(x)), x)

    def expmap(self, x: Vector, u: Vector) -> Vector:
        return self.add(x, self.expmap0(self.to_origin(x, u)))

    def logmap(self, x: Vector, y: Vector) -> Vector:
        return self.from_origin(x, self.logmap0(self.difference(x, y)))

    def transp(self, x: Vector, y: Vector, v: Vector) -> Vector:
        return self.from_origin(y, self.gyration(y, scale(-1, x), self.to_origin(x, v)))

    def transp0(self, y: Vector, u: Vector) -> Vector:
        return self.from_origin(y, u)

    def norm(self, x: Vector, u: Vector):
        return mp.sqrt(self.inner(x, u, u))

    def proju(self, x: Vector, u: Vector) -> Vector:
        return u

    def clip(self, x: Vector, radius) -> Vector:
        """The point in the same direction at most ``radius`` from the origin."""
        bound = mp.tanh(self.root * mp.mpf(radius) / self.units) / self.root
        return scale(bound / norm(x), x) if norm(x) > bound else x


class Poincare(Gyrovectors):
    units = 2

    def add(self, x: Vector, y: Vector) -> Vector:
        """Möbius addition (Ganea et al. 2018, Eq. 4)."""
        c, xx, yy, xy = self.c, dot(x, x), dot(y, y), dot(x, y)
        denominator = 1 + 2 * c * xy + c * c * xx * yy
        return combine((1 + 2 * c * xy + c * yy) / denominator, x, (1 - c * xx) / denominator, y)

    def from_origin(self, x: Vector, w: Vector) -> Vector:
        return scale(self.gap(x), w)

    def to_origin(self, x: Vector, u: Vector) -> Vector:
        return scale(1 / self.gap(x), u)

    def inner(self, x: Vector, u: Vector, v: Vector):
        return (2 / self.gap(x)) ** 2 * dot(u, v)

    def egrad2rgrad(self, x: Vector, g: Vector) -> Vector:
        return scale((self.gap(x) / 2) ** 2, g)

    def mobius_add(self, x: Vector, y: Vector) -> Vector:
        return self.add(x, y)

    def mobius_scalar(self, r, x: Vector) -> Vector:
        size = self.root * norm(x)
        return scale(mp.tanh(r * mp.atanh(size)) / size, x) if size else x

    def mobius_matvec(self, weight: list[Vector], x: Vector) -> Vector:
        """Ganea et al. 2018, Lemma 6."""
        image, size = [dot(row, x) for row in weight], self.root * norm(x)
        length = self.root * norm(image)
        return scale(mp.tanh(length / size * mp.atanh(size)) / length, image) if length else image

    def centroid(self, points: list[Vector], weights: Vector) -> Vector:
        """Möbius midpoint ``1/2 * sum w l x / sum w (l - 1)``, l = 2/(1 - c|x|^2) (Lopez & Strube 2020, Eq. 14)."""
        factors = [2 / self.gap(p) for p in points]
        total = mp.fsum(w * (f - 1) for w, f in zip(weights, factors, strict=True))
        mean = weighted([w * f / total for w, f in zip(weights, factors, strict=True)], points)
        return self.mobius_scalar(mp.mpf(1) / 2, mean)

    def to_lorentz(self, x: Vector) -> Vector:
        c, gap = self.c, self.gap(x)
        return [(1 + c * dot(x, x)) / gap / self.root, *scale(2 / gap, x)]

    def to_klein(self, x: Vector) -> Vector:
        return scale(2 / (1 + self.c * dot(x, x)), x)


class Klein(Gyrovectors):
    units = 1

    def add(self, x: Vector, y: Vector) -> Vector:
        """Einstein addition (Ungar 2008, Eq. 3.1)."""
        gamma, xy = 1 / mp.sqrt(self.gap(x)), self.c * dot(x, y)
        return combine((1 + gamma / (1 + gamma) * xy) / (1 + xy), x, 1 / gamma / (1 + xy), y)

    def _split(self, x: Vector, w: Vector) -> tuple[Vector, Vector]:
        along = scale(dot(x, w) / dot(x, x), x) if norm(x) else scale(ZERO, w)
        return along, combine(ONE, w, -ONE, along)

    def from_origin(self, x: Vector, w: Vector) -> Vector:
        """Differential of ``y -> x + y`` at 0: the part along x shrinks by the gap, the rest by its root."""
        along, across = self._split(x, w)
        return combine(self.gap(x), along, mp.sqrt(self.gap(x)), across)

    def to_origin(self, x: Vector, u: Vector) -> Vector:
        along, across = self._split(x, u)
        return combine(1 / self.gap(x), along, 1 / mp.sqrt(self.gap(x)), across)

    def inner(self, x: Vector, u: Vector, v: Vector):
        gap = self.gap(x)
        return dot(u, v) / gap + self.c * dot(x, u) * dot(x, v) / gap**2

    def egrad2rgrad(self, x: Vector, g: Vector) -> Vector:
        """Inverse of the metric, ``gap (I - c x x^T)``."""
        return scale(self.gap(x), combine(ONE, g, -self.c * dot(x, g), x))

    def centroid(self, points: list[Vector], weights: Vector) -> Vector:
        """Einstein midpoint ``sum w gamma x / sum w gamma`` (Ungar 2008, Eq. 3.65)."""
        factors = [w / mp.sqrt(self.gap(p)) for w, p in zip(weights, points, strict=True)]
        return scale(1 / mp.fsum(factors), weighted(factors, points))

    def to_lorentz(self, x: Vector) -> Vector:
        gamma = 1 / mp.sqrt(self.gap(x))
        return [gamma / self.root, *scale(gamma, x)]

    def to_poincare(self, x: Vector) -> Vector:
        return scale(1 / (1 + mp.sqrt(self.gap(x))), x)


class Lorentz:
    """The hyperboloid, time coordinate first. Points and tangent vectors are completed from their space parts."""

    def __init__(self, c):
        self.c = mp.mpf(c)
        self.root = mp.sqrt(self.c)

    def product(self, x: Vector, y: Vector):
        return dot(x[1:], y[1:]) - x[0] * y[0]

    def point(self, x: Vector) -> Vector:
        return [mp.sqrt(1 / self.c + dot(x[1:], x[1:])), *x[1:]]

    def tangent(self, x: Vector, u: Vector) -> Vector:
        return [dot(x[1:], u[1:]) / self.point(x)[0], *u[1:]]

    def origin(self, d: int) -> Vector:
        return [1 / self.root, *[ZERO] * d]

    def dist(self, x: Vector, y: Vector):
        return mp.acosh(max(ONE, -self.c * self.product(self.point(x), self.point(y)))) / self.root

    def dist2(self, x: Vector, y: Vector):
        return self.dist(x, y) ** 2

    def dist0(self, x: Vector):
        return self.dist(x, self.origin(len(x) - 1))

    def inner(self, x: Vector, u: Vector, v: Vector):
        return self.product(self.tangent(x, u), self.tangent(x, v))

    def norm(self, x: Vector, u: Vector):
        return mp.sqrt(self.inner(x, u, u))

    def expmap(self, x: Vector, u: Vector) -> Vector:
        r = self.root * self.norm(x, u)
        return combine(mp.cosh(r), self.point(x), ratio(mp.sinh, r), self.tangent(x, u))

    def logmap(self, x: Vector, y: Vector) -> Vector:
        x, y, d = self.point(x), self.point(y), self.root * self.dist(x, y)
        return scale(1 / ratio(mp.sinh, d), combine(ONE, y, -mp.cosh(d), x))

    def expmap0(self, u: Vector) -> Vector:
        return self.expmap(self.origin(len(u)), [ZERO, *u])

    def logmap0(self, x: Vector) -> Vector:
        return self.logmap(self.origin(len(x) - 1), x)[1:]

    def transp(self, x: Vector, y: Vector, v: Vector) -> Vector:
        """``v - <log_x y, v> / d^2 (log_x y + log_y x)``: only the part along the geodesic turns."""
        x, y, v = self.point(x), self.point(y), self.tangent(x, v)
        d2 = self.dist2(x, y)
        if not d2:
            return v
        there, back = self.logmap(x, y), self.logmap(y, x)
        return combine(ONE, v, -self.product(there, v) / d2, combine(ONE, there, ONE, back))

    def transp0(self, y: Vector, u: Vector) -> Vector:
        return self.transp(self.origin(len(u)), y, [ZERO, *u])

    def proju(self, x: Vector, u: Vector) -> Vector:
        x = self.point(x)
        return combine(ONE, u, self.c * self.product(x, u), x)

    def egrad2rgrad(self, x: Vector, g: Vector) -> Vector:
        return self.proju(x, [-g[0], *g[1:]])

    def centroid(self, points: list[Vector], weights: Vector) -> Vector:
        """Law et al. 2019, Eq. 13."""
        total = weighted(weights, [self.point(p) for p in points])
        return scale(1 / (self.root * mp.sqrt(-self.product(total, total))), total)

    def clip(self, x: Vector, radius) -> Vector:
        bound = mp.sinh(self.root * mp.mpf(radius)) / self.root
        length = norm(x[1:])
        return self.point([ZERO, *scale(bound / length, x[1:])]) if length > bound else x

    def to_poincare(self, x: Vector) -> Vector:
        return scale(1 / (1 + self.root * self.point(x)[0]), x[1:])

    def to_klein(self, x: Vector) -> Vector:
        return scale(1 / (self.root * self.point(x)[0]), x[1:])


SPACES = {"PoincareBall": Poincare, "Lorentz": Lorentz, "Klein": Klein}
