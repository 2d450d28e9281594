"""Which tensors are updated together, which kernels Euclidean tensors take, old checkpoints, and loss scaling."""

import copy
import pickle

import pytest
import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam, RiemannianOptimizer, RiemannianSGD, flat, optimizer
from hyperbolic.optim.points import project

pytestmark = pytest.mark.usefixtures("each_path")

F64 = torch.float64


def plain(p) -> Tensor:
    return p.detach().clone().as_subclass(Tensor)


def bias(manifold):
    p = ManifoldParameter(manifold.random(3, std=0.3, dtype=F64), manifold=manifold)
    p.grad = torch.randn_like(plain(p))
    return p


@pytest.mark.parametrize("learn_c", [False, True])
def test_points_of_one_space_are_updated_together(monkeypatch, learn_c):
    """Models that share a curvature through `twin` are one space; equal curvatures of two spaces are not."""
    sheet = Lorentz(2.5, learn_c=learn_c)
    again = sheet.twin(Klein).twin(Lorentz)
    assert again is not sheet
    params = [bias(sheet), bias(again), bias(sheet.twin(Klein)), bias(Lorentz(2.5, learn_c=learn_c))]
    alone = copy.deepcopy(params)
    sizes = []
    step_rows = optimizer.step_rows
    monkeypatch.setattr(optimizer, "step_rows", lambda x, *rest: sizes.append(len(x)) or step_rows(x, *rest))
    RiemannianAdam(params, lr=0.1).step()
    assert sorted(sizes) == [1, 1, 2]
    for p, q in zip(params, alone, strict=True):
        q.grad = p.grad
        RiemannianAdam([q], lr=0.1).step()
        torch.testing.assert_close(plain(p), plain(q), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_and_foreach_are_one_rule(monkeypatch, amsgrad):
    """A transposed tensor takes the second path; both are AdamW's numbers."""
    start = [torch.randn(4, 3, dtype=F64), torch.randn(5, dtype=F64), torch.randn(3, 4, dtype=F64).t()]
    ends, fused = [], []
    adam_fused = flat._fuse_adam
    monkeypatch.setattr(
        flat, "_fuse_adam", lambda params, *rest: fused.append(len(params)) or adam_fused(params, *rest)
    )
    for make in (
        lambda p: RiemannianAdam(p, lr=0.03, weight_decay=0.2, amsgrad=amsgrad),
        lambda p: torch.optim.AdamW(p, lr=0.03, weight_decay=0.2, amsgrad=amsgrad),
    ):
        params = [nn.Parameter(t.clone()) for t in start]
        rule = make(params)
        for step in range(4):
            for i, p in enumerate(params):
                p.grad = torch.randn(p.shape, dtype=F64, generator=torch.Generator().manual_seed(10 * step + i))
            rule.step()
        ends.append(params)
    assert fused
    for p, q in zip(*ends, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"rule": "sgd", "momentum": 0.5}], ids=str)
def test_a_pull_within_the_gradients_is_that_of_pytorch(options):
    """Of a tensor that the fused kernel takes, and of a transposed one."""
    start = [torch.randn(4, 3, dtype=F64), torch.randn(3, 4, dtype=F64).t()]
    mine, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    own = RiemannianOptimizer(mine, lr=0.03, weight_decay=0.2, decoupled=False, **options)
    kind = torch.optim.SGD if "rule" in options else torch.optim.Adam
    other = kind(theirs, lr=0.03, weight_decay=0.2, **{k: v for k, v in options.items() if k != "rule"})
    for step in range(4):
        for i, (p, q) in enumerate(zip(mine, theirs, strict=True)):
            p.grad = torch.randn(p.shape, dtype=F64, generator=torch.Generator().manual_seed(10 * step + i))
            q.grad = p.grad.clone()
        own.step()
        other.step()
    for p, q in zip(mine, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)


def test_points_move_to_the_origin_whatever_the_pull_on_other_tensors():
    start, ends = bias(PoincareBall(2.5)), []
    for decoupled in (True, False):
        p = copy.deepcopy(start)
        p.grad = torch.zeros_like(p)
        RiemannianAdam([p], lr=0.1, weight_decay=0.5, decoupled=decoupled).step()
        ends.append(plain(p))
    assert torch.equal(*ends)
    assert ends[0].norm() < plain(start).norm()


def test_a_state_without_the_option_lazy_is_read():
    """Optimisers pickled, and state dicts saved, before there were lazy steps."""
    p = bias(PoincareBall(2.5))
    rule = RiemannianAdam([p], lr=0.1)
    rule.step()
    state = pickle.loads(pickle.dumps(rule.state_dict()))
    assert set(state["state"][0]) == {"step", "momentum", "square"}
    for group in state["param_groups"]:
        del group["lazy"]
    other = RiemannianAdam([p], lr=0.1)
    other.load_state_dict(state)
    other.step()
    assert pickle.loads(pickle.dumps(other)).param_groups[0]["lazy"] is False


def test_loss_scaling_takes_the_plain_step_and_skips_overflows():
    ends = []
    for enabled in (True, False):
        torch.manual_seed(0)
        manifold = PoincareBall(2.5)
        p, q = ManifoldParameter(manifold.random(4, 3), manifold=manifold), nn.Parameter(torch.randn(3))
        rule, scaler = RiemannianAdam([p, q], lr=0.1), torch.amp.GradScaler("cpu", enabled=enabled, init_scale=256.0)
        for _ in range(3):
            rule.zero_grad()
            scaler.scale(manifold.dist0(p).sum() + q.square().sum()).backward()
            scaler.step(rule)
            scaler.update()
        ends.append((plain(p), plain(q)))
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    before = plain(p)
    rule, scaler = RiemannianAdam([p]), torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale(float("inf") * p.square().sum()).backward()
    scaler.step(rule)
    assert torch.equal(plain(p), before)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_stacks_of_points_and_strided_tensors(kind):
    """(2, 3, D) is six points; a tensor that is not contiguous takes the same step."""
    manifold = kind(0.3)
    p = ManifoldParameter(manifold.random(2, 3, 4, dtype=F64), manifold=manifold)
    strided = ManifoldParameter(plain(p).transpose(0, 1).contiguous().transpose(0, 1), manifold=manifold)
    assert not strided.is_contiguous()
    rows = ManifoldParameter(plain(p).view(6, -1), manifold=manifold)
    for _ in range(3):
        grad = torch.randn_like(plain(p))
        p.grad, strided.grad, rows.grad = grad, grad.clone(), grad.view(6, -1).clone()
        for q in (p, strided, rows):
            q.rule = getattr(q, "rule", None) or RiemannianOptimizer([q], lr=0.1)
            q.rule.step()
    torch.testing.assert_close(plain(strided), plain(p), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(plain(rows).view_as(p), plain(p), rtol=1e-12, atol=1e-14)


def test_the_retraction_of_other_models_is_that_of_the_manifold():
    for kind in (Lorentz, Klein):
        manifold = kind(2.5)
        p = bias(manifold)
        expected = manifold.retr(plain(p), -0.1 * manifold.egrad2rgrad(plain(p), p.grad))
        RiemannianSGD([p], lr=0.1, exact_exp=False).step()
        torch.testing.assert_close(plain(p), expected, rtol=1e-12, atol=1e-14)


def test_compiled_code_takes_the_same_step():
    ends = []
    start = [bias(kind(2.5)) for kind in (PoincareBall, Lorentz)] + [nn.Parameter(torch.randn(3))]
    for compiled in (True, False):
        params = copy.deepcopy(start)
        rule = RiemannianAdam(params, lr=0.1, max_grad_norm=1.0)
        run = torch.compile(rule.step, backend="aot_eager") if compiled else rule.step
        for p, q in zip(params, start, strict=True):
            p.grad = torch.ones_like(p) if q.grad is None else q.grad.clone()
        run()
        ends.append(params)
    for a, b in zip(*ends, strict=True):
        assert torch.equal(plain(a), plain(b))


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("apart", [False, True])
def test_points_move_with_the_curvature_of_their_gradients(kind, apart):
    """Whether a learned curvature stands before them, in their group or in another; projections and radii as well."""
    learned, fixed = kind(2.5, learn_c=True), kind(2.5)
    start = plain(fixed.random(7, 3, std=0.4))
    p, q = (ManifoldParameter(start.clone(), manifold=manifold) for manifold in (learned, fixed))
    params = [[learned.free_c], [p]] if apart else [[learned.free_c, p]]
    p.grad = torch.randn_like(start)
    q.grad, learned.free_c.grad = p.grad.clone(), torch.ones_like(learned.free_c)
    for each in (params, [[q]]):
        RiemannianAdam([{"params": some} for some in each], lr=0.5, stabilize=1, max_radius=0.5).step()
    assert learned.c < 2.2
    torch.testing.assert_close(plain(p), learned.projx(plain(q)).detach())  # and then lie in the space of the new one


class Operations(TorchDispatchMode):
    """Counts what is computed, views left out."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [PoincareBall, Klein, Lorentz])
def test_points_are_projected_together_when_c_has_moved(kind):
    """A GPU launches as many kernels for many tensors as for one."""
    counts, space = [], kind(1.0, learn_c=True)
    for n in (2, 20):
        params = [bias(space) for _ in range(n)]
        before = [plain(p) for p in params]
        with torch.no_grad():
            space.free_c.add_(1)
        with Operations() as operations:
            project((p, None) for p in params)
        counts.append(operations.count)
        for p, old in zip(params, before, strict=True):
            assert torch.equal(plain(p), space.projx(old))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", [PoincareBall, Klein, Lorentz])
def test_points_without_a_gradient_follow_a_learned_curvature(kind, lazy):
    torch.manual_seed(0)
    space = kind(1.0, learn_c=True)
    used, *others = (ManifoldParameter(space.random(*size, 3, std=3.0), manifold=space) for size in ((6,), (6,), (), (2, 2)))
    others = [p for p in others if not (lazy and p.dim() == 2)]  # whose rows are projected when they are used
    optimiser = RiemannianAdam([used, *others, space.free_c], lr=0.1, lazy=lazy)
    for _ in range(20):
        optimiser.zero_grad()
        (1e-3 * used.square().sum() - space.c).backward()
        optimiser.step()
    assert space.number() > 1.5
    for p in others if lazy else (used, *others):
        assert space.check_point_on_manifold(p)


@pytest.mark.parametrize("clip", ["global", "group", "tensor"])
def test_a_norm_without_a_limit_clips_nothing(clip):
    space = PoincareBall(1.0)
    params = [bias(space), nn.Parameter(torch.randn(3))]
    params[1].grad = torch.randn(3)
    others = copy.deepcopy(params)
    for some, norm in ((params, None), (others, float("inf"))):
        for p, grad in zip(some, params, strict=True):
            p.grad = grad.grad
        RiemannianSGD([{"params": some[:1]}, {"params": some[1:], "stacked": 1}], max_grad_norm=norm, clip=clip).step()
    assert all(torch.equal(plain(p), plain(q)) for p, q in zip(params, others, strict=True))


def test_points_are_projected_after_every_so_many_steps(monkeypatch):
    projects, step_rows = [], optimizer.step_rows

    def watched(x, grad, state, number, group, manifold, project, *rest):
        projects.append(project)
        return step_rows(x, grad, state, number, group, manifold, project, *rest)

    monkeypatch.setattr(optimizer, "step_rows", watched)
    ball = PoincareBall(1.0)
    for stabilize, expected in ((3, [False, False, True] * 2), (1, [True] * 6), (None, [False] * 6)):
        p = ManifoldParameter(ball.expmap0(torch.full((4, 3), 0.1)), manifold=ball)
        optim = RiemannianAdam([p], lr=0.01, stabilize=stabilize)
        for _ in range(6):
            p.grad = torch.ones_like(p)
            optim.step()
        assert projects == expected, stabilize
        projects.clear()
