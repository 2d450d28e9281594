"""C++ against PyTorch at every radius: values and gradients of whatever has C++ kernels, on one grid.

Far from the origin a change of an input in its last digit changes results by far more than one unit, and so does every
rounding on the way. Results that differ by more than ROUNDINGS units get a tolerance that is measured: the PyTorch path
runs again with every number of the inputs and parameters changed by at most one unit (relative eps, uniform), three
times; `spread` is the largest change of a result, relative to its largest entry. Both paths compute the same formulas,
and neither may lose more than ROUNDINGS times what the last digits of its inputs do.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from hyperbolic import switch
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.geometry import GEOMETRIES, Geometry, make_geometry
from hyperbolic.kernels import riemannian_steps
from hyperbolic.kernels.distance_softmax import distance_softmax
from hyperbolic.kernels.pairwise import lorentz_pairwise, poincare_pairwise
from hyperbolic.manifolds import MANIFOLDS
from tests.kernels.paths import path
from tests.kernels.test_riemannian_steps import ADAM, rows_of, rule_at

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler"),
]

F32, F64 = torch.float32, torch.float64
ROUNDINGS = 16
SHARES = (0.05, 0.3, 0.6, 1.0)  # of the largest radius
N, STEPS, D = 8, 5, 6
CURVED = [name for name, (manifold, _) in GEOMETRIES.items() if manifold != "Euclidean"]


class Operation(NamedTuple):
    """What is called ``name``: ``function`` of the leaves, to a tensor or a tuple of them."""

    name: str
    function: Callable[..., Tensor | tuple[Tensor, ...]]
    leaves: list[Tensor]


def points(manifold, *size: int, share: float, dtype) -> Tensor:
    """Points between 0.9 and 1 times that share of the largest radius from the origin."""
    lengths = share * manifold.max_radius(dtype) * (1 - 0.1 * torch.rand(*size[:-1], 1, dtype=F64))
    return manifold.expmap0((lengths * normalize(torch.randn(*size, dtype=F64), dim=-1)).to(dtype)).detach()


def of_module(name: str, module: nn.Module, inputs: list[Tensor], call: Callable | None = None) -> Operation:
    """The module as a function of its inputs and parameters."""
    parameters = {key: p.detach() for key, p in module.named_parameters() if p.requires_grad}

    def function(*leaves):
        replaced = dict(zip(parameters, leaves[len(inputs) :], strict=True))
        return functional_call(module, replaced, tuple(leaves[: len(inputs)]))

    return Operation(name, call or function, [*inputs, *parameters.values()])


class Loss(nn.Module):
    """A streamed loss of a classifier: its mean over the rows."""

    def __init__(self, logits: nn.Module, kind: str):
        super().__init__()
        self.logits, self.kind = logits, kind

    def forward(self, x: Tensor) -> Tensor:
        classes = torch.arange(len(x)) % 5
        return getattr(self.logits, self.kind)(x, classes.unsqueeze(-1) if self.kind == "bce" else classes)


class Scores(nn.Module):
    """Of triples whose entities all come several times."""

    def __init__(self, scorer: nn.Module):
        super().__init__()
        self.scorer = scorer

    def forward(self) -> Tensor:
        heads = torch.arange(40) % 16
        return self.scorer(heads, heads % 3, (heads.unsqueeze(-1) + torch.arange(1, 4)) % 16)


def layer_operations(name: str, c: float, dtype, share: float) -> Iterator[Operation]:
    g = make_geometry(name, *GEOMETRIES[name], c=c, learn_c=True)
    layers = {
        "linear": (g.linear(D, 7), (N, D)),
        "activation": (g.activation("tanh"), (N, D)),
        "rnn": (g.rnn(D, 7), (N, STEPS, D)),
        "gru": (g.gru(D, 7), (N, STEPS, D)),
        "concat": (g.concat((D, D), 7), (N, D), (N, D)),
        "attention": (g.attention(D), (N, STEPS, D)),
        "context attention": (g.context_attention(D), (N, STEPS, D)),
        "residual": (g.residual(D, D, activation="relu"), (N, D), (N, D)),
        "feed-forward": (g.feed_forward(D, 8, activation="tanh"), (N, D)),
        "norm": (g.norm(D), (N, D)),
        "centroid": (g.centroid(), (N, STEPS, D)),
        "ordered sum": (g.ordered_sum(), (N, STEPS, D)),
        "logits": (g.logits(D, 5), (N, D)),
        "binary cross-entropy": (Loss(g.logits(D, 5), "bce"), (N, D)),
        "cross-entropy": (Loss(g.logits(D, 5), "cross_entropy"), (N, D)),
        **({} if name in ("poincare", "klein") else {"heads": (g.multi_head_attention(D, 2), (N, STEPS, D))}),
    }
    for key, (module, *shapes) in layers.items():
        module.to(dtype).eval()
        fill(module, g, c, dtype)
        yield of_module(key, module, [points(g.manifold, *shape, share=share, dtype=dtype) for shape in shapes])


def fill(module: nn.Module, g: Geometry, c: float, dtype) -> None:
    """Points of a parameter away from the origin."""
    with torch.no_grad():
        for parameter in module.parameters():
            if hasattr(parameter, "manifold"):
                size = (*parameter.shape[:-1], parameter.manifold.intrinsic_dim(parameter.shape[-1]))
                parameter.copy_(g.manifold.random(*size, std=0.5 / c**0.5, dtype=dtype))


def manifold_operations(name: str, c: float, dtype, share: float) -> Iterator[Operation]:
    """Functions of tables of points, whose row sums are C++ for large ones, distances, and a step of the optimiser."""
    manifold, n = MANIFOLDS[name](c, learn_c=True), 3000
    x, y = (points(manifold, n, D, share=share, dtype=dtype) for _ in range(2))
    v = torch.randn(n, D, dtype=dtype)
    u = manifold.egrad2rgrad(x, torch.randn_like(x)).detach()
    u = u / manifold.norm(x, u, keepdim=True).clamp_min(1e-30)
    sequences = points(manifold, 600, STEPS, D, share=share, dtype=dtype)
    weights = torch.rand(600, STEPS, dtype=dtype)
    free_c = manifold.free_c.detach()

    def of_points(function: Callable, *leaves: Tensor) -> Operation:
        return Operation(function.__name__, with_curvature(manifold, function), [*leaves, free_c])

    yield of_points(manifold.dist, x, y)
    yield of_points(manifold.logmap, x, y)
    yield of_points(manifold.expmap, x, u.to(dtype))
    yield of_points(manifold.transp, x, y, u.to(dtype))
    yield of_points(manifold.expmap0, v)
    yield of_points(manifold.logmap0, x)
    yield of_points(manifold.centroid, sequences, weights)
    if name == "PoincareBall":
        yield of_points(manifold.mobius_add, x, y)
    if name != "Klein":
        distances = {"PoincareBall": poincare_pairwise, "Lorentz": lorentz_pairwise}[name]
        few = points(manifold, 12, D, share=share, dtype=dtype), points(manifold, 9, D, share=share, dtype=dtype)
        yield Operation(distances.__name__, distances, [*few, manifold.c.detach()])
    if name == "Lorentz" and dtype is F64:
        parts = [points(manifold, k, D, share=share / 2, dtype=dtype)[:, 1:].contiguous() for k in (12, 12, 9)]
        none = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
        yield Operation("softmax of distances", lambda x, y, z: distance_softmax(x, y, z, manifold.c, none), parts)
    if name == "Lorentz":
        yield hybonet(c, dtype, share)
    yield Operation("optimiser", optimiser_step(name, c), [x[:50].contiguous(), torch.randn_like(x[:50])])


def with_curvature(manifold, function: Callable) -> Callable:
    """The function of the points and of the number that the manifold learns its curvature by."""

    def call(*leaves: Tensor) -> Tensor:
        own, manifold.free_c = manifold.free_c, nn.Parameter(leaves[-1])
        try:
            del manifold._parameters["free_c"]
            manifold.__dict__["free_c"] = leaves[-1]
            return function(*leaves[:-1])
        finally:
            manifold.__dict__.pop("free_c", None)
            manifold.free_c = own

    return call


def hybonet(c: float, dtype, share: float) -> Operation:
    geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=c, learn_c=True)
    settings = {"sparse": False, "d": D, "counts_time": False, "scale": 2.5, "margin": 8.0, "max_norm": None}
    scorer = HyboNet(geometry, 16, 3, **settings).to(dtype)
    with torch.no_grad():
        scorer.entity.weight.copy_(points(geometry.manifold, 16, D, share=share, dtype=dtype))
    return of_module("HyboNet", Scores(scorer), [])


def optimiser_step(name: str, c: float) -> Callable[..., tuple[Tensor, ...]]:
    def step(x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        rows = rows_of(x.detach().clone(), ADAM, grad.detach())
        riemannian_steps.step(rows, MANIFOLDS[name](c), rule_at(ADAM, 1))
        return rows.x, rows.momentum

    return step


def outcome(operation: Operation, mode: str, leaves: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
    """Values, and gradients of their sum with these weights, which are drawn by the first call."""
    with path(mode):
        fresh = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        values = operation.function(*fresh)
        values = [v for v in (values if isinstance(values, tuple) else (values,)) if v.is_floating_point()]
        slopes = [v for v in values if v.requires_grad]
        cotangents += [torch.randn_like(v) for v in slopes[len(cotangents) :]]
        grads: tuple[Tensor, ...] = ()
        if slopes:
            total = sum((v * w).sum() for v, w in zip(slopes, cotangents, strict=True))
            grads = torch.autograd.grad(total, fresh, allow_unused=True, materialize_grads=True)
        return [*(v.detach() for v in values), *grads]


def differences(actual: list[Tensor], expected: list[Tensor], cotangents: list[Tensor]) -> list[float]:
    """The largest of each result, relative to its largest entry; that of a number, whose terms may cancel, relative to
    the terms of the sum that is differentiated if they are larger."""
    terms = sum((v * w).abs().sum().item() for v, w in zip(expected, cotangents, strict=False))
    every = []
    for a, e in zip(actual, expected, strict=True):
        apart, size = (a.double() - e.double()).abs().max().item(), e.double().abs().max().item()
        every.append(apart / (size if e.dim() else max(size, terms)) if apart else 0.0)
    return every


def spreads(operation: Operation, expected: list[Tensor], cotangents: list[Tensor]) -> list[float]:
    eps, worst = torch.finfo(operation.leaves[0].dtype).eps, [0.0] * len(expected)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        changed = []
        for leaf in operation.leaves:
            change = eps * (2 * torch.rand(leaf.shape, generator=generator, dtype=F64) - 1)
            changed.append((leaf.double() * (1 + change)).to(leaf.dtype))
        results = outcome(operation, "plain", changed, cotangents)
        worst = [max(pair) for pair in zip(worst, differences(results, expected, cotangents), strict=True)]
    return worst


def check(operations: Iterator[Operation]) -> None:
    """Every value and gradient of every operation; few of them where the tolerance says little."""
    faults, loose, count = [], 0, 0
    for operation in operations:
        cotangents: list[Tensor] = []
        expected = outcome(operation, "plain", operation.leaves, cotangents)
        actual = outcome(operation, "fast", operation.leaves, cotangents)
        apart = differences(actual, expected, cotangents)
        least, count = ROUNDINGS * torch.finfo(operation.leaves[0].dtype).eps, count + len(apart)
        if all(d <= least for d in apart):
            continue
        for i, spread in enumerate(spreads(operation, expected, cotangents)):
            if not apart[i] <= least:
                loose += ROUNDINGS * spread > 1e-2
                if not apart[i] <= ROUNDINGS * spread:
                    faults.append(f"{operation.name}, result {i}: {apart[i]:.1e} apart, spread {spread:.1e}")
    assert not faults, "\n".join(faults)
    assert loose <= 0.35 * count


GRID = [
    pytest.mark.parametrize("share", SHARES),
    pytest.mark.parametrize("dtype", [F32, F64], ids=str),
    pytest.mark.parametrize("c", [0.3, 2.5]),
]


def on_the_grid(test: Callable) -> Callable:
    for mark in GRID:
        test = mark(test)
    return test


@on_the_grid
@pytest.mark.parametrize("name", CURVED)
def test_layers(name, c, dtype, share):
    check(layer_operations(name, c, dtype, share))


@on_the_grid
@pytest.mark.parametrize("name", ["PoincareBall", "Lorentz", "Klein"])
def test_manifolds(name, c, dtype, share):
    check(manifold_operations(name, c, dtype, share))
