"""Residual, feed-forward, positions and norm of the Euclidean, tangent and Möbius families, by their formulas."""

import pytest
import torch
from torch import nn

from hyperbolic.layers import euclidean, mobius, tangent
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.optim import parameter_groups
from tests.layers.filled import filled
from tests.tolerances import tolerance

F64 = torch.float64
IDENTITY = tolerance(F64, "identity")
FLAT, BALL = Euclidean(), PoincareBall(c=2.0)
FAMILIES = {"euclidean": (euclidean, FLAT), "tangent": (tangent, Lorentz(c=0.5)), "mobius": (mobius, BALL)}
family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(params=[PoincareBall(c=2.0), Lorentz(c=0.5), Klein(c=2.0)], ids=lambda m: m.name)
def manifold(request):
    return request.param


def test_the_euclidean_residual_and_block():
    o, x = torch.randn(5, 2, dtype=F64), torch.randn(5, 3, dtype=F64)
    layer = filled(euclidean.Residual(FLAT, 2, 3, "tanh"))
    torch.testing.assert_close(layer(o, x), x + o.tanh() @ layer.affine.weight.T + layer.affine.bias)
    plain = filled(euclidean.Residual(FLAT, 2, 3))
    torch.testing.assert_close(plain(o, x), x + o @ plain.affine.weight.T + plain.affine.bias)
    block = filled(euclidean.FeedForward(FLAT, 3, 7))
    first, second = block.expand, block.join.affine
    inner = (x @ first.weight.T + first.bias).relu() @ second.weight.T + second.bias
    torch.testing.assert_close(block(x), x + inner)
    torch.testing.assert_close(block(x, 2 * x), 2 * x + inner)


def test_the_tangent_layers_are_the_euclidean_ones_between_log_and_exp(manifold):
    m = manifold
    x, o, y = (m.random(4, 5, d, std=0.5, dtype=F64) for d in (3, 2, 3))
    u, v, w = (m.logmap0(point) for point in (x, o, y))
    for name, sizes, inputs, vectors in (
        ("Residual", (2, 3, "tanh"), (o, x), (v, u)),
        ("FeedForward", (3, 7, "sigmoid"), (x,), (u,)),
        ("FeedForward", (3, 7), (x, y), (u, w)),
        ("PositionEncoding", (3, 6), (x,), (u,)),
        ("PositionEncoding", (3, 6), (x, torch.tensor([5, 0, 1, 1, 2])), (u, torch.tensor([5, 0, 1, 1, 2]))),
        ("Norm", (3,), (x,), (u,)),
    ):
        layer, flat = filled(getattr(tangent, name)(m, *sizes)), getattr(euclidean, name)(FLAT, *sizes).double()
        flat.load_state_dict(getattr(layer, "inner", layer).state_dict())
        torch.testing.assert_close(layer(*inputs), m.expmap0(flat(*vectors)), **IDENTITY)


def test_mobius_operands_are_added_in_the_stated_order():
    x, o = BALL.random(5, 3, std=0.5, dtype=F64), BALL.random(5, 2, std=0.5, dtype=F64)
    layer, plus = filled(mobius.Residual(BALL, 2, 3, "tanh")), BALL.mobius_add
    phi = BALL.expmap0(BALL.logmap0(o).tanh())
    added = plus(BALL.mobius_matvec(layer.affine.weight, phi), layer.affine.bias)
    torch.testing.assert_close(layer(o, x), plus(x, added), **IDENTITY)
    assert (layer(o, x) - plus(added, x)).abs().max() > 1e-3
    block = filled(mobius.FeedForward(BALL, 3, 7))
    torch.testing.assert_close(block(x), block.join(block.expand(x), x), **IDENTITY)
    torch.testing.assert_close(block(x, -x), block.join(block.expand(x), -x), **IDENTITY)
    table = filled(mobius.PositionEncoding(BALL, 3, 5))
    torch.testing.assert_close(table(x), plus(x, table.table), **IDENTITY)
    assert (table(x) - plus(table.table, x)).abs().max() > 1e-3


def test_the_norm():
    x = torch.randn(4, 6, dtype=F64, requires_grad=True)
    layer, peer = filled(euclidean.Norm(FLAT, 6)), nn.LayerNorm(6).double()
    peer.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), peer(x))
    scaled = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(layer(x), scaled * layer.weight + layer.bias)
    point = BALL.random(4, 3)
    norm = mobius.Norm(BALL, 3)
    assert norm(point) is point
    assert not list(norm.parameters())


@family
def test_dropout_falls_on_what_is_added_and_only_in_training(family):
    layers, m = FAMILIES[family]
    x, o = m.random(400, 3, std=0.5, dtype=F64), m.random(400, 2, std=0.5, dtype=F64)
    residual = filled(layers.Residual(m, 2, 3, dropout=0.5))
    whole = residual.eval()(o, x)
    plain = layers.Residual(m, 2, 3).double()
    plain.load_state_dict(residual.state_dict())
    assert torch.equal(whole, plain(o, x))
    dropped = residual.train()(o, x)
    untouched = (m.logmap0(dropped) - m.logmap0(x)).abs().amax(-1) < 1e-12
    assert 0.05 < untouched.double().mean() < 0.25, "an eighth of the rows lose all three coordinates"
    table = filled(layers.PositionEncoding(m, 3, 400, dropout=0.5))
    assert torch.equal(table.eval()(x), table(x))
    zeros = (m.logmap0(table.train()(x)).abs() < 1e-12).double().mean()
    assert 0.4 < zeros < 0.6


@family
def test_positions_default_to_the_first_ones(family):
    layers, m = FAMILIES[family]
    layer, x = filled(layers.PositionEncoding(m, 3, 6)), m.random(2, 4, 3, std=0.5, dtype=F64)
    torch.testing.assert_close(layer(x), layer(x, torch.arange(4)))
    choice = torch.tensor([[3, 1, 0, 5], [0, 0, 2, 2]])
    for b, t in ((0, 0), (0, 3), (1, 1), (1, 2)):
        torch.testing.assert_close(layer(x, choice)[b, t], layer(x[b, t : t + 1], choice[b, t : t + 1])[0])
    assert layer(x[:0]).shape == (0, *x.shape[1:])
    with pytest.raises(ValueError, match=rf"{family}\.PositionEncoding: .*N > 0, got the shape \(2, 0, "):
        layer(x[:, :0])


@family
def test_positions_beyond_the_table_are_named(family):
    layers, m = FAMILIES[family]
    layer = layers.PositionEncoding(m, 3, 4).double()
    x = m.random(2, 5, 3, dtype=F64)
    name = rf"{family}\.PositionEncoding: "
    with pytest.raises(ValueError, match=name + r".*n_positions=4 positions, got a tensor of shape \(2, 5, [34]\)"):
        layer(x)
    for positions, got in (([0, 1, 2, 3, 4], "0..4"), ([-1, 0, 0, 0, 0], "-1..0")):
        with pytest.raises(ValueError, match=name + rf"positions must lie in 0..3 \(n_positions=4\), got {got}"):
            layer(x, torch.tensor(positions))
    with pytest.raises(ValueError, match="n_positions must be at least 1, got 0"):
        layers.PositionEncoding(m, 3, 0)


def test_tables_of_positions_start_small_and_are_trained_as_tables():
    layer = mobius.PositionEncoding(BALL, 3, 5000)
    assert BALL.logmap0(layer.table.detach()).std().item() == pytest.approx(0.02, rel=0.05)
    (group,) = parameter_groups(layer)
    assert group["role"] == "embeddings"
    assert euclidean.PositionEncoding(FLAT, 3, 5000).table.std().item() == pytest.approx(0.02, rel=0.05)


def test_an_unknown_activation():
    with pytest.raises(ValueError, match="unknown nonlinearity 'gelu'"):
        mobius.FeedForward(BALL, 3, 4, "gelu")
