"""What has to hold on every manifold, whatever its formulas: properties of points drawn by hyperbolic radius.

Points, vectors and curvatures are drawn by hypothesis; everything is float64 and compared as an identity. Radii (in
units of 1/sqrt(c)) stop at 5, so that no identity is limited by the rounding of the points in between: accuracy up to
the boundary is the subject of test_accuracy.
"""

import functools
import inspect
import math

import hypothesis
import hypothesis.strategies as st
import torch

from hyperbolic.manifolds import Manifold
from tests.tolerances import tolerance

DTYPE = torch.float64
RADIUS = 5.0
D = 3
AXIOMS = []  # functions of a class of manifolds
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


def build(kind: type[Manifold], c: float, **options) -> Manifold:
    return kind(c, **options) if kind.is_curved else kind()


def point(manifold, vector: torch.Tensor) -> torch.Tensor:
    return manifold.expmap0(shorter(manifold, vector))


def shorter(manifold, vector: torch.Tensor) -> torch.Tensor:
    """Scaled to units of 1/sqrt(c), and by the length of a unit vector at the origin: in the ball exp_0(u) is 2|u| away."""
    unit, origin = torch.eye(D, dtype=DTYPE)[0], manifold.origin(D, dtype=DTYPE)
    length = float(manifold.norm(origin, manifold.transp0(origin, unit)).detach())
    return vector / (math.sqrt(float(manifold.c.detach())) or 1.0) / length


def axiom(test):
    """A dozen cases of one property, which a class of manifolds is given to."""
    AXIOMS.append(hypothesis.settings(max_examples=12)(test))
    return AXIOMS[-1]


def check_every_axiom(kind: type[Manifold]) -> None:
    """Every property at a few points, the same each time.

    Raises: an AssertionError, or what a function of the manifold raises.
    """
    generator = torch.Generator().manual_seed(0)
    for c, radius in ((0.5, 0.0), (1.0, 1e-6), (3.0, 1.0), (0.5, 2.5)):
        values = {"c": c, "share": 0.3, "scale": 10.0, "g": [0.2, -0.7, 0.5], "w": [0.5, 0.2, 0.9]}
        for letter in "abepq":
            direction = torch.randn(D, generator=generator, dtype=DTYPE)
            values[letter] = radius * direction / direction.norm()
        for check in AXIOMS:
            names = list(inspect.signature(check.hypothesis.inner_test).parameters)[1:]
            check.hypothesis.inner_test(kind, **{name: values[name] for name in names})


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors())
def distance_is_symmetric_and_positive(kind, c, a, b):
    m = build(kind, c)
    x, y = point(m, a), point(m, b)
    close(m.dist(x, y), m.dist(y, x))
    assert m.dist(x, x) == 0
    assert m.dist(x, y) >= 0
    close(m.dist2(x, y), m.dist(x, y) ** 2)
    close(m.dist0(x), m.dist(m.origin(D, dtype=DTYPE), x))
    close(m.dist0(x), m.norm(m.origin(D, dtype=DTYPE), m.transp0(m.origin(D, dtype=DTYPE), m.logmap0(x))))


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), e=vectors())
def triangle_inequality(kind, c, a, b, e):
    m = build(kind, c)
    x, y, z = (point(m, v) for v in (a, b, e))
    assert m.dist(x, z) <= (m.dist(x, y) + m.dist(y, z)) * (1 + 1e-12)


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors())
def exponential_and_logarithm_are_inverse(kind, c, a, b):
    m = build(kind, c)
    x, y = point(m, a), point(m, b)
    u = m.logmap(x, y)
    close(m.expmap(x, u), y, rtol=1e-7)
    close(m.norm(x, u), m.dist(x, y))
    v = m.transp0(x, shorter(m, b))
    if m.dist0(m.expmap(x, v)) < 1.5 * RADIUS / (math.sqrt(float(m.c)) or 1):
        close(m.logmap(x, m.expmap(x, v)), v, rtol=1e-6, atol=1e-10)
        close(m.dist(x, m.expmap(x, v)), m.norm(x, v), rtol=1e-6, atol=1e-10)
    close(m.logmap0(x), shorter(m, a))


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), p=vectors(), q=vectors())
def transport_is_an_isometry(kind, c, a, b, p, q):
    m = build(kind, c)
    x, y = point(m, a), point(m, b)
    u, v = m.transp0(x, p), m.transp0(x, q)
    close(m.inner(y, m.transp(x, y, u), m.transp(x, y, v)), m.inner(x, u, v), rtol=1e-8, atol=1e-9)
    close(m.transp(y, x, m.transp(x, y, u)), u, rtol=1e-7, atol=1e-8)
    close(m.transp(x, x, u), u)
    origin = m.origin(D, dtype=DTYPE)
    close(m.transp(origin, y, m.transp0(origin, p)), m.transp0(y, p))


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), share=st.floats(0.05, 0.95))
def geodesics_are_straight(kind, c, a, b, share):
    """A point between x and y divides the distance, and the transported velocity is the velocity."""
    m = build(kind, c)
    x, y = point(m, a), point(m, b)
    whole = m.dist(x, y)
    between = m.expmap(x, share * m.logmap(x, y))
    close(m.dist(x, between), share * whole, rtol=1e-7, atol=1e-9)
    close(m.dist(between, y), (1 - share) * whole, rtol=1e-7, atol=1e-9)
    arrived = -m.logmap(y, x)
    close(m.transp(x, y, m.logmap(x, y)), arrived, rtol=1e-7, atol=1e-8)


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors())
def distance_decreases_fastest_along_the_geodesic(kind, c, a, b):
    """The Riemannian gradient of dist2/2 at x is -log_x(y)."""
    m = build(kind, c)
    x, y = point(m, a).requires_grad_(), point(m, b)
    (slope,) = torch.autograd.grad(m.dist2(x, y).sum() / 2, x)
    close(m.egrad2rgrad(x, slope).detach(), -m.logmap(x, y).detach(), rtol=1e-6, atol=1e-8)


@axiom
@hypothesis.given(c=curvatures, a=vectors(), p=vectors(), g=coordinates)
def riemannian_gradient_represents_the_derivative(kind, c, a, p, g):
    """<rgrad, v>_x = <egrad, v> for every tangent v."""
    m = build(kind, c)
    x = point(m, a)
    v = m.transp0(x, p)
    euclidean = torch.tensor([0.3, *g][-x.shape[-1] :], dtype=DTYPE)
    slope = m.egrad2rgrad(x, euclidean)
    close(m.inner(x, slope, v), (euclidean * v).sum(-1), rtol=1e-7, atol=1e-8)
    close(m.proju(x, slope), slope, rtol=1e-8, atol=1e-9)


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), p=vectors())
def results_are_on_the_manifold(kind, c, a, b, p):
    m = build(kind, c)
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


@axiom
@hypothesis.given(c=curvatures, a=vectors(), scale=st.floats(0, 1e12))
def projection_is_idempotent(kind, c, a, scale):
    """Also from far outside."""
    m = build(kind, c)
    x = m.projx(scale * point(m, a))
    close(m.projx(x), x, rtol=1e-14)


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), e=vectors(), w=st.lists(st.floats(0.01, 1), min_size=3))
def centroid_moves_with_its_points(kind, c, a, b, e, w):
    """It lies among them, does not depend on their order, and is carried along by every isometry."""
    m = build(kind, c)
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


@axiom
@hypothesis.given(c=curvatures, a=vectors(), b=vectors(), p=vectors())
def gradients_are_finite(kind, c, a, b, p):
    """At any points, at the origin and at equal points, also for a learned c."""
    m = build(kind, c, learn_c=True) if kind.is_curved else kind()
    origin = m.origin(D, dtype=DTYPE)
    for x, y in ((point(m, a), point(m, b)), (point(m, a), point(m, a)), (origin, point(m, b)), (origin, origin)):
        x, y = (z.detach().requires_grad_() for z in (x, y))
        vector = p.clone().requires_grad_()
        u = m.transp0(x, vector)
        results = [m.dist(x, y), m.dist2(x, y), m.dist0(x), m.inner(x, u), m.norm(x, u), m.expmap(x, u), m.logmap(x, y)]
        results += [m.transp(x, y, u), m.expmap0(vector), m.logmap0(x), m.centroid(torch.stack([x, y])), m.projx(x), u]
        total = sum(result.sum() for result in results)
        assert total.isfinite()
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(total, [x, y, vector, *m.parameters()]))
