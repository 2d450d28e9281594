"""The Lorentz family: HyboNet's layers against their formulas written out, for any curvature."""

import pytest
import torch
from torch import nn

from hyperbolic.layers import lorentz, tangent
from hyperbolic.layers.lorentz_linear import VARIANTS
from hyperbolic.manifolds import Lorentz
from tests.layers.lorentz_formulas import CLOSE, CURVATURES, F64, normalised, points, spread, with_time


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_results_are_points_and_the_curvature_gets_a_gradient(c, dtype):
    space = Lorentz(c, learn_c=True)
    x, o = points(c, 2, 6, 4, dtype=dtype), points(c, 2, 6, 3, dtype=dtype)
    index = torch.arange(6).expand(2, 6)
    makes = [
        lambda: lorentz.Linear(space, 4, 3).to(dtype)(x),
        lambda: lorentz.Linear(space, 4, 3, normalize=False, activation="relu", dropout=0.2).to(dtype)(x),
        lambda: lorentz.Linear(space, 4, 3, heads=2, dropout=0.2).to(dtype)(x),
        lambda: lorentz.Linear(space, 4, 3, heads=2, normalize=False).to(dtype)(x),
        lambda: lorentz.Activation(space, "tanh")(x),
        lambda: lorentz.Dropout(space, 0.4)(x),
        lambda: lorentz.Concat(space, (4, 3), 5, n_features=2).to(dtype)(x, o, features=x[..., :2]),
        lambda: lorentz.Residual(space, 3, 4, activation="relu").to(dtype)(o, x),
        lambda: lorentz.PositionEncoding(space, 4, 9, dropout=0.1).to(dtype)(x),
        lambda: lorentz.FeedForward(space, 4, 8, dropout=0.1).to(dtype)(x),
        lambda: lorentz.Attention(space, 4, n_positions=6).to(dtype)(x, index)[0],
        lambda: lorentz.ContextAttention(space, 4).to(dtype)(x)[0],
        lambda: lorentz.MultiHeadAttention(space, 4, 2).to(dtype)(x),
        lambda: lorentz.Centroid(space)(x),
    ]
    for number, make in enumerate(makes):
        out = make()
        assert out.dtype is dtype
        ok, reason = space._check_point_on_manifold(out.detach(), atol=1e-6, rtol=1e-6)
        assert ok, (number, reason)
        (grad,) = torch.autograd.grad(out.sum(), space.free_c)
        assert torch.isfinite(grad), number
        assert grad != 0, number


@pytest.mark.parametrize("c", CURVATURES)
def test_residual_and_positions_are_their_formulas(c):
    space = Lorentz(c)
    o, x = points(c, 2, 5, 3), points(c, 2, 5, 4)
    for name in ("paper", "mt"):
        layer = spread(lorentz.Residual(space, 3, 4, activation="tanh", variant=name))
        linear = layer.affine
        v, w, h = linear.weight[0], linear.weight[1:], torch.tanh(o)
        time_logit = o @ v if name == "paper" else h @ v + x[..., 0]
        expected = normalised(time_logit, h @ w.T + x[..., 1:], linear.scale, c)
        torch.testing.assert_close(layer(o, x), expected, **CLOSE)

        layer = spread(lorentz.PositionEncoding(space, 4, 9, variant=name))
        linear, places = layer.affine, torch.tensor([3, 0, 8, 1, 1])
        u = x @ linear.weight.T
        assert linear.bias is None  # the vector of the position is the bias
        row = layer.table[places] if name == "mt" else nn.functional.pad(layer.table[places], (1, 0))
        expected = normalised((u + row)[..., 0], (u + row)[..., 1:], linear.scale, c)
        torch.testing.assert_close(layer(x, places), expected, **CLOSE)
        torch.testing.assert_close(layer(x), layer(x, torch.arange(5)))


def test_the_residual_reaches_every_coordinate_and_the_position_every_point():
    space = Lorentz(2.0)
    o, x = points(2.0, 3), points(2.0, 4)
    for name in VARIANTS:
        layer = spread(lorentz.Residual(space, 3, 4, variant=name))
        jacobian = torch.autograd.functional.jacobian(lambda t, layer=layer: layer(o, t), x)
        assert (jacobian[1:, 1:].diagonal().abs() > 1e-4).all()
        assert bool((jacobian[0].abs() > 1e-6).any()) == (name in ("gcn", "mt", "tangent"))  # does x count in the time coordinate?
    layer = spread(lorentz.PositionEncoding(space, 4, 9))
    out = layer(x.expand(1, 9, -1))[0]
    assert (out[1:] - out[:-1]).abs().amax(-1).min() > 1e-3


def test_the_dropout_of_positions_is_the_models_or_their_own():
    space, x = Lorentz(2.0), points(2.0, 7, 4)
    for options, dropped in (({"dropout": 0.5}, True), ({"dropout": 0.5, "input_dropout": 0.0}, False)):
        layer = spread(lorentz.PositionEncoding(space, 4, 9, **options))
        assert torch.equal(layer(x), layer.eval()(x)) != dropped
    assert lorentz.PositionEncoding(space, 4, 9, dropout=0.0, input_dropout=0.1).affine.drop.p == 0.1


@pytest.mark.parametrize("c", CURVATURES)
def test_feed_forward_and_concat_are_their_formulas(c):
    space = Lorentz(c)
    x, y, features = points(c, 5, 3), points(c, 5, 2), torch.randn(5, 2, dtype=F64)
    layer = spread(lorentz.FeedForward(space, 3, 6))
    first, second = layer.expand, layer.join.affine
    u = x @ first.weight.T + first.bias
    o = normalised(u[:, 0], u[:, 1:], first.log_scale.exp(), c)
    for base in (x, points(c, 5, 3)):
        v = o.relu() @ second.weight[1:].T + base[:, 1:]
        expected = normalised(o @ second.weight[0], v, second.log_scale.exp(), c)
        torch.testing.assert_close(layer(x) if base is x else layer(x, base), expected, **CLOSE)

    layer = spread(lorentz.Concat(space, (3, 2), 4, n_features=2))
    joined = with_time(torch.cat([x[:, 1:], y[:, 1:]], -1), c)
    u = joined @ layer.affine.weight.T + layer.affine.bias
    expected = normalised(u[:, 0], u[:, 1:] + features @ layer.feature_bias, layer.affine.scale, c)
    torch.testing.assert_close(layer(x, y, features=features), expected, **CLOSE)


def test_starts():
    space = Lorentz(2.0)
    bounds = {"paper": 0.02, "kg": (6 / (41 * 31)) ** 0.5, "gcn": 41**-0.5, "mt": 0.02}
    scales = {"paper": 10.0, "kg": 2.5, "gcn": 10.0, "mt": 9.974}
    for name, bound in bounds.items():
        layer = lorentz.Linear(space, 30, 40, variant=name)
        assert 0.95 * bound < layer.weight.abs().max() <= bound
        assert bool(layer.weight[:, 0].any()) == (name in ("paper", "kg"))
        assert not layer.bias.any()
        assert layer.scale.item() == pytest.approx(scales[name], rel=1e-4)
        assert isinstance(layer.log_scale, nn.Parameter) == (name != "kg")
    assert lorentz.Linear(space, 3, 4, variant="kg", scale=3.5).scale == 3.5
    assert not dict(lorentz.Linear(space, 3, 4, scale=2.0, learn_scale=False).named_parameters()).keys() - {
        "weight",
        "bias",
    }
    table = lorentz.Embedding(space, 2000, 4, padding_idx=3, start="unit").weight.detach()
    distance = space.dist0(table) * 2**0.5  # in units of 1/sqrt(c): space part of a unit vector with 5 entries
    assert distance[3] == 0
    assert 0.99 < distance.max() <= 1 + 1e-5
    assert distance.square().mean().item() == pytest.approx(4 / 5, abs=0.02)
    small = lorentz.Embedding(space, 20000, 5, padding_idx=0).weight.detach()
    assert small[:, 1:].norm(dim=-1).mean().item() == pytest.approx(0.0085, abs=1e-4)
    encoding = lorentz.PositionEncoding(space, 30, 50, variant="mt").table
    assert encoding.shape == (50, 31)
    assert encoding.std().item() == pytest.approx(0.02, rel=0.1)


def test_activation_and_dropout_act_on_the_space_coordinates():
    space = Lorentz(2.0)
    x = points(2.0, 400, 4)
    torch.testing.assert_close(lorentz.Activation(space, "relu")(x), with_time(x[:, 1:].relu(), 2.0))
    assert lorentz.Activation(space, "identity")(x) is x
    layer = lorentz.Dropout(space, 0.25)
    out = layer(x)
    remaining = out[:, 1:] != 0
    assert 0.7 < remaining.double().mean() < 0.8
    torch.testing.assert_close(out[:, 1:][remaining], x[:, 1:][remaining] / 0.75)
    assert layer.eval()(x) is x
    linear = spread(lorentz.Linear(space, 4, 3, dropout=0.5))
    assert not torch.equal(linear(x), linear(x))
    torch.testing.assert_close(linear(x)[:, 0], linear.eval()(x)[:, 0])  # the paper's time comes from x itself
    linear = spread(lorentz.Linear(space, 4, 3, dropout=0.5, variant="mt"))
    assert (linear(x)[:, 0] - linear.eval()(x)[:, 0]).abs().max() > 1e-3


def test_recurrent_layers_are_the_tangent_familys():
    for name in ("RNN", "GRU", "RNNCell", "GRUCell"):
        assert getattr(lorentz, name) is getattr(tangent, name)


@pytest.mark.parametrize("radius", [1e-6, 3.0, 12.0])
def test_far_points_in_float32(radius):
    """Finite results and gradients of every layer out to the stated radius."""
    space = Lorentz(2.5)
    direction = nn.functional.normalize(torch.randn(3, 5, 6), dim=-1)
    x = space.expmap0(direction * radius / 2.5**0.5).requires_grad_()
    layers = [
        lorentz.Linear(space, 6, 4),
        lorentz.Linear(space, 6, 4, normalize=False),
        lorentz.Activation(space, "relu"),
        lorentz.FeedForward(space, 6, 8, variant="mt"),
        lorentz.PositionEncoding(space, 6, 5),
        lorentz.MultiHeadAttention(space, 6, 3),
    ]
    for layer in layers:
        out = layer(x)
        assert space.check_point_on_manifold(out.detach(), atol=1e-6, rtol=1e-6), layer
        grads = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()], allow_unused=True)
        assert all(torch.isfinite(grad).all() for grad in grads if grad is not None), layer


def test_a_table_stays_on_the_sheet_while_the_curvature_moves():
    """Rows that an optimiser does not touch keep their space parts; their time coordinates follow c."""
    space = Lorentz(0.7, learn_c=True)
    table = lorentz.Embedding(space, 5, 3, start="unit").double()
    before = table.weight.detach().clone()
    with torch.no_grad():
        space.free_c.add_(1.0)
    c = float(space.c.detach())
    assert c > 1.3
    out = table(torch.tensor([[4, 0], [4, 2]]))
    expected = with_time(before[[4, 0, 4, 2], 1:], c).view(2, 2, 4)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=0)
    (grad,) = torch.autograd.grad(out[..., 0].sum(), space.free_c, retain_graph=True)
    slope = torch.autograd.functional.jacobian(nn.functional.softplus, space.free_c.detach())
    torch.testing.assert_close(grad, (-0.5 / c**2 / expected[..., 0]).sum() * slope)
    (rows,) = torch.autograd.grad(out.square().sum(), table.weight)
    assert not rows[[1, 3]].any()
    assert rows[[0, 2, 4], 1:].any(-1).all()
    fixed = lorentz.Embedding(Lorentz(0.7), 5, 3).double()
    assert torch.equal(fixed(torch.arange(5)), fixed.weight)


@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches_and_strides(batch):
    space = Lorentz(2.0)
    x = points(2.0, 7, batch, 3).transpose(0, 1)
    for layer in (
        spread(lorentz.Linear(space, 3, 4)),
        spread(lorentz.Linear(space, 3, 4, normalize=False, heads=2)),
        spread(lorentz.FeedForward(space, 3, 4)),
        spread(lorentz.PositionEncoding(space, 3, 9)),
    ):
        out = layer(x)
        assert out.shape[:2] == (batch, 7)
        torch.testing.assert_close(out, layer(x.contiguous()))
        out.sum().backward()


def test_mistakes_are_named():
    space = Lorentz(2.0)
    x = points(2.0, 5, 3)
    with pytest.raises(ValueError, match="start: unknown value"):
        lorentz.Embedding(space, 3, 4, start="normal")
    for wrong in (torch.ones(4), space.random(5, 3).detach(), torch.ones(2, 4)):
        with pytest.raises(ValueError, match=r"Logits: "):
            lorentz.Logits(space, 3, 2).start_at(wrong)
    with pytest.raises(ValueError, match=r"Linear.*5 coordinates \(size 4\).*\(5, 4\)"):
        lorentz.Linear(space, 4, 4).double()(x)
    concat = lorentz.Concat(space, (3, 3), 4).double()
    with pytest.raises(ValueError, match="takes 2 points"):
        concat(x)
    with pytest.raises(ValueError, match="at most n_positions=2"):
        lorentz.PositionEncoding(space, 3, 2).double()(x)
