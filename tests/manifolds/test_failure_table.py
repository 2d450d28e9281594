"""The cases in which other libraries were measured to fail, one test each, with the true value to more digits.

The first block has the numbers of geoopt 0.5.1 and HypLL 0.1.1 in its comments. Two rows of that list are not here:
multinomial logistic regression and the optimiser are tested where they live.
"""

import math

import pytest
import torch

from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.smooth import artanhc, asinhc
from scripts.exactness import arithmetic
from scripts.exactness import spaces as oracle
from tests.tolerances import tolerance

BALL, SHEET = PoincareBall(1.0), Lorentz(1.0)
F32, F64 = torch.float32, torch.float64


def rtol(dtype):
    return tolerance(dtype, "formula")["rtol"]


def test_arsinh_of_a_large_negative_number():
    """geoopt: -34.5."""
    x = torch.tensor(-1e4, dtype=F32)
    assert arithmetic.relative_error(x * asinhc(x.square()), arithmetic.mp.asinh(arithmetic.exact(x))) <= rtol(F32)


def test_artanh_next_to_one():
    """geoopt clamps: 8.406 instead of 10.708."""
    x = torch.tensor([[1 - 1e-9]], dtype=F64)
    assert arithmetic.relative_error(BALL.logmap0(x), arithmetic.mp.atanh(arithmetic.exact(x)[0][0])) <= rtol(F64)
    gap = torch.tensor(1 - arithmetic.exact(x)[0][0] ** 2, dtype=F64)
    assert arithmetic.relative_error(x * artanhc(gap), arithmetic.mp.atanh(arithmetic.exact(x)[0][0])) <= rtol(F64)


def opposite(gap, dtype):
    x = (1 - gap) * torch.nn.functional.normalize(torch.tensor([[1.0, -2.0, 0.5]], dtype=F64))
    return x.to(dtype), -x.to(dtype)


@pytest.mark.parametrize(
    ("gap", "dtype", "roughly"),
    [
        (1e-4, F32, 19.807),  # geoopt 16.64, HypLL inf
        (1e-7, F64, 33.6225),  # geoopt 16.81, HypLL 33.6233
    ],
)
def test_ball_distance_of_opposite_points(gap, dtype, roughly):
    x, y = opposite(gap, dtype)
    actual = BALL.dist(x, y)
    assert arithmetic.relative_error(actual, oracle.Poincare(1).dist(*arithmetic.exact(torch.cat([x, y])))) <= rtol(
        dtype
    )
    assert float(actual) == pytest.approx(roughly, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "gap"),
    [
        (0.99999, 1e-7),  # geoopt 16.64, HypLL NaN
        (0.5, 1e-9),  # geoopt 0, HypLL right
    ],
)
def test_ball_distance_of_near_neighbours(size, gap):
    x = torch.tensor([size, 0.0], dtype=F32)
    y = x + torch.tensor([0.0, gap], dtype=F32)
    expected = oracle.Poincare(1).dist(arithmetic.exact(x), arithmetic.exact(y))
    assert 0 < expected < 0.02
    assert arithmetic.relative_error(BALL.dist(x, y), expected) <= rtol(F32)


@pytest.mark.parametrize("manifold", [BALL, SHEET, Klein(1.0)], ids=lambda m: m.name)
@pytest.mark.parametrize("length", [1e-12, 1e-8, 1e-4, 1.0, 5.0])
def test_log0_after_exp0_in_float32(manifold, length):
    """Peers: 0 for short vectors (geoopt's hyperboloid up to 1e-4), 38 % off at 5 after their projection."""
    v = length * torch.nn.functional.normalize(torch.tensor([[1.0, -2.0, 0.5]]))
    back = manifold.logmap0(manifold.expmap0(v))
    # The point itself is rounded to float32 in between, which near the boundary of the ball and the disk moves it.
    moved = 0 if manifold is SHEET else torch.finfo(F32).eps * math.cosh(length) ** 2 / length
    torch.testing.assert_close(back, v, rtol=rtol(F32) + moved, atol=0)
    if manifold is BALL and length == 5.0:
        assert manifold.dist0(manifold.expmap0(v)) == pytest.approx(10, rel=3e-4)


def test_mobius_matvec_of_a_short_vector():
    """geoopt: 0, with a dead gradient."""
    weight = torch.randn(4, 3, requires_grad=True)
    x = torch.full((1, 3), 1e-8, requires_grad=True)
    y = BALL.mobius_matvec(weight, x)
    torch.testing.assert_close(y, x @ weight.T, rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, weight.sum(0, keepdim=True), rtol=1e-5, atol=0)


@pytest.mark.parametrize("radius", [0.0, 1.0, 11.0, 20.0])
def test_hyperboloid_distance_of_a_point_to_itself(radius):
    """geoopt: -17.3 at radius 11."""
    p = SHEET.expmap0(radius * torch.nn.functional.normalize(torch.tensor([[1.0, -2.0, 0.5]])))
    p.requires_grad_()
    distance = SHEET.dist(p, p)
    assert distance.item() == 0
    (slope,) = torch.autograd.grad(distance.sum(), p)
    assert not slope.any()


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-30, 1e-20, 1e-12, 1e-6])
def test_steps_along_a_vanishing_gradient_on_the_hyperboloid(size):
    """geoopt's Riemannian Adam: NaN in 63 to 96 % of rows. The parts of such a step, at radii 0 to 12."""
    lengths = torch.linspace(0, 12, 7)[:, None]
    x = SHEET.expmap0(lengths * torch.nn.functional.normalize(torch.randn(7, 4)))
    gradient = SHEET.egrad2rgrad(x, size * torch.randn(7, 5))
    square = SHEET.inner(x, gradient)
    assert (square >= 0).all()
    y = SHEET.expmap(x, -0.01 * gradient / (square.sqrt().unsqueeze(-1) + 1e-8))
    moved = SHEET.transp(x, y, gradient)
    assert y.isfinite().all()
    assert moved.isfinite().all()
    torch.testing.assert_close(SHEET.projx(y), y)


@pytest.mark.parametrize("manifold", [BALL, SHEET, Klein(1.0)], ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_jacobians_of_the_maps_at_the_origin_are_the_identity(manifold, dtype):
    """geoopt's logmap0 on the ball: 0 in float32, 1.055 I in float64."""
    zero = torch.zeros(3, dtype=dtype)
    unit = torch.eye(3, dtype=dtype)
    out = torch.autograd.functional.jacobian(manifold.expmap0, zero)
    back = torch.autograd.functional.jacobian(manifold.logmap0, manifold.expmap0(zero))
    torch.testing.assert_close(out[-3:], unit, rtol=0, atol=0)
    torch.testing.assert_close(back[:, -3:], unit, rtol=0, atol=0)


def test_jacobian_of_mobius_matvec_at_the_origin_is_the_matrix():
    """geoopt: 0."""
    weight = torch.randn(4, 3)
    jacobian = torch.autograd.functional.jacobian(lambda x: BALL.mobius_matvec(weight, x), torch.zeros(3))
    torch.testing.assert_close(jacobian, weight, rtol=1e-6, atol=0)


def test_hyperboloid_logarithm_of_a_near_neighbour():
    """geoopt: ten times too short at distance 1e-5, also in float64."""
    x = SHEET.expmap0(torch.tensor([[0.3, -0.7]], dtype=F64))
    y = SHEET.expmap(x, SHEET.transp0(x, torch.tensor([[6e-6, 8e-6]], dtype=F64)))
    assert SHEET.norm(x, SHEET.logmap(x, y)).item() == pytest.approx(1e-5, rel=1e-9)
    torch.testing.assert_close(SHEET.norm(x, SHEET.logmap(x, y)), SHEET.dist(x, y), rtol=rtol(F64), atol=0)


@pytest.mark.parametrize(("manifold", "radius"), [(BALL, 12.0), (SHEET, 12.0), (Klein(1.0), 6.5)], ids=str)
def test_float32_points_reach_the_stated_radius(manifold, radius):
    """The default projection of geoopt and HypLL caps float32 points of the ball at 6.21."""
    assert manifold.max_radius(F32) >= radius
    vector = torch.tensor([[radius, 0.0]]) / (2 if manifold is BALL else 1)
    x = manifold.expmap0(vector)
    assert manifold.dist0(manifold.projx(x)).item() == pytest.approx(radius, abs=0.05)
    assert manifold.dist0(manifold.projx(100 * x)).item() == pytest.approx(manifold.max_radius(F32), abs=0.05) or (
        manifold is SHEET
    )


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("c", [0.01, 1.0, 17.0])
def test_a_learned_curvature_starts_where_it_was_asked_to(kind, c):
    """HypLL's Curvature(1.0) is 1.313."""
    assert kind(c, learn_c=True).c.item() == pytest.approx(c, rel=1e-14)
