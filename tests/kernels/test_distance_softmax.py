"""The softmax over distances against that of the distances of single pairs, and these against the manifold's."""

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels.distance_softmax import cosh_products, distance_softmax, passes
from hyperbolic.manifolds import Lorentz, sheet
from hyperbolic.rows import sums as row_sums
from hyperbolic.smooth import asinhc, safe_sqrt
from tests.tolerances import tolerance

pytestmark = pytest.mark.usefixtures("each_path")
F64 = torch.float64
NONE = (torch.empty(0, dtype=torch.long),) * 2
SOME = torch.tensor([4, 0, 4, 6]), torch.tensor([2, 0, 4, 1])


def drawn(radius: float, b: int = 7, p: int = 5, d: int = 3) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, dtype=F64, generator=draw) * radius for n in (b, b, p)]


def softmax_of_distances(near, others, excluded, temperature):
    score = (-others / temperature).index_put(excluded, others.new_full((), -torch.inf))
    return (torch.cat([-near.unsqueeze(1) / temperature, score], 1).logsumexp(1) + near / temperature).mean()


def of_single_pairs(x, y, z, c, excluded, temperature=1.0):
    def length(h):
        return (2 / c.sqrt() * safe_sqrt(h) * asinhc(h)).squeeze(-1)

    near, others = (length(sheet.half_sinh_square(*pair, c)) for pair in ((x, y), (x.unsqueeze(1), z)))
    return softmax_of_distances(near, others, excluded, temperature)


def with_gradients(function, points, *others) -> list[torch.Tensor]:
    points = [x.clone().requires_grad_() for x in points]
    loss = function(*points, *others)
    return [loss.detach(), *torch.autograd.grad(loss, points)]


@pytest.mark.parametrize("c", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("excluded", [NONE, SOME], ids=["all", "some"])
@pytest.mark.parametrize("radius", [1e-4, 1.0, 100.0])
def test_values_and_gradients(c, temperature, excluded, radius):
    points = [*drawn(radius), torch.tensor(c, dtype=F64)]
    actual = with_gradients(distance_softmax, points, excluded, temperature)
    expected = with_gradients(of_single_pairs, points, excluded, temperature)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9 * float(other.abs().max()) + 1e-16)


def test_single_pairs_have_the_distances_of_the_manifold():
    manifold = Lorentz(c=0.7)
    x, y, z = (manifold.expmap0(u) for u in drawn(1.0))
    distances = manifold.dist(x, y), manifold.dist(x.unsqueeze(1), z)
    expected = softmax_of_distances(*distances, SOME, 2.0)
    actual = of_single_pairs(x[:, 1:], y[:, 1:], z[:, 1:], manifold.c, SOME, 2.0)
    torch.testing.assert_close(actual, expected, **tolerance(F64, "identity"))


def test_by_hand():
    """One point at the origin, its partner at distance 1, others at 2 and, left out, 0.5."""
    reach = torch.tensor([1.0, 2.0, 0.5], dtype=F64).sinh().unsqueeze(1)
    loss = distance_softmax(
        torch.zeros(1, 1, dtype=F64), reach[:1], reach[1:], torch.tensor(1.0), (torch.tensor([0]), torch.tensor([1]))
    )
    torch.testing.assert_close(loss, torch.tensor(1 + torch.exp(torch.tensor(-1.0, dtype=F64)).item()).double().log())


def test_blocks_do_not_change_it(monkeypatch):
    points, c = drawn(1.0), torch.tensor(1.0, dtype=F64)
    whole = with_gradients(distance_softmax, points, c, SOME)
    monkeypatch.setattr(row_sums, "ENTRIES", 10)
    monkeypatch.setattr(passes, "_BLOCK", 10)  # two rows at a time, the last alone
    for one, other in zip(with_gradients(distance_softmax, points, c, SOME), whole, strict=True):
        torch.testing.assert_close(one, other, **tolerance(F64, "identity"))


def test_pairs_that_are_close_far_out_keep_their_distance():
    """The terms of the product cancel to nothing here; the pair is computed from the difference."""
    manifold = Lorentz(c=1.0)
    u = torch.tensor([[9.0, 0.0]], dtype=F64)
    x, y = manifold.expmap0(u), manifold.expmap0(u + torch.tensor([[1e-6, 0.0]], dtype=F64))
    z = manifold.expmap0(u - torch.tensor([[0.5, 0.0]], dtype=F64))
    actual = with_gradients(distance_softmax, [x[:, 1:], y[:, 1:], z[:, 1:]], manifold.c, NONE)
    expected = with_gradients(of_single_pairs, [x[:, 1:], y[:, 1:], z[:, 1:]], manifold.c, NONE)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-9)
    assert float(actual[1].norm()) > 1e-5, "the pair pulls together"


def test_equal_points_and_a_learned_curvature_have_finite_gradients():
    points = [torch.zeros(2, 3, dtype=F64, requires_grad=True) for _ in range(3)]
    c = torch.tensor(1.0, dtype=F64, requires_grad=True)
    for curvature in (c, c.detach()):
        loss = distance_softmax(*points, curvature, NONE)
        torch.testing.assert_close(loss.detach(), torch.tensor(3.0, dtype=F64).log(), rtol=1e-5, atol=0)
        loss.backward()
    assert all(torch.isfinite(x.grad).all() for x in points)
    assert torch.isfinite(c.grad)


def test_products_order_points_by_distance():
    manifold = Lorentz(c=1.7)
    x, y, _ = (manifold.expmap0(u) for u in drawn(1.0))
    products = cosh_products(x[:, 1:], y[:, 1:], manifold.c)
    distances = manifold.dist(x.unsqueeze(1), y)
    torch.testing.assert_close(products.acosh() / manifold.c.sqrt(), distances, **tolerance(F64, "identity"))


def test_a_pair_whose_weight_is_too_small_for_a_number_is_still_pulled_together():
    """Its points are 20 apart at a temperature of 0.02, and an other is at distance 1; so are, then, all."""
    far, near = (torch.tensor([[reach]], dtype=F64).sinh() for reach in (20.0, 1.0))
    partner = far.clone().requires_grad_()
    loss = distance_softmax(torch.zeros(1, 1, dtype=F64), partner, near, torch.tensor(1.0), NONE, 0.02)
    (gradient,) = torch.autograd.grad(loss, partner)
    torch.testing.assert_close(gradient, 1 / (0.02 * (1 + far * far).sqrt()), **tolerance(F64, "identity"))
    loss = distance_softmax(torch.zeros(1, 1, dtype=F64), partner, far, torch.tensor(1.0), NONE, 0.02)
    assert torch.isfinite(loss)
    assert torch.isfinite(torch.autograd.grad(loss, partner)[0])


def test_no_excluded_pairs_of_any_integers():
    points, c = drawn(1.0), torch.tensor(1.0, dtype=F64)
    loss = distance_softmax(*points, c, (torch.empty(0, dtype=torch.int32),) * 2)
    torch.testing.assert_close(loss, distance_softmax(*points, c, NONE), rtol=0, atol=0)


def test_each_gradient_alone_is_that_of_all():
    points, c = drawn(1.0), torch.tensor(1.0, dtype=F64)
    _, *gradients = with_gradients(distance_softmax, points, c, SOME)
    for i, expected in enumerate(gradients):
        alone = [x.clone().requires_grad_(i == j) for j, x in enumerate(points)]
        distance_softmax(*alone, c, SOME).backward()
        torch.testing.assert_close(alone[i].grad, expected, **tolerance(F64, "identity"))


@pytest.mark.parametrize(("temperature", "radius"), [(0.01, 6.0), (0.02, 8.0), (0.02, 10.0), (0.05, 18.0)])
def test_distances_of_many_hundred_temperatures(temperature, radius):
    """Weights exp(-d/T) that float64 has not, but whose ratios it has."""
    space, draw = Lorentz(c=1.0), torch.Generator().manual_seed(3)
    u = normalize(torch.randn(18, 5, dtype=F64, generator=draw), dim=-1) * radius
    points = [x[:, 1:] for x in space.expmap0(u).split([6, 6, 6])]
    actual = with_gradients(distance_softmax, [*points, space.c], NONE, temperature)
    expected = with_gradients(of_single_pairs, [*points, space.c], NONE, temperature)
    assert float(expected[0]) > 1
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9 * float(other.abs().max()))
