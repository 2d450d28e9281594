"""The kernels in float32 with states, inputs and gates driven to the boundary of the ball."""

import pytest
import torch

from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from hyperbolic.numerics import BALL_EPS

pytestmark = pytest.mark.usefixtures("each_path")
LAYERS = {"gru": mobius.GRU, "rnn": mobius.RNN}
BATCH, STEPS = 64, 12


def at_radius(ball, radius: float, *size: int, dtype) -> torch.Tensor:
    """Points at a share of the largest distance from the origin."""
    u = torch.nn.functional.normalize(torch.randn(*size, dtype=dtype), dim=-1)
    with torch.no_grad():
        return ball.expmap0(u * radius * ball.max_radius(dtype) / 2)


def check(layer, x):
    x = x.requires_grad_()
    ball = layer.manifold
    states, last = layer(x)
    assert torch.isfinite(states).all()
    norms = states.detach().double().norm(dim=-1) * float(ball.c.detach()) ** 0.5
    assert norms.max() <= 1 - BALL_EPS[x.dtype] + 4 * torch.finfo(x.dtype).eps
    loss = ball.dist0(states).sum() + last.square().sum()
    loss.backward()
    for name, p in [("x", x), *layer.named_parameters()]:
        assert torch.isfinite(p.grad).all(), name


@pytest.mark.parametrize(
    ("scale", "dtype"), [(1.0, torch.float32), (10.0, torch.float32), (10.0, torch.float64)], ids=str
)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_finite_where_weights_saturate(kind, nonlinearity, size, scale, dtype):
    for c, radius in ((0.1, 1.0), (2.0, 0.9), (2.0, 0.3)):
        ball = PoincareBall(c, learn_c=True)
        layer = LAYERS[kind](ball, size, size, nonlinearity=nonlinearity).to(dtype)
        with torch.no_grad():
            layer.weight_ih *= scale
            layer.weight_hh *= scale
            layer.bias.copy_(at_radius(ball, radius, *layer.bias.shape, dtype=dtype))
        check(layer, at_radius(ball, radius, BATCH, STEPS, size, dtype=dtype))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("sign", [1, -1])
def test_finite_where_the_two_sides_are_opposite(kind, sign):
    """``W (x) h = -U (x) x`` at the boundary, where the denominators of Möbius sums are smallest."""
    ball = PoincareBall(2.0)
    layer = LAYERS[kind](ball, 3, 3)
    with torch.no_grad():
        layer.weight_hh.copy_(8 * torch.eye(3).expand_as(layer.weight_hh))
        layer.weight_ih.copy_(sign * layer.weight_hh)
        layer.bias.copy_(at_radius(ball, 1.0, *layer.bias.shape, dtype=torch.float32))
    x = at_radius(ball, 1.0, BATCH, 1, 3, dtype=torch.float32).repeat(1, STEPS, 1)
    check(layer, x * torch.tensor([1.0, -1.0]).repeat(STEPS // 2).view(-1, 1))


@pytest.mark.parametrize("kind", LAYERS)
def test_plain_initial_weights_and_ordinary_inputs(kind):
    """Nothing extreme: Glorot weights as they start, points about 1 from the origin, many draws."""
    ball = PoincareBall(1.0)
    for _ in range(20):
        layer = LAYERS[kind](ball, 2, 2, bias_std=0.5)
        check(layer, ball.random(100, 10, 2))
