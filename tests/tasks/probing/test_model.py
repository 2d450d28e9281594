"""Probes are the formulas of their papers, and states of any geometry enter any probe."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.manifolds.lorentz import lorentz_distance2
from tasks.errors import UserError
from tasks.probing.distances import squared_distances
from tasks.probing.model import LayerProbes, StructuralProbe
from tests.tolerances import tolerance

CLOSE = tolerance(torch.float64, "identity")
NO_BIAS = {"euclidean": {"Linear": {"bias": False}}, "mobius": {"Linear": {"bias": False}}}


def geometry(name, c=1.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("distance", ["geodesic", "lorentz"])
@pytest.mark.parametrize("name", ["euclidean", "lorentz", "poincare", "klein"])
def test_distances_are_squared(name, distance):
    c = 0.7
    manifold = geometry(name, c).manifold
    x = manifold.random(2, 5, 3)
    pairs, depths = squared_distances(manifold, x, distance)
    expected, origin = manifold.dist2(x.unsqueeze(2), x.unsqueeze(1)), manifold.dist0(x).square()
    if distance == "lorentz" and name != "euclidean":
        expected, origin = (2 / c * ((c * d).sqrt().cosh() - 1) for d in (expected, origin))
    torch.testing.assert_close(pairs, expected, **CLOSE)
    torch.testing.assert_close(depths, origin, **CLOSE)
    assert (pairs.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_the_lorentz_distance_is_that_of_the_library():
    manifold = geometry("lorentz").manifold
    x = manifold.random(4, 3)
    pairs, depths = squared_distances(manifold, x, "lorentz")
    torch.testing.assert_close(pairs, lorentz_distance2(x.unsqueeze(0), x.unsqueeze(1)), **CLOSE)
    torch.testing.assert_close(depths, lorentz_distance2(x, manifold.origin(3)), **CLOSE)


def test_lorentz_distances_of_near_points_far_out_in_float32():
    """-2/c - 2 <x, y>_L would be the difference of numbers of ten millions here."""
    sheet = geometry("lorentz", 1.0).manifold
    u = torch.tensor([[8.0, 0.0, 0.0], [8.0, 1e-3, 0.0]])
    expected = squared_distances(sheet, sheet.expmap0(u), "lorentz")[0][0, 1]
    pairs, _ = squared_distances(sheet, sheet.expmap0(u.float()), "lorentz")
    torch.testing.assert_close(pairs[0, 1].double(), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("distance", ["geodesic", "lorentz"])
def test_gradients_are_those_of_differences(name, distance):
    manifold = geometry(name, 0.8).manifold
    u = torch.randn(4, 3, requires_grad=True)
    torch.autograd.gradcheck(lambda u: squared_distances(manifold, manifold.expmap0(u), distance), (u,))


def test_words_at_one_place_have_finite_gradients():
    for name in ("euclidean", "lorentz", "poincare"):
        manifold = geometry(name).manifold
        for distance in ("geodesic", "lorentz"):
            u = torch.zeros(3, 2, requires_grad=True)
            pairs, depths = squared_distances(manifold, manifold.expmap0(u), distance)
            (pairs.sum() + depths.sum()).backward()
            assert torch.isfinite(u.grad).all()


def test_the_euclidean_probe_is_one_matrix():
    """Hewitt & Manning 2019: |B (h_i - h_j)|^2, and |B h_i|^2 for the depth."""
    flat = geometry("euclidean")
    model = LayerProbes(flat, flat, (6,), 4, "lorentz", NO_BIAS)
    (b,) = model.parameters()
    assert b.shape == (4, 6)
    h = torch.randn(1, 5, 6)
    ((pairs, depths),) = model([h])
    torch.testing.assert_close(pairs, ((h.unsqueeze(2) - h.unsqueeze(1)) @ b.T).square().sum(-1), **CLOSE)
    torch.testing.assert_close(depths, (h @ b.T).square().sum(-1), **CLOSE)


def test_the_lorentz_probe_of_flat_states():
    """Chen et al., C.4: p = exp_0(f_P(h)), q = f_Q(p), with a Lorentz linear layer f_Q."""
    flat, lorentz = geometry("euclidean"), geometry("lorentz")
    probe = StructuralProbe(flat, lorentz, 6, 4)
    h = torch.randn(2, 5, 6)
    p = lorentz.manifold.expmap0(h @ probe.project.weight.T + probe.project.bias)
    torch.testing.assert_close(probe(h), probe.map(p), **CLOSE)
    assert type(probe.map) is lorentz.family.layers["Linear"]


def test_the_lorentz_probe_of_lorentz_states_has_no_exponential_map():
    lorentz = geometry("lorentz")
    probe = StructuralProbe(lorentz, lorentz, 6, 4)
    h = lorentz.manifold.random(2, 5, 6)
    torch.testing.assert_close(probe(h), probe.map(probe.project(h)), **CLOSE)


def test_curved_states_enter_a_flat_probe_by_log0():
    lorentz, flat = geometry("lorentz"), geometry("euclidean")
    probe = StructuralProbe(lorentz, flat, 6, 4)
    h = lorentz.manifold.random(2, 5, 6)
    torch.testing.assert_close(probe(h), lorentz.manifold.logmap0(h) @ probe.map.weight.T + probe.map.bias, **CLOSE)


@pytest.mark.parametrize("probe", sorted(GEOMETRIES))
@pytest.mark.parametrize("states", ["euclidean", "hatt", "lorentz", "poincare_pp"])
def test_states_of_every_geometry_enter_every_probe(states, probe):
    source = geometry(states, 0.5)
    model = LayerProbes(geometry(probe), source, (5, 6), 4, "lorentz", {})
    x = [source.manifold.random(2, 3, d) for d in (5, 6)]
    for pairs, depths in model(x):
        assert pairs.shape == (2, 3, 3)
        (pairs.sum() + depths.sum()).backward(retain_graph=True)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_layers_share_nothing():
    flat = geometry("euclidean")
    model = LayerProbes(flat, flat, (3, 3), 2, "lorentz", {})
    x = torch.randn(1, 4, 3)
    model([x, x])[0][0].sum().backward()
    assert [p.grad is None for p in model.parameters()].count(True) == len(list(model.probes[1].parameters()))


def test_states_kept_in_float32_are_points_in_float64_too():
    """As with trainer.precision=64-true, where the batch has been cast before."""
    sheet = geometry("lorentz")
    model = LayerProbes(sheet, sheet, (3,), 2, "lorentz", {}).double()
    x = sheet.manifold.random(1, 4, 3, std=3.0)
    rounded = x.float().double()
    assert (sheet.manifold.projx(rounded) != rounded).any()
    torch.testing.assert_close(model([rounded])[0][0], model([sheet.manifold.projx(rounded)])[0][0], rtol=1e-12, atol=0)


def test_nor_a_curvature_that_is_learned():
    sheet = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0, learn_c=True)
    model = LayerProbes(sheet, geometry("euclidean"), (3, 3), 2, "lorentz", {})
    x = torch.randn(1, 4, 3)
    first, second = (manifold.free_c for manifold in model.manifolds)
    for loss in model([x, 3 * x])[0]:
        loss.sum().backward(retain_graph=True)
    assert first.grad != 0
    assert second.grad is None


@pytest.mark.parametrize(
    ("changes", "said"), [({"d": 0}, "task.model.d"), ({"distance": "cosine"}, "task.model.distance must be one of")]
)
def test_a_mistake_is_reported(changes, said):
    flat = geometry("euclidean")
    settings = {"d": 2, "distance": "lorentz", "layer_options": {}} | changes
    with pytest.raises(UserError, match=said):
        LayerProbes(flat, flat, (3,), **settings)
