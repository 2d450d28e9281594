"""Where points are, and which tensor went wrong."""

import math
import pickle

import pytest
import torch
from torch import nn

from hyperbolic.diagnostics import (
    NonFiniteError,
    check_finite,
    find_nonfinite,
    manifold_parameters,
    point_statistics,
)
from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall

CURVED = [PoincareBall, Lorentz, Klein]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("kind", CURVED)
@pytest.mark.parametrize("c", [0.1, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_of_points(kind, c, dtype):
    manifold = kind(c)
    sizes = torch.tensor([0.0, 0.5, 1.0, 2.5], dtype=dtype) / c**0.5
    u = sizes.unsqueeze(-1) * nn.functional.normalize(torch.randn(4, 3, dtype=dtype), dim=-1)
    statistics = point_statistics(manifold, manifold.expmap0(u))
    factor = 2 if kind is PoincareBall else 1
    assert statistics["dist0_mean"] == pytest.approx(factor / c**0.5, rel=1e-5)
    assert statistics["dist0_max"] == pytest.approx(2.5 * factor / c**0.5, rel=1e-5)
    assert statistics["clamped_share"] == 0
    assert statistics["constraint_error"] <= 1e-6
    assert all(type(value) is float for value in statistics.values())


@pytest.mark.parametrize("kind", CURVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_share_of_clamped_points(kind, dtype):
    """Points that were pulled back to the largest radius count; those clearly inside of it do not."""
    manifold = kind(2.0)
    radius = manifold.max_radius(dtype) / (2 if kind is PoincareBall else 1)
    lengths = torch.tensor([0.5, 0.9, 3.0, 100.0], dtype=dtype).unsqueeze(-1) * radius
    x = manifold.expmap0(lengths * nn.functional.normalize(torch.randn(4, 3, dtype=dtype), dim=-1))
    assert point_statistics(manifold, x)["clamped_share"] == 0.5
    assert point_statistics(manifold, x.view(2, 2, -1))["clamped_share"] == 0.5


def test_constraint_error_is_the_distance_to_the_space():
    ball, sheet = PoincareBall(2.0), Lorentz(0.5)
    outside = torch.tensor([[2.0, 0.0], [0.1, 0.1]], dtype=torch.float64)
    assert point_statistics(ball, outside)["constraint_error"] == pytest.approx(2 - 0.5**0.5)
    x = sheet.random(5, 3, dtype=torch.float64)
    assert point_statistics(sheet, x)["constraint_error"] < 1e-14
    x[2, 0] += 0.25
    assert point_statistics(sheet, x)["constraint_error"] == pytest.approx(0.25)


def test_no_points_and_flat_points():
    expected = {"dist0_mean": 0.0, "dist0_max": 0.0, "clamped_share": 0.0, "constraint_error": 0.0}
    assert point_statistics(PoincareBall(2.0), torch.zeros(0, 3)) == expected
    flat = point_statistics(Euclidean(), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert flat == {"dist0_mean": 2.5, "dist0_max": 5.0, "clamped_share": 0.0, "constraint_error": 0.0}


def test_statistics_of_parameters_and_of_points_with_gradients():
    geometry = make_geometry("poincare", "PoincareBall", "mobius", c=2.0, learn_c=True)
    table = geometry.embedding(5, 3).weight
    statistics = point_statistics(geometry.manifold, table)
    assert math.isfinite(statistics["dist0_mean"])
    assert statistics == point_statistics(geometry.manifold, table.detach().as_subclass(torch.Tensor))
    assert table.grad is None
    result = geometry.linear(3, 2)(table)
    assert point_statistics(geometry.manifold, result)["dist0_max"] > 0
    assert result.requires_grad


@pytest.mark.parametrize("name", GEOMETRIES)
def test_manifold_parameters(name):
    manifold, layers = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, layers, c=None if name == "euclidean" else 2.0)
    net = nn.ModuleDict(
        {"words": geometry.embedding(4, 3), "layer": geometry.linear(3, 2), "top": geometry.logits(2, 3)}
    )
    expected = {
        "mobius": {"words.weight", "layer.bias", "top.p"},
        "klein": {"words.inner.weight", "layer.inner.bias", "top.inner.p"},
        "poincare_pp": {"words.weight"},
        "lorentz": {"words.weight", "top.points"},
    }
    result = manifold_parameters(net)
    assert set(result) == expected.get(layers, set())
    assert all(result[name] == (p.manifold, p) for name, p in net.named_parameters() if name in result)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_names_of_parameters_and_gradients(bad):
    module = net()
    assert find_nonfinite(module) == []
    check_finite(module, "at the start")
    module(torch.ones(1, 2)).sum().backward()
    assert find_nonfinite(module) == []
    module[0].weight.grad[1, 0] = bad
    with torch.no_grad():
        module[1].bias[0] = bad
    assert find_nonfinite(module) == ["1.bias", "0.weight.grad"]
    with pytest.raises(NonFiniteError, match=r"^not finite after step 7: 1.bias, 0.weight.grad$") as caught:
        check_finite(module, "after step 7")
    assert caught.value.names == ["1.bias", "0.weight.grad"]
    assert isinstance(caught.value, RuntimeError)


def test_names_of_any_tensors():
    tensors = {"a": torch.ones(2), "b": torch.tensor([1.0, NAN]), "c": torch.tensor(3), "d": torch.tensor(INF)}
    assert find_nonfinite(tensors) == ["b", "d"]
    assert find_nonfinite({"empty": torch.zeros(0)}) == []
    with pytest.raises(NonFiniteError, match="b, d"):
        check_finite(tensors, "here")


def test_the_error_survives_a_process_boundary():
    error = pickle.loads(pickle.dumps(NonFiniteError(["a", "b"], "not finite here: a, b")))
    assert (error.names, str(error)) == (["a", "b"], "not finite here: a, b")


def test_sparse_gradients_are_looked_at():
    table = nn.Embedding(5, 3, sparse=True)
    (table(torch.tensor([1])) * torch.tensor([1.0, torch.nan, 1.0])).sum().backward()
    assert find_nonfinite(table) == ["weight.grad"]
