"""Möbius sums and distances in C++ against the plain formulas, in value and in gradients of both orders."""

import pytest
import torch

from hyperbolic import switch
from hyperbolic.manifolds import PoincareBall, poincare
from hyperbolic.manifolds.ball_rows import BallAdd, BallDistanceSquare

pytestmark = [
    pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("native_kernels"),
]
F64 = torch.float64
PLAIN = {"mobius_add": BallAdd.plain, "distance_square": BallDistanceSquare.plain}
BOTH = pytest.mark.parametrize("name", PLAIN)


def points(n, d, c, std, radius=None):
    ball = PoincareBall(c)
    x = ball.random(n, d, std=std)
    if radius is not None:  # some at the boundary margin, some tiny, two of them equal, two opposite
        x[: n // 4] = ball.projx(x[: n // 4] / x[: n // 4].norm(dim=-1, keepdim=True) * 2)
        x[n // 4 : n // 2] *= 1e-8
    return x


def pair(n, d, c):
    x, y = points(n, d, c, 0.5, "far"), points(n, d, c, 0.5, "far").flip(0)
    y[0], y[1] = x[0], -x[1]
    y[n // 3], y[n // 3 + 1] = x[n // 3], -x[n // 3 + 1]
    return x, y


@BOTH
@pytest.mark.parametrize(("n", "d"), [(2400, 7), (170, 100), (17000, 1), (1, 16500)])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_and_gradients(name, n, d, threads):
    c = torch.tensor(2.5, dtype=F64, requires_grad=True)
    x, y = pair(n, d, 2.5) if n > 9 else (points(n, d, 2.5, 0.001), points(n, d, 2.5, 0.001))
    leaves, plain = [[t.clone().requires_grad_() for t in (x, y)] for _ in range(2)]
    assert BallAdd.fits(*leaves, c)
    torch.set_num_threads(threads)
    out = getattr(poincare, name)(*leaves, c)
    weight = torch.randn(out.shape, dtype=out.dtype) / out.detach().abs().clamp_min(1)
    got = torch.autograd.grad(out, [*leaves, c], weight)
    torch.set_num_threads(1)
    expected = PLAIN[name](*plain, c)
    want = torch.autograd.grad(expected, [*plain, c], weight)
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=1e-7)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6 * float(b.abs().max()))


@BOTH
def test_second_derivatives(name):
    c = torch.tensor(2.5, dtype=F64, requires_grad=True)
    x, y = points(2400, 7, 2.5, 0.3), points(2400, 7, 2.5, 0.3)
    results = []
    for function in (getattr(poincare, name), PLAIN[name]):
        leaves = [t.clone().requires_grad_() for t in (x, y)]
        first = torch.autograd.grad(function(*leaves, c).square().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), [*leaves, c]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def test_only_what_needs_a_gradient_gets_one():
    x, y, c = points(2400, 7, 1.0, 0.3), points(2400, 7, 1.0, 0.3).requires_grad_(), torch.ones((), dtype=F64)
    poincare.mobius_add(x, y, c).sum().backward()
    assert y.grad is not None
    assert x.grad is None


def test_what_it_is_not_for():
    x, c = points(2400, 7, 1.0, 0.3), torch.ones((), dtype=F64)
    assert BallAdd.fits(x, x, c)
    assert not BallAdd.fits(x, x[:1], c)
    assert not BallAdd.fits(x.double(), x.double(), c)
    assert not BallAdd.fits(x[:9], x[:9], c)
    assert not BallAdd.fits(x, x, torch.ones(2400, 1))
    assert not BallAdd.fits(x.T, x.T, c)
    switch.use_kernels("plain")
    assert not BallAdd.fits(x, x, c)


def test_a_curvature_may_be_a_number_whatever_the_size():
    for size in ((4, 8), (600, 64)):
        x, y = (0.1 * torch.randn(*size) for _ in range(2))
        c = torch.tensor(1.5, dtype=torch.float64)
        assert torch.equal(poincare.mobius_add(x, y, 1.5), poincare.mobius_add(x, y, c))
        assert torch.equal(poincare.distance_square(x, y, 1.5), poincare.distance_square(x, y, c))


def test_a_curvature_with_more_axes_than_the_points_gives_them_these_axes():
    x = points(2400, 7, 1.0, 0.3)
    for n in (9, 2400):
        assert poincare.mobius_add(x[:n], x[:n], torch.ones(1, 1, 1, dtype=F64)).shape == (1, n, 7)
