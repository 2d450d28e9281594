"""Distances of all pairs against the manifolds' distance of each pair, which is tested against exact values."""

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels.pairwise import lorentz_pairwise, poincare_pairwise
from hyperbolic.manifolds import Lorentz, PoincareBall
from hyperbolic.manifolds.lorentz import lorentz_products

F32, F64 = torch.float32, torch.float64
D = 5
pytestmark = pytest.mark.usefixtures("each_path")
SPACES = pytest.mark.parametrize(
    ("space", "pairwise"), [(PoincareBall, poincare_pairwise), (Lorentz, lorentz_pairwise)], ids=["poincare", "lorentz"]
)
DTYPES = pytest.mark.parametrize(("dtype", "relative"), [(F32, 3e-7), (F64, 2e-12)], ids=["float32", "float64"])
CURVATURES = pytest.mark.parametrize("c", [0.1, 3.0])


def each(manifold, x, y):
    return manifold.dist(x.unsqueeze(-2), y.unsqueeze(-3))


@SPACES
@DTYPES
@CURVATURES
@pytest.mark.parametrize("radius", [1e-6, 0.1, 3.0, 10.0])
@pytest.mark.parametrize("gap", [1.0, 1e-2, 1e-4, 1e-6])
def test_accuracy(space, pairwise, c, dtype, relative, radius, gap):
    """Clouds of points, wide and narrow, near and far from the origin."""
    manifold, root = space(c), c**0.5
    middle = normalize(torch.randn(D, dtype=F64), dim=-1)
    tangents = radius / root * normalize(middle + gap * torch.randn(30, D, dtype=F64), dim=-1)
    tangents = tangents * (1 + gap * torch.rand(30, 1, dtype=F64)) / 2
    points = manifold.expmap0(tangents).to(dtype)
    x, y = points[:14], points[10:]
    distances, expected = pairwise(x, y, manifold.c), each(manifold, x, y).double()
    assert distances.dtype is dtype
    assert (distances.diagonal(-10) == 0).all()
    assert ((distances.double() - expected).abs() <= relative * expected).all()


@SPACES
@CURVATURES
def test_without_refining_pairs_apart_are_the_same_and_equal_points_finite(space, pairwise, c):
    """As attention takes them: the error of sinh^2(d/2) stays below 1e-15 times that of its terms."""
    manifold = space(c)
    x = manifold.random(7, D, std=0.8 / c**0.5, dtype=F64).requires_grad_()
    y = torch.cat([x.detach()[:1], manifold.random(8, D, std=0.8 / c**0.5, dtype=F64)])
    rough, exact = pairwise(x, y, manifold.c, refine=False), pairwise(x, y, manifold.c)
    terms = torch.outer(*((c**0.5 * manifold.dist0(points.detach())).cosh() for points in (x, y)))
    assert ((rough - exact).abs() <= 1e-9 * exact + 2 / c**0.5 * (1e-15 * terms).sqrt()).all()
    apart = exact > 0.1 / c**0.5
    torch.testing.assert_close(rough[apart], exact[apart], rtol=1e-11, atol=0)
    (grad,) = torch.autograd.grad(rough.sum(), x)
    assert torch.isfinite(grad).all()


@SPACES
@CURVATURES
@pytest.mark.parametrize("lead", [((), ()), ((2,), (2,)), ((3, 1), (2,)), ((0,), (0,))])
@pytest.mark.parametrize("sizes", [(4, 6), (1, 1), (0, 3), (3, 0)])
def test_values_and_gradients(space, pairwise, c, lead, sizes):
    manifold = space(c)
    x = manifold.random(*lead[0], sizes[0], D, std=0.8 / c**0.5, dtype=F64)
    y = manifold.random(*lead[1], sizes[1], D, std=0.8 / c**0.5, dtype=F64)
    if min(sizes) > 1 and lead == ((), ()):
        y[0], y[1] = x[0], x[1] * (1 + 1e-9)  # equal points, and points that are computed again
    leaves = [x.requires_grad_(), y.requires_grad_(), manifold.c.clone().requires_grad_()]
    manifold.fixed_c = leaves[2]
    distances, expected = pairwise(*leaves), each(manifold, x, y)
    torch.testing.assert_close(distances, expected, rtol=1e-11, atol=0)
    cotangent = torch.randn_like(expected)
    actual, expected_grads = (torch.autograd.grad((v * cotangent).sum(), leaves) for v in (distances, expected))
    for a, b in zip(actual, expected_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@SPACES
@pytest.mark.parametrize("c", [0.5, 2.0])
def test_gradcheck(space, pairwise, c):
    manifold = space(c)
    x, y = manifold.random(3, D, dtype=F64, std=0.5), manifold.random(2, D, dtype=F64, std=0.5)

    def distances(x, y, c):
        if space is Lorentz:  # the time coordinate follows from the others
            x, y = (torch.cat([(1 / c + v.square().sum(-1, keepdim=True)).sqrt(), v], -1) for v in (x, y))
        return pairwise(x, y, c)

    leaves = [v[..., -D:].clone().requires_grad_() for v in (x, y)]
    assert torch.autograd.gradcheck(distances, [*leaves, manifold.c.clone().requires_grad_()])


@SPACES
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_equal_points_and_the_margin(space, pairwise, dtype):
    manifold = space(2.0)
    far = manifold.projx(manifold.expmap0(0.999 * manifold.max_radius(dtype) * torch.eye(D, dtype=dtype)))
    points = torch.cat([far, manifold.origin(2, D, dtype=dtype)])
    x, y = points.clone().requires_grad_(), points.clone().requires_grad_()
    distances = pairwise(x, y, manifold.c)
    assert torch.isfinite(distances).all()
    assert not distances.diagonal().any()
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(distances.sum(), [x, y], retain_graph=True))
    assert all(not grad.any() for grad in torch.autograd.grad(distances.diagonal().sum(), [x, y]))


@pytest.mark.parametrize("c", [0.5, 2.0])
def test_products_of_queries_and_a_table(c):
    space = Lorentz(c)
    queries, table = space.random(2, 3, D, dtype=F64), space.random(7, D, dtype=F64)
    products = lorentz_products(queries, table)
    torch.testing.assert_close(products, queries[..., 1:] @ table[:, 1:].T - queries[..., :1] * table[:, 0])
    torch.testing.assert_close(torch.acosh(-c * products) / c**0.5, each(space, queries, table))
