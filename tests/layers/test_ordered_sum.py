"""The sum from the left in every family: gyroaddition in the models of hyperbolic space, order, weights and masks."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import lorentz
from hyperbolic.manifolds import Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from tests.tolerances import tolerance

F64 = torch.float64
GYRO = ("poincare", "poincare_pp", "lorentz", "klein")
GEOMETRY = pytest.mark.parametrize("name", GEOMETRIES)


def geometry(name: str, c: float = 2.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)


@pytest.mark.parametrize("name", GYRO)
@pytest.mark.parametrize("c", [0.5, 2.0])
def test_a_step_is_gyroaddition(name, c):
    """x (+) y goes from x along log_0(y), carried there by parallel transport."""
    g = geometry(name, c)
    space, layer = g.manifold, g.ordered_sum()
    x, y, z = space.random(3, 6, 3, std=0.6, dtype=F64)
    plus = lambda x, y: space.expmap(x, space.transp0(x, space.logmap0(y)))  # noqa: E731
    results = layer(torch.stack([x, y, z], -2))
    torch.testing.assert_close(results, plus(plus(x, y), z), rtol=1e-8, atol=1e-10)
    assert (space.dist(results, plus(x, plus(y, z))) > 1e-4).all()
    halved = layer(torch.stack([x, y], -2), torch.tensor([[0.5, -2.0]], dtype=F64).expand(6, 2))
    half, back = space.expmap0(0.5 * space.logmap0(x)), space.expmap0(-2 * space.logmap0(y))
    torch.testing.assert_close(halved, plus(half, back), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["lorentz", "klein"])
def test_the_models_agree_through_the_isometry(name):
    g, ball = geometry(name), geometry("poincare")
    x, weights = ball.manifold.random(4, 7, 3, std=0.4, dtype=F64).requires_grad_(), torch.rand(4, 7, dtype=F64)
    mask = torch.rand(4, 7) < 0.8
    expected = ball.ordered_sum()(x, weights, mask)
    moved = convert(x, ball.manifold, g.manifold)
    results = convert(g.ordered_sum()(moved, weights, mask), g.manifold, ball.manifold)
    torch.testing.assert_close(results, expected, **tolerance(F64, "model"))
    grads = [torch.autograd.grad(y.square().sum(), x, retain_graph=True)[0] for y in (results, expected)]
    torch.testing.assert_close(*grads, **tolerance(F64, "model"))


def test_far_points_of_the_float32_sheet_are_not_cut_to_the_ball():
    space = Lorentz(1.0)
    far = space.expmap0(torch.tensor([[17.0, 0.0]]))
    near = space.expmap0(torch.tensor([[-8.0, 0.0]]))
    total = lorentz.OrderedSum(space)(torch.stack([far, near], -2))
    assert space.dist0(total).item() == pytest.approx(9.0, rel=1e-4)
    assert PoincareBall(1.0).max_radius() < 17
    beyond = lorentz.OrderedSum(space)(far.expand(2, 3))
    assert space.dist0(beyond).item() == pytest.approx(space.max_radius(), rel=1e-3)


@pytest.mark.parametrize("name", ["euclidean", "hatt", "poincare_tangent", "lorentz_tangent", "klein_tangent"])
def test_flat_families_add_vectors_and_the_order_does_not_count(name):
    g = geometry(name)
    space, layer = g.manifold, g.ordered_sum()
    x, weights = space.random(4, 7, 3, std=0.3, dtype=F64), torch.randn(4, 7, dtype=F64)
    mask = torch.rand(4, 7) < 0.8
    expected = space.expmap0((mask * weights).unsqueeze(-2).matmul(space.logmap0(x)).squeeze(-2))
    torch.testing.assert_close(layer(x, weights, mask), expected)
    torch.testing.assert_close(layer(x.flip(1), weights.flip(1), mask.flip(1)), expected)


@GEOMETRY
def test_points_that_do_not_count_are_as_if_left_out(name):
    g = geometry(name)
    space, layer = g.manifold, g.ordered_sum()
    x, weights = space.random(4, 5, 3, std=0.3, dtype=F64).requires_grad_(), torch.rand(4, 5, dtype=F64)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    for inputs in (None, weights):
        total = layer(x, inputs, mask)
        assert space.check_point_on_manifold(total.detach(), atol=1e-9)
        for row in range(3):
            remaining = x[row, mask[row]]
            alone = layer(remaining, None if inputs is None else inputs[row, mask[row]])
            torch.testing.assert_close(total[row], alone, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(total[3], space.origin(3, dtype=F64))
        (grad,) = torch.autograd.grad(total.square().sum(), x)
        assert not grad[~mask].any()
        assert grad[mask].any(-1).all()
    none = layer(x, torch.zeros_like(weights))
    torch.testing.assert_close(none, space.origin(4, 3, dtype=F64))


@GEOMETRY
def test_an_empty_batch_and_half_precision(name):
    g = geometry(name)
    space, layer = g.manifold, g.ordered_sum()
    assert layer(space.origin(0, 4, 3)).shape == (0, space.ambient_dim(3))
    x = space.random(2, 4, 3, std=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x, torch.full((2, 4), 0.5, dtype=torch.bfloat16)).dtype is torch.float32


@GEOMETRY
def test_mistakes_are_named(name):
    g = geometry(name)
    layer, x = g.ordered_sum(), g.manifold.origin(2, 4, 3)
    for inputs, message in (
        ((x[:, :0],), r"OrderedSum: takes points \(..., N, D\) with N > 0"),
        ((x, torch.ones(2, 3)), r"OrderedSum: the weights must have the shape \(2, 4\), got \(2, 3\)"),
        ((x, None, torch.ones(2, 4)), r"OrderedSum: the mask must be boolean"),
        ((x, None, torch.ones(4, dtype=torch.bool)), r"OrderedSum: the mask must have the shape \(2, 4\), got \(4,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(*inputs)
