"""The sum of many points against the same sum by single Möbius operations, in value and gradient."""

import pytest
import torch

from hyperbolic.kernels.mobius_sum import mobius_sum
from hyperbolic.manifolds import PoincareBall
from tests.kernels import formulas
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
CURVATURES = pytest.mark.parametrize("c", [0.1, 1.0, 2.0])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)


def points(ball, *size, std=0.5, dtype=F64):
    return ball.random(*size, std=std / float(ball.c.detach()) ** 0.5, dtype=dtype).detach()


def compare(x, ball, weights=None, mask=None, kind="identity"):
    """Values, and the gradients of all inputs for a random cotangent."""
    inputs = [t.detach().requires_grad_() for t in (x, weights) if t is not None]
    inputs += list(ball.parameters())
    arguments = (inputs[0], ball.c, None if weights is None else inputs[1], mask)
    computed, expected = mobius_sum(*arguments), formulas.mobius_sum(*arguments)
    room = tolerance(x.dtype, kind)
    torch.testing.assert_close(computed, expected, **room)
    cotangent = torch.randn_like(computed)
    actual = torch.autograd.grad((computed * cotangent).sum(), inputs)
    arguments = (inputs[0], ball.c, None if weights is None else inputs[1], mask)  # c once more, its graph is used up
    expected_grads = torch.autograd.grad((formulas.mobius_sum(*arguments) * cotangent).sum(), inputs)
    for a, b in zip(actual, expected_grads, strict=True):
        torch.testing.assert_close(a, b, **room | {"atol": room["rtol"] * b.abs().max().item() + room["atol"]})


@CURVATURES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_equals_single_operations(c, weighted, masked, dtype):
    ball = PoincareBall(c)
    weights = torch.randn(4, 6, dtype=dtype) if weighted else None
    kind = "identity" if dtype is F64 else "model"
    compare(points(ball, 4, 6, 3, dtype=dtype), ball, weights, MASK if masked else None, kind)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_a_learned_curvature(weighted):
    ball = PoincareBall(1.7, learn_c=True)
    compare(points(ball, 4, 6, 3), ball, torch.rand(4, 6, dtype=F64) if weighted else None, MASK)


@pytest.mark.parametrize("size", [(1, 1, 1), (1, 4, 2), (5, 1, 3), (2, 3, 4, 5), (7, 2)])
def test_small_and_many_axes(size):
    ball = PoincareBall(2.0)
    compare(points(ball, *size), ball, torch.rand(size[:-1], dtype=F64), torch.rand(size[:-1]) < 0.7)


@pytest.mark.parametrize("size", [(0, 4, 3), (2, 0, 4, 3)])
def test_an_empty_batch(size):
    ball = PoincareBall(2.0)
    x, weights = torch.zeros(size).requires_grad_(), torch.zeros(size[:-1])
    for arguments in ((None, None), (weights, None), (weights, torch.ones(size[:-1], dtype=torch.bool))):
        total = mobius_sum(x, ball.c, *arguments)
        assert total.shape == (*size[:-2], 3)
        (grad,) = torch.autograd.grad(total.sum(), x)
        assert grad.shape == x.shape


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_zero_points_and_zero_weights(dtype):
    ball = PoincareBall(2.0)
    x, weights = points(ball, 5, 4, 3, dtype=dtype), torch.rand(5, 4, dtype=dtype)
    x[0], x[1, 0], x[2, ::2] = 0, 0, 0
    weights[3], weights[4, 1:] = 0, 0
    compare(x, ball, None, kind="model")
    compare(x, ball, weights, kind="model")
    assert not mobius_sum(x, ball.c, weights)[[0, 3]].any()


def test_the_order_counts():
    ball = PoincareBall(2.0)
    x = points(ball, 5, 6, 3)
    assert (ball.dist(mobius_sum(x, ball.c), mobius_sum(x.flip(1), ball.c)) > 1e-3).all()
    inner = ball.mobius_add(x[:, 0], ball.mobius_add(x[:, 1], x[:, 2]))
    assert (ball.dist(mobius_sum(x[:, :3], ball.c), inner) > 1e-4).all()


def test_what_stands_behind_the_last_point_does_not_touch_the_sum():
    ball = PoincareBall(2.0)
    x, weights = points(ball, 3, 9, 4, dtype=F32), torch.rand(3, 9)
    mask = torch.arange(9) < torch.tensor([[3], [9], [1]])
    other = torch.where(mask.unsqueeze(-1), x, 0.3).requires_grad_()
    total = mobius_sum(other, ball.c, weights, mask)
    assert torch.equal(total, mobius_sum(x, ball.c, weights, mask))
    for row, length in enumerate((3, 9, 1)):
        assert torch.equal(total[row : row + 1], mobius_sum(x[row : row + 1, :length], ball.c, weights[row, :length]))
    (grad,) = torch.autograd.grad(total.square().sum(), other)
    assert not grad[~mask].any()
    assert grad[mask].any(-1).all()


@CURVATURES
@pytest.mark.parametrize("std", [0.1, 0.4])
def test_float32_is_as_near_to_float64_as_single_operations(c, std):
    """Over 25 steps; further out, rounding the sums themselves moves both."""
    ball = PoincareBall(c)
    x, weights = points(ball, 50, 25, 3, std=std, dtype=F32), torch.rand(50, 25)
    wide = [x.double().requires_grad_(), weights.double().requires_grad_()]
    free = [x.requires_grad_(), weights.requires_grad_()]
    total, plain = (sum_(free[0], ball.c, free[1]) for sum_ in (mobius_sum, formulas.mobius_sum))
    expected = formulas.mobius_sum(wide[0], ball.c, wide[1])
    computed, room = ball.dist(total.double(), expected), ball.dist(plain.double(), expected)
    assert computed.mean() < 2 * room.mean()
    assert computed.max() < 3 * room.max()
    cotangent = torch.randn_like(total)
    actual, peers = (torch.autograd.grad((y * cotangent).sum(), free) for y in (total, plain))
    for a, b, exact in zip(actual, peers, torch.autograd.grad((expected * cotangent).sum(), wide), strict=True):
        assert (a - exact).abs().mean() < 2 * (b - exact).abs().mean()


@pytest.mark.parametrize(("dtype", "room"), [(F32, 1e-3), (F64, 1e-11)], ids=str)
def test_long_sums_do_not_drift(dtype, room):
    """150 steps, of sums that stay within a distance of 4 from the origin."""
    ball = PoincareBall(2.0)
    x = points(ball, 40, 150, 3, std=0.05, dtype=dtype)
    exact = formulas.mobius_sum(x.double(), ball.c)
    near = ball.dist0(exact) < 4
    assert (ball.dist0(exact) > 1).any()
    assert ball.dist(mobius_sum(x, ball.c).double(), exact)[near].max() < room


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("weight", [None, 3.0, 1e4])
def test_sums_that_run_into_the_boundary_stay_inside_with_finite_gradients(dtype, weight):
    ball = PoincareBall(2.0)
    direction = torch.nn.functional.normalize(torch.randn(6, 1, 3, dtype=dtype), dim=-1)
    x = ball.expmap0(2 * direction).expand(6, 30, 3).clone().requires_grad_()
    weights = None if weight is None else torch.full((6, 30), weight, dtype=dtype).requires_grad_()
    total = mobius_sum(x, ball.c, weights)
    assert ball.check_point_on_manifold(total.detach(), atol=0, rtol=1e-7)
    assert (ball.dist0(total) > 0.9 * ball.max_radius(dtype)).all()
    for grad in torch.autograd.grad(total.sum(), [t for t in (x, weights) if t is not None]):
        assert torch.isfinite(grad).all()
    back = torch.cat([x.detach(), -x.detach()[:, :1]], 1)  # and come back from there
    assert ball.dist(mobius_sum(back, ball.c), formulas.mobius_sum(back, ball.c)).max() < 0.05
    scaled = back.clone().requires_grad_()
    (computed,) = torch.autograd.grad(mobius_sum(scaled, ball.c).sum(), scaled)
    (expected_grads,) = torch.autograd.grad(formulas.mobius_sum(scaled, ball.c).sum(), scaled)
    assert (computed - expected_grads).abs().max() < 0.05 * expected_grads.abs().max()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_opposite_points_near_the_boundary_cancel_exactly(dtype):
    ball = PoincareBall(2.0)
    far = ball.expmap0(3.5 * torch.nn.functional.normalize(torch.randn(6, 3, dtype=dtype), dim=-1))
    assert not mobius_sum(torch.stack([far, -far], -2), ball.c).any()


def test_second_derivatives():
    ball = PoincareBall(2.0)
    x = points(ball, 2, 3, 3).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: mobius_sum(x, ball.c), (x,))
