"""As c goes to 0, Möbius layers are the Euclidean layers with the same parameters; and what the tangent family is."""

import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import euclidean, klein, lorentz, mobius, tangent
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam
from hyperbolic.smooth import inverse_softplus
from tests.tolerances import tolerance

F64 = torch.float64
FLAT, BALL = Euclidean(), PoincareBall(c=1e-12)


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(torch.float32)


def twins(name, *sizes, **options):
    """The Möbius and the Euclidean layer of a name, with the same random parameters."""
    curved, flat = getattr(mobius, name)(BALL, *sizes, **options), getattr(euclidean, name)(FLAT, *sizes, **options)
    assert [n for n, _ in curved.named_parameters()] == [n for n, _ in flat.named_parameters()]
    with torch.no_grad():
        for p, q in zip(curved.parameters(), flat.parameters(), strict=True):
            q.copy_(0.5 * torch.randn_like(q))
            p.copy_(q)
    return curved, flat


def agree(a, b):
    torch.testing.assert_close(a, b, **tolerance(F64, "limit"))


def test_linear_activation_and_concat():
    x, y, feature = torch.randn(6, 3), torch.randn(6, 2), torch.randn(6, 2)
    curved, flat = twins("Linear", 3, 4)
    agree(curved(x), flat(x))
    curved, flat = twins("Concat", (3, 2), 4, n_features=2)
    agree(curved(x, y, features=feature), flat(x, y, features=feature))
    for fn in ("identity", "tanh", "relu", "sigmoid"):
        agree(mobius.Activation(BALL, fn)(x), euclidean.Activation(FLAT, fn)(x))


def test_sums_from_the_left():
    x, weights, mask = torch.randn(4, 6, 3), torch.randn(4, 6), torch.rand(4, 6) < 0.7
    curved, flat = twins("OrderedSum")
    for inputs in ((), (weights,), (weights, mask)):
        agree(curved(x, *inputs), flat(x, *inputs))


@pytest.mark.parametrize("name", ["RNN", "GRU"])
@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
@pytest.mark.parametrize("options", [{}, {"streams": 2}, {"bidirectional": True}])
def test_recurrent_layers_and_cells(name, nonlinearity, options):
    shape = (2, 4, 5, 3) if options.get("streams") else (4, 5, 3)
    x, lengths = torch.randn(shape), torch.tensor([5, 1, 3, 2]).expand(shape[:-2])
    curved, flat = twins(name, 3, 4, nonlinearity=nonlinearity, **options)
    for a, b in zip(curved(x, lengths), flat(x, lengths), strict=True):
        agree(a, b)
    cell, flat_cell = twins(f"{name}Cell", 3, 4, nonlinearity=nonlinearity)
    h = torch.randn(4, 4)
    agree(cell(x[..., 0, :], h), flat_cell(x[..., 0, :], h))


@pytest.mark.parametrize("name", ["RNN", "GRU"])
def test_the_euclidean_layers_are_their_cells(name):
    layer, cell = getattr(euclidean, name)(FLAT, 3, 4), getattr(euclidean, f"{name}Cell")(FLAT, 3, 4)
    cell.load_state_dict({key: value[0] for key, value in layer.state_dict().items()})
    x, h, states = torch.randn(2, 5, 3), torch.zeros(2, 4), []
    for t in range(5):
        h = cell(x[:, t], h)
        states.append(h)
    torch.testing.assert_close(layer(x)[0], torch.stack(states, 1))


def test_attention_has_twice_the_distances_and_the_same_mean():
    x, positions = torch.randn(4, 5, 3), torch.arange(5).expand(4, 5)
    curved, flat = twins("Attention", 3, n_positions=5)
    with torch.no_grad():
        flat.beta.mul_(2)  # the ball's distance is 2|x - y| at c = 0
    for a, b in zip(curved(x, positions), flat(x, positions), strict=True):
        agree(a, b)
    agree(mobius.Centroid(BALL)(x, x[..., 0].abs()), euclidean.Centroid(FLAT)(x, x[..., 0].abs()))


def test_the_mlr_is_four_times_the_inner_product():
    x = torch.randn(6, 3)
    curved, flat = twins("Logits", 3, 4)
    agree(curved(x), euclidean_logits := 4 * flat(x))
    flat.scale = 4.0
    agree(flat(x), euclidean_logits)
    torch.testing.assert_close(flat(x), 4 * ((x.unsqueeze(-2) - flat.p) * flat.a).sum(-1))


@pytest.mark.parametrize("manifold", [PoincareBall(c=2.0), Lorentz(c=0.5), Klein(c=2.0)], ids=lambda m: m.name)
def test_the_tangent_family_is_exp_layer_log(manifold):
    u, v, feature = 0.3 * torch.randn(4, 3), 0.3 * torch.randn(4, 2), torch.rand(4, 1)
    x, y = manifold.expmap0(u), manifold.expmap0(v)
    linear = tangent.Linear(manifold, 3, 4)
    nn.init.normal_(linear.inner.bias, std=0.2)
    torch.testing.assert_close(linear(x), manifold.expmap0(u @ linear.inner.weight.T + linear.inner.bias))
    concat = tangent.Concat(manifold, (3, 2), 4, n_features=1)
    nn.init.normal_(concat.inner.feature_bias)
    a, b = concat.inner.weights
    joined = u @ a.T + v @ b.T + concat.inner.bias + feature * concat.inner.feature_bias[0]
    torch.testing.assert_close(concat(x, y, features=feature), manifold.expmap0(joined))
    logits = tangent.Logits(manifold, 3, 5)
    torch.testing.assert_close(logits(x), u @ logits.inner.a.T)
    gru = tangent.GRU(manifold, 3, 4)
    sequence = 0.3 * torch.randn(4, 5, 3)
    states, last = gru(manifold.expmap0(sequence))
    torch.testing.assert_close(states, manifold.expmap0(gru.inner(sequence)[0]))
    torch.testing.assert_close(last, states[:, -1])


def test_rows_of_a_table_stay_inside_the_ball_when_a_learned_c_grows():
    ball = PoincareBall(learn_c=True)
    layers = mobius.Embedding(ball, 2, 3), mobius.Logits(ball, 3, 2)
    with torch.no_grad():
        for table in (layers[0].weight, layers[1].p):
            table.copy_(ball.expmap0(torch.tensor([[3.0, 0, 0], [0, 0.1, 0]])))
        ball.free_c.fill_(2.0)
    rows = layers[0](torch.tensor([0, 1]))
    for points in (rows, layers[1].class_points):
        assert float((ball.c * points.square().sum(-1).max()).detach()) < 1
    assert layers[1](rows).isfinite().all()


def test_a_layer_that_was_built_without_memory_has_its_curvature():
    for learn in (False, True):
        with torch.device("meta"):
            layer = mobius.Linear(PoincareBall(2.0, learn_c=learn), 3, 2)
        assert float(layer.to_empty(device="cpu").manifold.c.detach()) == pytest.approx(2)


def test_results_stay_inside_the_ball_when_a_learned_c_has_grown_since_biases_moved():
    ball = PoincareBall(learn_c=True)
    x = ball.random(4, 3, std=0.1).detach()
    linear, concat = mobius.Linear(ball, 3, 2), mobius.Concat(ball, (3,), 2, n_features=1)
    with torch.no_grad():
        for bias in (linear.bias, concat.bias, concat.feature_bias):
            bias.copy_(torch.tensor([0.8, 0.0]))
        ball.free_c.fill_(2.0)
        for result in (linear(x), concat(x, features=torch.ones(4, 1))):
            assert float(ball.c * result.square().sum(-1).max()) < 1


@pytest.mark.parametrize("kind", [PoincareBall, Klein])
def test_layers_of_steps_have_their_points_inside_when_a_learned_c_has_grown(kind):
    """As of biases that are frozen, or trained by another optimiser, which does not move them along."""
    family = mobius if kind is PoincareBall else klein
    manifold = kind(0.5, learn_c=True)
    x = manifold.random(2, 4, 3, std=0.1).detach()
    layers = [(family.GRU(manifold, 3, 3), x), (family.RNN(manifold, 3, 3), x)]
    layers += [(family.PositionEncoding(manifold, 3, 4), x), (family.ContextAttention(manifold, 3), x)]
    if kind is PoincareBall:
        layers += [(mobius.GRU(manifold, 3, 3, variant="hypera"), x), (mobius.GRUCell(manifold, 3, 3), x[:, 0], x[:, 1])]
    for layer, *arguments in layers:
        points = [p for p in layer.parameters() if isinstance(p, ManifoldParameter)]
        with torch.no_grad():
            for p in points:
                p.copy_(p.manifold.expmap0(torch.full_like(p, 1.2)))
            manifold.free_c.fill_(3.0)
            left = layer(*arguments)
            for p in points:
                p.copy_(p.manifold.projx(p))
            torch.testing.assert_close(left, layer(*arguments))
            manifold.free_c.fill_(inverse_softplus(0.5))


@pytest.mark.parametrize("name", ["poincare", "klein", "lorentz", "lorentz_tangent", "poincare_tangent", "klein_tangent"])
def test_positions_are_the_same_where_c_is_learned(name):
    """Tables of vectors are no points."""
    manifold, family = GEOMETRIES[name]
    encodings = [make_geometry(name, manifold, family, 0.7, learn).position_encoding(3, 4) for learn in (False, True)]
    with torch.no_grad():
        for name, p in encodings[0].named_parameters():
            if name.endswith("table"):
                vectors = 0.5 * torch.randn(p.shape)
                p.copy_(p.manifold.projx(vectors) if isinstance(p, ManifoldParameter) else 4 * vectors)
    encodings[1].load_state_dict(encodings[0].state_dict(), strict=False)  # without c
    x = encodings[0].manifold.random(2, 4, 3).detach()
    for positions in (None, torch.tensor([2, 0, 1, 1])):
        fixed, learned = (encoding(x, positions) for encoding in encodings)
        torch.testing.assert_close(learned, fixed)


@pytest.mark.parametrize("family", [mobius, klein, lorentz, euclidean])
def test_sizes_below_one_are_refused(family):
    manifold = {mobius: PoincareBall, klein: Klein, lorentz: Lorentz, euclidean: Euclidean}[family]()
    for sizes in ((3, 0), (0, 3), (3, -2)):
        for layer in (family.GRU, family.RNN, family.Linear):
            with pytest.raises(ValueError, match=r"d_in=.*d_(hidden|out)="):
                layer(manifold, *sizes)
    with pytest.raises(ValueError, match="streams=0"):
        family.GRU(manifold, 3, 3, streams=0)


def test_biases_stay_inside_the_ball_when_a_step_moves_a_learned_c():
    ball = PoincareBall(learn_c=True)
    layer = mobius.Linear(ball, 2, 2)
    with torch.no_grad():
        layer.bias.copy_(ball.expmap0(torch.tensor([4.0, 0.0])))
    optimizer = RiemannianAdam(layer.parameters(), lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        (layer(ball.random(3, 2)).square().sum() - ball.c).backward()
        optimizer.step()
        assert float((ball.c * layer.bias.square().sum()).detach()) < 1
