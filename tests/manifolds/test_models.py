"""The three models are one space, for every c, and the flat space is their limit as c goes to 0."""

import itertools

import pytest
import torch

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert, same_space
from tests.tolerances import tolerance

D, N = 3, 40
KINDS = [PoincareBall, Lorentz, Klein]
PAIRS = list(itertools.permutations(KINDS, 2))
CURVATURES = [0.2, 1.0, 3.0]


def close(actual, expected, kind="identity", dtype=torch.float64, **changes):
    torch.testing.assert_close(actual, expected, **(tolerance(dtype, kind) | changes))


def cloud(c: float, radius: float = 4.0, number: int = N) -> torch.Tensor:
    """Intrinsic vectors of lengths up to ``radius / sqrt(c)``."""
    direction = torch.nn.functional.normalize(torch.randn(number, D, dtype=torch.float64), dim=-1)
    return radius / c**0.5 * torch.rand(number, 1, dtype=torch.float64) * direction


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_at_the_origin(kind):
    """Where the formulas by norms and angles have kinks and the functions have none."""
    manifold, zero = kind(0.7), torch.zeros(D, dtype=torch.float64)
    for y in (manifold.expmap0(v) for v in (zero, cloud(0.7, number=1)[0])):
        functions = {
            "dist2": lambda v, y=y: manifold.dist2(manifold.expmap0(v), y),
            "logmap": lambda v, y=y: manifold.logmap(manifold.expmap0(v), y)[-1],
            "centroid": lambda v, y=y: manifold.logmap0(manifold.centroid(torch.stack([manifold.expmap0(v), y])))[0],
        }
        for name, function in functions.items():
            gradient, step = torch.func.grad(function), 1e-5
            differences = [(gradient(step * e) - gradient(-step * e)) / (2 * step) for e in torch.eye(D).double()]
            torch.testing.assert_close(
                torch.func.hessian(function)(zero), torch.stack(differences), rtol=1e-5, atol=1e-5,
                msg=lambda text, name=name: f"{name}: {text}",
            )  # fmt: skip


def three_views(c: float, vectors: torch.Tensor) -> dict:
    """The same points in the three models (the ball's exp_0(u) is 2|u| away from the origin)."""
    return {kind: kind(c).expmap0(vectors / 2 if kind is PoincareBall else vectors) for kind in KINDS}


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_charts_are_isometries(source, target, c):
    a, b = source(c), target(c)
    views = three_views(c, cloud(c))
    x, there = views[source], convert(views[source], a, b)
    close(there, views[target])
    close(convert(there, b, a), x)
    close(b.dist0(there), a.dist0(x))
    close(b.dist(there[:-1], there[1:]), a.dist(x[:-1], x[1:]))


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_charts_carry_exponentials_logarithms_and_transport(source, target, c):
    """Tangent vectors are carried by the derivative of the chart."""
    a, b = source(c), target(c)
    x, y = three_views(c, cloud(c, 2.0))[source].split(N // 2)

    def push(point, vector):
        return torch.autograd.functional.jvp(lambda p: convert(p, a, b), point, vector)[1]

    there, goal = convert(x, a, b), convert(y, a, b)
    u = a.logmap(x, y)
    close(push(x, u), b.logmap(there, goal), rtol=1e-8)
    close(b.inner(there, push(x, u)), a.inner(x, u), rtol=1e-8)
    close(convert(a.expmap(x, 0.3 * u), a, b), b.expmap(there, push(x, 0.3 * u)), rtol=1e-8)
    v = a.transp0(x, torch.randn(N // 2, D, dtype=torch.float64))
    close(push(y, a.transp(x, y, v)), b.transp(there, goal, push(x, v)), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_midpoints_are_one_point(source, target, c):
    """Möbius midpoint = Lorentz centroid = Einstein midpoint."""
    a, b = source(c), target(c)
    weights = torch.rand(5, N // 5, dtype=torch.float64)
    points = three_views(c, cloud(c))[source].unflatten(0, (5, -1))
    close(convert(a.centroid(points, weights), a, b), b.centroid(convert(points, a, b), weights))
    close(convert(a.centroid(points), a, b), b.centroid(convert(points, a, b), torch.ones(N // 5)))


@pytest.mark.parametrize("c", CURVATURES)
def test_lorentz_centroid_minimises_squared_lorentz_distances(c):
    """Law et al. 2019: the sum of -2/c - 2<x_i, m>_L is least at the centroid."""
    m = Lorentz(c)
    points, weights = m.expmap0(cloud(c, 2.0, 6)), torch.rand(6, dtype=torch.float64)
    free = m.centroid(points, weights).requires_grad_()
    products = (points[:, 1:] * free[1:]).sum(-1) - points[:, 0] * free[0]
    (slope,) = torch.autograd.grad((weights * (-2 / c - 2 * products)).sum(), free)
    close(m.norm(free, m.egrad2rgrad(free, slope)).detach(), torch.zeros((), dtype=torch.float64), atol=1e-9)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_random_points_are_data_also_where_c_is_learned(kind):
    assert not kind(2.0, learn_c=True).random(3, 2).requires_grad


def test_convert_between_the_same_and_between_different_spaces():
    x = three_views(1.0, cloud(1.0))[PoincareBall]
    ball = PoincareBall(1.0)
    assert convert(x, ball, ball) is x
    assert convert(x, ball, PoincareBall(1.0)) is x
    assert same_space(ball, Lorentz(1.0))
    assert not same_space(ball, Lorentz(2.0))
    assert not same_space(ball, Euclidean())
    assert not same_space(PoincareBall(1.0, learn_c=True), Lorentz(1.0))
    for target in (PoincareBall(2.0), Lorentz(2.0), Klein(0.3), Lorentz(1.0, learn_c=True)):
        y = convert(x, ball, target)
        close(target.dist0(y), ball.dist0(x))  # the ball's vectors at the origin are half as long as the others'
        close(convert(y, target, ball), x)
    close(Euclidean().logmap0(convert(x, ball, Euclidean())), ball.logmap0(x))
    close(convert(x, ball, Lorentz(1.0 + 1e-12)), convert(x, ball, Lorentz(1.0)))
    flat = torch.randn(4, D, dtype=torch.float64)
    close(ball.logmap0(convert(flat, Euclidean(), ball)), flat)


# For c = 1e-8 and vectors of length about 1, terms of order c|x|^2 are below the tolerance of a limit in float32;
# in float64 c is smaller still.
@pytest.mark.parametrize(("dtype", "c"), [(torch.float32, 1e-8), (torch.float64, 1e-12)], ids=str)
class TestFlatLimit:
    """Distances of the ball are twice the flat ones (Ganea's convention: the metric at the origin is 4)."""

    def vectors(self, dtype):
        return torch.randn(3, N, D, dtype=torch.float64).to(dtype)

    @pytest.mark.parametrize("kind", KINDS)
    def test_maps_at_the_origin_are_the_identity(self, kind, dtype, c):
        m, (x, _y, u) = kind(c), self.vectors(dtype)
        close(m.expmap0(x)[..., -D:], x, "limit", dtype)
        close(m.logmap0(m.expmap0(x)), x, "limit", dtype)
        close(m.transp0(m.expmap0(x), u)[..., -D:], u, "limit", dtype)

    @pytest.mark.parametrize(("kind", "scale"), [(PoincareBall, 2), (Lorentz, 1), (Klein, 1)])
    def test_distances(self, kind, scale, dtype, c):
        m, (x, y, _) = kind(c), self.vectors(dtype)
        a, b = m.expmap0(x), m.expmap0(y)
        close(m.dist(a, b), scale * (x - y).norm(dim=-1), "limit", dtype)
        close(m.dist0(a), scale * x.norm(dim=-1), "limit", dtype)
        close(m.dist2(a, b), scale**2 * (x - y).square().sum(-1), "limit", dtype)

    @pytest.mark.parametrize(("kind", "scale"), [(PoincareBall, 4), (Lorentz, 1), (Klein, 1)])
    def test_tangent_vectors(self, kind, scale, dtype, c):
        m, (x, y, u) = kind(c), self.vectors(dtype)
        a, b = m.expmap0(x), m.expmap0(y)
        v = m.transp0(a, u)
        close(m.inner(a, v), scale * u.square().sum(-1), "limit", dtype)
        close(m.logmap(a, b)[..., -D:], y - x, "limit", dtype)
        close(m.expmap(a, v)[..., -D:], x + u, "limit", dtype)
        close(m.transp(a, b, v)[..., -D:], u, "limit", dtype)
        close(m.egrad2rgrad(a, v)[..., -D:], u / scale, "limit", dtype)

    @pytest.mark.parametrize("kind", KINDS)
    def test_centroid_is_the_weighted_mean(self, kind, dtype, c):
        m, (x, _y, _u) = kind(c), self.vectors(dtype)
        weights = torch.rand(N, dtype=dtype)
        mean = Euclidean().centroid(x, weights)
        close(m.centroid(m.expmap0(x), weights)[..., -D:], mean, "limit", dtype)

    def test_mobius_operations(self, dtype, c):
        m, (x, y, _) = PoincareBall(c), self.vectors(dtype)
        weight = torch.randn(D, D, dtype=dtype)
        close(m.mobius_add(x, y), x + y, "limit", dtype)
        close(m.mobius_scalar(0.3, x), 0.3 * x, "limit", dtype)
        close(m.mobius_matvec(weight, x), x @ weight.T, "limit", dtype)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("learn_c", [False, True])
def test_a_twin_that_comes_within_a_functional_call_has_the_curvature_of_every_call(kind, learn_c):
    space, other = kind(0.7, learn_c), Klein if kind is PoincareBall else PoincareBall
    values = dict(space.named_parameters()) | dict(space.named_buffers())
    for c in (0.3, 1.9):
        free = {name: torch.tensor(c, dtype=torch.float64, requires_grad=True) for name in values}

        class Twins(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.space = space

            def forward(self):
                return self.space.c * self.space.twin(other).c

        result = torch.func.functional_call(Twins(), {f"space.{name}": value for name, value in free.items()}, ())
        (value,) = free.values()
        expected = (torch.nn.functional.softplus(value) if learn_c else value) ** 2
        assert result == expected
        torch.testing.assert_close(torch.autograd.grad(result, value), torch.autograd.grad(expected, value))
    assert space.twin(other).c == space.c
