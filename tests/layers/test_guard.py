"""Layers check the size of their inputs, leave autocast, and in debug mode find points that are off the manifold."""

import copy
import importlib

import pytest
import torch
from torch import nn

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import euclidean, mobius, tangent
from hyperbolic.layers.guard import OffManifoldError, name_of, takes_points, validate_points
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall

BF16 = torch.bfloat16
CURVED = [name for name in GEOMETRIES if GEOMETRIES[name][0] != "Euclidean"]


def geometry(name, c=2.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)


def cases(g) -> dict:
    """Layer by name: the layer, the intrinsic sizes of its inputs, the axes before the last."""
    m, layers = g.manifold, g.family.layers
    results = {
        "linear": (g.linear(3, 5), (3,), (4,)),
        "concat": (g.concat((3, 2), 4), (3, 2), (4,)),
        "rnn_cell": (layers["RNNCell"](m, 3, 5), (3, 5), (4,)),
        "gru_cell": (layers["GRUCell"](m, 3, 5), (3, 5), (4,)),
        "rnn": (g.rnn(3, 5), (3,), (4, 6)),
        "gru": (g.gru(3, 5, bidirectional=True), (3,), (4, 6)),
        "attention": (g.attention(3), (3,), (4, 6)),
        "context_attention": (g.context_attention(3), (3,), (4, 6)),
        "residual": (g.residual(2, 3), (2, 3), (4,)),
        "feed_forward": (g.feed_forward(3, 5), (3,), (4,)),
        "position_encoding": (g.position_encoding(3, 6), (3,), (4, 6)),
        "norm": (g.norm(3), (3,), (4,)),
        "logits": (g.logits(3, 7), (3,), (4,)),
    }
    if "MultiHeadAttention" in layers:
        results["multi_head_attention"] = (g.multi_head_attention(4, 2), (4, 4), (4, 6))
    return results


def first(result):
    return result[0] if isinstance(result, tuple) else result


SIZED = [(name, layer) for name in GEOMETRIES for layer in cases(geometry(name))]
UNSIZED = {"activation": ("tanh",), "dropout": (0.5,), "centroid": ()}
ALL = SIZED + [(name, layer) for name in GEOMETRIES for layer in UNSIZED]


def case(name: str, layer: str):
    g = geometry(name)
    if layer in UNSIZED:
        return getattr(g, layer)(*UNSIZED[layer]), [g.manifold.random(4, 6, 3, std=0.5)]
    module, sizes, lead = cases(g)[layer]
    return module, [g.manifold.random(*lead, d, std=0.5) for d in sizes]


@pytest.mark.parametrize(("name", "layer"), SIZED)
def test_a_wrong_last_dimension_is_an_error_with_the_layer_and_the_shape(name, layer):
    module, inputs = case(name, layer)
    first(module(*inputs))
    for i, x in enumerate(inputs):
        for wrong in (x[..., :-1], torch.cat([x, x], -1)):
            changed = [*inputs[:i], wrong, *inputs[i + 1 :]]
            with pytest.raises(ValueError, match=r"^\w+\.\w+: takes (points|vectors) ") as caught:
                module(*changed)
            assert f"got a tensor of shape {tuple(wrong.shape)}" in str(caught.value)
            assert str(x.shape[-1]) in str(caught.value)


@pytest.mark.parametrize(("name", "layer"), ALL)
def test_autocast_reaches_no_curved_layer(name, layer):
    """Under bfloat16 autocast a layer on points gives what it gives without it, also for bfloat16 inputs."""
    module, inputs = case(name, layer)
    module.eval()
    expected = first(module(*inputs))
    rounded = first(module(*(x.to(BF16).float() for x in inputs)))
    with torch.autocast("cpu", dtype=BF16):
        result, arguments = first(module(*inputs)), first(module(*(x.to(BF16) for x in inputs)))
    if result.requires_grad:
        result.float().square().sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in module.parameters())
    if name in CURVED:
        assert result.dtype == arguments.dtype == torch.float32
        assert torch.equal(result, expected)
        assert torch.equal(arguments, rounded)
    else:
        torch.testing.assert_close(result.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", CURVED)
def test_half_precision_without_autocast_is_refused_by_curved_layers(name):
    g = geometry(name)
    x = g.manifold.random(2, 3)
    for layer in (g.linear(3, 4), g.norm(3), g.dropout(0.5).eval(), g.position_encoding(3, 2), g.feed_forward(3, 2)):
        for module in (layer, copy.deepcopy(layer).to(BF16)):
            with pytest.raises(TypeError, match=r"takes points in float32 or float64, got torch\.bfloat16"):
                module(x.to(BF16))


def test_flat_layers_take_half_precision():
    g, x = geometry("euclidean"), torch.randn(2, 4, 3, dtype=BF16)
    for layer in (g.linear(3, 4), g.logits(3, 2), g.centroid(), g.ordered_sum(), g.context_attention(3)):
        result = layer.to(BF16)(x)
        assert (result[0] if isinstance(result, tuple) else result).dtype is BF16


@pytest.mark.parametrize(("name", "layer"), [(name, layer) for name, layer in ALL if name in CURVED])
def test_a_point_off_the_manifold_is_found_and_the_module_named(name, layer):
    module, inputs = case(name, layer)
    model = nn.ModuleDict({"part": module})
    validate_points(model)
    first(module(*inputs))
    for i, x in enumerate(inputs):
        for off in (x + 5, x * torch.nan):
            with pytest.raises(OffManifoldError, match=r"^part[\w.]* \(\w+\.\w+\): its input of shape .* is not on"):
                module(*inputs[:i], off, *inputs[i + 1 :])
    validate_points(model, on=False)
    first(module(*inputs))


def test_validation_is_off_until_it_is_asked_for_and_can_be_taken_back():
    layer = mobius.Linear(PoincareBall(c=2.0), 3, 4)
    outside = torch.ones(2, 3)
    layer(outside)
    validate_points(layer)
    with pytest.raises(OffManifoldError, match=r"^mobius.Linear: its input of shape \(2, 3\) is not on PoincareBall"):
        layer(outside)
    validate_points(layer, on=False)
    layer(outside)
    assert name_of(layer) == "mobius.Linear"


def test_the_module_in_the_middle_of_a_model_is_named():
    ball = PoincareBall(c=0.5)

    class Broken(nn.Module):
        def forward(self, x):
            return 100 * x

    model = nn.Sequential(mobius.Linear(ball, 3, 3), nn.Sequential(Broken(), mobius.Activation(ball, "tanh")))
    x = ball.random(2, 3)
    model(x)
    validate_points(model)
    with pytest.raises(OffManifoldError, match=r"^1\.1 \(mobius\.Activation\)"):
        model(x)


def test_layers_inside_the_tangent_space_are_not_taken_for_layers_on_points():
    """They get vectors of any length."""
    sheet = Lorentz(c=2.0)
    layer = tangent.Linear(sheet, 3, 4)
    validate_points(layer)
    assert layer(sheet.random(5, 3, std=3.0)).shape == (5, 5)
    with pytest.raises(ValueError, match=r"inner \(euclidean.Linear\): takes vectors with 3 coordinates"):
        layer.inner(sheet.random(5, 3))


def test_sizes_of_arguments_by_name_and_of_a_variable_number():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.manifold, self.d, self.e, self.dims = Lorentz(c=2.0), 2, 3, (2, 3)

        @takes_points("d", "e")
        def forward(self, x, y=None, z=None):
            return x

        @takes_points("dims*")
        def join(self, *x, scale=None):
            return x

    layer, x, y = Layer(), torch.ones(3), torch.ones(4)
    assert layer(x) is x
    assert layer(x=x, y=y, z=x) is x
    for args, options in (((y,), {}), ((x, x), {}), ((x,), {"y": x}), ((), {"x": y}), ((torch.tensor(1.0),), {})):
        with pytest.raises(ValueError, match="^Layer: takes points of Lorentz with"):
            layer(*args, **options)
    assert layer.join(x, y, scale=x) == (x, y)
    with pytest.raises(ValueError, match=r"^Layer: takes 2 points \(sizes \(2, 3\)\), got 1"):
        layer.join(x)
    with pytest.raises(ValueError, match="with 4 coordinates"):
        layer.join(x, x)


def test_tensors_given_by_name_leave_autocast_too():
    ball = PoincareBall(c=2.0)
    layer, x = mobius.Linear(ball, 3, 4), ball.random(2, 3)
    with torch.autocast("cpu", dtype=BF16):
        assert torch.equal(layer(x=x), layer(x))
    assert torch.equal(layer(x=x), layer(x))


def test_a_flat_layer_keeps_autocast():
    layer = euclidean.Linear(Euclidean(), 3, 4)
    with torch.autocast("cpu", dtype=BF16):
        assert layer(torch.ones(2, 3)).dtype is BF16
        assert euclidean.GRU(Euclidean(), 3, 4)(torch.ones(2, 5, 3))[0].dtype is torch.float32


ELSEWHERE = {
    "euclidean": Klein(1.0), "mobius": Klein(1.0), "klein": PoincareBall(1.0), "lorentz": PoincareBall(1.0),
    "tangent": Euclidean(),
}  # fmt: skip


@pytest.mark.parametrize(("family", "manifold"), ELSEWHERE.items())
def test_a_layer_on_a_manifold_its_family_is_not_defined_on(family, manifold):
    """Its numbers would be wrong without a word."""
    message = rf"{family}.*: the family is defined on .*, got the manifold {manifold.name}"
    with pytest.raises(ValueError, match=message):  # some when they are made
        importlib.import_module(f"hyperbolic.layers.{family}").Dropout(manifold, 0.1)(torch.zeros(2, 3))


FLAT = {
    "Linear": (3, 4), "Embedding": (3, 4), "Concat": ([3], 4), "GRUCell": (3, 3), "GRU": (3, 4), "Attention": (3,),
    "ContextAttention": (3,), "MultiHeadAttention": (3, 3), "Residual": (3, 3), "FeedForward": (3, 4),
    "PositionEncoding": (3, 9), "Norm": (3,), "Logits": (3, 2), "Activation": ("relu",),
}  # fmt: skip


@pytest.mark.parametrize(("layer", "sizes"), FLAT.items())
def test_flat_layers_refuse_points_of_a_curved_space(layer, sizes):
    """They would take the coordinates for vectors."""
    inputs = [torch.zeros(2, 5, 3)] * (2 if layer in ("GRUCell", "Residual") else 1)
    with pytest.raises(ValueError, match=r"^euclidean\.\w+: the family is defined on Euclidean, got the manifold PoincareBall"):
        getattr(euclidean, layer)(PoincareBall(1.0), *sizes)(*inputs)  # Embedding: when it is made


@pytest.mark.parametrize("name", GEOMETRIES)
def test_rows_that_a_table_does_not_have_are_an_error_with_the_layer_and_the_shape(name):
    table = geometry(name).embedding(5, 3)
    assert table(torch.tensor([[0, 4]])).shape[:2] == (1, 2)
    assert table(torch.tensor([], dtype=torch.long)).shape[0] == 0
    assert table(torch.tensor([2], dtype=torch.int32)).shape[0] == 1
    family = GEOMETRIES[name][1]
    for rows in ([[0, 5, 1]], [[-1, 4, 2]]):
        with pytest.raises(ValueError, match=r"^\w+\.Embedding: row numbers must lie in 0..4 \(n=5\), got .* in a tensor of shape \(1, 3\)"):
            table(torch.tensor(rows))
    for wrong, actual in ((torch.zeros(2, 3), r"torch.float32 of shape \(2, 3\)"), (torch.tensor([True]), "torch.bool"), ([1], "list")):
        with pytest.raises(ValueError, match=rf"^\w+\.Embedding: takes a tensor of row numbers \(int64 or int32\), got {actual}") as error:
            table(wrong)
    if family not in ("hatt", "poincare_pp"):  # these have the table of another family
        assert str(error.value).startswith(f"{family}.Embedding: ")


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_table_without_rows_or_with_an_unknown_padding_row_is_an_error(name):
    g = geometry(name)
    for n, d in ((0, 3), (5, 0), (-1, 3)):
        with pytest.raises(ValueError, match=rf"Embedding: needs n >= 1 rows of size d >= 1, got n={n}, d={d}"):
            g.embedding(n, d)
    for row in (5, -6):
        with pytest.raises(ValueError, match=rf"Embedding: padding_idx must be a row, 0..4 or None, got {row}"):
            g.embedding(5, 3, padding_idx=row)
    g.embedding(5, 3, padding_idx=-1)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_table_starts_from_points_of_its_own_manifold(name):
    g = geometry(name)
    table, vectors = g.embedding(5, 3), 0.3 * torch.randn(5, 3)
    table.set_points(g.manifold.expmap0(vectors))
    torch.testing.assert_close(g.manifold.logmap0(table(torch.arange(5))), vectors, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"Embedding: its points have the shape \(5, [34]\), 5 of \w+ of size 3, got \(4, "):
        table.set_points(g.manifold.expmap0(vectors[:4]))
    if g.manifold.is_curved:
        far = torch.full_like(g.manifold.expmap0(vectors), 5.0)
        with pytest.raises(ValueError, match=r"leaves the space by .*vectors become points by manifold\.expmap0"):
            table.set_points(far)


@pytest.mark.parametrize(("family", "manifold"), [("mobius", PoincareBall), ("lorentz", Lorentz), ("klein", Klein)])
@pytest.mark.parametrize("layer", ["Logits", "Linear", "GRU"])
def test_the_class_in_the_place_of_a_manifold_is_named(family, manifold, layer):
    made = getattr(importlib.import_module(f"hyperbolic.layers.{family}"), layer)
    with pytest.raises(ValueError, match=rf"the family is defined on .*got the class {manifold.name}; make one of it, as"):
        made(manifold, 3, 4)(torch.zeros(2, 4, 3 + (manifold is Lorentz)))
