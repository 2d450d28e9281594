"""The scalar functions that hyperbolic formulas are made of: values and slopes against 120-digit arithmetic."""

import math

import pytest
import torch

from hyperbolic import numerics, smooth
from scripts.exactness import arithmetic
from scripts.exactness.arithmetic import mp
from tests.tolerances import tolerance

SWITCH = smooth._SMALL  # where the functions change from their power series to the closed form
AROUND = [SWITCH * (1 + step) for step in (-0.5, -1e-3, -1e-9, -1e-16, 0, 1e-16, 1e-9, 1e-3, 0.5)]
VALUE = tolerance(torch.float64, "formula")["rtol"]
# A slope taken by autograd from the closed form is a difference, about 1/s times smaller than its terms.
SLOPE = VALUE / SWITCH


def grid(low: float, high: float, number: int = 120) -> list[float]:
    """Log-uniform numbers, and the neighbourhood of the switch."""
    return torch.logspace(math.log10(low), math.log10(high), number, dtype=torch.float64).tolist() + AROUND


def over_root(function):
    """``s -> function(r)/r`` with ``r = sqrt(s)``."""

    def exact(s):
        return function(mp.sqrt(s)) / mp.sqrt(s)

    return exact


FUNCTIONS = {
    "tanhc": (over_root(mp.tanh), grid(1e-30, 1e6)),
    "sinhc": (over_root(mp.sinh), grid(1e-30, 4e5)),
    "cosh_sqrt": (lambda s: mp.cosh(mp.sqrt(s)), grid(1e-30, 4e5)),
    "asinhc": (over_root(mp.asinh), grid(1e-30, 1e40)),
    "artanhc": (
        lambda gap: over_root(mp.atanh)(1 - gap),
        grid(1e-13, 0.9999) + [1 - s for s in grid(1e-15, 0.5)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_slope(name):
    exact, points = FUNCTIONS[name]
    s = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    value = getattr(smooth, name)(s)
    (slope,) = torch.autograd.grad(value.sum(), s)
    for i, point in enumerate(points):
        x = mp.mpf(point)
        h = x * mp.mpf(10) ** -25
        expected = (exact(x + h) - exact(x - h)) / (2 * h)
        # sinh(r) and cosh(r) magnify the rounding of r = sqrt(s)
        room = max(1, float(mp.sqrt(x)) / 20) if name in ("sinhc", "cosh_sqrt") else 1
        assert arithmetic.relative_error(value[i], exact(x)) <= VALUE * room, point
        assert arithmetic.relative_error(slope[i], expected) <= SLOPE * room, point


@pytest.mark.parametrize(
    ("name", "slope"), [("tanhc", -1 / 3), ("sinhc", 1 / 6), ("cosh_sqrt", 1 / 2), ("asinhc", -1 / 6)]
)
def test_value_and_slope_at_zero(name, slope):
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = getattr(smooth, name)(zero)
    assert value.item() == 1
    assert torch.autograd.grad(value, zero)[0].item() == pytest.approx(slope, rel=1e-15)


def test_artanhc_at_the_origin():
    gap = torch.ones((), dtype=torch.float64, requires_grad=True)
    value = smooth.artanhc(gap)
    assert value.item() == 1
    assert torch.autograd.grad(value, gap)[0].item() == pytest.approx(-1 / 3, rel=1e-15)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_on_both_sides_of_the_switch(name):
    points = [s if name != "artanhc" else 1 - s for s in (SWITCH / 2, 0.9 * SWITCH, 1.1 * SWITCH, 0.4)]
    s = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(smooth, name), s)
    assert torch.autograd.gradgradcheck(getattr(smooth, name), s)


def test_safe_sqrt():
    s = torch.tensor([0.0, 1e-300, 1e-24, 0.25, 1e300], dtype=torch.float64, requires_grad=True)
    value = smooth.safe_sqrt(s)
    torch.testing.assert_close(value, s.sqrt(), rtol=1e-15, atol=0)
    (slope,) = torch.autograd.grad(value.sum(), s)
    assert slope[0] == 0
    torch.testing.assert_close(slope[1:], 0.5 / s[1:].detach().sqrt(), rtol=1e-15, atol=0)


def near_the_boundary(d: int, c: float, dtype: torch.dtype) -> torch.Tensor:
    """Points with gaps from 1 down to twice the margin of the dtype."""
    gaps = torch.logspace(0, math.log10(4 * numerics.BALL_EPS[dtype]), 12, dtype=torch.float64)[:, None]
    direction = torch.nn.functional.normalize(torch.randn(12, d, dtype=torch.float64), dim=-1)
    return ((1 - gaps).clamp_min(0).sqrt() / c**0.5 * direction).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 129])
def test_ball_gap(d, dtype):
    """1 - c|x|^2 keeps its digits where all but the last few cancel; its gradients are -2cx and -|x|^2."""
    for c in (0.1, 1.0, 4.0):
        curvature = torch.tensor(c, dtype=torch.float64, requires_grad=True)
        x = near_the_boundary(d, c, dtype).requires_grad_()
        gap = numerics.ball_gap(x, curvature)
        assert gap.dtype == torch.float64
        assert gap.shape == (12, 1)
        for i, point in enumerate(arithmetic.exact(x)):
            expected = 1 - mp.mpf(c) * arithmetic.dot(point, point)
            assert arithmetic.relative_error(gap[i, 0], expected) <= tolerance(dtype, "formula")["rtol"]
        slopes = torch.autograd.grad(gap.sum(), [x, curvature])
        torch.testing.assert_close(slopes[0], -2 * c * x.detach())
        torch.testing.assert_close(slopes[1], -x.detach().double().square().sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ball_gap_takes_a_curvature_for_each_point(dtype):
    x = 0.3 * torch.randn(4, 5, 3, dtype=dtype)
    c = torch.rand(5, 1, dtype=torch.float64).requires_grad_()
    gap = numerics.ball_gap(x, c)
    torch.testing.assert_close(gap, 1 - c * x.double().square().sum(-1, keepdim=True), rtol=1e-12, atol=1e-15)
    (slope,) = torch.autograd.grad(gap.sum(), c)
    torch.testing.assert_close(slope, -x.double().square().sum(-1, keepdim=True).sum(0))


def test_ball_gap_derivatives():
    x = (0.3 * torch.randn(3, 5, dtype=torch.float64)).requires_grad_()
    c = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(numerics.ball_gap, (x, c))
    assert torch.autograd.gradgradcheck(numerics.ball_gap, (x, c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ball_gap_never_reaches_zero(dtype):
    """On the boundary and outside of it the gap is a small positive number, with no gradient."""
    c = torch.tensor(1.0, dtype=torch.float64)
    x = torch.tensor([[1.0, 0.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    gap = numerics.ball_gap(x, c)
    assert (gap == numerics.BALL_EPS[dtype] / 4).all()
    assert not torch.autograd.grad(gap.sum(), x)[0].any()
    assert numerics.ball_gap(x[:0].detach(), c).shape == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype):
    for function in (numerics.wide, numerics.sqnorm, lambda x: numerics.dot(x, x)):
        with pytest.raises(TypeError, match="float32 or float64"):
            function(torch.zeros(2, 3, dtype=dtype))
    with pytest.raises(TypeError, match="float32 or float64"):
        numerics.ball_gap(torch.zeros(2, 3, dtype=dtype), torch.tensor(1.0))


SQUARES = torch.cat([torch.zeros(1), torch.logspace(-9, -0.1, 60), torch.tensor([0.0199, 0.0201])]).double()


@pytest.mark.parametrize("function", [smooth.tanhc, smooth.sinhc, smooth.cosh_sqrt, smooth.asinhc, lambda s: smooth.artanhc(1 - s)])
def test_functions_of_squares_under_torch_func(function):
    """Value, slope and its slope are those of autograd."""
    slope = torch.func.vmap(torch.func.grad(function))
    torch.testing.assert_close(torch.func.vmap(function)(SQUARES), function(SQUARES), rtol=1e-15, atol=0)
    leaf = SQUARES.clone().requires_grad_()
    (expected,) = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    torch.testing.assert_close(slope(SQUARES), expected, rtol=1e-11, atol=0)
    (second,) = torch.autograd.grad(expected.sum(), leaf)
    actual = torch.func.vmap(torch.func.grad(torch.func.grad(function)))(SQUARES)
    torch.testing.assert_close(actual, second, rtol=1e-6, atol=0)


def test_careful_sums_under_torch_func_and_their_second_derivatives():
    x, v = torch.randn(2, 7, 5, dtype=torch.float64)
    v = 1e9 * x + v

    def each(v, x):
        return numerics.reject(v, x).square().sum() + numerics.careful_dot(x, v) + numerics.ball_gap(x / 9, 1.3).sum() + numerics.difference_along(x, v)[0]

    expected = torch.stack([each(*pair) for pair in zip(v, x, strict=True)])
    torch.testing.assert_close(torch.func.vmap(each)(v, x), expected, rtol=1e-14, atol=0)
    v = v - 1e9 * x
    leaves = v.clone().requires_grad_(), x.clone().requires_grad_()
    grads = torch.autograd.grad(sum(each(*pair).sum() for pair in zip(*leaves, strict=True)), leaves)
    actual = torch.func.vmap(torch.func.grad(lambda v, x: each(v, x).sum(), argnums=(0, 1)))(v, x)
    for one, other in zip(actual, grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradgradcheck(numerics.reject, [leaf[:2].detach().requires_grad_() for leaf in leaves])
