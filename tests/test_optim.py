"""The optimiser against slow textbook updates, torch's own optimisers, and gradients of every size."""

import copy
import pickle

import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.encoders.relational.isometries import Rotation
from hyperbolic.geometry import make_geometry
from hyperbolic.layers import mobius
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam, RiemannianOptimizer, RiemannianSGD, parameter_groups
from tests.kernels.paths import path

CURVED = [PoincareBall, Lorentz, Klein]


def points(manifold, n=4, d=3, dtype=torch.float64, std=0.4):
    return ManifoldParameter(manifold.random(n, d, dtype=dtype, std=std), manifold=manifold)


def textbook_adam(manifold, x, gradients, lr, betas, eps, amsgrad=False):
    """Riemannian Adam of one point: Bécigneul & Ganea 2019, Algorithm 1a on one factor, exponential map, transport."""
    m, v, largest = torch.zeros_like(x), 0.0, 0.0
    for t, gradient in enumerate(gradients, 1):
        g = manifold.egrad2rgrad(x, gradient)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * float(manifold.inner(x, g))
        largest = max(largest, v)
        second = (largest if amsgrad else v) / (1 - betas[1] ** t)
        new = manifold.expmap(x, -lr * (m / (1 - betas[0] ** t)) / (second**0.5 + eps))
        m = manifold.transp(x, new, m)
        x = new
    return x


@pytest.mark.parametrize("kind", CURVED)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam_on_points_is_the_textbook_update(kind, amsgrad):
    p = points(kind(c=2.0))
    start = p.detach().clone()
    gradients = [torch.randn_like(start) * 10.0**k for k in (0, 1, -1, -2, 0)]
    optimizer = RiemannianAdam([p], lr=0.05, betas=(0.8, 0.9), eps=1e-6, amsgrad=amsgrad)
    for gradient in gradients:
        p.grad = gradient
        optimizer.step()
    for row in range(len(start)):
        own = [g[row] for g in gradients]
        expected = textbook_adam(p.manifold, start[row], own, 0.05, (0.8, 0.9), 1e-6, amsgrad)
        torch.testing.assert_close(p.detach()[row].as_subclass(torch.Tensor), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", CURVED)
def test_sgd_on_points_is_a_geodesic_step(kind):
    p = points(kind(c=0.5))
    start, gradient = p.detach().clone().as_subclass(torch.Tensor), torch.randn(p.shape, dtype=p.dtype)
    p.grad = gradient.clone()
    RiemannianSGD([p], lr=0.1).step()
    rgrad = p.manifold.egrad2rgrad(start, gradient)
    torch.testing.assert_close(p.detach().as_subclass(torch.Tensor), p.manifold.expmap(start, -0.1 * rgrad))
    moved = p.manifold.dist(start, p.detach())
    torch.testing.assert_close(moved, 0.1 * p.manifold.norm(start, rgrad), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", CURVED)
def test_adagrad_on_points_is_the_textbook_update(kind):
    p = points(kind(c=2.0))
    manifold, x = p.manifold, p.detach().clone().as_subclass(torch.Tensor)
    optimizer, total = RiemannianOptimizer([p], rule="adagrad", lr=0.2, eps=1e-10), torch.zeros(len(x), 1)
    for size in (1, 10, 0.1):
        p.grad = size * torch.randn_like(x)
        g = manifold.egrad2rgrad(x, p.grad)
        total = total + manifold.inner(x, g, keepdim=True)
        x = manifold.expmap(x, -0.2 * g / total.sqrt())
        optimizer.step()
    torch.testing.assert_close(p.detach().as_subclass(torch.Tensor), x, rtol=1e-8, atol=1e-12)


def test_retraction_is_another_step_of_the_same_first_order():
    ball = PoincareBall(c=2.0)
    start, gradient = ball.random(5, 3, dtype=torch.float64, std=0.3), torch.randn(5, 3, dtype=torch.float64)
    ends = []
    for exact in (True, False):
        p = ManifoldParameter(start.clone(), manifold=ball)
        p.grad = gradient.clone()
        RiemannianSGD([p], lr=1e-3, exact_exp=exact).step()
        ends.append(p.detach().as_subclass(torch.Tensor))
    assert 0 < (ends[0] - ends[1]).norm() < 1e-3 * (ends[0] - start).norm()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"rule": "adam"}, lambda p: torch.optim.Adam(p, lr=0.03)),
        ({"rule": "adam", "amsgrad": True}, lambda p: torch.optim.Adam(p, lr=0.03, amsgrad=True)),
        ({"rule": "adam", "weight_decay": 0.2}, lambda p: torch.optim.AdamW(p, lr=0.03, weight_decay=0.2)),
        ({"rule": "adagrad", "eps": 1e-10}, lambda p: torch.optim.Adagrad(p, lr=0.03)),
        ({"rule": "sgd", "momentum": 0.7}, lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.7)),
    ],
)
def test_euclidean_tensors_take_the_usual_steps(ours, theirs):
    start = [torch.randn(4, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    a, b = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    mine, other = RiemannianOptimizer(a, lr=0.03, **ours), theirs(b)
    for step in range(6):
        for p, q in zip(a, b, strict=True):
            p.grad = torch.randn_like(p) * (step + 1)
            q.grad = p.grad.clone()
        mine.step()
        other.step()
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", CURVED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e30, 3e38])
def test_no_finite_gradient_makes_a_point_leave_its_space(kind, dtype, rule, size):
    for clip in (None, 1.0):
        p = points(kind(c=4.0), dtype=dtype, std=0.6)
        optimizer = RiemannianOptimizer([p], rule=rule, lr=0.5, momentum=0.5, max_grad_norm=clip)
        for step in range(6):
            p.grad = size * torch.sign(torch.randn_like(p)) if step % 3 != 2 else torch.zeros_like(p)
            optimizer.step()
            assert torch.isfinite(p).all()
            assert p.manifold.check_point_on_manifold(p.detach())


def test_near_zero_gradients_on_the_sheet_give_finite_steps():
    """Rounding makes <g, g>_L of a near-zero tangent vector negative in a peer, whose Adam then takes its root."""
    sheet = Lorentz(c=1.0)
    for dtype in (torch.float32, torch.float64):
        p = ManifoldParameter(
            sheet.expmap0(3 * nn.functional.normalize(torch.randn(500, 8, dtype=dtype), dim=-1)), sheet
        )
        optimizer = RiemannianAdam([p], lr=0.01)
        start = p.detach().clone().as_subclass(torch.Tensor)
        for _ in range(3):
            # the gradient of a function of <x, x>_L alone: normal to the sheet, so its tangent part is rounding error
            p.grad = torch.cat([-start[:, :1], start[:, 1:]], -1)
            optimizer.step()
        assert torch.isfinite(p).all()


def test_clipping_acts_on_euclidean_gradients_before_the_rescale():
    ball = PoincareBall(c=1.0)
    start = ball.expmap0(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    gradient, other = torch.tensor([[3.0, 0.0]], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)
    steps = {}
    for clip in ("global", "tensor"):
        p, q = ManifoldParameter(start.clone(), manifold=ball), nn.Parameter(torch.zeros(1, dtype=torch.float64))
        p.grad, q.grad = gradient.clone(), other.clone()
        RiemannianSGD([p, q], lr=0.1, max_grad_norm=1.0, clip=clip).step()
        steps[clip] = (ball.dist(start, p.detach()).item(), q.item())
        assert torch.equal(p.grad, gradient)  # gradients are left as they are
    length = ball.norm(start, ball.egrad2rgrad(start, gradient)).item() / 3  # of a Euclidean unit gradient
    assert steps["global"] == pytest.approx((0.1 * length * 3 / 5, -0.1 * 4 / 5))
    assert steps["tensor"] == pytest.approx((0.1 * length, -0.1))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("axes", [1, 2])
def test_stacked_tensors_are_clipped_each_by_its_own_norm(axes, lazy):
    """Gates of two cells in one tensor take the steps of tensors of their own; a global norm knows no stacks."""
    start, grad = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    grad[0] *= torch.tensor([10.0, 0.01, 1.0], dtype=torch.float64)[:, None]
    whole = nn.Parameter(start.clone())
    parts = [nn.Parameter(t.clone()) for t in start.flatten(0, axes - 1)]
    for params, stacked in ([whole], axes), (parts, 0):
        for p, g in zip(params, [grad] if stacked else grad.flatten(0, axes - 1), strict=True):
            p.grad = g.clone()
        RiemannianOptimizer(
            [{"params": params, "stacked": stacked, "lazy": lazy and stacked > 0}],
            rule="sgd", lr=1.0, max_grad_norm=1.0, clip="tensor",
        ).step()
    torch.testing.assert_close(whole.detach().flatten(0, axes - 1), torch.stack([p.detach() for p in parts]))
    steps = {}
    for stacked in (0, axes):
        p = nn.Parameter(start.clone())
        p.grad = grad.clone()
        group = {"params": [p], "stacked": stacked}
        RiemannianOptimizer([group], rule="sgd", lr=1.0, max_grad_norm=1.0, clip="global").step()
        steps[stacked] = p.detach()
    assert torch.equal(steps[0], steps[axes])


def test_one_number_of_each_of_stacked_tensors_is_clipped_alone():
    """As the offsets of the classes of Lorentz and Poincaré++ layers."""
    p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    p.grad = torch.tensor([4.0, -0.5, -2.0], dtype=torch.float64)
    RiemannianOptimizer([{"params": [p], "stacked": 1}], rule="sgd", lr=1.0, max_grad_norm=1.0, clip="tensor").step()
    assert p.tolist() == [-1.0, 0.5, 1.0]


@pytest.mark.parametrize("mode", ["fast", "plain"])
def test_a_graph_from_before_a_step_is_not_gone_back_through(mode):
    """As PyTorch's optimisers have it: with the parameters of now its gradients would be others'."""
    ball = PoincareBall()
    p = ManifoldParameter(ball.random(200, 4), manifold=ball)
    with path(mode):
        loss = p.square().sum()
        loss.backward(retain_graph=True)
        RiemannianAdam([p]).step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_vectors_differ_from_matrices_in_what_is_said_of_them():
    groups = parameter_groups(nn.Linear(2, 3), matrices={"lr": 0.5, "weight_decay": 0.1}, vectors={"weight_decay": 0.0})
    assert [(g["role"], g["lr"], g["weight_decay"]) for g in groups] == [("matrices", 0.5, 0.1), ("vectors", 0.5, 0.0)]


def test_curvatures_of_relations_do_not_decay():
    geometry = make_geometry("poincare", "PoincareBall", "mobius", c=1.0)
    scorer = Rotation(geometry, 5, 2, False, d=4, init_std=0.1, learn_c_per_relation=True)
    decay = {p: g.get("weight_decay") for g in parameter_groups(scorer, matrices={"weight_decay": 0.1}) for p in g["params"]}
    assert decay[scorer.free_c] == 0.0
    assert decay[scorer.head_bias] == 0.1


def test_gates_cells_and_classes_are_apart_where_they_are_asked_for():
    ball = PoincareBall(c=1.0)
    net = nn.ModuleList([mobius.GRU(ball, 3, 4, streams=2), mobius.Logits(ball, 4, 5), mobius.Linear(ball, 4, 4)])
    assert all("stacked" not in group for group in parameter_groups(net))
    depths = {p: group.get("stacked", 0) for group in parameter_groups(net, apart=True) for p in group["params"]}
    gru, logits, linear = net
    assert {depths[p] for p in gru.parameters()} == {2}
    assert {depths[p] for p in logits.parameters()} == {1}
    assert {depths[p] for p in linear.parameters()} == {0}
    assert gru.weight_ih.shape[:2] == (2, 3)


@pytest.mark.parametrize("kind", CURVED)
def test_weight_decay_moves_points_towards_the_origin(kind):
    p = points(kind(c=2.0))
    before = p.manifold.dist0(p.detach())
    direction = nn.functional.normalize(p.manifold.logmap0(p.detach()), dim=-1)
    p.grad = torch.zeros_like(p)
    RiemannianSGD([p], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(p.manifold.dist0(p.detach()), 0.95 * before, rtol=1e-9, atol=0)
    torch.testing.assert_close(nn.functional.normalize(p.manifold.logmap0(p.detach()), dim=-1), direction)


def model():
    ball = PoincareBall(c=1.5)
    return nn.Sequential(mobius.Embedding(ball, 7, 4), mobius.Linear(ball, 4, 4), mobius.Logits(ball, 4, 3))


def train(net, optimizer, steps, first=0):
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        index = torch.randint(0, 7, (16,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(index), index % 3).backward()
        optimizer.step()


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_roles_and_their_options():
    net = model()
    groups = parameter_groups(net, embeddings={"lr": 0.1, "rule": "sgd"}, biases={"lr": 0.01})
    actual = {group["role"]: group["params"] for group in groups}
    assert [id(p) for p in actual["embeddings"]] == [id(net[0].weight)]
    assert {id(p) for p in actual["biases"]} == {id(net[1].bias), id(net[2].p)}
    assert {id(p) for p in actual["matrices"]} == {id(net[1].weight), id(net[2].a)}
    optimizer = RiemannianOptimizer(groups, lr=0.5)
    rules = {group["role"]: (group["rule"], group["lr"]) for group in optimizer.param_groups}
    assert rules == {"embeddings": ("sgd", 0.1), "biases": ("adam", 0.01), "matrices": ("adam", 0.5)}


def test_biases_and_scales_have_options_of_their_own():
    layer = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0).linear(3, 3)
    assert [group["role"] for group in parameter_groups(layer)] == ["matrices"]
    groups = parameter_groups(layer, matrices={"weight_decay": 0.1}, vectors={"weight_decay": 0.0})
    members = {group["role"]: [id(p) for p in group["params"]] for group in groups}
    assert members == {"matrices": [id(layer.weight)], "vectors": [id(layer.bias), id(layer.log_scale)]}
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_a_shared_learned_curvature_is_one_parameter():
    geometry = make_geometry("poincare", "PoincareBall", "mobius", c=1.0, learn_c=True)
    net = nn.Sequential(geometry.linear(3, 3), geometry.linear(3, 3))
    (curvatures,) = [g["params"] for g in parameter_groups(net) if g["role"] == "curvatures"]
    assert len(curvatures) == 1
    assert curvatures[0] is geometry.manifold.free_c
    optimizer = RiemannianAdam(parameter_groups(net), lr=0.1)
    net(geometry.manifold.random(5, 3)).square().sum().backward()
    optimizer.step()
    assert geometry.manifold.c.item() != pytest.approx(1.0)


def test_rows_of_a_table_follow_a_curvature_that_has_grown_since_they_were_used():
    """On the ball of the new c they lie outside, from where a step makes NaN of them and of their momentum."""
    geometry = make_geometry("poincare", "PoincareBall", "mobius", c=0.25, learn_c=True)
    table, manifold = geometry.embedding(4, 3, sparse=True), geometry.manifold
    with torch.no_grad():
        table.weight.copy_(manifold.expmap0(torch.full((4, 3), 8.0)))
    optimizer = RiemannianAdam([table.weight], lr=0.1, lazy=True)
    for _ in range(40):
        with torch.no_grad():
            manifold.free_c.copy_((1.001 * manifold.c).expm1().log())
        optimizer.zero_grad()
        x = table(torch.tensor([1, 2]))
        (manifold.dist0(x) - x[:, 0]).sum().backward()
        optimizer.step()
    used = table.weight.detach().as_subclass(torch.Tensor)[1:3]
    torch.testing.assert_close(used, manifold.projx(used).detach(), rtol=1e-5, atol=1e-5)
    momenta = [m for m in optimizer.state[table.weight].values() if isinstance(m, torch.Tensor) and m.dim() == 2]
    assert momenta
    assert all(m.abs().max() < 1 for m in momenta)


@pytest.mark.parametrize("options", [{"weight_decay": 0.5}, {"matrices": {"weight_decay": 0.5}}], ids=str)
def test_a_learned_curvature_does_not_decay(options):
    geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=3.0, learn_c=True)
    layer = geometry.linear(3, 3)
    weight = layer.weight.detach().clone()
    optimizer = RiemannianAdam(parameter_groups(layer, matrices=options.pop("matrices", None)), lr=0.1, **options)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert geometry.manifold.c.item() == pytest.approx(3.0, abs=1e-12)
    before = optimizer.state_dict()
    for group in before["param_groups"]:  # as it was before curvatures had a group
        group["role"] = "matrices"
    with pytest.raises(ValueError, match="from before learned curvatures had a group of their own"):
        optimizer.load_state_dict(before)
    torch.testing.assert_close(layer.weight.detach(), 0.95 * weight)


def test_training_goes_on_from_a_state_dict_bit_for_bit():
    torch.manual_seed(1)
    whole = model()
    half = copy.deepcopy(whole)

    def make(net):
        return RiemannianAdam(parameter_groups(net), lr=0.05, amsgrad=True, max_grad_norm=1.0, stabilize=3)

    train(whole, make(whole), 8)
    first = make(half)
    train(half, first, 5)
    resumed = copy.deepcopy(half)
    second = make(resumed)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    train(resumed, second, 3, first=5)
    assert same(whole, resumed)


def test_small_tensors_updated_together_take_the_steps_they_take_alone(monkeypatch):
    torch.manual_seed(2)
    together = model()
    alone = copy.deepcopy(together)
    train(together, RiemannianAdam(together.parameters(), lr=0.05), 5)
    monkeypatch.setattr("hyperbolic.optim.optimizer.SMALL", 0)
    train(alone, RiemannianAdam(alone.parameters(), lr=0.05), 5)
    for p, q in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


def test_copies_keep_their_manifolds():
    net = model()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert same(net, other)
        assert isinstance(other[0].weight, ManifoldParameter)
        assert other[0].weight.manifold.c.item() == 1.5
        train(other, RiemannianAdam(other.parameters(), lr=0.1), 2)
        assert not same(net, other)


def test_learning_rate_schedules_and_closures_work():
    p = points(PoincareBall(c=1.0))
    optimizer = RiemannianSGD([p], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=2)

    def closure():
        optimizer.zero_grad()
        loss = p.manifold.dist0(p).sum()
        loss.backward()
        return loss

    values = []
    for _ in range(3):
        values.append(optimizer.step(closure).item())
        scheduler.step()
    assert values[1] == pytest.approx(values[0] - 0.4)  # four points, 0.1 each
    assert values[2] == pytest.approx(values[1] - 0.2)


@pytest.mark.parametrize("kind", CURVED)
@pytest.mark.parametrize("maker", [RiemannianAdam, RiemannianSGD])
def test_finds_the_barycentre(kind, maker):
    manifold = kind(c=1.3)
    targets = manifold.random(6, 3, dtype=torch.float64, std=0.4)
    p = points(manifold, n=1)
    optimizer = maker([p], lr=0.05)
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * 0.99**step
        optimizer.zero_grad()
        manifold.dist2(p, targets).sum().backward()
        optimizer.step()
    pull = manifold.logmap(p.detach().expand_as(targets), targets).sum(0)
    assert manifold.norm(p.detach()[0], pull) < 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -1.0},
        {"betas": (1.0, 0.9)},
        {"eps": 0.0},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"rule": "rprop"},
        {"clip": "none"},
        {"max_grad_norm": 0.0},
        {"stabilize": 0},
    ],
)
def test_values_out_of_range_are_named(options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        RiemannianOptimizer([nn.Parameter(torch.zeros(2))], **options)


def test_an_unknown_option_of_a_group_is_refused():
    with pytest.raises(ValueError, match=r"unknown option \['lrr'\]; there are rule, lr"):
        RiemannianOptimizer([{"params": [torch.nn.Parameter(torch.zeros(2))], "lrr": 1.0}])


def test_complex_parameters_are_refused():
    with pytest.raises(ValueError, match=r"a parameter of shape \(2,\) is complex"):
        RiemannianAdam([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))])


def test_a_curvature_that_two_layers_share_is_stepped_once():
    space = Lorentz(1.0, learn_c=True)
    before = space.free_c.detach().clone()
    other = torch.nn.Parameter(torch.zeros(2))
    optimizer = RiemannianOptimizer([space.free_c, other, space.free_c], lr=0.1)
    assert optimizer.param_groups[0]["params"] == [space.free_c, other]
    space.free_c.grad = torch.ones_like(space.free_c)
    optimizer.step()
    torch.testing.assert_close((before - space.free_c.detach()).abs(), torch.full_like(before, 0.1))
