"""The hyperbolic MLR as one product against the formula with a Möbius sum for every pair, and against mpmath."""

import pytest
import torch

from hyperbolic.kernels.mlr import mlr_logits, mlr_logits_reference
from hyperbolic.manifolds import PoincareBall
from tests.arithmetic import exact, mp


def arguments(c, n=6, classes=4, d=3, dtype=torch.float64):
    ball = PoincareBall(c=c, learn_c=True)
    x = ball.random(n, d, std=0.5 / c**0.5, dtype=dtype).detach().requires_grad_()
    p = ball.random(classes, d, std=0.3 / c**0.5, dtype=dtype).detach().requires_grad_()
    a = torch.randn(classes, d, dtype=dtype).requires_grad_()
    return ball, x, p, a


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("n", "classes"), [(6, 4), (1, 1), (0, 3)])
def test_equals_the_formula(c, n, classes):
    ball, x, p, a = arguments(c, n, classes)
    ours, plain = mlr_logits(x, p, a, ball.c), mlr_logits_reference(x, p, a, ball.c)
    assert ours.shape == (n, classes)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)
    weight = torch.randn_like(ours)
    leaves = (x, p, a, ball.free_c)
    found = torch.autograd.grad((ours * weight).sum(), leaves)
    expected = torch.autograd.grad((plain * weight).sum(), leaves)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, rtol=1e-8, atol=1e-10)


def textbook(x, p, a, c):
    """Ganea et al. 2018, Eq. 23, with a' at the origin, on exact bits."""
    x, p, a = exact(x), exact(p), exact(a)
    dot = lambda u, v: mp.fsum(s * t for s, t in zip(u, v, strict=True))  # noqa: E731
    q = [-t for t in p]
    scale = 1 + 2 * c * dot(q, x) + c * c * dot(q, q) * dot(x, x)
    left, right = (1 + 2 * c * dot(q, x) + c * dot(x, x)) / scale, (1 - c * dot(q, q)) / scale
    m = [left * s + right * t for s, t in zip(q, x, strict=True)]
    norm, root = mp.sqrt(dot(a, a)), mp.sqrt(c)
    return 2 * norm / root * mp.asinh(2 * root * dot(m, a) / ((1 - c * dot(m, m)) * norm))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_keeps_its_digits_near_the_boundary(dtype, c):
    """At |x| = 0.99999 in float32 the plain formula is wrong by a factor of nearly 3; the product is not."""
    ball = PoincareBall(c=c)
    directions = torch.nn.functional.normalize(torch.randn(20, 3, dtype=dtype), dim=-1)
    x = 0.99999 / c**0.5 * directions
    p, a = ball.random(2, 3, std=0.3 / c**0.5, dtype=dtype), torch.randn(2, 3, dtype=dtype)
    found = mlr_logits(x, p, a, ball.c).double()
    exact_values = [[float(textbook(row, p[k], a[k], mp.mpf(c))) for k in range(2)] for row in x]
    bound = {torch.float32: 1e-5, torch.float64: 1e-13}[dtype]  # float32: the lifted points are rounded to 6e-8
    torch.testing.assert_close(found, torch.tensor(exact_values, dtype=torch.float64), rtol=bound, atol=10 * bound)


def test_a_vanishing_normal_gives_zero_and_a_finite_gradient():
    ball, x, p, _ = arguments(1.5)
    a = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    logits = mlr_logits(x, p, a, ball.c)
    assert torch.equal(logits, torch.zeros_like(logits))
    (gradient,) = torch.autograd.grad(logits.sum(), a)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-4, 1.0, 1e4, 1e18, 1e30])
def test_arsinh_has_the_right_value_sign_and_slope(size):
    from hyperbolic.kernels.mlr import _ScaledAsinh

    for dtype in (torch.float32, torch.float64):
        z = torch.tensor([-size, size], dtype=dtype, requires_grad=True)
        out = _ScaledAsinh.apply(z, torch.tensor(2.0, dtype=dtype))
        wide = z.detach().double()
        torch.testing.assert_close(out.double(), 2 * torch.asinh(wide), rtol=1e-6, atol=0)
        (slope,) = torch.autograd.grad(out.sum(), z)
        torch.testing.assert_close(slope.double(), 2 / torch.hypot(wide, torch.ones_like(wide)), rtol=1e-5, atol=1e-38)
