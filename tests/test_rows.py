"""Row operations in blocks give what the plain float64 expressions give, in value and gradient."""

import pytest
import torch

from hyperbolic import rows
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall

pytestmark = pytest.mark.usefixtures("each_path")
F64 = torch.float64
LARGE = [(3000, 7), (40, 90, 6), (1, 20000), (20000, 1), (2, 16500)]


def check(function, plain, *tensors: torch.Tensor) -> None:
    """Value to one float32 rounding of the largest entry of a row, gradients likewise."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    exact = [t.to(F64).requires_grad_() for t in tensors]
    out, expected = function(*leaves), plain(*exact)
    assert out.shape == expected.shape
    torch.testing.assert_close(out.to(F64), expected, rtol=1e-7, atol=1e-12)
    weight = torch.randn_like(expected)
    got = torch.autograd.grad(out, leaves, weight.to(out.dtype))
    want = torch.autograd.grad(expected, exact, weight.to(out.dtype).to(F64))
    for a, b, leaf in zip(got, want, leaves, strict=True):
        assert a.dtype == leaf.dtype
        torch.testing.assert_close(a.to(F64), b, rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize("shape", LARGE)
def test_dot_and_squared_norm(shape):
    x, y = torch.randn(shape), torch.randn(shape)
    assert rows.blocked(x, y)
    check(rows.row_dot, lambda a, b: (a * b).sum(-1, keepdim=True), x, y)
    check(lambda a: rows.row_dot(a, a), lambda a: (a * a).sum(-1, keepdim=True), x)
    assert rows.row_dot(x, y).dtype is F64


@pytest.mark.parametrize("shape", LARGE)
def test_scale(shape):
    check(rows.row_scale, lambda s, a: s * a, torch.randn(*shape[:-1], 1, dtype=F64), torch.randn(shape))


@pytest.mark.parametrize("shape", [(300, 9, 7), (4, 50, 20, 6), (1, 4000, 5)])
def test_weighted_sum(shape):
    weights = torch.rand(shape[:-1], dtype=F64)
    check(rows.weighted_sum, lambda w, a: (w.unsqueeze(-1) * a).sum(-2), weights, torch.randn(shape))


def test_sums_are_taken_in_float64():
    x = torch.cat([torch.full((30000, 1), 1e4), torch.full((30000, 3), 1e-1)], -1)
    assert (rows.row_dot(x, x) - (x.to(F64) ** 2).sum(-1, keepdim=True)).abs().max() <= 3e-8  # two units of 1e8


def test_non_contiguous_rows_and_second_derivatives():
    x = torch.randn(7, 3000).T.requires_grad_()
    value = rows.row_dot(x, x)
    torch.testing.assert_close(value, x.to(F64).square().sum(-1, keepdim=True))
    (first,) = torch.autograd.grad(value.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    exact = x.detach().to(F64).requires_grad_()
    (plain,) = torch.autograd.grad(exact.square().sum(-1).square().sum(), exact, create_graph=True)
    (expected,) = torch.autograd.grad(plain.sum(), exact)
    torch.testing.assert_close(second.to(F64), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("other", [torch.randn(5, 3), torch.randn(30000, 3, dtype=F64), torch.randn(0, 3)])
def test_small_and_float64_tensors_are_not_cut_into_blocks(other):
    assert not rows.blocked(other)
    assert not rows.blocked(torch.randn(30000, 3), torch.randn(3))


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("c", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("weighted", [True, False])
def test_large_centroids(kind, c, weighted):
    """Many float32 points at once: the same centroid and gradients as one by one in float64."""
    manifold = kind(c)
    x = manifold.random(400, 11, 5, std=0.7 / c**0.5)
    w = torch.rand(400, 11) if weighted else None
    assert rows.blocked(x)
    leaves = [t.clone().requires_grad_() for t in (x, w) if t is not None]
    exact = [t.to(F64).requires_grad_() for t in (x, w) if t is not None]
    out, expected = manifold.centroid(*leaves), manifold.centroid(*exact)
    assert ((out - expected).norm(dim=-1) / expected.norm(dim=-1)).max() < 3e-7
    weight = torch.randn_like(out)
    got = torch.autograd.grad(out, leaves, weight)
    want = torch.autograd.grad(expected, exact, weight.to(F64))
    for a, b in zip(got, want, strict=True):
        assert ((a - b).norm(dim=-1) / b.norm(dim=-1)).max() < 1e-5


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_large_centroids_of_far_points_do_not_cancel(kind):
    manifold = kind(1.0)
    radius = manifold.max_radius() - 0.5
    unit = torch.nn.functional.normalize(torch.randn(1, 1, 5), dim=-1)
    length = radius / 2 if kind is PoincareBall else radius
    x = manifold.expmap0(length * unit).expand(400, 11, -1).contiguous()
    out = manifold.centroid(x)
    assert manifold.dist(out, x[:, 0]).max() < (2e-2 if kind is not Lorentz else 1e-3)


def second(function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient by x of a weighted sum of results, made so that it can be differentiated, and that of its product
    with x."""
    x = x.detach().requires_grad_()
    out = function(x)
    weights = torch.linspace(-1, 1, out.numel()).view_as(out).to(out)
    (first,) = torch.autograd.grad((out * weights).sum(), x, create_graph=True)
    return first.detach(), torch.autograd.grad((first * x.detach().square()).sum(), x)[0]


BALL, DISK, SHEET = PoincareBall(), Klein(), Lorentz()
OF_ITSELF = {  # functions whose arguments hang together, of points of float32 that are many, and of float64
    "sum with itself": (BALL, lambda x: BALL.mobius_add(x, x)),
    "sum with a part": (BALL, lambda x: BALL.mobius_add(x, 0.5 * x)),
    "distance to a part": (BALL, lambda x: BALL.dist(x, 0.5 * x)),
    "product": (BALL, lambda x: rows.row_dot(x, x.sin()).float()),
    "square": (BALL, lambda x: rows.row_dot(x, x).float()),
    "scaling": (BALL, lambda x: rows.row_scale(x.double().sum(-1, keepdim=True), x)),
    "ball's centroid": (BALL, lambda x: BALL.centroid(x.unflatten(0, (-1, 5)))),
    "disk's centroid": (DISK, lambda x: DISK.centroid(x.unflatten(0, (-1, 5)))),
    "sheet's centroid": (SHEET, lambda x: SHEET.centroid(x.unflatten(0, (-1, 5)))),
    "weighted": (BALL, lambda x: BALL.centroid(x.unflatten(0, (-1, 5)), x[:, :1].exp().reshape(-1, 5))),
}


@pytest.mark.parametrize("name", OF_ITSELF)
def test_second_derivatives_of_large_tensors_are_those_of_float64(name):
    manifold, function = OF_ITSELF[name]
    x = manifold.random(3000, 8, std=0.3)
    for a, b in zip(second(function, x), second(function, x.double()), strict=True):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max(), name
