"""Logits of all families: losses that never keep the logits against the logits themselves."""

import pytest
import torch
from torch.nn import functional

from hyperbolic.geometry import FAMILIES, GEOMETRIES, MANIFOLDS, make_geometry
from hyperbolic.kernels.class_losses import dense_targets
from hyperbolic.layers import klein, mobius
from hyperbolic.layers.classes import ClassLogits, group_mean_weights
from hyperbolic.manifolds import Klein, PoincareBall
from hyperbolic.manifolds.charts import convert

B, D, K = 7, 4, 12
STREAMED = [
    name
    for name, (_, family) in GEOMETRIES.items()
    if issubclass(FAMILIES[family].layers["Logits"], ClassLogits)
]
GEOMETRY = pytest.mark.parametrize("geometry", STREAMED)
LISTS = torch.tensor([[0, 3, 3], [11, -1, -1], [-1, -1, -1], [5, 2, 5], [-1, 4, -1], [1, 0, 2], [7, 8, 9]])


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def build(geometry: str, c: float = 2.0):
    manifold, family = GEOMETRIES[geometry]
    space = MANIFOLDS[manifold]() if manifold == "Euclidean" else MANIFOLDS[manifold](c=c, learn_c=True)
    layer = FAMILIES[family].layers["Logits"](space, D, K)
    with torch.no_grad():
        for p in layer.parameters():
            if p.dim() > 1:
                p.add_(0.05 * torch.randn_like(p))
    return layer, space.random(B, D, std=0.4).detach().requires_grad_()


def assert_same(value, expected, layer, x):
    torch.testing.assert_close(value, expected)
    leaves = [x, *layer.parameters()]
    grads = [torch.autograd.grad(v, leaves, allow_unused=True, retain_graph=True) for v in (value, expected)]
    for a, b in zip(*grads, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_the_families_of_the_papers_are_here():
    assert {"euclidean", "poincare", "poincare_tangent"} <= set(STREAMED)


@GEOMETRY
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("classes", [None, torch.tensor([3, 0, 11, 5])])
def test_bce_is_that_of_the_logits(geometry, classes):
    layer, x = build(geometry)
    y = dense_targets(LISTS, K)
    remaining = torch.arange(K) if classes is None else classes
    expected = functional.binary_cross_entropy_with_logits(layer(x)[:, remaining], y[:, remaining].double())
    for targets in (LISTS, LISTS.int(), LISTS.to(torch.int8), y, y.double()):
        assert_same(layer.bce(x, targets, classes=classes), expected, layer, x)
    if classes is not None:
        torch.testing.assert_close(layer.bce(x, LISTS, classes=classes.int()), expected)


@GEOMETRY
@pytest.mark.usefixtures("double")
def test_cross_entropy_is_that_of_the_logits(geometry):
    layer, x = build(geometry)
    target = torch.tensor([0, 3, -100, 11, 5, -100, 0])
    for smoothing in (0.0, 0.1):
        expected = functional.cross_entropy(layer(x), target, label_smoothing=smoothing)
        assert_same(layer.cross_entropy(x, target, smoothing), expected, layer, x)
    classes = torch.tensor([5, 0, 3, 11])
    expected = functional.cross_entropy(layer(x)[:, classes], torch.tensor([1, 2, -100, 3, 0, -100, 1]))
    assert_same(layer.cross_entropy(x, target, classes=classes), expected, layer, x)
    torch.testing.assert_close(layer.cross_entropy(x, target.int(), classes=classes.int()), expected)
    both = layer.cross_entropy(x.view(B, 1, -1), target.view(B, 1))
    torch.testing.assert_close(both, layer.cross_entropy(x, target))
    other = layer.cross_entropy(x, target.masked_fill(target < 0, 7), ignore_index=7)
    torch.testing.assert_close(other, both)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("classes", [None, torch.tensor([3, 0, 11, 5])])
def test_multi_task_loss_of_entity_typing(classes):
    """A mean for each group over the rows with a target in it, and the sum of the means."""
    layer, x = build("poincare")
    groups = torch.arange(K) // 4 % 3
    y, logits = dense_targets(LISTS, K).double(), layer(x)
    expected = 0
    for group in range(3):
        members = groups == group
        rows = (y[:, members] > 0).any(1)
        each = functional.binary_cross_entropy_with_logits(logits, y, reduction="none")[rows]
        used = members if classes is None else members & torch.isin(torch.arange(K), classes)
        expected = expected + each[:, used].sum() / (rows.sum() * members.sum())
    for targets in (LISTS, LISTS.int(), y):
        weights = group_mean_weights(targets, groups, 3)
        assert_same(layer.bce(x, targets, weights, groups, classes), expected, layer, x)


def test_a_group_without_rows_is_nothing():
    weights = group_mean_weights(torch.tensor([[0], [-1]]), torch.tensor([0, 0, 1]), 2)
    assert weights.tolist() == [[0.5, 0.0], [0.0, 0.0]]
    assert group_mean_weights(torch.empty(0, 3, dtype=torch.long), torch.tensor([0, 1]), 2).shape == (0, 2)


@GEOMETRY
@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches(geometry, batch):
    layer, x = build(geometry)
    loss = layer.bce(x[:batch], LISTS[:batch]) + layer.cross_entropy(x[:batch], torch.zeros(batch, dtype=torch.long))
    grads = torch.autograd.grad(loss, [x, *layer.parameters()], allow_unused=True)
    assert all(torch.isfinite(g).all() for g in grads if g is not None)
    assert batch or (loss == 0 and all(not g.any() for g in grads if g is not None))


def test_autocast_is_left():
    layer, x = build("poincare")
    expected = layer.bce(x, LISTS), layer.cross_entropy(x, LISTS[:, 0].clamp_min(0)), layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        values = layer.bce(x, LISTS), layer.cross_entropy(x, LISTS[:, 0].clamp_min(0)), layer(x)
    for a, b in zip(values, expected, strict=True):
        assert a.dtype is torch.float32
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, x: s.bce(x, LISTS + 1), r"mobius.Logits: target class 12 does not exist: there are 12 classes"),
        (lambda s, x: s.bce(x, LISTS - 1), "target class -2 does not exist"),
        (lambda s, x: s.bce(x, torch.zeros(B, K - 1)), r"must have the shape \(7, 12\), got \(7, 11\)"),
        (lambda s, x: s.bce(x, LISTS[:3]), r"\(7, 4\) and \(3, 3\)"),
        (lambda s, x: s.bce(x, LISTS, classes=torch.tensor([1, K])), "class in classes 12 does not exist"),
        (lambda s, x: s.bce(x, LISTS, torch.ones(B)), "row_weights must have the shape"),
        (lambda s, x: s.bce(x, LISTS, torch.ones(B, 2), torch.ones(K - 1).long()), "groups must have the shape"),
        (lambda s, x: s.bce(x, LISTS, torch.ones(B, 2), torch.full((K,), 2)), "group 2 does not exist"),
        (lambda s, x: s.bce(x, LISTS, groups=torch.zeros(K).long()), "groups have no effect"),
        (lambda s, x: s.cross_entropy(x, torch.full((B,), -1)), "target class -1 does not exist"),
        (lambda s, x: s.cross_entropy(x, torch.full((B,), K)), "target class 12 does not exist"),
        (lambda s, x: s.cross_entropy(x, torch.full((B,), 3), classes=torch.tensor([2])), "3 is not among the classes"),
        (lambda s, x: s.cross_entropy(x, torch.zeros(B, 1).long()), r"\(7, 4\) and \(7, 1\)"),
        (lambda s, x: s.cross_entropy(x, LISTS[:, 0], 1.5), "label_smoothing must lie in"),
        (lambda s, x: s.bce(x[:, 1:], LISTS), "4 coordinates"),
        (lambda s, x: s.bce(x, LISTS.int() + 1), "target class 12 does not exist"),
        (lambda s, x: s.bce(x, 2.5 * torch.eye(K)[:B]), r"mobius.Logits: .* lie in \[0, 1\], got 0..2.5 .* \(7, 12\)"),
        (lambda s, x: s.bce(x, torch.full((B, K), torch.nan)), r"must lie in \[0, 1\], got nan"),
        (lambda s, x: s.bce(x, torch.eye(K)[:B].long()), r"\(7, 12\) hold 0 and 1 only: pass a matrix"),
        (lambda s, x: s.bce(x, LISTS.float()), r"must have the shape \(7, 12\), got \(7, 3\).*lists .* integers"),
        (lambda s, x: s.bce(x, LISTS, classes=torch.tensor([1, 5, 1])), "class 1 stands twice in classes"),
        (lambda s, x: s.bce(x, LISTS, classes=torch.ones(K)), r"integers \(M,\), got torch.float32 of shape \(12,\)"),
        (
            lambda s, x: s.cross_entropy(x, torch.ones(B)),
            r"mobius.Logits.*\(7, 4\) and \(7,\) and targets of torch.float32",
        ),
        (
            lambda s, x: s.cross_entropy(x, torch.full((B,), 3), classes=torch.tensor([3, 3])),
            "class 3 stands twice in classes",
        ),
    ],
)
def test_mistakes(call, message):
    layer, x = build("poincare")
    with pytest.raises(ValueError, match=message):
        call(layer, x)


def test_no_classes():
    with pytest.raises(ValueError, match="at least 1 class"):
        mobius.Logits(PoincareBall(), D, 0)


@GEOMETRY
def test_class_points_are_on_the_hyperplanes_or_where_the_logit_is_highest(geometry, double):
    layer, x = build(geometry)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(p.manifold.random(K, D, std=0.5) if hasattr(p, "manifold") else p + 0.3 * torch.randn_like(p))
        points = layer.class_points
        own = layer(points).diagonal()
        assert points.shape == (K, layer.manifold.ambient_dim(D))
        assert layer.manifold.check_point_on_manifold(points)
        if geometry == "lorentz":  # HyboNet's logits, by distance from the class's own point
            torch.testing.assert_close(own, layer.bias)
            assert (layer(x) <= layer.bias + 1e-9).all()
        else:
            torch.testing.assert_close(own, torch.zeros(K), rtol=0, atol=1e-9)


def test_class_points_of_the_disk_are_those_of_the_ball_when_a_learned_c_has_grown():
    disk = Klein(1.0, learn_c=True)
    layer = klein.Logits(disk, D, K)
    ball = layer.inner.manifold
    with torch.no_grad():
        layer.inner.p.copy_(ball.expmap0(torch.full((K, D), 3.0)))
        disk.free_c += 1.0
        assert not ball.check_point_on_manifold(layer.inner.p)
        torch.testing.assert_close(layer.class_points, convert(ball.projx(layer.inner.p), ball, disk))


@pytest.mark.long
@pytest.mark.parametrize(
    "call",
    [
        lambda s, x: s.cross_entropy(x, torch.full((B,), -1)),
        lambda s, x: s.cross_entropy(x, torch.full((B,), -100), ignore_index=-1),
        lambda s, x: s.cross_entropy(x, torch.full((B,), K)),
        lambda s, x: s.bce(x, torch.full_like(LISTS, K)),
        lambda s, x: s.bce(x, LISTS, torch.ones(B, 2), torch.full((K,), 2)),
    ],
)
def test_compiled_code_touches_no_memory_of_classes_that_do_not_exist(call):
    layer, x = build("poincare")
    with pytest.raises(IndexError):
        torch.compile(lambda x: call(layer, x), backend="aot_eager")(x)


@pytest.mark.long
@pytest.mark.parametrize("name", ["poincare", "lorentz"])
def test_logits_and_losses_that_are_traced_or_transformed(name):
    """An export with batches of any size, compilation as one graph, and gradients of each example."""
    geometry = make_geometry(name, *GEOMETRIES[name], c=1.0)
    layer, x = geometry.logits(4, 5), geometry.manifold.random(6, 4, std=0.3)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(layer, (x,), dynamic_shapes=({0: batch},)).module()
    torch.testing.assert_close(exported(torch.cat([x, x]))[6:], layer(x))

    def loss(x):
        target = torch.arange(x.shape[0]) % 5
        return layer.bce(x, target.unsqueeze(-1)) + layer.cross_entropy(x, target)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    parameters = dict(layer.named_parameters())
    for expected, actual in zip(
        *(torch.autograd.grad(f(x), list(parameters.values())) for f in (loss, compiled)), strict=True
    ):
        torch.testing.assert_close(actual, expected)

    def of_one(values, x):
        return torch.func.functional_call(layer, values, (x.unsqueeze(0),))[0, 0]

    values = {key: p.detach() for key, p in parameters.items()}
    each = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0))(values, x)
    for key, grad in zip(parameters, torch.autograd.grad(layer(x)[:, 0].sum(), list(parameters.values())), strict=True):
        torch.testing.assert_close(each[key].sum(0), grad)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_loss_of_a_single_point_is_that_of_a_batch_of_one(name):
    geometry = make_geometry(name, *GEOMETRIES[name], c=None if GEOMETRIES[name][0] == "Euclidean" else 1.0)
    layer, x = geometry.logits(3, 4), geometry.manifold.expmap0(torch.randn(3))
    batch = layer.cross_entropy(x[None], torch.tensor([2]))
    torch.testing.assert_close(layer.cross_entropy(x, torch.tensor(2)), batch)


class Loss(torch.nn.Module):
    """A loss of a layer's, as a model that is exported has it."""

    def __init__(self, layer, name: str):
        super().__init__()
        self.layer, self.name = layer, name

    def forward(self, x, targets):
        return getattr(self.layer, self.name)(x, targets)


@GEOMETRY
@pytest.mark.parametrize("name", ["bce", "cross_entropy"])
def test_losses_are_exported_with_a_batch_that_changes(geometry, name, native_kernels):
    layer, x = build(geometry)
    targets = LISTS if name == "bce" else LISTS[:, 0].clamp_min(0)
    batch = torch.export.Dim("batch", min=2, max=1 << 12)
    loss = Loss(layer, name)
    program = torch.export.export(loss, (x.detach(), targets), dynamic_shapes=({0: batch}, {0: batch})).module()
    for n in (B, 4):
        torch.testing.assert_close(program(x[:n].detach(), targets[:n]), loss(x[:n].detach(), targets[:n]))
