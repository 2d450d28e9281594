"""Class logits of the Lorentz family: their formulas, their accuracy in float32, a curvature that moves."""

import pytest
import torch
from torch import nn

from hyperbolic.layers import lorentz
from hyperbolic.manifolds import Lorentz
from hyperbolic.manifolds.charts import lorentz_to_poincare
from tests.kernels.formulas import mlr_logits as mlr_formula
from tests.layers import lorentz_formulas
from tests.layers.lorentz_formulas import CLOSE, F64, points

CURVATURES = pytest.mark.parametrize("c", lorentz_formulas.CURVATURES)
KINDS = pytest.mark.parametrize("kind", [lorentz.Logits, lorentz.HyperplaneLogits])


def spread(layer: nn.Module) -> nn.Module:
    """The layer in float64 with parameters, and classes, that are far from their special starts."""
    layer = lorentz_formulas.spread(layer)
    table = layer.points if isinstance(layer, lorentz.Logits) else layer.p
    with torch.no_grad():
        table.copy_(points(float(layer.manifold.c), *table[:, 1:].shape))
    return layer


def square_distance(x: torch.Tensor, t: torch.Tensor, c: float) -> torch.Tensor:
    """``|x_s - t_s|^2 - (x_0 - t_0)^2`` of all pairs, of the space parts in float64."""
    x, t = x[:, None, 1:].double(), t[:, 1:].double()
    times = [(1 / c + s.square().sum(-1)).sqrt() for s in (x, t)]
    return (x - t).square().sum(-1) - (times[0] - times[1]).square()


@CURVATURES
def test_logits_by_class_points(c):
    space = Lorentz(c)
    x = points(c, 5, 3)
    layer = spread(lorentz.Logits(space, 3, 4))
    for k in range(4):
        t = layer.points[k]
        square = -2 / c - 2 * (x[:, 1:] @ t[1:] - x[:, 0] * t[0])
        assert (square >= 0).all()
        expected = -square / layer.log_alpha[k].exp() + layer.bias[k]
        torch.testing.assert_close(layer(x)[:, k], expected, **CLOSE)
    fixed = spread(lorentz.Logits(space, 3, 4, learn_alpha=False))
    t = fixed.points
    expected = 2 / c + 2 * (x[:, 1:] @ t[:, 1:].T - x[:, :1] * t[:, 0]) + fixed.bias
    torch.testing.assert_close(fixed(x), expected, **CLOSE)


@CURVATURES
def test_gradients_of_the_logits_by_class_points(c):
    """Of the space parts of the points and of the classes, and of c, by the formula of the squared distance."""
    space = Lorentz(c, learn_c=True)
    layer, x = spread(lorentz.Logits(space, 3, 4)), points(c, 5, 3).requires_grad_()
    expected = -square_distance(x, layer.points, space.c) / layer.log_alpha.exp() + layer.bias
    leaves = [x, space.free_c, layer.points, layer.bias, layer.log_alpha]
    for a, b in zip(*(torch.autograd.grad(y.sin().sum(), leaves) for y in (layer(x), expected)), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)


@CURVATURES
@pytest.mark.parametrize(("radius", "bound"), [(1e-3, 2e-12), (0.1, 2e-8), (1.0, 3e-6), (5.0, 0.02), (8.0, 8.0)])
def test_accuracy_of_the_logits_by_class_points_in_float32(c, radius, bound):
    """As the docstring states it: points and classes at one distance, about 0.05 apart in direction, in units of 1/c.

    At 1e-3 a sum with the constant 2/c would be wrong by 1e-7.
    """
    space = Lorentz(c)
    layer = lorentz.Logits(space, 32, 50, learn_alpha=False)
    direction = nn.functional.normalize(torch.randn(50, 32), dim=-1)
    with torch.no_grad():
        layer.points.copy_(space.expmap0(radius / c**0.5 * direction))
    x = nn.functional.normalize(direction + 0.01 * torch.randn(50, 32), dim=-1)
    x = space.expmap0(radius / c**0.5 * x)
    error = (layer(x).double() + square_distance(x, layer.points, c)).abs()
    assert error.max() < bound / c
    assert (error < 3e-6 * x[:, :1] * layer.points[:, 0]).all()


@CURVATURES
def test_logits_by_hyperplanes_are_ganeas(c):
    """Through the isometry to the ball, where the normals at the origin are half as long; values and gradients."""
    space = Lorentz(c)
    x = points(c, 5, 3).requires_grad_()
    layer = spread(lorentz.HyperplaneLogits(space, 3, 4))
    ball_x, ball_p = (lorentz_to_poincare(t, c) for t in (x, layer.p))
    expected = mlr_formula(ball_x, ball_p, layer.a / 2, space.c)
    torch.testing.assert_close(layer(x), expected, **CLOSE)
    for a, b in zip(*(torch.autograd.grad(y.sin().sum(), layer.a) for y in (layer(x), expected)), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)
    with torch.no_grad():
        layer.a.zero_()
    (grad,) = torch.autograd.grad(layer(x).sum(), layer.a)
    assert torch.isfinite(grad).all()


@KINDS
def test_losses(kind):
    layer, x = spread(kind(Lorentz(2.0), 3, 4)), points(2.0, 5, 3)
    target = torch.tensor([0, 3, 1, 1, 2])
    torch.testing.assert_close(layer.cross_entropy(x, target), nn.functional.cross_entropy(layer(x), target))
    y = nn.functional.one_hot(target, 4).double()
    expected = nn.functional.binary_cross_entropy_with_logits(layer(x), y)
    torch.testing.assert_close(layer.bce(x, target.unsqueeze(1)), expected)


@KINDS
def test_classes_stay_on_the_sheet_while_the_curvature_moves(kind):
    """Only the space parts of the classes count: after a step of c the logits are those of points made anew."""
    space = Lorentz(0.7, learn_c=True)
    layer = spread(kind(space, 3, 4))
    table = layer.points if kind is lorentz.Logits else layer.p
    with torch.no_grad():
        space.free_c.add_(1.0)
    x = space.random(5, 3, std=0.7, dtype=F64)
    results = layer(x)
    with torch.no_grad():
        assert not space.check_point_on_manifold(table)
        table.copy_(space.projx(table))
    torch.testing.assert_close(results, layer(x), rtol=1e-12, atol=1e-14)


@KINDS
@pytest.mark.parametrize("radius", [1e-6, 3.0, 12.0])
def test_far_points_in_float32(kind, radius):
    space = Lorentz(2.5)
    x = nn.functional.normalize(torch.randn(3, 5, 6), dim=-1) * radius / 2.5**0.5
    x, layer = space.expmap0(x).requires_grad_(), kind(space, 6, 7)
    out = layer(x)
    assert torch.isfinite(out).all()
    grads = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
    assert all(torch.isfinite(grad).all() for grad in grads)


@KINDS
@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches_and_strides(kind, batch):
    x, layer = points(2.0, 7, batch, 3).transpose(0, 1), spread(kind(Lorentz(2.0), 3, 4))
    out = layer(x)
    assert out.shape == (batch, 7, 4)
    torch.testing.assert_close(out, layer(x.contiguous()))
    out.sum().backward()


def test_a_zero_normal_of_a_large_curvature_has_gradients():
    layer = lorentz.HyperplaneLogits(Lorentz(20.0), 3, 4)
    with torch.no_grad():
        layer.a[0] = 0
    x = layer.manifold.random(6, 3).requires_grad_()
    layer(x).square().sum().backward()
    assert all(t.grad.isfinite().all() for t in (x, *layer.parameters()))
