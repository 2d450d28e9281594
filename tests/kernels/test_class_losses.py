"""Losses streamed over classes against the losses of the logits of all, in value and gradient."""

import pytest
import torch
from torch.nn import functional

from hyperbolic.kernels.class_losses import dense_targets, passes, streamed_bce, streamed_cross_entropy
from hyperbolic.kernels.mlr import class_logits, lift_hyperplanes, lift_points
from hyperbolic.manifolds import PoincareBall
from hyperbolic.rows import sums as row_sums
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
D = 4
pytestmark = pytest.mark.usefixtures("each_path")
KINDS = pytest.mark.parametrize("kind", ["scale", "bias", "plain"])
SIZES = pytest.mark.parametrize(("batch", "classes"), [(0, 3), (1, 1), (1, 50), (7, 1), (9, 50), (40, 3)])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Many tiles of rows and of classes, the last ones incomplete."""
    monkeypatch.setattr(passes, "_ENTRIES", 80)
    monkeypatch.setattr(row_sums, "ENTRIES", 80)
    monkeypatch.setattr(passes, "_ROWS", 5)


def bce(x, w, scale, bias, targets, row_weights=None, groups=None):
    y = dense_targets(targets, len(w)) if targets.dtype is torch.long else targets
    logits = class_logits(x, w, scale, bias)
    each = functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")
    if row_weights is None:
        return each.sum() / max(each.numel(), 1)
    return (each * (row_weights[:, :1] if groups is None else row_weights[:, groups])).sum()


def cross_entropy(x, w, scale, bias, target, counted, label_smoothing=0.0):
    log_p = class_logits(x, w, scale, bias).log_softmax(-1)
    each = -(1 - label_smoothing) * log_p.gather(1, target.unsqueeze(1)).squeeze(1) - label_smoothing * log_p.mean(1)
    return (each * counted).sum() / counted.sum().clamp_min(1)


def arguments(kind: str, batch: int, classes: int, dtype=F64) -> list[torch.Tensor | None]:
    x, w = torch.randn(batch, D, dtype=dtype), torch.randn(classes, D, dtype=dtype)
    scale = torch.rand(classes, dtype=dtype) + 0.5 if kind == "scale" else None
    bias = torch.randn(classes, dtype=dtype) if kind == "bias" else None
    return [None if t is None else t.requires_grad_() for t in (x, w, scale, bias)]


def lists(batch: int, classes: int, length: int) -> torch.Tensor:
    """Distinct classes in each row, of which some rows have fewer and every third has none."""
    order = torch.rand(batch, classes).argsort(-1)[:, :length]
    return order.masked_fill((torch.rand(order.shape) < 0.3) | (torch.arange(batch) % 3 == 2).unsqueeze(-1), -1)


def assert_same(streamed, reference, leaves, dtype=F64):
    leaves = [t for t in leaves if t is not None]
    torch.testing.assert_close(streamed, reference, **tolerance(dtype, "identity"))
    actual, expected = (torch.autograd.grad(3 * value, leaves) for value in (streamed, reference))
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerance(dtype, "identity"))


@KINDS
@SIZES
@pytest.mark.parametrize(
    ("form", "weighting"),
    [("lists", "mean"), ("lists", "groups"), ("matrix", "mean"), ("matrix", "rows"), ("no lists", "groups")],
)
def test_bce(kind, batch, classes, form, weighting):
    inputs = arguments(kind, batch, classes)
    targets = lists(batch, classes, 0 if form == "no lists" else min(6, classes))
    targets = dense_targets(targets, classes) if form == "matrix" else targets
    groups = torch.randint(3, (classes,)) if weighting == "groups" else None
    weights = None if weighting == "mean" else torch.rand(batch, 1 if groups is None else 3, dtype=F64)
    assert_same(streamed_bce(*inputs, targets, weights, groups), bce(*inputs, targets, weights, groups), inputs)


@KINDS
@SIZES
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
def test_cross_entropy(kind, batch, classes, smoothing):
    inputs = arguments(kind, batch, classes)
    target, counted = torch.randint(classes, (batch,)), torch.rand(batch) < 0.7
    value = streamed_cross_entropy(*inputs, target, counted, smoothing)
    assert_same(value, cross_entropy(*inputs, target, counted, smoothing), inputs)


def test_cross_entropy_is_that_of_torch_in_many_tiles():
    x, w, _, bias = arguments("bias", 150, 11)
    target = torch.randint(11, (150,)).masked_fill(torch.rand(150) < 0.2, -100)
    value = streamed_cross_entropy(x, w, None, bias, target.clamp_min(0), target >= 0, 0.1)
    assert_same(
        value, functional.cross_entropy(functional.linear(x, w, bias), target, label_smoothing=0.1), [x, w, bias]
    )


def test_a_scale_counts_before_a_bias():
    """Whatever computes the loss; nothing in this project gives both."""
    x, w = torch.randn(64, 8), torch.randn(40, 8)
    scale, bias, target, counted = torch.rand(40), torch.randn(40), torch.arange(64) % 40, torch.ones(64, dtype=torch.bool)
    both = streamed_cross_entropy(x, w, scale, bias, target, counted)
    alone = streamed_cross_entropy(x, w, scale, None, target, counted)
    torch.testing.assert_close(both, alone, **tolerance(F32, "identity"))


def test_no_row_counts():
    inputs = arguments("scale", 4, 3)
    value = streamed_cross_entropy(*inputs, torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.bool))
    assert value == 0
    assert all(not grad.any() for grad in torch.autograd.grad(value, inputs[:3]))


@KINDS
def test_gradcheck(kind):
    inputs = arguments(kind, 7, 12)
    leaves = [t for t in inputs if t is not None]
    targets, target = lists(7, 12, 3), torch.randint(12, (7,))
    counted = torch.arange(7) != 2

    def fill(values):
        values = iter(values)
        return [None if t is None else next(values) for t in inputs]

    assert torch.autograd.gradcheck(lambda *values: streamed_bce(*fill(values), targets), leaves)
    assert torch.autograd.gradcheck(lambda *values: streamed_cross_entropy(*fill(values), target, counted, 0.1), leaves)


@pytest.mark.parametrize("c", [0.3, 2.0])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_hyperbolic_regression_with_learned_curvature(c, dtype):
    ball = PoincareBall(c)
    x, p = ball.random(9, D, std=0.7 / c**0.5, dtype=dtype), ball.random(30, D, std=0.3 / c**0.5, dtype=dtype)
    leaves = [t.clone().requires_grad_() for t in (x, p, torch.randn(30, D, dtype=dtype), ball.c)]

    def lifted():
        x, p, a, c = leaves
        return lift_points(x, c), *lift_hyperplanes(p, a, c), None

    targets = lists(9, 30, 4)
    assert_same(streamed_bce(*lifted(), targets), bce(*lifted(), targets), leaves, dtype)
    rows = torch.randint(30, (9,)), torch.ones(9, dtype=torch.bool)
    assert_same(streamed_cross_entropy(*lifted(), *rows), cross_entropy(*lifted(), *rows), leaves, dtype)


def test_memory_layouts_and_partial_gradients():
    """Strided arguments; and gradients of some arguments only."""
    x, w = torch.randn(D, 18, dtype=F64).T[::2], torch.randn(D, 20, dtype=F64).T
    scale, targets = (torch.rand(20, 2, dtype=F64) + 0.5)[:, 0], lists(9, 20, 8)[:, ::2]
    for leaves in ([x], [w], [scale], [x, w, scale]):
        inputs = [x.requires_grad_(False), w.requires_grad_(False), scale.requires_grad_(False), None]
        for leaf in leaves:
            leaf.requires_grad_()
        assert_same(streamed_bce(*inputs, targets), bce(*inputs, targets), leaves)


@pytest.mark.parametrize("size", [1e-6, 1.0, 30.0])
@pytest.mark.parametrize("kind", ["scale", "bias"])
def test_sure_and_unsure_logits_in_float32(size, kind):
    """Also where all targets are right and the loss is far below the logits."""
    x, w, scale, bias = arguments(kind, 12, 30, F64)
    with torch.no_grad():
        x.mul_(size)
        targets = (class_logits(x, w, scale, bias) > 0).double()
    lists_of = torch.where(targets.bool(), torch.arange(30), -1)
    narrow = [None if t is None else t.detach().float().requires_grad_() for t in (x, w, scale, bias)]
    wide = [None if t is None else t.detach().double().requires_grad_() for t in narrow]
    value, expected = streamed_bce(*narrow, lists_of), bce(*wide, targets)
    torch.testing.assert_close(value.double(), expected, rtol=3e-5 if size > 1 else 1e-6, atol=1e-38)
    narrow, wide = ([t for t in leaves if t is not None] for leaves in (narrow, wide))
    for a, b in zip(torch.autograd.grad(value, narrow), torch.autograd.grad(expected, wide), strict=True):
        assert (a.double() - b).norm() <= (1e-4 if size > 1 else 1e-6) * b.norm() + 1e-38


def test_huge_arguments_of_arsinh():
    x, w, scale, _ = arguments("scale", 5, 9, F32)
    inputs = (x.detach() * 1e20).requires_grad_(), w, scale, None
    targets = lists(5, 9, 4)
    value = streamed_bce(*inputs, targets)
    exact = bce(*[None if t is None else t.detach().double() for t in inputs], targets)
    assert abs(value.item() / exact.item() - 1) < 0.05
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(value, inputs[:3]))


@pytest.mark.parametrize("loss", ["bce", "cross entropy"])
def test_backward_repeated_and_differentiated_twice(loss):
    inputs = arguments("scale", 5, 8)
    value = (
        streamed_bce(*inputs, lists(5, 8, 2))
        if loss == "bce"
        else streamed_cross_entropy(*inputs, torch.randint(8, (5,)), torch.ones(5, dtype=torch.bool))
    )
    first = torch.autograd.grad(value, inputs[:3], retain_graph=True)
    again = torch.autograd.grad(value, inputs[:3], retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    (slope,) = torch.autograd.grad(value, inputs[:1], create_graph=True)
    assert torch.equal(slope, first[0]) or torch.allclose(slope, first[0], rtol=1e-12, atol=1e-14)
    (second,) = torch.autograd.grad(slope.square().sum(), inputs[:1])
    assert torch.isfinite(second).all()
    assert second.any()


def test_without_gradients_only_the_loss_is_computed(monkeypatch):
    inputs = arguments("scale", 9, 50)
    targets, target = lists(9, 50, 5), (torch.randint(50, (9,)), torch.ones(9, dtype=torch.bool))
    expected = streamed_bce(*inputs, targets), streamed_cross_entropy(*inputs, *target)
    monkeypatch.setattr(torch.Tensor, "addmm_", None)  # the gradients' products
    with torch.no_grad():
        value = streamed_bce(*inputs, targets), streamed_cross_entropy(*inputs, *target)
    assert value == expected
    assert not value[0].requires_grad


def test_logits_are_never_kept(monkeypatch):
    """The largest tensor of the loss is far smaller than the matrix of logits."""
    monkeypatch.undo()
    monkeypatch.setattr(row_sums, "ENTRIES", 1 << 17)
    batch, classes = 300, 4000
    inputs = arguments("scale", batch, classes, F32)
    targets = lists(batch, classes, 4)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
        streamed_bce(*inputs, targets).backward()
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest <= 4 * 4 * passes._ENTRIES < 4 * batch * classes


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e15])
def test_bce_of_products_whose_squares_may_overflow(size):
    """With scale: value and gradients stay finite, and are the plain ones wherever squares are finite."""
    x, w, scale, _ = arguments("scale", 9, 50, F32)
    x, w = (t.detach().mul(size).requires_grad_() for t in (x, w))
    loss = streamed_bce(x, w, scale, None, lists(9, 50, 3))
    grads = torch.autograd.grad(loss, [x, w, scale])
    assert torch.isfinite(loss)
    assert all(torch.isfinite(grad).all() for grad in grads)


@KINDS
def test_no_classes_teach_nothing(kind):
    inputs = arguments(kind, 4, 0)
    for targets in (torch.full((4, 2), -1), torch.empty(4, 0, dtype=F64), torch.empty(4, 0, dtype=torch.long)):
        assert_same(streamed_bce(*inputs, targets), bce(*inputs, targets), inputs)
