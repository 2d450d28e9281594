"""All families: one set of names and signatures, results on the manifold, masks and lengths that hide padding."""

import copy
import inspect
import itertools

import geoopt
import pytest
import torch
from torch import nn

from hyperbolic import layers
from hyperbolic.geometry import FAMILIES, GEOMETRIES, MANIFOLDS, make_geometry
from hyperbolic.layers import klein, lorentz, mobius, poincare_pp, tangent
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from hyperbolic.optim import RiemannianAdam

FLAT = FAMILIES["euclidean"].layers
NAMES = sorted(FLAT)
# what the papers of a family do not define; Geometry's error names it
LACKS = {"mobius": {"MultiHeadAttention"}, "klein": {"MultiHeadAttention"}}
# layers of one paper alone
EXTRAS = {"lorentz": {"HyperplaneLogits"}}

OWN = {"scale", "init", "weight_dropout", "gate_bias"}  # options that flat layers have and others need not


def geometry(name, c=2.0, **options):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if name == "euclidean" else c, **options)


def test_families_have_the_same_names_and_first_arguments():
    assert len(NAMES) >= 18
    for key, family in FAMILIES.items():
        extras = EXTRAS.get(key, set())
        assert extras <= set(family.layers), key
        shared_names = set(family.layers) - extras
        assert shared_names == set(NAMES) - LACKS.get(key, set()), key
        for name in shared_names:
            flat = inspect.signature(FLAT[name]).parameters
            own = inspect.signature(family.layers[name]).parameters
            shared = [p for p in flat if p not in OWN]
            assert list(own)[: len(shared)] == shared, (key, name)
            for p in shared[1:]:
                assert own[p].default == flat[p].default, (key, name, p)
            for p in list(own)[len(shared) :]:
                assert own[p].default is not inspect.Parameter.empty, (key, name, p)


def test_forwards_take_the_same_arguments():
    """So that a model written against one family runs with every other."""
    for key, family in FAMILIES.items():
        for name in set(family.layers) - EXTRAS.get(key, set()):
            flat = inspect.signature(FLAT[name].forward).parameters
            own = inspect.signature(family.layers[name].forward).parameters
            kinds = {p.kind for p in own.values()}
            if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD in kinds:
                continue  # a wrapper, whose inner layer takes them
            assert list(own)[: len(flat)] == list(flat), (key, name)


def test_the_package_names_its_families():
    assert set(layers.__all__) == set(FAMILIES)
    for name, family in FAMILIES.items():
        module = getattr(layers, name)
        assert family.layers == {layer: getattr(module, layer) for layer in module.__all__}


def test_every_pair_of_family_and_manifold_is_a_geometry():
    pairs = {(m, f) for f, family in FAMILIES.items() for m, kind in MANIFOLDS.items() if family.fits(kind)}
    assert set(GEOMETRIES.values()) == pairs
    assert set(MANIFOLDS) == {m for m, _ in pairs}


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_layer_gives_points_and_gradients(name, dtype):
    g = geometry(name)
    m = g.manifold
    on = lambda x: m.check_point_on_manifold(x.detach(), atol=1e-6)  # noqa: E731
    index, lengths = torch.randint(0, 9, (4, 6)), torch.tensor([6, 1, 3, 2])
    embedding = g.embedding(9, 3, padding_idx=0).to(dtype)
    x = embedding(index)
    assert on(x)
    assert x.shape == (4, 6, m.ambient_dim(3))
    layers = [g.linear(3, 5), g.activation("tanh"), g.dropout(0.3), g.attention(3, n_positions=6), g.centroid()]
    linear, activation, dropout, attention, centroid = (layer.to(dtype) for layer in layers)
    for result in (linear(x), activation(x), dropout(x), attention(x, torch.arange(6).expand(4, 6))[0], centroid(x)):
        assert on(result)
    for maker, options in itertools.product((g.rnn, g.gru), ({}, {"bidirectional": True}, {"nonlinearity": "relu"})):
        layer = maker(3, 5, **options).to(dtype)
        states, last = layer(x, lengths)
        assert on(states)
        assert states.shape == (4, 6, m.ambient_dim(layer.d_out))
        assert last.shape == (4, m.ambient_dim(layer.d_out))
    concat, logits = g.concat((3, 3), 4, n_features=1).to(dtype), g.logits(4, 7).to(dtype)
    distance = m.dist2(x[:, 0], x[:, 1], keepdim=True)
    joined = concat(x[:, 0], x[:, 1], features=distance)
    assert on(joined)
    loss = torch.nn.functional.cross_entropy(logits(joined), torch.tensor([0, 1, 2, 3]))
    loss.backward()
    for module in (embedding, concat, logits):
        for parameter_name, p in module.named_parameters():
            assert p.grad is not None, parameter_name
            assert torch.isfinite(p.grad).all(), parameter_name


def layers_with_points(g):
    layers = [
        g.embedding(9, 3), g.linear(3, 4), g.concat((3, 2), 4, n_features=1), g.logits(3, 5), g.gru(3, 4, bidirectional=True), g.rnn(3, 4),
        g.context_attention(3), g.attention(3, n_positions=6), g.position_encoding(3, 6), g.residual(2, 3, activation="tanh", dropout=0.2),
    ]  # fmt: skip
    return nn.ModuleList(layers)


LEARNS_C = sorted({(name, learn) for name in GEOMETRIES for learn in (False, name not in ("euclidean", "hatt"))})


@pytest.mark.parametrize(("name", "learn_c"), LEARNS_C)
def test_points_stay_points_where_pytorch_replaces_parameters(name, learn_c):
    """A layer made without memory and one whose parameters are assigned train as one that was made as ever."""

    def classes(module):
        return {key: (type(p), getattr(p, "manifold", None) is not None) for key, p in module.named_parameters()}

    make = lambda: layers_with_points(geometry(name, learn_c=learn_c))  # noqa: E731
    usual, assigned = make(), make()
    with torch.device("meta"):
        empty = make()
    empty.to_empty(device="cpu").load_state_dict(usual.state_dict())
    assigned.load_state_dict({key: value.clone() for key, value in usual.state_dict().items()}, assign=True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        converted = copy.deepcopy(usual).double().float()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    for each in (empty, assigned, converted):
        assert classes(each) == classes(usual)
    index = torch.tensor([[0, 3], [5, 8]])
    for each in (usual, empty, assigned, converted):
        optimizer = RiemannianAdam(each.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            x = each[0](index)
            each[3](x).square().sum().backward()
            optimizer.step()
    for each in (empty, assigned, converted):
        for a, b in zip(usual.parameters(), each.parameters(), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("family", [mobius, lorentz, klein, poincare_pp])
def test_tables_are_made_on_manifolds_of_their_family(family):
    others = {m for m in (PoincareBall(), Lorentz(), Klein(), Euclidean()) if not FAMILIES[family.__name__.rpartition(".")[2]].fits(type(m))}
    for manifold in others:
        with pytest.raises(ValueError, match=rf"Embedding: the family is defined on \w+, got the manifold {manifold.name}"):
            family.Embedding(manifold, 5, 3)
    with pytest.raises(ValueError, match=r"Embedding: the family is defined on \w+, got the manifold PoincareBall of geoopt"):
        family.Embedding(geoopt.PoincareBall(), 5, 3)
    with pytest.raises(ValueError, match=r"got the class .*; make one of it"):
        family.Embedding(Lorentz if family is lorentz else PoincareBall, 5, 3)


@pytest.mark.every_case
@pytest.mark.parametrize("name", GEOMETRIES)
def test_layers_work_where_their_tensors_are_whatever_the_default_device(name):
    """As after torch.set_default_device; of sizes that take rows in blocks."""
    g = geometry(name)
    index, lengths, labels = torch.randint(0, 9, (40, 20)), torch.randint(1, 20, (40,)), torch.randint(0, 7, (800,))
    embedding, linear, gru, attention = g.embedding(9, 32), g.linear(32, 32), g.gru(32, 8), g.attention(32, n_positions=20)
    logits, positions = g.logits(32, 7), torch.arange(20).expand(40, 20)
    with torch.device("meta"):
        x = linear(embedding(index))
        loss = torch.nn.functional.cross_entropy(logits(x.flatten(0, 1)), labels)
        classes = logits.cross_entropy(x.flatten(0, 1), labels)
        results = [gru(x, lengths)[1], attention(x, positions)[0], g.manifold.dist(x, x.flip(0)), loss, classes]
        total = sum(result.sum() for result in results)
        total.backward()
    assert total.device.type == "cpu"
    assert torch.isfinite(total)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_of_a_transformer_give_points_and_gradients(name, dtype):
    g = geometry(name)
    m = g.manifold
    x, o = m.random(4, 6, 3, std=0.5, dtype=dtype), m.random(4, 6, 2, std=0.5, dtype=dtype)
    layers = {
        "context_attention": (g.context_attention(3), (x,)),
        "residual": (g.residual(2, 3, activation="tanh", dropout=0.2), (o, x)),
        "feed_forward": (g.feed_forward(3, 8, dropout=0.2), (x,)),
        "position_encoding": (g.position_encoding(3, 6, dropout=0.2), (x,)),
        "norm": (g.norm(3), (x,)),
    }
    if "MultiHeadAttention" not in LACKS.get(GEOMETRIES[name][1], ()):
        layers["multi_head_attention"] = (g.multi_head_attention(3, 3), (x, x.flip(1)))
    for key, (layer, inputs) in layers.items():
        layer = layer.to(dtype)
        inputs = [point.requires_grad_() for point in inputs]
        result = layer(*inputs)
        result = result[0] if key == "context_attention" else result
        assert m.check_point_on_manifold(result.detach(), atol=1e-5), key
        assert result.shape == ((4, x.shape[-1]) if key == "context_attention" else x.shape), key
        (result * torch.randn_like(result)).sum().backward()
        for parameter_name, p in layer.named_parameters():
            assert p.grad is not None, (key, parameter_name)
            assert torch.isfinite(p.grad).all(), (key, parameter_name)
            assert p.grad.any(), (key, parameter_name)
        assert all(torch.isfinite(point.grad).all() for point in inputs), key


@pytest.mark.parametrize(
    "make",
    [
        lambda: mobius.Linear(PoincareBall(2.0), 4, 4),
        lambda: lorentz.Linear(Lorentz(2.0), 4, 4, scale=2.5, learn_scale=False),
        lambda: lorentz.MultiHeadAttention(Lorentz(2.0), 4, 2, temperature="head"),
        lambda: geometry("hatt").multi_head_attention(4, 2),
    ],
)
@pytest.mark.parametrize("assign", [False, True])
def test_a_layer_that_was_built_without_memory_is_the_one_whose_weights_it_takes(make, assign):
    usual = make()
    with torch.device("meta"):
        layer = make()
    layer = layer if assign else layer.to_empty(device="cpu")
    layer.load_state_dict(copy.deepcopy(usual.state_dict()), assign=assign)
    x = usual.manifold.random(2, 3, 4).detach()
    assert torch.equal(layer(x), usual(x))


@pytest.mark.parametrize("name", [name for name, (_, family) in GEOMETRIES.items() if family in LACKS])
def test_a_layer_the_papers_of_a_family_do_not_define_is_named(name):
    family = GEOMETRIES[name][1]
    (layer,) = LACKS[family]
    with pytest.raises(ValueError, match=f"geometry {name}: the layer family {family} has no {layer}"):
        geometry(name).multi_head_attention(4, 2)


def test_a_conversion_that_changes_nothing_leaves_a_constant_to_its_graph():
    layer = lorentz.Linear(Lorentz(2.0), 4, 4, scale=2.3, learn_scale=False)
    result = layer(layer.manifold.random(2, 4).detach()).sum()
    layer.float()
    result.backward()
    assert layer.double().scale.dtype == torch.float64
    with torch.inference_mode():
        fixed = lorentz.Linear(Lorentz(2.0), 4, 4, scale=2.3, learn_scale=False)
    assert float(fixed.to("cpu").scale) == pytest.approx(2.3)


def test_points_stay_points_where_a_conversion_fails():
    layer = mobius.Logits(PoincareBall(1.0), 3, 2)

    def fail(t):
        if t is layer.a:
            raise MemoryError
        return t.double()

    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with pytest.raises(MemoryError):
            layer._apply(fail)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert layer.p.dtype == torch.float64
    assert isinstance(layer.p, geoopt.ManifoldParameter)
    assert layer.p.manifold is layer.manifold


@pytest.mark.parametrize("c", [0.4, 1.0, 2.0])
@pytest.mark.parametrize("model", [Lorentz, Klein, PoincareBall])
def test_tangent_linear_without_a_bias_is_the_mobius_one_through_the_isometry(model, c):
    """exp_0 of the ball puts u at the distance 2|u|, that of the sheet and the disk at |u|: between log_0 and exp_0 the
    ball has half of their vectors, and a matrix commutes with the factor. A bias would not."""
    space, ball = model(c), PoincareBall(c)
    linear = tangent.Linear(space, 3, 4, bias=False).double()
    peer = mobius.Linear(ball, 3, 4, bias=False).double()
    with torch.no_grad():
        peer.weight.copy_(linear.inner.weight.normal_())
    x = space.random(6, 3, std=0.8, dtype=torch.float64)
    expected = convert(peer(convert(x, space, ball)), ball, space)
    torch.testing.assert_close(linear(x), expected, rtol=1e-9, atol=1e-12)
    weight = torch.randn_like(expected)
    (results,) = torch.autograd.grad((weight * linear(x)).sum(), linear.inner.weight)
    (target,) = torch.autograd.grad((weight * expected).sum(), peer.weight)
    torch.testing.assert_close(results, target, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_sparse_gradients_of_a_table_are_the_dense_ones(name):
    g = geometry(name)
    dense, sparse = g.embedding(7, 3), g.embedding(7, 3, sparse=True)
    sparse.load_state_dict(dense.state_dict())
    index, grads = torch.tensor([[4, 0], [4, 2]]), []
    for table in (dense, sparse):
        (grad,) = torch.autograd.grad(table(index).sin().sum(), table.parameters())
        grads.append(grad)
    assert grads[1].is_sparse
    assert not grads[0].is_sparse
    torch.testing.assert_close(grads[1].to_dense(), grads[0])


@pytest.mark.parametrize("name", GEOMETRIES)
def test_features_are_given_exactly_where_a_layer_has_them(name):
    g = geometry(name)
    x = g.manifold.random(4, 3, std=0.3)
    plain, featured = g.concat((3, 3), 2), g.concat((3, 3), 2, n_features=2)
    assert featured(x, x, features=torch.rand(4, 2)).shape == plain(x, x).shape
    for layer, features, message in (
        (plain, torch.rand(4, 1), r"Concat: takes 0 features .* got a tensor of shape \(4, 1\)"),
        (featured, None, r"Concat: takes 2 features .*n_features=2.* got none"),
        (featured, torch.rand(4, 1), r"Concat: takes 2 features .* got a tensor of shape \(4, 1\)"),
        (featured, torch.rand(4, 3), r"Concat: takes 2 features .* got a tensor of shape \(4, 3\)"),
        (featured, torch.tensor(1.0), r"Concat: takes 2 features .* got a tensor of shape \(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(x, x, features=features)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("cell", ["rnn", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_never_changes_a_result(name, cell, bidirectional):
    g = geometry(name)
    layer = getattr(g, cell)(3, 4, bidirectional=bidirectional).double()
    lengths = torch.tensor([2, 5, 3])
    x = g.manifold.random(3, 5, 3, std=0.3, dtype=torch.float64)
    states, last = layer(x, lengths)
    for i, length in enumerate(lengths.tolist()):
        alone, alone_last = layer(x[i : i + 1, :length])
        torch.testing.assert_close(states[i, :length], alone[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(last[i], alone_last[0], rtol=1e-9, atol=1e-12)


def test_the_second_direction_reads_the_sequence_backwards():
    ball = PoincareBall(c=2.0)
    layer = mobius.GRU(ball, 3, 4, bidirectional=True).double()
    back = mobius.GRU(ball, 3, 4).double()
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias"):
            getattr(back, name).copy_(getattr(layer, name)[1:])
    x = ball.random(2, 5, 3, std=0.3, dtype=torch.float64)
    forward = mobius.GRU(ball, 3, 4).double()
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias"):
            getattr(forward, name).copy_(getattr(layer, name)[:1])
    expected = layer.join[0](forward(x)[0], back(x.flip(1))[0].flip(1))
    torch.testing.assert_close(layer(x)[0], expected)
    torch.testing.assert_close(layer(x)[1], layer.join[0](forward(x)[1], back(x.flip(1))[1]))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_masked_points_do_not_count(name):
    g = geometry(name)
    x = g.manifold.random(3, 5, 3, std=0.3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    attention, centroid = g.attention(3).double(), g.centroid()
    with torch.no_grad():
        attention.beta.fill_(1.5)
    result, weights = attention(x, mask=mask)
    assert torch.equal(weights != 0, mask)
    for i in range(3):
        torch.testing.assert_close(result[i], attention(x[i : i + 1, mask[i]])[0][0], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(centroid(x, mask=mask)[i], centroid(x[i, mask[i]]), rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="hides every position"):
        attention(x, mask=torch.zeros(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="n_positions"):
        attention(x, torch.zeros(3, 5, dtype=torch.long))


def test_distance_attention_is_its_formula():
    ball = PoincareBall(c=1.5)
    attention = mobius.Attention(ball, 3, n_positions=4).double()
    with torch.no_grad():
        attention.beta.fill_(0.7)
        attention.positions.weight.copy_(ball.random(4, 3, std=0.2, dtype=torch.float64))
    x = ball.random(2, 4, 3, std=0.4, dtype=torch.float64)
    positions = torch.tensor([[3, 1, 0, 2], [0, 1, 2, 3]])
    moved = ball.mobius_add(x, attention.positions.weight[positions])
    scores = torch.exp(-0.7 * ball.dist(attention.query(moved), attention.key(moved)))
    weights = scores / scores.sum(-1, keepdim=True)
    result, results = attention(x, positions)
    torch.testing.assert_close(results, weights)
    torch.testing.assert_close(result, ball.centroid(x, weights))


def test_operands_are_added_in_the_stated_order():
    ball = PoincareBall(c=2.0)
    x, y = (ball.random(4, 3, std=0.5, dtype=torch.float64) for _ in range(2))
    feature = torch.rand(4, 1, dtype=torch.float64)
    linear, concat = mobius.Linear(ball, 3, 3).double(), mobius.Concat(ball, (3, 3), 3, n_features=1).double()
    with torch.no_grad():
        for p in (linear.bias, concat.bias, concat.feature_bias):
            p.copy_(ball.random(*p.shape, std=0.5, dtype=torch.float64))
    times, plus = ball.mobius_matvec, ball.mobius_add
    torch.testing.assert_close(linear(x), plus(times(linear.weight, x), linear.bias))
    assert (linear(x) - plus(linear.bias, times(linear.weight, x))).abs().max() > 1e-3
    a, b = concat.weights
    inner = plus(plus(times(a, x), times(b, y)), concat.bias)
    expected = plus(inner, ball.mobius_scalar(feature, concat.feature_bias[0]))
    torch.testing.assert_close(concat(x, y, features=feature), expected)
    assert (concat(x, y, features=feature) - concat(y, x, features=feature)).abs().max() > 1e-3


def test_tables_start_as_in_the_papers_code():
    table = mobius.Embedding(PoincareBall(c=1.0), 20000, 5, padding_idx=0).weight.detach()
    bound = (3 * 1e-3**2 / (2 * 5)) ** (1 / 3)
    assert table.abs().max() <= bound
    assert table.abs().max() > 0.99 * bound
    assert table.norm(dim=-1).mean().item() == pytest.approx(0.0085, abs=1e-4)
    assert not table[0].any()


def test_dropout_acts_in_the_chosen_space_and_only_in_training():
    ball = PoincareBall(c=1.0)
    x = ball.expmap0(torch.full((1000, 4), 0.6))
    for space, inside in (("tangent", ball.logmap0), ("coordinates", lambda t: t)):
        layer = mobius.Dropout(ball, 0.5, space=space)
        out = layer(x)
        assert ball.check_point_on_manifold(out)
        remaining = inside(out) != 0
        assert 0.4 < remaining.float().mean() < 0.6
        if space == "tangent":
            torch.testing.assert_close(
                inside(out)[remaining], torch.full((int(remaining.sum()),), 1.2), rtol=1e-4, atol=0
            )
        assert torch.equal(layer.eval()(x), x)
    with pytest.raises(ValueError, match="space"):
        mobius.Dropout(ball, 0.5, space="ambient")


def test_wrong_lengths_and_streams_are_named():
    layer = mobius.GRU(PoincareBall(c=1.0), 2, 2, streams=2)
    x = torch.zeros(2, 3, 4, 2)
    for lengths, message in (([[1, 2], [1, 2]], "shape"), ([[0, 1, 1], [1, 1, 1]], "1..4"), ([[1, 5, 1]] * 2, "1..4")):
        with pytest.raises(ValueError, match=message):
            layer(x, torch.tensor(lengths))
    with pytest.raises(ValueError, match="2 streams"):
        layer(x[0])
    with pytest.raises(ValueError, match="softplus"):
        mobius.GRU(PoincareBall(c=1.0), 2, 2, nonlinearity="softplus")


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("training", [True, False])
def test_dropout_of_tangent_vectors_is_that_of_their_points(name, training):
    g = geometry(name)
    has_space = "space" in g.family.options("Dropout")
    for options in ({"space": "tangent"}, {"space": "coordinates"}) if has_space else ({},):
        layer = g.dropout(0.4, **options).train(training)
        u = 0.5 * torch.randn(3, 5, 4, dtype=torch.float64)
        torch.manual_seed(1)
        expected = layer(g.manifold.expmap0(u))
        torch.manual_seed(1)
        torch.testing.assert_close(layer.from_tangent(u), expected)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_dropout_of_all_coordinates_gives_the_origin(name):
    g = geometry(name)
    u = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    result = g.dropout(1.0)(g.manifold.expmap0(u))
    torch.testing.assert_close(result, g.manifold.origin(3, 4).expand_as(result).to(result))
    (gradient,) = torch.autograd.grad(result.sum(), u)
    torch.testing.assert_close(gradient, torch.zeros_like(u))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_points_that_are_added_broadcast_and_positions_are_whole_numbers(name):
    g = geometry(name)
    o, x = g.manifold.random(1, 4), g.manifold.random(6, 3)
    layer = g.residual(4, 3)
    torch.testing.assert_close(layer(o, x), layer(o.expand(6, -1), x))
    with pytest.raises(ValueError, match=r"positions must be whole numbers \(int64\), got torch.float32"):
        g.position_encoding(3, 6)(x, torch.zeros(6))


@pytest.mark.parametrize("learn_c", [False, True])
def test_a_functional_call_leaves_a_network_as_it_is(learn_c):
    """With the option that README names: two layers share a manifold."""
    ball = PoincareBall(learn_c=learn_c)
    net, x = nn.Sequential(mobius.Linear(ball, 4, 4), mobius.Linear(ball, 4, 3)), ball.random(2, 4)
    expected, before = net(x), dict(net.named_parameters())
    changed = {name: 1.5 * p.detach() for name, p in before.items()}

    def loss(parameters):
        return torch.func.functional_call(net, parameters, (x,), tie_weights=False).square().sum()

    assert torch.func.grad(loss)(changed).keys() == before.keys()
    parameters, buffers = torch.func.stack_module_state([net, copy.deepcopy(net)])
    call = torch.func.functional_call
    torch.vmap(lambda p, b: call(net, (p, b), (x,), tie_weights=False))(parameters, buffers)
    assert all(p is before[name] for name, p in net.named_parameters())
    assert torch.equal(net(x), expected)
