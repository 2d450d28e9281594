"""Distances from and centroids of ``exp_0(u)``: without the points, of many float32 vectors, as with them."""

import pytest
import torch

from hyperbolic.manifolds import MANIFOLDS, sheet
from hyperbolic.rows import blocked
from tests.tolerances import tolerance

F64 = torch.float64
SIZE = (12, 40, 60)  # large enough to do without the points
NAMES = sorted(MANIFOLDS)


def space_of(name: str, c: float = 1.7):
    return MANIFOLDS[name](c) if MANIFOLDS[name].is_curved else MANIFOLDS[name]()


def vectors(name: str, radius: float, size=SIZE) -> torch.Tensor:
    """Vectors u with ``exp_0(u)`` up to that far from the origin, c = 1.7; the first of them 0."""
    torch.manual_seed(0)
    unit = getattr(MANIFOLDS[name], "origin_scale", 1.0) * 1.7**0.5
    lengths = torch.rand(*size[:-1], 1) * radius / unit
    u = torch.nn.functional.normalize(torch.randn(*size), dim=-1) * lengths
    u[0, 0] = 0
    return u


@pytest.mark.parametrize(
    ("name", "radius"),  # float32 points of the Klein disk end at 6.6
    [(name, radius) for name in NAMES for radius in (1e-4, 0.5, 3.0, 6.0, 9.5) if name != "Klein" or radius < 6.6],
)
def test_they_are_those_of_the_points(name, radius):
    space, u = space_of(name), vectors(name, radius)
    assert blocked(u)
    x = space.random(60, std=0.02)
    weights = torch.rand(*SIZE[:-1])
    weights[:, 30:] = 0
    exact = space.expmap0(u.double())
    distances, midpoints = space.dist(x.double(), exact), space.centroid(exact, weights.double())
    torch.testing.assert_close(space.dist_exp0(x, u).double(), distances, **tolerance(torch.float32, "identity"))
    away = space.dist(space.centroid_exp0(u, weights).double(), midpoints)
    assert away.max() < 1e-7 * torch.tensor(radius).exp() + 1e-9 * radius


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_points(name):
    space, u = space_of(name), vectors(name, 4.0)
    x, weights = space.random(60, std=0.02), torch.rand(*SIZE[:-1])
    target = torch.randn(60)

    def grads(dtype):
        inputs = [t.to(dtype).requires_grad_() for t in (x, u, weights)]
        if dtype is F64:
            points = space.expmap0(inputs[1])
            distance, midpoint = space.dist(inputs[0], points), space.centroid(points, inputs[2])
        else:
            distance, midpoint = space.dist_exp0(*inputs[:2]), space.centroid_exp0(*inputs[1:])
        loss = distance.square().mean() + (space.logmap0(midpoint) @ target.to(dtype)).mean()
        return torch.autograd.grad(loss, inputs)

    for ours, exact in zip(grads(torch.float32), grads(F64), strict=True):
        scale = exact.abs().max()
        torch.testing.assert_close((ours / scale).double(), exact / scale, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_few_far_and_float64_vectors_go_by_the_points(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("the sums of products")

    monkeypatch.setattr(sheet, "centroid_of_parts", refuse)
    monkeypatch.setattr(sheet, "half_sinh_square_of_parts", refuse)
    space = space_of(name)
    for u in (vectors(name, 3.0, (2, 3, 4)), vectors(name, 3.0).double(), vectors(name, 30.0)):
        x, weights = space.random(u.shape[-1], std=0.5, dtype=u.dtype), torch.rand(u.shape[:-1], dtype=u.dtype)
        if u.dtype is torch.float32 and blocked(u) and not space.is_hyperbolic:
            continue
        points = space.expmap0(u)
        assert torch.equal(space.dist_exp0(x, u), space.dist(x, points))
        if not blocked(points):
            assert torch.equal(space.centroid_exp0(u, weights), space.centroid(points, weights))


@pytest.mark.parametrize("name", [name for name in NAMES if MANIFOLDS[name].is_curved])
def test_learned_curvature_has_a_gradient(name):
    space = MANIFOLDS[name](1.7, learn_c=True)
    u, weights = vectors(name, 3.0), torch.rand(*SIZE[:-1])
    results = []
    for large in (True, False):
        space.free_c.grad = None
        some = u if large else u.double()
        x = space.expmap0(torch.full((60,), 0.05, dtype=some.dtype))
        (
            space.dist_exp0(x, some).mean() + space.logmap0(space.centroid_exp0(some, weights.to(some.dtype))).sum()
        ).backward()
        results.append(space.free_c.grad.item())
    assert results[0] == pytest.approx(results[1], rel=1e-3)


@pytest.mark.parametrize("n", [10, 300])  # on both sides of the size that rows are taken in blocks from
@pytest.mark.parametrize("name", NAMES)
def test_several_weightings_of_the_same_points_and_points_of_another_dtype(name, n):
    space, weights = space_of(name), torch.rand(5, n)
    u = 0.2 * torch.randn(n, 64)
    x = space.expmap0(u)
    apart = torch.stack([space.centroid(x, w) for w in weights])
    torch.testing.assert_close(space.centroid(x, weights), apart, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(space.centroid_exp0(u, weights), apart, rtol=1e-5, atol=1e-6)
    assert space.dist_exp0(x[0].double(), u).dtype is torch.float64
