"""Linear layers of every manifold: the Möbius layer of the ball through the isometries, W x + b in flat space."""

import pytest
import torch
from geoopt import ManifoldParameter

from hyperbolic.layers import mobius
from hyperbolic.layers.keys import MobiusLinear, TangentLinear
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from tests.layers.filled import filled
from tests.tolerances import tolerance

F64 = torch.float64


@pytest.mark.parametrize("c", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_it_is_the_mobius_layer_in_every_model(kind, c):
    space, ball = kind(c), PoincareBall(c)
    layer, twin = filled(MobiusLinear(space, 3, 4)), mobius.Linear(ball, 3, 4).double()
    assert isinstance(layer.bias, ManifoldParameter)
    with torch.no_grad():
        twin.weight.copy_(layer.weight)
        twin.bias.copy_(convert(layer.bias, space, ball))
    x = space.random(2, 5, 3, std=0.7, dtype=F64)
    expected = convert(twin(convert(x, space, ball)), ball, space)
    torch.testing.assert_close(layer(x), expected, **tolerance(F64, "identity"))
    start = MobiusLinear(space, 3, 4).double()
    torch.testing.assert_close(space.logmap0(start(x)), space.logmap0(x) @ start.weight.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [MobiusLinear, TangentLinear])
def test_in_flat_space_it_is_affine(kind):
    layer, x = filled(kind(Euclidean(), 3, 4)), torch.randn(2, 5, 3, dtype=F64)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
    assert not isinstance(layer.bias, ManifoldParameter)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_gradients_at_the_origin(kind):
    space = kind(2.0)
    layer = MobiusLinear(space, 3, 3)
    x = space.origin(4, 3).requires_grad_()
    layer(x).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in (x, *layer.parameters()))
