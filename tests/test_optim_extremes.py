"""The optimiser over many steps, with gradients of every size, and with the options that act on points together."""

import itertools

import pytest
import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam, RiemannianOptimizer, RiemannianSGD

CURVED = pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
F32, F64 = torch.float32, torch.float64


def points(manifold, n=6, d=3, dtype=F64, std=0.4):
    return ManifoldParameter(manifold.random(n, d, std=std, dtype=dtype), manifold=manifold)


def plain(p) -> Tensor:
    return p.detach().clone().as_subclass(Tensor)


@CURVED
@DTYPES
@pytest.mark.parametrize("rule", ["adam", "sgd"])
@pytest.mark.parametrize("exact_exp", [True, False])
@pytest.mark.usefixtures("each_path")
def test_many_steps_with_gradients_of_every_size(kind, dtype, rule, exact_exp):
    """60 steps: huge, tiny, zero, ordinary and outward gradients, changing sign and row by row."""
    manifold = kind(2.0)
    table, bias = (
        points(manifold, dtype=dtype, std=1.0),
        ManifoldParameter(manifold.origin(3, dtype=dtype), manifold=manifold),
    )
    options = {"amsgrad": True, "weight_decay": 0.01} if rule == "adam" else {"momentum": 0.9}
    optimizer = RiemannianOptimizer([table, bias], rule=rule, lr=0.3, exact_exp=exact_exp, stabilize=7, **options)
    huge = [1e160, 1e300] if dtype is F64 else []
    sizes = torch.tensor([0.0, 1e-38, 1e-30, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e30, 1e38, *huge], dtype=dtype)
    for step in range(60):
        for p in (table, bias):
            rows = sizes[torch.randint(len(sizes), (*p.shape[:-1], 1))]
            p.grad = rows * (2 * torch.rand(p.shape, dtype=dtype) - 1)
            if step % 10 > 6:  # pushes everything to the boundary
                p.grad = -rows * nn.functional.normalize(plain(p), dim=-1)
        optimizer.step()
        for p in (table, bias):
            assert torch.isfinite(p).all(), step
            assert manifold.dist0(plain(p)).max() <= manifold.max_radius(dtype) * (1 + 1e-3)
            fine, reason = manifold.check_point_on_manifold(plain(p), atol=1e-6, rtol=1e-6, explain=True)
            assert fine, reason
    for state in optimizer.state.values():
        assert all(torch.isfinite(value).all() for key, value in state.items() if key != "step")


@CURVED
@DTYPES
@pytest.mark.parametrize("size", [1e-5, 1.0, 1e10, 1e18, 1e25, 1e38])
@pytest.mark.usefixtures("each_path")
def test_the_first_step_of_adam_has_the_length_of_the_learning_rate(kind, dtype, size):
    """``m / sqrt(v) = g / |g|`` whatever the size of g, so that no gradient throws a point to the boundary."""
    p = points(kind(0.5), dtype=dtype)
    start = plain(p)
    p.grad = size * (0.5 + 0.5 * torch.rand(p.shape, dtype=dtype)) * torch.tensor([1, -1, 1, -1])[: p.shape[-1]]
    RiemannianAdam([p], lr=0.1, eps=1e-12).step()
    length = p.manifold.dist(start, plain(p))
    torch.testing.assert_close(length, torch.full_like(length, 0.1), rtol=1e-3, atol=0)


@DTYPES
@pytest.mark.parametrize(
    "options",
    [
        {"rule": "adam"},
        {"rule": "adam", "amsgrad": True, "weight_decay": 0.1},
        {"rule": "sgd"},
        {"rule": "sgd", "momentum": 0.9},
    ],
    ids=str,
)
def test_euclidean_tensors_stay_finite(dtype, options):
    """Finite gradients up to the largest number of float32, of either sign."""
    largest = torch.finfo(F32).max
    for pattern in itertools.product((-largest, 1e-38, largest), repeat=3):
        p = nn.Parameter(torch.ones(3, dtype=dtype))
        flat = ManifoldParameter(torch.ones(2, 2, dtype=dtype), manifold=Euclidean())
        optimizer = RiemannianOptimizer([p, flat], lr=0.1, **options)
        for size in pattern:
            p.grad, flat.grad = torch.full_like(p, size), torch.full_like(flat, size)
            optimizer.step()
        assert not torch.isnan(p).any(), pattern
        assert not torch.isnan(flat).any(), pattern


@CURVED
@DTYPES
@pytest.mark.parametrize("clip", ["global", "tensor"])
def test_clipping_huge_gradients_keeps_their_direction(kind, dtype, clip):
    p = points(kind(2.0), dtype=dtype)
    direction = nn.functional.normalize(torch.randn(p.shape, dtype=F64).flatten(), dim=0).view(p.shape).to(dtype)
    ends = []
    for size in (10.0, 1e38):
        q = ManifoldParameter(plain(p), manifold=p.manifold)
        q.grad = size * direction
        RiemannianSGD([q], lr=0.1, max_grad_norm=1.0, clip=clip).step()
        ends.append(plain(q))
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-5, atol=1e-7)
    assert (ends[0] - plain(p)).abs().max() > 1e-4


def test_gradients_below_the_clipping_norm_are_left_alone():
    p, q = points(PoincareBall(2.0)), nn.Parameter(torch.zeros(3, dtype=F64))
    twins = [ManifoldParameter(plain(p), manifold=p.manifold), nn.Parameter(torch.zeros(3, dtype=F64))]
    for a, b in zip((p, q), twins, strict=True):
        a.grad = 0.01 * torch.randn_like(a)
        b.grad = a.grad.clone()
    RiemannianAdam([p, q], max_grad_norm=1.0).step()
    RiemannianAdam(twins).step()
    assert torch.equal(plain(p), plain(twins[0]))
    assert torch.equal(q, twins[1])


def textbook_sgd(manifold, x, gradients, lr, momentum, decay):
    """One point; the momentum is transported with it, by decay along the geodesic to the origin too."""
    m = torch.zeros_like(x)
    for gradient in gradients:
        g = manifold.egrad2rgrad(x, gradient)
        moved = manifold.expmap0((1 - lr * decay) * manifold.logmap0(x))
        g, m = manifold.transp(x, moved, g), manifold.transp(x, moved, m)
        m = momentum * m + g
        new = manifold.expmap(moved, -lr * m)
        x, m = new, manifold.transp(moved, new, m)
    return x


@CURVED
@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_sgd_with_momentum_and_weight_decay(kind, momentum, decay):
    p = points(kind(0.5))
    start = plain(p)
    gradients = [torch.randn_like(start) for _ in range(5)]
    optimizer = RiemannianSGD([p], lr=0.05, momentum=momentum, weight_decay=decay)
    for gradient in gradients:
        p.grad = gradient
        optimizer.step()
    for row in range(len(start)):
        expected = textbook_sgd(p.manifold, start[row], [g[row] for g in gradients], 0.05, momentum, decay)
        torch.testing.assert_close(plain(p)[row], expected, rtol=1e-9, atol=1e-12)


def test_weight_decay_of_euclidean_tensors_is_decoupled():
    for options in ({"rule": "adam"}, {"rule": "sgd"}, {"rule": "sgd", "momentum": 0.9}):
        p = nn.Parameter(torch.tensor([2.0, -1.0], dtype=F64))
        p.grad = torch.zeros_like(p)
        RiemannianOptimizer([p], lr=0.1, weight_decay=0.5, **options).step()
        torch.testing.assert_close(p.detach(), 0.95 * torch.tensor([2.0, -1.0], dtype=F64))


@CURVED
def test_momenta_stay_tangent(kind):
    p = points(kind(2.0), std=1.0)
    optimizer = RiemannianAdam([p], lr=0.1)
    for _ in range(30):
        p.grad = torch.randn_like(p)
        optimizer.step()
    momentum = optimizer.state[p]["momentum"]
    torch.testing.assert_close(p.manifold.proju(plain(p), momentum), momentum, rtol=1e-9, atol=1e-12)
    assert optimizer.state[p]["square"].shape == (*p.shape[:-1], 1)


@CURVED
@DTYPES
def test_stabilising_changes_nothing_but_rounding(kind, dtype):
    """Also far out, where a projection of float32 momenta along the normal of the hyperboloid would swamp them."""
    manifold = kind(1.0)
    radius = 0.7 * min(manifold.max_radius(dtype), 14.0) / (2 if kind is PoincareBall else 1)
    start = manifold.expmap0(radius * nn.functional.normalize(torch.randn(20, 3, dtype=dtype), dim=-1))
    gradients = [torch.randn_like(start) for _ in range(3)]
    ends = []
    for stabilize in (None, 1):
        p = ManifoldParameter(start.clone(), manifold=manifold)
        optimizer = RiemannianAdam([p], lr=0.1, stabilize=stabilize)
        for gradient in gradients:
            p.grad = gradient
            optimizer.step()
        ends.append(plain(p))
    assert manifold.dist(*ends).max() <= (1e-3 if dtype is F32 else 1e-7)


def test_parameters_without_a_gradient_stay_where_they_are():
    used, idle = points(PoincareBall(2.0)), points(Lorentz(2.0))
    start = plain(idle)
    optimizer = RiemannianAdam([used, idle], weight_decay=0.1)
    used.grad = torch.randn_like(used)
    optimizer.step()
    assert torch.equal(plain(idle), start)
    assert "step" not in optimizer.state.get(idle, {})
    assert RiemannianAdam([points(Klein(1.0))], max_grad_norm=1.0).step() is None


def test_one_optimiser_for_several_spaces_and_dtypes():
    """Small tensors are grouped by space, size and dtype; each takes the step that it takes alone."""
    ball, sheet = PoincareBall(0.5), Lorentz(2.0)
    makers = [
        lambda: points(ball), lambda: points(ball, n=2), lambda: points(ball, d=5), lambda: points(ball, dtype=F32),
        lambda: points(PoincareBall(2.0)), lambda: points(sheet), lambda: points(sheet, dtype=F32),
        lambda: ManifoldParameter(ball.random(3, dtype=F64, std=0.3), manifold=ball), lambda: nn.Parameter(torch.randn(4)),
    ]  # fmt: skip
    together = [make() for make in makers]
    alone = [
        ManifoldParameter(plain(p), manifold=p.manifold) if isinstance(p, ManifoldParameter) else nn.Parameter(plain(p))
        for p in together
    ]
    optimizers = [RiemannianAdam(together, lr=0.1), *(RiemannianAdam([p], lr=0.1) for p in alone)]
    for step in range(4):
        for number, (p, q) in enumerate(zip(together, alone, strict=True)):
            if number % 2 == 0 or step > 1:  # different numbers of steps, too
                p.grad = torch.randn_like(plain(p))
                q.grad = p.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(together, alone, strict=True):
        torch.testing.assert_close(plain(p), plain(q), rtol=1e-5 if p.dtype is F32 else 1e-12, atol=1e-12)
        assert p.dtype == q.dtype
