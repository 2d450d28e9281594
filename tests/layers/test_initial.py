"""How parameters start: matrices Glorot uniform, tables by the formula of the official code, points at the origin."""

import pytest
import torch
from geoopt import ManifoldParameter

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import euclidean, mobius
from hyperbolic.layers.initial import glorot, uniform_table
from hyperbolic.manifolds import PoincareBall


def geometry(name: str, c: float = 2.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)


# the geometries whose linear layer is a matrix in the tangent space at the origin
TANGENT = [name for name in GEOMETRIES if name not in ("lorentz", "poincare_pp")]


def uniform_in(weight: torch.Tensor, bound: float) -> None:
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.95 * bound
    assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert weight.mean().abs() < 0.05 * bound


def test_glorot_uniform():
    """Fans are the last two axes: a stack of gates starts as its matrices would alone."""
    uniform_in(glorot(torch.empty(60, 90)), (6 / 150) ** 0.5)
    uniform_in(glorot(torch.empty(2, 3, 60, 90)), (6 / 150) ** 0.5)
    uniform_in(glorot(torch.empty(3, 40, 10, 2)), (6 / 12) ** 0.5)


@pytest.mark.parametrize("d", [5, 100])
@pytest.mark.parametrize("init_norm", [1e-3, 0.1])
def test_tables(d, init_norm):
    bound = (3 * init_norm**2 / (2 * d)) ** (1 / 3)
    table = uniform_table(4000, d, init_norm, padding_idx=7)
    assert not table[7].any()
    assert table[6].all()
    uniform_in(table, bound)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_family_starts_its_tables_alike(name):
    """For d = 5 and an init_norm of 0.001 the mean norm is 0.0085."""
    g = geometry(name)
    table = g.embedding(20000, 5, padding_idx=3)
    vectors = g.manifold.logmap0(table(torch.arange(20000))).detach()
    assert not vectors[3].any()
    assert vectors.norm(dim=-1).mean().item() == pytest.approx(0.0085, abs=1e-4)


def test_tables_of_any_size_start_inside_the_ball():
    ball = PoincareBall(4.0)
    table = mobius.Embedding(ball, 50, 5, init_norm=50.0)
    assert isinstance(table.weight, ManifoldParameter)
    assert table.weight.manifold is ball
    assert ball.check_point_on_manifold(table.weight.detach())
    index = torch.tensor([[3, 3], [0, 49]])
    assert torch.equal(table(index), table.weight[index])


SIZES = {"Linear": (4, 3), "Concat": ((4, 2), 3), "RNN": (4, 3), "GRU": (4, 3), "RNNCell": (4, 3), "GRUCell": (4, 3)}


@pytest.mark.parametrize("layer", SIZES)
def test_biases_start_at_the_origin(layer):
    for family, manifold in ((euclidean, geometry("euclidean").manifold), (mobius, PoincareBall(2.0))):
        options = {"n_features": 2} if layer == "Concat" else {}
        module = getattr(family, layer)(manifold, *SIZES[layer], **options)
        biases = {name: p for name, p in module.named_parameters() if "bias" in name}
        assert set(biases) == ({"bias", "feature_bias"} if layer == "Concat" else {"bias"})
        assert not any(p.any() for p in biases.values())
        assert all(isinstance(p, ManifoldParameter) == (family is mobius) for p in biases.values())
        matrices = [p for name, p in module.named_parameters() if "bias" not in name]
        assert not any(isinstance(p, ManifoldParameter) for p in matrices)


@pytest.mark.parametrize("layer", ["Linear", "Concat", "RNN", "GRU"])
def test_spread_biases(layer):
    """exp_0 of a normal with the given deviation (Lopez & Strube's code: 1e-3 in linear layers, 1e-5 elsewhere)."""
    ball = PoincareBall(2.0)
    sizes = ((4,), 3000) if layer == "Concat" else (4, 1500)
    module = getattr(mobius, layer)(ball, *sizes, bias_std=1e-3)
    assert ball.logmap0(module.bias.detach()).std().item() == pytest.approx(1e-3, rel=0.1)
    if layer == "Linear":
        logits = mobius.Logits(ball, 5, 2000, point_std=1e-5)
        assert ball.logmap0(logits.p.detach()).std().item() == pytest.approx(1e-5, rel=0.1)
        assert not mobius.Logits(ball, 5, 3).p.any()


@pytest.mark.parametrize("name", TANGENT)
def test_layers_without_bias(name):
    g = geometry(name)
    linear, concat = g.linear(3, 2, bias=False).double(), g.concat((3, 2), 4, bias=False, n_features=1).double()
    assert [n.removeprefix("inner.") for n, _ in linear.named_parameters()] == ["weight"]
    assert not any(n.endswith(".bias") or n == "bias" for n, _ in concat.named_parameters())
    x, y = (g.manifold.random(4, d, std=0.3, dtype=torch.float64) for d in (3, 2))
    inner, flat = getattr(linear, "inner", linear), g.manifold.logmap0(x)
    torch.testing.assert_close(linear(x), g.manifold.expmap0(flat @ inner.weight.T))
    origin = g.manifold.origin(4, 3, dtype=torch.float64)
    torch.testing.assert_close(linear(origin), g.manifold.origin(4, 2, dtype=torch.float64))
    without = concat(x, y, features=torch.zeros(4, 1, dtype=torch.float64))
    torch.testing.assert_close(without, concat(x, y, features=torch.ones(4, 1, dtype=torch.float64)))  # b_j starts at 0


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_scalar_of_attention_starts_small_with_either_sign(name):
    values = torch.stack([geometry(name).attention(3).beta.detach() for _ in range(1000)])
    uniform_in(values, 0.01)


@pytest.mark.parametrize("name", TANGENT)
def test_normals_are_glorot_and_binary_logits_have_one_class(name):
    g = geometry(name)
    logits = g.logits(30, 50)
    inner = getattr(logits, "inner", logits)
    uniform_in(inner.a.detach(), (6 / 80) ** 0.5)
    assert g.logits(3, 1)(g.manifold.origin(4, 3)).shape == (4, 1)


@pytest.mark.parametrize("name", ["euclidean", "poincare_tangent"])
def test_a_linear_layer_that_starts_as_pytorchs(name):
    layer = geometry(name).linear(400, 60, init="fan_in")
    layer = getattr(layer, "inner", layer)
    uniform_in(layer.weight.detach(), 400**-0.5)
    assert 0 < layer.bias.abs().max() <= 400**-0.5
    with pytest.raises(ValueError, match="init: unknown value 'zero'; available: glorot, fan_in"):
        geometry(name).linear(4, 2, init="zero")


def test_the_gain_of_a_mobius_layer():
    uniform_in(geometry("poincare").linear(90, 60, gain=3.0).weight.detach(), 3 * (6 / 150) ** 0.5)


def test_a_bias_that_is_trained_in_the_tangent_space():
    """``(W (x) x) (+) exp_0(v)``: v is Euclidean, and the result is that of the point as a bias."""
    layer, other = (geometry("poincare").linear(5, 4, tangent_bias=tangent) for tangent in (True, False))
    assert not isinstance(layer.bias, ManifoldParameter)
    assert isinstance(other.bias, ManifoldParameter)
    assert layer.bias.eq(0).all()
    with torch.no_grad():
        layer.bias.normal_()
        other.weight.copy_(layer.weight)
        other.bias.copy_(layer.manifold.expmap0(layer.bias))
    x = 0.2 * torch.rand(3, 5)
    torch.testing.assert_close(layer(x), other(x))
    layer(x).sum().backward()
    assert layer.bias.grad.norm() > 0


@pytest.mark.parametrize("name", ["euclidean", "poincare_tangent", "poincare"])
def test_a_training_step_leaves_out_entries_of_the_matrix(name):
    """All of them, and nothing is left of x but the bias; in evaluation none."""
    own = geometry(name)
    layer, whole = own.linear(5, 4, weight_dropout=1.0), own.linear(5, 4)
    with torch.no_grad():
        for p in whole.parameters():
            p.uniform_(0.1, 0.2)
    layer.load_state_dict(whole.state_dict())
    x = 0.2 * torch.rand(3, 5)
    torch.testing.assert_close(layer(x), whole(torch.zeros(3, 5)))
    torch.testing.assert_close(layer.eval()(x), whole(x))
