"""Squared distances from tangent vectors against the way through exp_0, which is tested against exact values."""

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels import tangent_distance as kernel
from hyperbolic.kernels.tangent_distance import (
    row_products,
    squared_length,
    squared_length_of_product,
    tangent_distance2,
    tangent_distance2_of_all,
)
from hyperbolic.manifolds.poincare import distance_square, expmap0
from hyperbolic.numerics import ball_gap
from hyperbolic.smooth import asinhc
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
CURVATURES = pytest.mark.parametrize("c", [0.1, 3.0])
pytestmark = pytest.mark.usefixtures("each_path")


def through_points(x, e, c):
    """By way of the points ``exp_0(e)``."""
    c = c.unsqueeze(-1) if c.dim() else c
    t = distance_square(x.unsqueeze(1), expmap0(e.double(), c), c)
    return (4 * t * asinhc(c * t).square()).squeeze(-1).to(e.dtype)


def drawn(c: float, radius: float, b: int = 3, n: int = 5, d: int = 4):
    """Points x, their gaps, vectors e and a curvature of each row; distances from the origin up to about radius."""
    curvature = torch.tensor(c, dtype=F64) * torch.linspace(0.5, 1.5, b, dtype=F64).unsqueeze(-1)
    scale = radius / 2 / curvature.sqrt()
    u = scale * normalize(torch.randn(b, d, dtype=F64), dim=-1)
    x = expmap0(u, curvature)
    e = scale.unsqueeze(-1) * normalize(torch.randn(b, n, d, dtype=F64), dim=-1) * torch.rand(b, n, 1, dtype=F64)
    e[:, 0] = 0
    return x, ball_gap(x, curvature), e, curvature, u


@CURVATURES
@pytest.mark.parametrize("radius", [1e-6, 1e-2, 1.0, 6.0, 12.0])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_values(c, radius, dtype):
    x, gap, e, curvature, _ = drawn(c, radius)
    e = e.to(dtype)
    expected = through_points(x, e, curvature)
    actual = tangent_distance2(x, gap, e, curvature)
    assert actual.dtype is dtype
    terms = (radius / 2) ** 2 if radius < 1 else 4 * torch.tensor(radius).cosh().item() / c
    assert ((actual - expected).abs() <= 1e-15 * terms + (1e-6 if dtype is F32 else 1e-10) * expected).all()
    for i in range(len(x)):
        of_all = tangent_distance2_of_all(x[i : i + 1], gap[i : i + 1], e[i], curvature[i, 0])
        assert ((of_all - expected[i]).abs() <= 1e-15 * terms + (1e-6 if dtype is F32 else 1e-10) * expected[i]).all()


@CURVATURES
@pytest.mark.parametrize("size", [0.0, 1e-5, 0.3, 3.0])
def test_equal_points_have_distance_and_gradient_zero(c, size):
    curvature = torch.tensor([[c]], dtype=F64)
    u = size / c**0.5 * normalize(torch.randn(1, 5, dtype=F64), dim=-1)
    x = expmap0(u, curvature).requires_grad_()
    e, curvature = u.clone().unsqueeze(1).requires_grad_(), curvature.requires_grad_()
    square = tangent_distance2(x, ball_gap(x, curvature), e, curvature)
    grown = torch.tensor(2 * size).cosh().item() ** 2
    assert 0 <= square <= 1e-14 * grown / c
    for grad in torch.autograd.grad(square.sum(), [x, e, curvature]):
        assert (grad.abs() <= 1e-13 * (1 + 1 / c) * grown**2).all()


@pytest.mark.parametrize(("c", "radius"), [(0.1, 1e-4), (3.0, 1e-4), (1.0, 0.1), (3.0, 1.0), (0.1, 5.0), (3.0, 5.0)])
def test_gradients(c, radius):
    x, _, e, curvature, _ = drawn(c, radius)
    leaves = [v.clone().requires_grad_() for v in (x, e, curvature)]
    cotangent = torch.randn(e.shape[:2], dtype=F64)
    actual = (tangent_distance2(leaves[0], ball_gap(leaves[0], leaves[2]), *leaves[1:]) * cotangent).sum()
    expected = (through_points(*leaves) * cotangent).sum()
    grads = [torch.autograd.grad(value, leaves) for value in (actual, expected)]
    for a, b, name in zip(*grads, ("x", "e", "c"), strict=True):
        size = b.abs().max().item()
        atol = 1e-9 * size + (1e-14 if name == "c" else 0)
        torch.testing.assert_close(a, b, rtol=1e-9, atol=atol)


@CURVATURES
def test_gradcheck(c):
    _, _, e, curvature, u = drawn(c, 2.0, b=2, n=2, d=2)
    inputs = [v.clone().requires_grad_() for v in (u, e, curvature)]

    def pairs(u, e, c):
        x = expmap0(u, c)
        return tangent_distance2(x, ball_gap(x, c), e, c)

    def of_all(u, e, c):
        x = expmap0(u, c[0, 0])
        return tangent_distance2_of_all(x, ball_gap(x, c[0, 0]), e[0], c[0, 0])

    assert torch.autograd.gradcheck(pairs, inputs)
    assert torch.autograd.gradcheck(of_all, inputs)


@pytest.mark.parametrize(("length", "dtype"), [(27.0, F64), (29.0, F32), (29.0, F64), (1e4, F32)], ids=str)
def test_very_long_vectors_are_finite(length, dtype):
    c = torch.tensor(2.0, dtype=F64)
    x = expmap0(torch.randn(2, 4, dtype=F64), c).requires_grad_()
    e = (length / 2**0.5 * normalize(torch.randn(2, 3, 4, dtype=F64), dim=-1)).to(dtype).requires_grad_()
    square = tangent_distance2(x, ball_gap(x, c), e, c)
    assert square.isfinite().all()
    assert (square > 1.9**2 * min(length, 28) ** 2 / 2 - 100).all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(square.sum(), [x, e]))


def test_what_rounding_made_negative_is_zero_with_a_slope():
    h = torch.tensor([[-1e-17, 0.0, 1e-17]], dtype=F64, requires_grad=True)
    c = torch.tensor(2.0, dtype=F64)
    square = squared_length(h, c, F64)
    assert square.min() == 0
    (grad,) = torch.autograd.grad(square.sum(), h)
    torch.testing.assert_close(grad, torch.full_like(grad, 2.0))


@pytest.mark.parametrize("c", [None, 0.7])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_blocks_of_columns_give_the_product(c, dtype, monkeypatch):
    monkeypatch.setattr(kernel, "_BLOCK", 1)
    left, right = torch.rand(3, 5, dtype=F64), torch.rand(150, 5, dtype=F64)
    c = None if c is None else torch.tensor(c, dtype=F64)
    with_graph = squared_length_of_product(left, right, c, dtype)
    with torch.no_grad():
        torch.testing.assert_close(squared_length_of_product(left, right, c, dtype), with_graph)


def test_an_infinite_number_gives_none():
    h = torch.ones(64, 5000, dtype=F64)
    h[3, 7] = torch.inf
    assert (~squared_length(h, torch.tensor(1.3, dtype=F64), F64).isfinite()).nonzero().tolist() == [[3, 7]]


@pytest.mark.parametrize("n", [1, 12, 160])
@pytest.mark.parametrize("lorentz", [False, True], ids=["rows", "rows without their first entry"])
def test_products_are_those_of_wide_rows(n, lorentz):
    queries = torch.randn(50, 2, 33, dtype=F64).requires_grad_()
    table = torch.randn(50, n, 34).requires_grad_()
    rows = table[..., 1:] if lorentz else table[..., :33]
    results = []
    for products, squares in (
        row_products(queries, rows),
        ((queries.unsqueeze(2) * rows.double().unsqueeze(1)).sum(-1), rows.double().square().sum(-1)),
    ):
        value = (products.sin() + squares.unsqueeze(1).cos()).sum()
        results.append([products, squares, *torch.autograd.grad(value, [queries, table])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **tolerance(a.dtype, "identity"))


def test_second_derivatives():
    x, gap, e, c, _ = drawn(1.0, 1.0)
    e.requires_grad_()
    (slope,) = torch.autograd.grad(tangent_distance2(x, gap, e, c).sum(), e, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), e)
    assert torch.isfinite(curvature).all()
    assert torch.autograd.gradgradcheck(lambda e: tangent_distance2(x, gap, e, c), e)


def test_the_curvature_of_short_distances_has_a_gradient():
    """The float32 distances hardly change with c; their derivative is not that of their rounded values."""
    draw = torch.Generator().manual_seed(0)
    u, e = (1e-3 * torch.randn(size, dtype=F64, generator=draw) for size in ((3, 4), (3, 5, 4)))
    grads = []
    for dtype in (F32, F64):
        c = torch.tensor(0.01, dtype=F64, requires_grad=True)
        x = expmap0(u, c.detach())
        tangent_distance2(x, ball_gap(x, c), e.to(dtype), c).sum().backward()
        grads.append(c.grad)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-3, atol=0)
