"""The textbook definition of every function, on the hyperboloid in 120 digits; ball and disk enter by their charts.

A model is a chart: ``lift`` takes a point to the hyperboloid ``-t^2 + |s|^2 = -1/c`` (time first), ``lower`` brings it
back, ``push`` and ``pull`` do the same for tangent vectors (the chart's differential). Each map is then one definition
by Minkowski products, arcosh, cosh and sinh, the same for the three models. Nothing here follows the rearranged
formulas of the library, and nothing avoids a cancellation: 120 digits do. Of a hyperboloid point, and of a tangent
vector at it, only the space coordinates are read; the time coordinate is completed from them.
"""

from __future__ import annotations

from collections.abc import Callable

from scripts.exactness.arithmetic import ONE, ZERO, Vector, add, dot, flat, mp, norm, scale, weighted_sum


def product(x: Vector, y: Vector):
    """Minkowski product."""
    return dot(x[1:], y[1:]) - x[0] * y[0]


class Chart:
    """Hyperbolic space of curvature ``-c`` seen through one of its models."""

    def __init__(self, c):
        self.c = mp.mpf(c)
        self.root = mp.sqrt(self.c)

    # The charts
    def complete(self, space: Vector) -> Vector:
        return [mp.sqrt(1 / self.c + dot(space, space)), *space]

    def completed_tangent(self, point: Vector, space: Vector) -> Vector:
        return [dot(point[1:], space) / point[0], *space]

    def origin(self, d: int) -> Vector:
        return [1 / self.root, *[ZERO] * d]

    def at_origin(self, a: Vector) -> Vector:
        """A vector at the origin, of d numbers, as a tangent vector of the hyperboloid."""
        return self.push([ZERO] * len(a), a)

    def from_origin(self, tangent: Vector) -> Vector:
        return self.pull(self.origin(len(tangent) - 1), tangent)

    # The maps of the hyperboloid
    def _distance(self, x: Vector, y: Vector):
        return mp.acosh(max(ONE, -self.c * product(x, y))) / self.root

    def _length(self, u: Vector):
        return mp.sqrt(max(ZERO, product(u, u)))

    def _exp(self, x: Vector, u: Vector) -> Vector:
        r = self.root * self._length(u)
        return add(scale(mp.cosh(r), x), u, mp.sinh(r) / r if r else ONE)

    def _log(self, x: Vector, y: Vector) -> Vector:
        d = self.root * self._distance(x, y)
        return scale(d / mp.sinh(d) if d else ONE, add(y, x, -mp.cosh(d)))

    def _transport(self, x: Vector, y: Vector, v: Vector) -> Vector:
        d2 = self._distance(x, y) ** 2
        if not d2:
            return v
        there, back = self._log(x, y), self._log(y, x)
        return add(v, add(there, back), -product(there, v) / d2)

    def _project(self, x: Vector, v: Vector) -> Vector:
        return add(v, x, self.c * product(x, v))

    # The functions of every model
    def dist(self, x: Vector, y: Vector):
        return self._distance(self.lift(x), self.lift(y))

    def dist2(self, x: Vector, y: Vector):
        return self.dist(x, y) ** 2

    def dist0(self, x: Vector):
        return self._distance(self.lift(x), self.origin(len(self.lift(x)) - 1))

    def norm(self, x: Vector, u: Vector):
        return self._length(self.push(x, u))

    def inner(self, x: Vector, u: Vector, v: Vector):
        return product(self.push(x, u), self.push(x, v))

    def expmap(self, x: Vector, u: Vector) -> Vector:
        return self.lower(self._exp(self.lift(x), self.push(x, u)))

    def logmap(self, x: Vector, y: Vector) -> Vector:
        return self.pull(self.lift(x), self._log(self.lift(x), self.lift(y)))

    def expmap0(self, a: Vector) -> Vector:
        return self.lower(self._exp(self.origin(len(a)), self.at_origin(a)))

    def logmap0(self, x: Vector) -> Vector:
        point = self.lift(x)
        return self.from_origin(self._log(self.origin(len(point) - 1), point))

    def transp(self, x: Vector, y: Vector, v: Vector) -> Vector:
        return self.pull(self.lift(y), self._transport(self.lift(x), self.lift(y), self.push(x, v)))

    def transp0(self, y: Vector, a: Vector) -> Vector:
        point = self.lift(y)
        return self.pull(point, self._transport(self.origin(len(a)), point, self.at_origin(a)))

    def proju(self, x: Vector, g: Vector) -> Vector:
        """Orthogonal projection on the tangent space, which in ball and disk is everything."""
        return g

    def egrad2rgrad(self, x: Vector, g: Vector) -> Vector:
        """The gradient of a function with differential g: on the hyperboloid its differential is ``g pull``.

        There the index is raised by the Minkowski metric, and the vector projected on the tangent space.
        """
        point, size = self.lift(x), len(self.lift(x))
        units = [[ONE if i == j else ZERO for i in range(size)] for j in range(size)]
        time, *space = [dot(g, self.pull(point, unit)) for unit in units]
        return self.pull(point, self._project(point, [-time, *space]))

    def centroid(self, points: list[Vector], weights: Vector) -> Vector:
        """Law et al. 2019, Eq. 13: the weighted sum on the hyperboloid, scaled back to it."""
        total = weighted_sum([self.lift(p) for p in points], weights)
        return self.lower(scale(1 / (self.root * mp.sqrt(-product(total, total))), total))

    def clip(self, x: Vector, radius) -> Vector:
        """The point in the same direction at most ``radius`` from the origin."""
        distance = self.dist0(x)
        return x if distance <= radius else self.expmap0(scale(radius / distance, self.logmap0(x)))

    def to_lorentz(self, x: Vector) -> Vector:
        return self.lift(x)

    def to_poincare(self, x: Vector) -> Vector:
        return Poincare(self.c).lower(self.lift(x))

    def to_klein(self, x: Vector) -> Vector:
        return Klein(self.c).lower(self.lift(x))


class Poincare(Chart):
    """The Poincaré ball, with the operations that Ganea et al. 2018 define through exp, log and transport."""

    def lift(self, x: Vector) -> Vector:
        gap = 1 - self.c * dot(x, x)
        return [(1 + self.c * dot(x, x)) / gap / self.root, *scale(2 / gap, x)]

    def lower(self, point: Vector) -> Vector:
        return scale(1 / (1 + self.root * point[0]), point[1:])

    def push(self, x: Vector, u: Vector) -> Vector:
        gap = 1 - self.c * dot(x, x)
        return self.completed_tangent(self.lift(x), add(scale(2 / gap, u), x, 4 * self.c * dot(x, u) / gap**2))

    def pull(self, point: Vector, u: Vector) -> Vector:
        factor = 1 / (1 + self.root * point[0])
        return scale(factor, add(u[1:], point[1:], -self.root * u[0] * factor))

    def mobius_add(self, x: Vector, y: Vector) -> Vector:
        """``x (+) y = exp_x(P_{0 -> x} log_0 y)``."""
        point, origin = self.lift(x), self.origin(len(x))
        step = self._transport(origin, point, self._log(origin, self.lift(y)))
        return self.lower(self._exp(point, step))

    def mobius_scalar(self, r, x: Vector) -> Vector:
        """``r (x) x = exp_0(r log_0 x)``; r is a number, or a vector of one."""
        return self.expmap0(scale(flat(r)[0], self.logmap0(x)))

    def mobius_matvec(self, weight: list[Vector], x: Vector) -> Vector:
        """``W (x) x = exp_0(W log_0 x)``."""
        tangent = self.logmap0(x)
        return self.expmap0([dot(row, tangent) for row in weight])

    def mlr_logits(self, x: Vector, p: Vector, a: Vector):
        """``2|a|`` times the signed distance of x from the hyperplane through p with the normal transported from a."""
        if not norm(a):
            return ZERO
        point = self.lift(p)
        normal = self._transport(self.origin(len(a)), point, self.at_origin(a))
        sine = self.root * product(self.lift(x), scale(1 / self._length(normal), normal))
        return 2 * norm(a) * mp.asinh(sine) / self.root

    mlr_logits_beside = mlr_logits


class Klein(Chart):
    """The Klein disk."""

    def lift(self, x: Vector) -> Vector:
        gamma = 1 / mp.sqrt(1 - self.c * dot(x, x))
        return [gamma / self.root, *scale(gamma, x)]

    def lower(self, point: Vector) -> Vector:
        return scale(1 / (self.root * point[0]), point[1:])

    def push(self, x: Vector, u: Vector) -> Vector:
        gamma = 1 / mp.sqrt(1 - self.c * dot(x, x))
        return self.completed_tangent(self.lift(x), add(scale(gamma, u), x, self.c * gamma**3 * dot(x, u)))

    def pull(self, point: Vector, u: Vector) -> Vector:
        return scale(1 / (self.root * point[0]), add(u[1:], point[1:], -u[0] / point[0]))


class Lorentz(Chart):
    """The hyperboloid itself. Vectors at the origin have d numbers, as in the library."""

    def lift(self, x: Vector) -> Vector:
        return self.complete(x[1:])

    def lower(self, point: Vector) -> Vector:
        return point

    def push(self, x: Vector, u: Vector) -> Vector:
        return self.completed_tangent(self.lift(x), u[1:])

    def pull(self, point: Vector, u: Vector) -> Vector:
        return u

    def at_origin(self, a: Vector) -> Vector:
        return [ZERO, *a]

    def from_origin(self, tangent: Vector) -> Vector:
        return tangent[1:]

    def proju(self, x: Vector, g: Vector) -> Vector:
        return self._project(self.lift(x), g)


def _of_entry(function: Callable) -> staticmethod:
    return staticmethod(lambda vector: [function(vector[0])])


class Line:
    """Functions of one number, as vectors of one number; the curvature plays no part."""

    arsinh, artanh = _of_entry(mp.asinh), _of_entry(mp.atanh)
    tanh, sinh, cosh = _of_entry(mp.tanh), _of_entry(mp.sinh), _of_entry(mp.cosh)

    def __init__(self, c):
        pass


SPACES: dict[str, type] = {"PoincareBall": Poincare, "Lorentz": Lorentz, "Klein": Klein, "scalar": Line}
