"""Hyperbolic multinomial logistic regression of many classes (Ganea et al. 2018, Eq. 23), with and without its loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hyperbolic.layers import euclidean, mobius
from hyperbolic.manifolds import Euclidean, PoincareBall
from scripts.benchmarks import peers
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import Pass, gradients, leaf, passes, vectors

_TRUE_CLASSES = 5  # of a row, about what an ultra-fine mention has


def _ours(setting: Setting, d: int, classes: int) -> tuple[nn.Module, Tensor]:
    """Logits with hyperplanes off the origin, ``p = exp_0(r a/|a|)``, and the offsets r: the form HypLL has too."""
    layer = mobius.Logits(PoincareBall(), d, classes).to(**setting.placed)
    offsets = 0.05 * torch.randn(classes, **setting.placed)
    with torch.no_grad():
        direction = layer.a / layer.a.norm(dim=-1, keepdim=True)
        layer.p.copy_(PoincareBall().to(setting.device).expmap0(offsets.unsqueeze(-1) * direction))
    return layer, offsets


def _points(setting: Setting, batch: int, d: int) -> Tensor:
    return leaf(PoincareBall().to(setting.device).expmap0(vectors(batch, d, setting=setting, std=0.5)))


def _hypll_logits(normals: Tensor, offsets: Tensor):
    """HypLL's hyperplane distances as a function of plain tensors, and its parameters."""
    lib = peers.hypll()
    if lib is None:
        return None
    normals, offsets = leaf(normals.T.contiguous()), leaf(offsets)
    z = lib.tensors.ManifoldTensor(normals, manifold=lib.ball, man_dim=0)
    lib.ball.to(normals.device)

    def logits(x: Tensor) -> Tensor:
        points = lib.tensors.ManifoldTensor(x, manifold=lib.ball, man_dim=1)
        return lib.ball.hyperplane_dists(x=points, z=z, r=offsets)

    return logits, [normals, offsets]


def _targets(setting: Setting, batch: int, classes: int) -> tuple[Tensor, Tensor]:
    """Classes of each row as lists, and as a 0/1 matrix."""
    lists = torch.rand(batch, classes).topk(min(_TRUE_CLASSES, classes)).indices.to(setting.device)
    return lists, torch.zeros(batch, classes, **setting.placed).scatter_(1, lists, 1.0)


def bce(setting: Setting, batch: int, d: int, classes: int, hyfi_rows: int) -> Case:
    """The classifier with binary cross entropy over all classes."""
    x = _points(setting, batch, d)
    lists, matrix = _targets(setting, batch, classes)
    linear = nn.Linear(d, classes).to(**setting.placed)
    layer, offsets = _ours(setting, d, classes)
    flat = euclidean.Logits(Euclidean(), d, classes).to(**setting.placed)

    def work(loss, parameters, x=x):
        run = Pass(lambda: loss(x), [x, *parameters])
        return run, lambda: gradients(run, x)

    floor, _ = work(lambda x: binary_cross_entropy_with_logits(linear(x), matrix), linear.parameters())
    variants = [
        Variant("ours", *work(lambda x: layer.bce(x, matrix), layer.parameters())),
        Variant("ours, target lists", *work(lambda x: layer.bce(x, lists), layer.parameters())),
        Variant("Euclidean, streamed", work(lambda x: flat.bce(x, matrix), flat.parameters())[0]),
    ]
    peer = _hypll_logits(layer.a.detach(), offsets)
    if peer is not None:
        logits, parameters = peer
        hypll = work(lambda x: binary_cross_entropy_with_logits(logits(x), matrix), parameters)
        variants.append(Variant("HypLL", *hypll))
    rows = min(hyfi_rows, batch)
    few, p, a = leaf(x[:rows]), leaf(layer.p), leaf(layer.a)
    part = matrix[:rows]
    run, value = work(lambda x: binary_cross_entropy_with_logits(peers.hyfi_logits(x, p, a), part), [p, a], few)
    whole = rows == batch
    variants.append(Variant("HyFi", run, value if whole else None, share=rows / batch))
    notes = [] if whole else [f"HyFi ran on {rows} of {batch} rows, its time scaled: all at once need about 20 GiB"]
    return Case(Variant("nn.Linear + BCE", floor), variants[0], variants[1:], notes)


def logits(setting: Setting, batch: int, d: int, classes: int) -> Case:
    """The logits alone."""
    x = _points(setting, batch, d)
    gradient = torch.randn(batch, classes, **setting.placed)
    linear = nn.Linear(d, classes).to(**setting.placed)
    layer, offsets = _ours(setting, d, classes)

    others = []
    if (peer := _hypll_logits(layer.a.detach(), offsets)) is not None:
        hypll, parameters = peer
        others.append(passes("HypLL", lambda: hypll(x), [x, *parameters], gradient))
    return Case(
        passes("nn.Linear", lambda: linear(x), [x, *linear.parameters()], gradient, compared=False),
        passes("ours", lambda: layer(x), [x, *layer.parameters()], gradient),
        others,
    )


_SIZES = {"batch": 900, "d": 100, "classes": 10_331}
_TINY = {"batch": 6, "d": 5, "classes": 11}

ROWS = [
    Row(
        "mlr-bce",
        "MLR + BCE, batch 900, d 100, 10,331 classes",
        bce,
        {**_SIZES, "hyfi_rows": 4},
        {**_TINY, "hyfi_rows": 6},
        gates=[Gate(0.9, thp=1.25), Gate(1 / 8, what="memory"), Gate(0.4, against="HypLL")],
        aim="0.6",
        memory=True,
        kernels=("losses", "streamed_bce"),
    ),
    Row(
        "mlr-logits",
        "MLR logits only, same size",
        logits,
        _SIZES,
        _TINY,
        gates=[Gate(3.5), Gate(0.45, against="HypLL")],
        aim="2",
        kernels=("mlr", "mlr_logits", "mlr_lift_hyperplanes"),
    ),
]
