"""What has to hold on every manifold that is registered (`axioms.py`), and what the ball's own operations have to be."""

import functools
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from hyperbolic.layers.family import FAMILIES
from hyperbolic.manifolds import MANIFOLDS, PoincareBall
from tests.manifolds.axioms import AXIOMS, DTYPE, D, build, check_every_axiom, close, curvatures, point, vectors

ball_test = hypothesis.settings(max_examples=12)


@pytest.mark.parametrize("axiom", AXIOMS, ids=lambda axiom: axiom.__name__)
@pytest.mark.parametrize("kind", MANIFOLDS.values(), ids=MANIFOLDS)
def test_axiom(kind, axiom):
    axiom(kind)


BROKEN = {
    "expmap": lambda self, x, u: x + u,
    "logmap": lambda self, x, y: y - x,
    "transp": lambda self, x, y, v: v,
    "_dist": lambda self, x, y: (x - y).norm(dim=-1, keepdim=True).double(),
    "projx": lambda self, x: x / 2,
    "centroid": lambda self, x, weights=None: x.mean(-2),
    "egrad2rgrad": lambda self, x, u: u,
}


def test_a_manifold_from_outside_keeps_every_axiom_and_each_wrong_function_breaks_one():
    with mock.patch.dict(MANIFOLDS), mock.patch.dict(FAMILIES):
        from tests.manifolds.half_space import HalfSpace

    check_every_axiom(HalfSpace)
    for name, wrong in BROKEN.items():
        with pytest.raises(AssertionError):
            check_every_axiom(type("Wrong", (HalfSpace,), {name: wrong}))

    def missing(*arguments):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        check_every_axiom(type("Missing", (HalfSpace,), {"expmap": missing}))


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


@pytest.mark.parametrize("kind", MANIFOLDS.values(), ids=MANIFOLDS)
def test_leading_axes_broadcast(kind):
    m = build(kind, 0.7)
    x, y = m.random(5, 1, D, dtype=DTYPE), m.random(4, D, dtype=DTYPE)
    assert m.dist(x, y).shape == (5, 4)
    assert m.dist(x, y, keepdim=True).shape == (5, 4, 1)
    u = m.logmap(x, y)
    assert u.shape[:-1] == (5, 4)
    assert m.inner(x, u).shape == m.norm(x, u).shape == (5, 4)
    assert m.inner(x, m.proju(x[0], u[0])).shape == (5, 4)
    close(m.expmap(x, u), y.expand(5, *y.shape), rtol=1e-8)
    assert m.transp(x, y, u).shape == u.shape
    assert m.centroid(y.expand(6, 5, *y.shape), torch.ones(4, dtype=DTYPE)).shape == (6, 5, y.shape[-1])
    for i in range(5):
        close(m.transp(x, y, u)[i], m.transp(x[i], y, u[i]))


@pytest.mark.parametrize("kind", MANIFOLDS.values(), ids=MANIFOLDS)
def test_random_points_follow_their_generator(kind):
    m = build(kind, 0.7)
    x = m.random(500, D, std=0.5, generator=torch.Generator().manual_seed(3), dtype=DTYPE)
    assert torch.equal(x, m.random(500, D, std=0.5, generator=torch.Generator().manual_seed(3), dtype=DTYPE))
    assert x.shape == (500, m.ambient_dim(D))
    assert m.intrinsic_dim(x.shape[-1]) == D
    assert m.check_point_on_manifold(x)
    assert m.logmap0(x).std().item() == pytest.approx(0.5, rel=0.1)
