"""The lifted multinomial logistic regression against a Möbius sum per pair, and against exact values."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels.mlr import class_logits, lift_hyperplanes, lift_points, mlr_logits
from hyperbolic.manifolds import PoincareBall
from scripts.exactness import arithmetic
from scripts.exactness import spaces as oracle
from scripts.exactness.arithmetic import mp
from tests.kernels.formulas import mlr_logits as mlr_formula
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
D = 5
pytestmark = pytest.mark.usefixtures("each_path")
CURVATURES = pytest.mark.parametrize("c", [0.1, 2.0])


def curvature(c: float) -> torch.Tensor:
    return torch.tensor(c, dtype=F64)


def planes(c: float, classes: int, std: float = 0.5, dtype=F64):
    p = PoincareBall(c).random(classes, D, std=std / c**0.5, dtype=F64).to(dtype)
    return p, torch.randn(classes, D, dtype=dtype)


def exact_logits(x, p, a, c: float) -> torch.Tensor:
    """Ganea et al. 2018, Eq. 23, on the bits of the arguments."""
    space, rows = oracle.Poincare(c), []
    for point in arithmetic.exact(x):
        row = []
        for base, normal in zip(arithmetic.exact(p), arithmetic.exact(a), strict=True):
            m, length = space.mobius_add(arithmetic.scale(-1, base), point), arithmetic.norm(normal)
            argument = 2 * space.root * arithmetic.dot(m, normal) / ((1 - space.c * arithmetic.dot(m, m)) * length)
            row.append(float(2 * length / space.root * mp.asinh(argument)))
        rows.append(row)
    return torch.tensor(rows, dtype=F64)


@CURVATURES
@pytest.mark.parametrize("classes", [1, 2, 7])
@pytest.mark.parametrize("lead", [(), (0,), (1,), (4,), (2, 3)])
def test_equals_the_formula(c, classes, lead):
    x = PoincareBall(c).random(*lead, D, std=1.0 / c**0.5, dtype=F64)
    (p, a), c = planes(c, classes), curvature(c)
    arguments = [v.clone().requires_grad_() for v in (x, p, a, c)]
    logits, expected = mlr_logits(*arguments), mlr_formula(*arguments)
    assert logits.shape == (*lead, classes)
    torch.testing.assert_close(logits, expected, **tolerance(F64, "identity"))
    cotangent = torch.randn_like(logits)
    actual, expected_grads = (torch.autograd.grad((v * cotangent).sum(), arguments) for v in (logits, expected))
    for a, b in zip(actual, expected_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@CURVATURES
def test_the_formula_is_the_published_formula(c):
    x = PoincareBall(c).random(4, D, std=1.0 / c**0.5, dtype=F64)
    p, a = planes(c, 3)
    torch.testing.assert_close(
        mlr_formula(x, p, a, curvature(c)), exact_logits(x, p, a, c), rtol=1e-11, atol=0
    )


@CURVATURES
def test_gradcheck(c):
    x = PoincareBall(c).random(3, D, std=0.7 / c**0.5, dtype=F64)
    p, a = planes(c, 2)
    assert torch.autograd.gradcheck(mlr_logits, [v.requires_grad_() for v in (x, p, a, curvature(c))])


@CURVATURES
def test_logits_are_signed_distances_to_hyperplanes(c):
    """``2|a|`` times the distance to the hyperplane; 0 on it, at p in particular."""
    ball, (p, a) = PoincareBall(c), planes(c, 3)
    assert mlr_logits(p, p, a, ball.c).diagonal().abs().max() < 1e-12
    across = a - (a * torch.roll(a, 1, -1)).sum(-1, keepdim=True) / torch.roll(a, 1, -1).square().sum(
        -1, keepdim=True
    ) * torch.roll(a, 1, -1)
    x = ball.expmap0(0.4 / c**0.5 * normalize(a, dim=-1))
    zero = torch.zeros_like(p)
    logits = mlr_logits(x, zero, a, ball.c).diagonal()
    torch.testing.assert_close(logits, 2 * a.norm(dim=-1) * ball.dist0(x))
    torch.testing.assert_close(mlr_logits(-x, zero, a, ball.c).diagonal(), -logits)
    foot = ball.mobius_add(
        p, 0.1 * (across - (across * a).sum(-1, keepdim=True) / a.square().sum(-1, keepdim=True) * a)
    )
    assert mlr_logits(foot, p, a, ball.c).diagonal().abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("c", [0.1, 2.0, 100.0])
def test_zero_normals(c, dtype):
    """At a = 0 the logit is 0 and its gradient that of the formula linear in a, ``4 <-p (+) x, a> / (1 - c|-p(+)x|^2)``."""
    ball = PoincareBall(c)
    x, p = ball.random(4, D, std=0.5 / c**0.5, dtype=dtype), ball.random(2, D, std=0.5 / c**0.5, dtype=dtype)
    x, p, a, free_c = (v.clone().requires_grad_() for v in (x, p, torch.zeros(2, D, dtype=dtype), ball.c))
    logits = mlr_logits(x, p, a, free_c)
    assert not logits.any()
    grads = torch.autograd.grad(logits.sum(), [x, p, a, free_c])
    assert all(torch.isfinite(grad).all() for grad in grads)
    m = ball.mobius_add(-p.detach(), x.detach().unsqueeze(-2))
    slope = (4 * m / (1 - c * m.square().sum(-1, keepdim=True))).sum(0)
    torch.testing.assert_close(grads[2], slope, rtol=1e-4, atol=1e-5)
    assert all(not grads[i].abs().max() > 1e-10 for i in (0, 1, 3))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_points_at_zero(dtype):
    c = curvature(2.0).requires_grad_()
    x = torch.zeros(3, D, dtype=dtype, requires_grad=True)
    p = torch.zeros(2, D, dtype=dtype, requires_grad=True)
    a = torch.randn(2, D, dtype=dtype, requires_grad=True)
    logits = mlr_logits(x, p, a, c)
    assert not logits.any()
    g_x, g_p, g_a, g_c = torch.autograd.grad(logits.sum(), [x, p, a, c])
    torch.testing.assert_close(g_x, 4 * a.detach().sum(0).expand(3, D))
    torch.testing.assert_close(g_p, -4 * 3 * a.detach())
    assert not g_a.any()
    assert not g_c.any()


@pytest.mark.parametrize("c", [0.1, 1.0, 2.0])
def test_float32_at_the_boundary_without_cancellation(c):
    """|x| = 0.99999 of the ball's radius and p = 0: the value of the formula on the exact bits, where forms that take
    the Möbius sum in float32 are off by a factor (-69.4 instead of -25.57)."""
    x = (0.99999 / c**0.5 * normalize(torch.randn(20, D, dtype=F64), dim=-1)).to(F32)
    p, a = (
        torch.zeros(20, D),
        -torch.rand(20, 1) * x - 0.1 * torch.rand(20, D) * x.abs().min(-1, keepdim=True).values * x.sign(),
    )
    logits = mlr_logits(x, p, a, curvature(c)).diagonal()
    expected = exact_logits(x, p, a, c).diagonal()
    assert ((logits.double() - expected) / expected).abs().max() < 1e-6


@pytest.mark.parametrize("c", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("spread", [0.1, 0.5, 1.5])
def test_float32_at_the_boundary(c, spread):
    """In general what holds is the bound of one float32 inner product: the error of ``<X, W>`` is a few units of
    ``sum_i |X_i W_i|``, and the arsinh makes it smaller. Of the whole row of logits that is below 3e-6."""
    ball = PoincareBall(c)
    x = ((1 - torch.logspace(-2, math.log10(2e-5), 12, dtype=F64)[:, None]) / c).sqrt()
    x = (x * normalize(torch.randn(12, D, dtype=F64), dim=-1)).to(F32)
    p, a = planes(c, 9, spread, F32)
    logits, expected = mlr_logits(x, p, a, ball.c).double(), exact_logits(x, p, a, c)
    lift, (w, scale) = lift_points(x, ball.c).double(), lift_hyperplanes(p, a, ball.c)
    product = (lift.unsqueeze(-2) * w.double()).abs().sum(-1)
    unit = torch.finfo(F32).eps
    bound = (
        scale * ((D + 3) * unit * product / (1 + (expected / scale).sinh().square()).sqrt()) + 4 * unit * expected.abs()
    )
    assert ((logits - expected).abs() <= bound).all()
    assert ((logits - expected).norm(dim=-1) / expected.norm(dim=-1)).max() < 3e-6


@CURVATURES
def test_float64_at_the_boundary(c):
    x = ((1 - torch.logspace(-2, -10, 9, dtype=F64)[:, None]) / c).sqrt() * normalize(
        torch.randn(9, D, dtype=F64), dim=-1
    )
    p, a = planes(c, 4)
    logits, expected = mlr_logits(x, p, a, curvature(c)), exact_logits(x, p, a, c)
    assert ((logits - expected).norm(dim=-1) / expected.norm(dim=-1)).max() < 1e-13


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_finite_up_to_the_margin(dtype):
    """Points, hyperplanes and normals of every size: values and gradients are finite."""
    ball = PoincareBall(2.0, learn_c=True)
    with torch.no_grad():
        edge = ball.projx(torch.nn.functional.one_hot(torch.arange(D)).to(dtype) * 9)
        x, p = torch.cat([edge, -edge, 0 * edge]), torch.cat([edge, edge, edge, 1e-20 * edge, -edge])
        sizes = torch.tensor([1e-30, 1e-6, 1.0, 1e6, 1e12], dtype=dtype).repeat_interleave(D).unsqueeze(-1)
    arguments = [v.clone().requires_grad_() for v in (x, p, sizes * torch.randn(5 * D, D, dtype=dtype))]
    logits = mlr_logits(*arguments, ball.c)
    assert torch.isfinite(logits).all()
    for grad in torch.autograd.grad(logits.sum(), [*arguments, ball.free_c]):
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-4, 1.0, 1e4, 1e18, 1e30])
def test_arsinh_has_the_right_value_sign_and_slope(size, dtype):
    """Also where z^2 overflows in float32."""
    z = torch.tensor([-size, size], dtype=dtype, requires_grad=True)
    out = class_logits(z.unsqueeze(-1), z.new_ones(1, 1).detach(), z.new_full((1,), 2.0)).squeeze(-1)
    wide = z.detach().double()
    torch.testing.assert_close(out.double(), 2 * torch.asinh(wide), rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(out.sum(), z)
    torch.testing.assert_close(slope.double(), 2 / torch.hypot(wide, torch.ones_like(wide)), rtol=1e-5, atol=1e-38)


@pytest.mark.usefixtures("each_path")
def test_no_classes():
    x, w, scale = torch.randn(3, 5, requires_grad=True), torch.randn(0, 5, requires_grad=True), torch.ones(0)
    logits = class_logits(x, w, scale)
    logits.sum().backward()
    assert logits.shape == (3, 0)
    assert not x.grad.any()


def test_normals_at_zero_take_the_small_gradients_of_a_mean_loss():
    """1e-6 of a sum: times the least length of a normal it must not vanish in float32."""
    ball = PoincareBall(1.0)
    x, p, a = ball.random(8, D, std=0.5), torch.zeros(2, D), torch.zeros(2, D, requires_grad=True)
    whole, part = (torch.autograd.grad(share * mlr_logits(x, p, a, ball.c).sum(), a)[0] for share in (1, 1e-6))
    torch.testing.assert_close(part, 1e-6 * whole, rtol=1e-4, atol=0)


def test_a_curvature_of_any_shape_has_a_gradient_of_that_shape():
    ball = PoincareBall(1.0)
    x, p, a = ball.random(8, D, std=0.5), ball.random(2, D, std=0.5), torch.randn(2, D)
    for shape in ((1,), (1, 1)):
        c = torch.ones(shape, dtype=F64, requires_grad=True)
        mlr_logits(x, p, a, c).sum().backward()
        assert c.grad.shape == shape
