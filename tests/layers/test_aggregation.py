"""The centre of neighbours: as the dense centroid, whatever the order of the nodes; an isolated node keeps its point."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import euclidean, lorentz, mobius, tangent
from hyperbolic.layers.neighbours import Neighbours, with_themselves
from hyperbolic.manifolds import Euclidean, Lorentz, PoincareBall
from tests.tolerances import tolerance

N = 7
EDGES = torch.tensor([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [1, 5]])  # node 6 has none


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, **tolerance(torch.float64, "identity"))


def adjacency() -> torch.Tensor:
    table = torch.eye(N, dtype=torch.float64)
    table[EDGES[:, 0], EDGES[:, 1]] = table[EDGES[:, 1], EDGES[:, 0]] = 1
    return table


def geometry(name: str):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else 0.7)


def points(space, d: int = 3) -> torch.Tensor:
    return space.random(N, d, dtype=torch.float64)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_centre_is_the_dense_centroid(name):
    chosen = geometry(name)
    x = points(chosen.manifold).requires_grad_()
    actual = chosen.aggregation(3)(x, with_themselves(EDGES, N))
    mask = adjacency()
    if name in ("euclidean", "hatt"):
        expected = mask / mask.sum(1, keepdim=True) @ x
    else:
        expected = chosen.manifold.centroid(x.expand(N, N, -1), mask)
    close(actual, expected)
    weights = torch.randn_like(actual)
    (mine,) = torch.autograd.grad((actual * weights).sum(), x, retain_graph=True)
    (theirs,) = torch.autograd.grad((expected * weights).sum(), x)
    close(*(chosen.manifold.egrad2rgrad(x.detach(), gradient) for gradient in (mine, theirs)))


@pytest.mark.parametrize("name", ["poincare", "lorentz", "klein"])
def test_the_tangent_centre_is_its_formula(name):
    chosen = geometry(name)
    x, mask = points(chosen.manifold), adjacency()
    u = mask / mask.sum(1, keepdim=True) @ chosen.manifold.logmap0(x)
    close(chosen.aggregation(3, centre="tangent")(x, with_themselves(EDGES, N)), chosen.manifold.expmap0(u))


SETTINGS = [
    {}, {"centre": "tangent"}, {"attention": "additive"}, {"attention": "distance"}, {"attention": "distance", "project": False},
    {"attention": "additive", "gate": "sigmoid"}, {"attention": "distance", "gate": "sigmoid", "centre": "tangent"},
]  # fmt: skip


@pytest.mark.parametrize("name", ["euclidean", "poincare", "lorentz"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_order_of_the_nodes_does_not_matter(name, settings):
    chosen = geometry(name)
    layer = chosen.aggregation(3, **settings).double()
    x, order = points(chosen.manifold), torch.randperm(N)
    place = order.argsort()
    close(layer(x[order], with_themselves(place[EDGES], N)), layer(x, with_themselves(EDGES, N))[order])


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("attention", [None, "distance"])
def test_an_isolated_node_keeps_its_point(name, attention):
    chosen = geometry(name)
    layer = chosen.aggregation(3, attention=attention).double()
    x = points(chosen.manifold)
    close(layer(x, with_themselves(EDGES, N))[6], x[6])


def test_attention_by_distance_is_its_formula():
    space = Lorentz(0.7)
    layer = lorentz.Aggregation(space, 3, attention="distance").double()
    x = points(space)
    q, k = layer.query(x), layer.key(x)
    scores = (2 / 0.7 + 2 * (q[:, None, 1:] * k[:, 1:]).sum(-1) - 2 * q[:, None, 0] * k[:, 0]) / 3**0.5
    weights = scores.masked_fill(adjacency() == 0, -torch.inf).softmax(-1)
    close(layer(x, with_themselves(EDGES, N)), space.centroid(x.expand(N, N, -1), weights))


def test_attention_of_lgcn_is_that_of_its_program():
    """exp(-min(d_L^2 / 2, 1)) of one linear map in the tangent space (Zhang et al. 2021)."""
    space = Lorentz(0.7)
    layer = tangent.Aggregation(space, 3, attention="distance", shared=True, temperature=2.0, lowest=-1.0).double()
    x = points(space)
    k = layer.query(x)
    half = 1 / 0.7 + (k[:, None, 1:] * k[:, 1:]).sum(-1) * -1 + k[:, None, 0] * k[:, 0] - 2 / 0.7
    weights = (-half.clamp(0, 1)).exp() * (adjacency() != 0)
    assert half.max() > 1 > half[adjacency() != 0].min()
    close(layer(x, with_themselves(EDGES, N)), space.centroid(x.expand(N, N, -1), weights))
    assert [name.split(".")[0] for name, _ in layer.named_children()].count("query") == 1
    assert not [name for name in layer.state_dict() if name.startswith("key")]


def test_attention_of_heads_is_its_formula():
    layer = euclidean.Aggregation(Euclidean(), 4, attention="additive", heads=2).double()
    x, parts = torch.randn(N, 4, dtype=torch.float64), []
    for k in range(2):
        part = slice(2 * k, 2 * k + 2)
        left, right = x[:, part] @ layer.scores_of[0, part], x[:, part] @ layer.scores_of[1, part]
        scores = torch.nn.functional.leaky_relu(left[:, None] + right + layer.offset[k], 0.2)
        parts.append(scores.masked_fill(adjacency() == 0, -torch.inf).softmax(-1) @ x[:, part])
    close(layer(x, with_themselves(EDGES, N)), torch.cat(parts, -1))


def test_products_have_the_gradients_of_dense_ones():
    neighbours = with_themselves(EDGES, N)
    x = torch.randn(N, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(len(neighbours.source), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(neighbours.sum, (x, weights))
    scores = torch.randn(len(neighbours.source), 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(neighbours.softmax, (scores,))


def test_targets_may_be_fewer_than_sources():
    part = Neighbours(torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]), 2, 3)
    x = torch.tensor([[1.0], [2.0], [5.0]])
    assert part.mean(x).tolist() == [[3.0], [2.0]]


@pytest.mark.parametrize(
    ("space", "family", "settings", "said"),
    [
        (PoincareBall(), mobius, {"attention": "additive", "heads": 3}, "in flat space"),
        (Euclidean(), euclidean, {"attention": "additive", "heads": 2}, "heads=2 must divide d=3"),
        (Euclidean(), euclidean, {"attention": "distance", "temperature": 0.0}, "temperature must be positive, got 0.0"),
        (Euclidean(), euclidean, {"attention": "dot"}, "attention: unknown value 'dot'; available: None, additive, distance"),
    ],
)
def test_settings_that_cannot_be_are_told(space, family, settings, said):
    with pytest.raises(ValueError, match=said):
        family.Aggregation(space, 3, **settings)


def test_wrong_pairs_are_told():
    with pytest.raises(ValueError, match=r"source must lie in 0..2, got 0..3"):
        Neighbours(torch.tensor([0, 1]), torch.tensor([0, 3]), 2, 3)
    with pytest.raises(ValueError, match="sorted"):
        Neighbours(torch.tensor([1, 0]), torch.tensor([0, 1]), 2, 3)
    for source in (torch.tensor([1]), torch.tensor([0.0, 1.0])):
        with pytest.raises(ValueError, match="must be whole numbers .* of one shape"):
            Neighbours(torch.tensor([0, 1]), source, 2, 3)


def test_points_of_other_nodes_are_told():
    layer, neighbours = mobius.Aggregation(PoincareBall(), 3), with_themselves(torch.tensor([[0, 1]]), 3)
    for shape in ((2, 3), (4, 3), (3,), (1, 3, 3)):
        with pytest.raises(ValueError, match=r"Aggregation: takes points \(M, D\) of the 3 sources"):
            layer(torch.zeros(shape), neighbours)


def test_additive_scores_pass_a_rectifier_but_under_a_sigmoid():
    x, neighbours = points(Euclidean()), with_themselves(EDGES, N)
    for gate, odd in (("sigmoid", True), ("softmax", False)):
        layer = geometry("euclidean").aggregation(3, attention="additive", gate=gate).double()
        scores, opposite = (layer._additive(v, neighbours) for v in (x, -x))
        assert scores.min() < 0 < scores.max()
        assert torch.allclose(scores + opposite, 2 * layer.offset.expand_as(scores)) is odd


@pytest.mark.parametrize("family", ["mobius", "poincare_pp", "tangent"])
def test_gates_that_all_vanish_have_a_centroid(family):
    geometry = make_geometry("far", "PoincareBall", family, 1.0)
    layer = geometry.aggregation(4, attention="distance", gate="sigmoid")
    x = geometry.manifold.expmap0(torch.nn.functional.normalize(torch.randn(3, 4), dim=-1) * 5.5)
    y = layer(x, with_themselves(torch.tensor([[0, 1], [1, 2]]), 3))
    assert y.isfinite().all()
