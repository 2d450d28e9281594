"""Points that the optimiser keeps within a distance of the origin: the textbook's step, then the way back."""

import copy

import pytest
import torch
from geoopt import ManifoldParameter
from torch import Tensor

from hyperbolic.layers import lorentz
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam, RiemannianOptimizer, optimizer, parameter_groups
from tests.tolerances import tolerance

pytestmark = pytest.mark.usefixtures("each_path")

F32, F64 = torch.float32, torch.float64
C, LR, N, D = 2.5, 0.2, 12, 3
RADIUS = 0.5
SPACES = pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
RULES = pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True}, {"rule": "sgd"}, {"rule": "sgd", "momentum": 0.8}], ids=str
)


def plain(p) -> Tensor:
    return p.detach().clone().as_subclass(Tensor)


def table(manifold, radius=RADIUS, dtype=F64, n=N):
    p = ManifoldParameter(manifold.random(n, D, std=0.15, dtype=dtype), manifold=manifold)
    p.radius = radius  # for `groups`
    return p


def groups(*params):
    """Optimiser groups by the radius of the tables."""
    radii = dict.fromkeys(p.radius for p in params)
    return [{"params": [p for p in params if p.radius == radius], "max_radius": radius} for radius in radii]


def gradients(manifold, steps=5, n=N):
    """Whose Riemannian gradients near the origin are about 1 long."""
    size = 4 if isinstance(manifold, PoincareBall) else 1
    return [size * torch.randn(n, manifold.ambient_dim(D), dtype=F64) for _ in range(steps)]


def distances(p) -> Tensor:
    return p.manifold.dist0(plain(p))


def textbook(manifold, x, grads, radius, rule="adam", amsgrad=False, momentum=0.0, exact_exp=True):
    """Points and momenta at the end, and how many points were drawn back."""
    m, v, largest, drawn = torch.zeros_like(x), 0.0, 0.0, 0
    for t, grad in enumerate(grads, 1):
        g = manifold.egrad2rgrad(x, grad)
        if rule == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * manifold.inner(x, g, keepdim=True)
            largest = torch.maximum(v, torch.as_tensor(largest)) if amsgrad else v
            u = -LR * m / (1 - 0.9**t) / ((largest / (1 - 0.999**t)).sqrt() + 1e-8)
        else:
            m = momentum * m + g
            u = -LR * m
        new = manifold.expmap(x, u) if exact_exp else manifold.retr(x, u)
        m = manifold.transp(x, new, m)
        distance = manifold.dist0(new, keepdim=True)
        end = manifold.expmap0(radius / distance * manifold.logmap0(new))
        far = distance > radius
        x, m = torch.where(far, end, new), torch.where(far, manifold.transp(new, end, m), m)
        drawn += int(far.sum())
    return x, m, drawn


def check(p, used, start, grads, **options):
    x, m, drawn = textbook(p.manifold, start, grads, p.radius, **options)
    assert 5 < drawn < len(grads) * len(start)
    torch.testing.assert_close(plain(p), x, **tolerance(F64, "model"))
    if "momentum" in used.state[p]:
        torch.testing.assert_close(used.state[p]["momentum"], m, **tolerance(F64, "model"))


@SPACES
@RULES
def test_dense_steps_are_the_textbooks(kind, options):
    manifold = kind(C)
    p = table(manifold)
    start, grads = plain(p), gradients(manifold)
    rule = RiemannianOptimizer(groups(p), lr=LR, **options)
    for grad in grads:
        p.grad = grad
        rule.step()
        assert (distances(p) <= RADIUS * (1 + 1e-12)).all()
    check(p, rule, start, grads, **options)


@SPACES
@pytest.mark.parametrize("options", [{}, {"rule": "sgd", "momentum": 0.8}], ids=str)
def test_steps_of_the_retraction_are_the_textbooks(kind, options):
    manifold = kind(C)
    p = table(manifold)
    start, grads = plain(p), [g / 2 for g in gradients(manifold)]  # no further than the edge of the ball
    rule = RiemannianOptimizer(groups(p), lr=LR, exact_exp=False, **options)
    for grad in grads:
        p.grad = grad
        rule.step()
    check(p, rule, start, grads, exact_exp=False, **options)


@SPACES
@pytest.mark.parametrize("options", [{"amsgrad": True}, {"rule": "sgd", "momentum": 0.8}], ids=str)
@pytest.mark.parametrize("way", ["sparse", "dense", "named"])
def test_lazy_rows_are_the_textbooks_and_others_stay(kind, options, way):
    manifold = kind(C)
    p, rows = table(manifold), torch.tensor([1, 2, 5, 6, 7, 11])
    start, grads = plain(p), gradients(manifold, n=len(rows))
    others = torch.tensor([row for row in range(N) if row not in rows.tolist()])
    with torch.no_grad():
        p[others] = manifold.expmap0(manifold.logmap0(start[others]) + 1)  # too far, but not touched
        start[others] = plain(p)[others]
    rule = RiemannianOptimizer(groups(p), lr=LR, lazy=True, **options)
    for values in grads:
        if way == "sparse":
            p.grad = torch.sparse_coo_tensor(rows[None], values, p.shape, check_invariants=False)
        else:
            p.grad = torch.zeros_like(start).index_copy_(0, rows, values)
            if way == "named":
                rule.touch(p, rows)
        rule.step()
    assert torch.equal(plain(p)[others], start[others])
    x, m, drawn = textbook(manifold, start[rows], grads, RADIUS, **options)
    assert drawn > 3
    torch.testing.assert_close(plain(p)[rows], x, **tolerance(F64, "model"))
    if "momentum" in rule.state[p]:
        torch.testing.assert_close(rule.state[p]["momentum"][rows], m, **tolerance(F64, "model"))


@SPACES
def test_small_tensors_with_radii_of_their_own_take_their_own_steps(kind, monkeypatch):
    """Those of one radius together, and a tensor without one goes where it goes."""
    manifold = kind(C)
    radii = [0.3, 0.5, None, 0.3]
    params = [table(manifold, radius) for radius in radii]
    starts, grads = [plain(p) for p in params], [gradients(manifold) for _ in params]
    sizes, step_rows = [], optimizer.step_rows
    monkeypatch.setattr(optimizer, "step_rows", lambda x, *rest: sizes.append(len(x)) or step_rows(x, *rest))
    rule = RiemannianAdam(groups(*params), lr=LR)
    for each in zip(*grads, strict=True):
        for p, grad in zip(params, each, strict=True):
            p.grad = grad
        rule.step()
    assert sorted(sizes) == [N] * 10 + [2 * N] * 5
    for p, start, own_grads, radius in zip(params, starts, grads, radii, strict=True):
        if radius is None:
            x, m, _ = textbook(manifold, start, own_grads, 100.0)
            torch.testing.assert_close(plain(p), x, **tolerance(F64, "model"))
            torch.testing.assert_close(rule.state[p]["momentum"], m, **tolerance(F64, "model"))
            assert distances(p).max() > 0.6
        else:
            assert (distances(p) <= radius * (1 + 1e-12)).all()
            check(p, rule, start, own_grads)


@SPACES
def test_nothing_changes_within_the_radius(kind):
    manifold = kind(C)
    torch.manual_seed(1)
    free, limited = table(manifold, None), table(manifold, 50.0)
    limited.data.copy_(plain(free))
    for grad in gradients(manifold):
        for p in (free, limited):
            p.grad = grad
            p.rule = getattr(p, "rule", None) or RiemannianAdam(groups(p), lr=LR)
            p.rule.step()
    assert torch.equal(plain(free), plain(limited))


@SPACES
@pytest.mark.parametrize("options", [{"stabilize": 1}, {"weight_decay": 0.1}, {"stabilize": 2, "rule": "sgd"}], ids=str)
def test_float32_points_stay_within_the_radius(kind, options):
    manifold = kind(C, learn_c=True)
    p = table(manifold, dtype=F32)
    rule = RiemannianOptimizer([{"params": manifold.free_c}, *groups(p)], lr=0.1, **options)
    for _ in range(20):
        rule.zero_grad()
        (-manifold.dist0(p) - manifold.dist(p[:6], p[6:]).sum() / 10).sum().backward()
        before = kind(manifold.c.item())  # steps and radii are of the curvature of the gradients
        rule.step()
        points = before.projx(plain(p))
        assert (before.dist0(points) <= RADIUS * (1 + 1e-3)).all()
    assert manifold.c.item() != C


def test_far_gradients_leave_points_at_the_radius():
    """One step that goes as far as a step can."""
    manifold = Lorentz(1.0)
    p = table(manifold, dtype=F32)
    p.grad = 1e30 * torch.randn_like(plain(p))
    rule = RiemannianOptimizer(groups(p), rule="sgd", momentum=0.5, lr=1.0)
    rule.step()
    torch.testing.assert_close(distances(p), torch.full((N,), RADIUS), **tolerance(F32, "identity"))
    assert rule.state[p]["momentum"].isfinite().all()


def test_a_modules_radius_is_a_group_and_survives_a_copy():
    module = lorentz.Embedding(Lorentz(C), N, D)
    module.max_radius = RADIUS
    for each in (module, copy.deepcopy(module)):
        (group,) = parameter_groups(each)
        assert (group["role"], group["max_radius"]) == ("embeddings", RADIUS)
    both = parameter_groups(torch.nn.ModuleList([module, lorentz.Embedding(Lorentz(C), N, D)]))
    assert [group.get("max_radius") for group in both] in ([None, RADIUS], [RADIUS, None])
    with pytest.raises(ValueError, match="max_radius must be positive, got 0"):
        RiemannianAdam(module.parameters(), max_radius=0)


@SPACES
@pytest.mark.parametrize("radius", [1e-1, 1e-2, 1e-3, 1e-4])
def test_small_radii_in_float32(kind, radius):
    """Where time coordinates say nothing of the distance."""
    manifold = kind(C)
    p = ManifoldParameter(manifold.random(N, D, std=radius, dtype=F32), manifold=manifold)
    optimiser = RiemannianAdam([{"params": [p], "max_radius": radius}], lr=radius)
    for grad in gradients(manifold):
        p.grad = grad.float()
        optimiser.step()
    reached = distances(p).double()
    assert reached.max() <= radius * (1 + 1e-5)
    assert reached.max() > 0.9 * radius


@pytest.mark.parametrize("kind", [PoincareBall, Klein, Lorentz])
def test_a_radius_no_point_can_reach_changes_nothing(kind):
    steps = []
    for radius in (None, 1000.0):
        space = kind(1.0)
        torch.manual_seed(0)
        p = ManifoldParameter(space.random(4, 3), manifold=space)
        p.grad = torch.randn_like(p.detach().as_subclass(torch.Tensor))
        RiemannianAdam([p], lr=0.1, max_radius=radius).step()
        steps.append(p.detach().as_subclass(torch.Tensor))
    assert torch.equal(*steps)
