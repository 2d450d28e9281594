"""L-BFGS on points and Euclidean tensors: it ends where the loss is least."""

import copy

import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.layers import mobius
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianLBFGS, parameter_groups


def minimise(optimizer, loss):
    calls = []

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        calls.append(value.item())
        return value

    optimizer.step(closure)
    return calls


def test_a_quadratic_ends_at_its_solution():
    matrix = torch.randn(5, 5, dtype=torch.float64)
    square, target = matrix @ matrix.T + torch.eye(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    x = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    minimise(RiemannianLBFGS([x]), lambda: x @ square @ x / 2 - target @ x)
    torch.testing.assert_close(x.detach(), torch.linalg.solve(square, target), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_points_end_where_the_sum_of_squared_distances_is_least(kind):
    manifold = kind(c=2.0)
    given = manifold.random(6, 3, dtype=torch.float64, std=0.5)
    x = ManifoldParameter(manifold.origin(1, 3, dtype=torch.float64), manifold=manifold)
    minimise(RiemannianLBFGS([x]), lambda: manifold.dist(x, given).square().sum())
    at = x.detach().as_subclass(torch.Tensor)
    assert manifold.check_point_on_manifold(at)
    # the gradient there, minus twice the sum of the directions to the points, is 0 (Karcher's equation)
    assert manifold.logmap(at.expand_as(given), given).sum(0).norm() < 1e-5


def test_a_hyperbolic_classifier_ends_in_a_stationary_point():
    ball = PoincareBall(c=1.0)
    x, labels = ball.random(80, 2, dtype=torch.float64, std=1.0), torch.arange(80) % 2
    x[::2] = ball.mobius_add(torch.tensor([0.4, 0.1], dtype=torch.float64), x[::2])
    layer = mobius.Logits(ball, 2, 1).double()
    optimizer = RiemannianLBFGS(parameter_groups(layer))

    def loss():
        return nn.functional.binary_cross_entropy_with_logits(layer(x).squeeze(-1), labels.double())

    calls = minimise(optimizer, loss)
    assert min(calls) < calls[0]
    layer.zero_grad()
    loss().backward()
    assert max(p.grad.norm() for p in layer.parameters()) < 1e-4
    assert not optimizer.state_dict()["state"]


@pytest.mark.parametrize(
    "settings", [{"lr": 0.0}, {"max_iter": 0}, {"history_size": 1.5}, {"tolerance_grad": -1.0}, {"lr": float("nan")}]
)
def test_options_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        RiemannianLBFGS([nn.Parameter(torch.zeros(2))], **settings)


def test_a_step_without_a_closure_and_sparse_gradients_are_refused():
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = RiemannianLBFGS(table.parameters())
    with pytest.raises(ValueError, match="closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="sparse"):
        minimise(optimizer, lambda: table(torch.tensor([1])).square().sum())


def test_a_learned_curvature_is_refused():
    with pytest.raises(ValueError, match="does not know how a learned c moves points"):
        RiemannianLBFGS(mobius.Embedding(PoincareBall(learn_c=True), 4, 3).parameters())


def test_a_copy_minimises_as_well():
    x = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = copy.deepcopy(RiemannianLBFGS([x], max_iter=20))
    (y,) = optimizer.param_groups[0]["params"]

    def closure():
        y.grad = 2 * (y.detach() - 3)
        return (y.detach() - 3).square().sum()

    optimizer.step(closure)
    torch.testing.assert_close(y.detach(), torch.full_like(x, 3))
