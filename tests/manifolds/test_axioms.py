"""What has to hold between functions, whatever their formulas: properties of points drawn by hyperbolic radius.

Points, vectors and curvatures are drawn by hypothesis; everything is float64 and compared as an identity. Radii (in
units of 1/sqrt(c)) stop at 5, so that no identity is limited by the rounding of the points in between: accuracy up to
the boundary is the subject of test_accuracy.
"""

import functools
import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from hyperbolic.manifolds import Euclidean, PoincareBall
from tests.manifolds.sampling import MANIFOLDS
from tests.tolerances import tolerance

DTYPE = torch.float64
RADIUS = 5.0
D = 3
KINDS = [*MANIFOLDS.values(), lambda c: Euclidean()]
close = functools.partial(torch.testing.assert_close, **tolerance(DTYPE, "identity"))

curvatures = st.sampled_from([0.05, 0.5, 1.0, 3.0])
radii = st.one_of(st.floats(0, RADIUS), st.sampled_from([0.0, 1e-12, 1e-6, 1.0, RADIUS]))
coordinates = st.lists(st.floats(-1, 1), min_size=D, max_size=D)


@st.composite
def vectors(draw) -> torch.Tensor:
    """A vector of length at most RADIUS: its exponential, where c = 1, is a point at that radius."""
    direction = torch.tensor(draw(coordinates), dtype=DTYPE)
    if direction.norm() < 1e-3:
        direction = torch.tensor([1.0, 0.0, 0.0], dtype=DTYPE)
    return draw(radii) * direction / direction.norm()


def point(manifold, vector: torch.Tensor) -> torch.Tensor:
    return manifold.expmap0(shorter(manifold, vector))


def shorter(manifold, vector: torch.Tensor) -> torch.Tensor:
    """Scaled to units of 1/sqrt(c), and to the convention that the ball's exp_0(u) is 2|u| away."""
    unit = math.sqrt(float(manifold.c)) or 1.0
    return vector / unit / (2 if isinstance(manifold, PoincareBall) else 1)


def property_test(test):
    """A dozen cases of one property for every space."""
    test = hypothesis.settings(max_examples=12)(test)
    return pytest.mark.parametrize("kind", KINDS, ids=["PoincareBall", "Lorentz", "Klein", "Euclidean"])(test)


ball_test = hypothesis.settings(max_examples=12)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors())
def test_distance_is_symmetric_and_positive(kind, c, a, b):
    m = kind(c)
    x, y = point(m, a), point(m, b)
    close(m.dist(x, y), m.dist(y, x))
    assert m.dist(x, x) == 0
    assert m.dist(x, y) >= 0
    close(m.dist2(x, y), m.dist(x, y) ** 2)
    close(m.dist0(x), m.dist(m.origin(D, dtype=DTYPE), x))
    close(m.dist0(x), m.norm(m.origin(D, dtype=DTYPE), m.transp0(m.origin(D, dtype=DTYPE), m.logmap0(x))))


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), e=vectors())
def test_triangle_inequality(kind, c, a, b, e):
    m = kind(c)
    x, y, z = (point(m, v) for v in (a, b, e))
    assert m.dist(x, z) <= (m.dist(x, y) + m.dist(y, z)) * (1 + 1e-12)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors())
def test_exponential_and_logarithm_are_inverse(kind, c, a, b):
    m = kind(c)
    x, y = point(m, a), point(m, b)
    u = m.logmap(x, y)
    close(m.expmap(x, u), y, rtol=1e-7)
    close(m.norm(x, u), m.dist(x, y))
    v = m.transp0(x, shorter(m, b))
    hypothesis.assume(m.dist0(m.expmap(x, v)) < 1.5 * RADIUS / (math.sqrt(float(m.c)) or 1))
    close(m.logmap(x, m.expmap(x, v)), v, rtol=1e-6, atol=1e-10)
    close(m.dist(x, m.expmap(x, v)), m.norm(x, v), rtol=1e-6, atol=1e-10)
    close(m.logmap0(x), shorter(m, a))


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), p=vectors(), q=vectors())
def test_transport_is_an_isometry(kind, c, a, b, p, q):
    m = kind(c)
    x, y = point(m, a), point(m, b)
    u, v = m.transp0(x, p), m.transp0(x, q)
    close(m.inner(y, m.transp(x, y, u), m.transp(x, y, v)), m.inner(x, u, v), rtol=1e-8, atol=1e-9)
    close(m.transp(y, x, m.transp(x, y, u)), u, rtol=1e-7, atol=1e-8)
    close(m.transp(x, x, u), u)
    origin = m.origin(D, dtype=DTYPE)
    close(m.transp(origin, y, m.transp0(origin, p)), m.transp0(y, p))


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), share=st.floats(0.05, 0.95))
def test_geodesics_are_straight(kind, c, a, b, share):
    """A point between x and y divides the distance, and the transported velocity is the velocity."""
    m = kind(c)
    x, y = point(m, a), point(m, b)
    whole = m.dist(x, y)
    between = m.expmap(x, share * m.logmap(x, y))
    close(m.dist(x, between), share * whole, rtol=1e-7, atol=1e-9)
    close(m.dist(between, y), (1 - share) * whole, rtol=1e-7, atol=1e-9)
    arrived = -m.logmap(y, x)
    close(m.transp(x, y, m.logmap(x, y)), arrived, rtol=1e-7, atol=1e-8)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors())
def test_distance_decreases_fastest_along_the_geodesic(kind, c, a, b):
    """The Riemannian gradient of dist2/2 at x is -log_x(y)."""
    m = kind(c)
    x, y = point(m, a).requires_grad_(), point(m, b)
    (slope,) = torch.autograd.grad(m.dist2(x, y).sum() / 2, x)
    close(m.egrad2rgrad(x, slope).detach(), -m.logmap(x, y).detach(), rtol=1e-6, atol=1e-8)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), p=vectors(), g=coordinates)
def test_riemannian_gradient_represents_the_derivative(kind, c, a, p, g):
    """<rgrad, v>_x = <egrad, v> for every tangent v."""
    m = kind(c)
    x = point(m, a)
    v = m.transp0(x, p)
    euclidean = torch.tensor([0.3, *g][-x.shape[-1] :], dtype=DTYPE)
    slope = m.egrad2rgrad(x, euclidean)
    close(m.inner(x, slope, v), (euclidean * v).sum(-1), rtol=1e-7, atol=1e-8)
    close(m.proju(x, slope), slope, rtol=1e-8, atol=1e-9)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), p=vectors())
def test_results_are_on_the_manifold(kind, c, a, b, p):
    m = kind(c)
    x, y = point(m, a), point(m, b)
    u = m.transp0(x, p)
    cloud = torch.stack([x, y])
    points = [x, m.expmap(x, u), m.retr(x, u), m.centroid(cloud), m.projx(10 * x), m.origin(D, dtype=DTYPE)]
    for result in points:
        close(m.projx(result), result, rtol=1e-12)
        assert m.check_point_on_manifold(result)
    for vector, base in ((u, x), (m.logmap(x, y), x), (m.transp(x, y, u), y), (m.egrad2rgrad(x, u), x)):
        close(m.proju(base, vector), vector, rtol=1e-8, atol=1e-9)
        assert m.check_vector_on_tangent(base, vector)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), scale=st.floats(0, 1e12))
def test_projection_is_idempotent(kind, c, a, scale):
    """Also from far outside."""
    m = kind(c)
    x = m.projx(scale * point(m, a))
    close(m.projx(x), x, rtol=1e-14)


@property_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), e=vectors(), w=st.lists(st.floats(0.01, 1), min_size=3))
def test_centroid_moves_with_its_points(kind, c, a, b, e, w):
    """It lies among them, does not depend on their order, and is carried along by every isometry."""
    m = kind(c)
    cloud = torch.stack([point(m, v) for v in (a, b, e)])
    weights = torch.tensor(w[:3], dtype=DTYPE)
    middle = m.centroid(cloud, weights)
    assert (m.dist(middle, cloud) <= m.dist(cloud.unsqueeze(1), cloud).max() * (1 + 1e-9) + 1e-12).all()
    close(m.centroid(cloud.flip(0), weights.flip(0)), middle, rtol=1e-8, atol=1e-10)
    close(m.centroid(cloud, 7 * weights), middle)
    close(m.centroid(cloud[:1]), cloud[0], rtol=1e-8, atol=1e-10)
    pair = torch.stack([cloud[0], cloud[1]])
    halfway = m.expmap(pair[0], m.logmap(pair[0], pair[1]) / 2)
    close(m.centroid(pair), halfway, rtol=1e-7, atol=1e-9)
    rotation = torch.linalg.qr(torch.randn(D, D, dtype=DTYPE, generator=torch.Generator().manual_seed(0)))[0]
    turned = m.expmap0(m.logmap0(cloud) @ rotation.T)
    close(m.centroid(turned, weights), m.expmap0(rotation @ m.logmap0(middle)), rtol=1e-7, atol=1e-9)


@ball_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), e=vectors(), w=st.lists(st.floats(0.01, 1), min_size=2))
def test_centroid_is_carried_by_left_translations(c, a, b, e, w):
    m = PoincareBall(c)
    cloud, shift = torch.stack([point(m, 0.5 * a), point(m, 0.5 * b)]), point(m, 0.5 * e)
    weights = torch.tensor(w[:2], dtype=DTYPE)
    moved = m.mobius_add(shift, m.centroid(cloud, weights))
    close(m.centroid(m.mobius_add(shift, cloud), weights), moved, rtol=1e-7, atol=1e-9)


@ball_test
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), e=vectors())
def test_mobius_addition_is_a_gyrogroup(c, a, b, e):
    """Identity, inverse, left cancellation, gyroassociativity and gyrocommutativity (Ungar 2008, chapter 2)."""
    m = PoincareBall(c)
    x, y, z = (point(m, 0.6 * v) for v in (a, b, e))
    add, zero = m.mobius_add, torch.zeros(D, dtype=DTYPE)

    def gyration(p, q, v):
        return add(-add(p, q), add(p, add(q, v)))

    same = functools.partial(close, rtol=1e-7, atol=1e-9)
    same(add(zero, x), x)
    same(add(x, zero), x)
    same(add(-x, x), zero)
    same(add(-x, add(x, y)), y)
    same(add(x, add(y, z)), add(add(x, y), gyration(x, y, z)))
    same(add(x, y), gyration(x, y, add(y, x)))
    same(gyration(x, y, z).norm(), z.norm())
    same(m.dist(add(x, y), add(x, z)), m.dist(y, z))
    same(m.dist0(add(-x, y)), m.dist(x, y))


@ball_test
@hypothesis.given(c=curvatures, a=vectors(), r=st.floats(-2, 2), s=st.floats(-2, 2))
def test_mobius_scalar_multiplication(c, a, r, s):
    m = PoincareBall(c)
    x = point(m, 0.5 * a)
    times, same = m.mobius_scalar, functools.partial(close, rtol=1e-7, atol=1e-10)
    same(times(1.0, x), x)
    same(times(2.0, x), m.mobius_add(x, x))
    same(times(r + s, x), m.mobius_add(times(r, x), times(s, x)))
    same(times(r * s, x), times(r, times(s, x)))
    same(m.dist0(times(r, x)), abs(r) * m.dist0(x))
    same(m.mobius_matvec(r * torch.eye(D, dtype=DTYPE), x), times(r, x))


@ball_test
@hypothesis.given(c=curvatures, a=vectors(), seed=st.integers(0, 9))
def test_mobius_matrices_compose(c, a, seed):
    m = PoincareBall(c)
    first, second = torch.randn(2, D, D, dtype=DTYPE, generator=torch.Generator().manual_seed(seed)) / 3
    x = point(m, 0.5 * a)
    close(m.mobius_matvec(second, m.mobius_matvec(first, x)), m.mobius_matvec(second @ first, x), rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS, ids=["PoincareBall", "Lorentz", "Klein", "Euclidean"])
def test_leading_axes_broadcast(kind):
    m = kind(0.7)
    x, y = m.random(5, 1, D, dtype=DTYPE), m.random(4, D, dtype=DTYPE)
    assert m.dist(x, y).shape == (5, 4)
    assert m.dist(x, y, keepdim=True).shape == (5, 4, 1)
    u = m.logmap(x, y)
    assert u.shape[:-1] == (5, 4)
    assert m.inner(x, u).shape == m.norm(x, u).shape == (5, 4)
    close(m.expmap(x, u), y.expand(5, *y.shape), rtol=1e-8)
    assert m.transp(x, y, u).shape == u.shape
    assert m.centroid(y.expand(6, 5, *y.shape), torch.ones(4, dtype=DTYPE)).shape == (6, 5, y.shape[-1])
    for i in range(5):
        close(m.transp(x, y, u)[i], m.transp(x[i], y, u[i]))


@pytest.mark.parametrize("kind", KINDS, ids=["PoincareBall", "Lorentz", "Klein", "Euclidean"])
def test_random_points_follow_their_generator(kind):
    m = kind(0.7)
    x = m.random(500, D, std=0.5, generator=torch.Generator().manual_seed(3), dtype=DTYPE)
    assert torch.equal(x, m.random(500, D, std=0.5, generator=torch.Generator().manual_seed(3), dtype=DTYPE))
    assert x.shape == (500, m.ambient_dim(D))
    assert m.intrinsic_dim(x.shape[-1]) == D
    assert m.check_point_on_manifold(x)
    assert m.logmap0(x).std().item() == pytest.approx(0.5, rel=0.1)
