"""Operators against their plain formulas, at the sizes of the models that use them: what each kernel earns."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.distance_softmax.passes import DistanceSoftmax
from hyperbolic.kernels.gyro_sum import BallSum
from hyperbolic.kernels.neighbours import NeighbourSum, with_themselves
from hyperbolic.kernels.operator import Operator
from hyperbolic.kernels.table_products import TableProducts
from hyperbolic.kernels.tangent_distance.passes import RowProducts, SquaredLength
from scripts.benchmarks.measure import Case
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, vectors

_WIDE = torch.float64


def row_products(setting: Setting, batch: int, tails: int, d: int) -> Case:
    queries, rows = vectors(batch, 1, d, setting=setting), vectors(batch, tails, d, setting=setting)
    return _case(RowProducts, leaf(queries.to(_WIDE)), leaf(rows))


def squared_length(setting: Setting, batch: int, tails: int) -> Case:
    h, c = (torch.rand(size, device=setting.device, dtype=_WIDE) for size in ((batch, tails), ()))
    return _case(SquaredLength, leaf(h), c + 1, setting.dtype is torch.float32)


def table_products(setting: Setting, batch: int, tails: int, entities: int, d: int) -> Case:
    x, table = leaf(vectors(batch, d, setting=setting)), leaf(vectors(entities, d, setting=setting))
    return _case(TableProducts, x, table, torch.randint(entities, (batch, tails), device=setting.device), None)


def neighbour_sum(setting: Setting, nodes: int, d: int) -> Case:
    """In a tree in which every node has two below it."""
    below = torch.arange(1, nodes)
    n = with_themselves(torch.stack([below, (below - 1) // 2], 1), nodes).to(setting.device)
    pairs = (n.target, n.source, n.offsets, n.reverse_offsets, n.reverse_target, n.order)
    x, weights = leaf(vectors(nodes, d, setting=setting)), leaf(torch.rand(len(n.target), **setting.placed))
    return _case(NeighbourSum, x, weights, *pairs, nodes)


def distance_softmax(setting: Setting, pairs: int, others: int, d: int) -> Case:
    placed = {"device": setting.device, "dtype": _WIDE}
    left, right = (leaf(torch.rand(n, d + 2, **placed)) for n in (pairs, others))
    none = torch.empty(0, dtype=torch.long, device=setting.device)
    h, power = leaf(torch.rand(pairs, **placed)), torch.tensor(2.0, **placed)
    return _case(DistanceSoftmax, left, right, h, none, none, power)


def ball_sum(setting: Setting, steps: int, d: int, batch: int) -> Case:
    x = leaf(vectors(steps, batch, d, setting=setting).mT)
    return _case(BallSum, x, 1 - x.detach().square().sum(1, keepdim=True).clamp_max(0.9), None)


def _case(operator: type[Operator], *arguments: object) -> Case:
    """Forward and backward pass by the plain formula and by the kernel."""
    leaves = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
    gradient = torch.randn_like(_first(operator.plain(*arguments)))
    plain, ours = (
        passes(name, lambda call=call: _first(call(*arguments)), leaves, gradient)
        for name, call in (("plain formula", operator.plain), ("ours", operator.run))
    )
    return Case(plain, ours)


def _first(results: Tensor | tuple[Tensor, ...]) -> Tensor:
    return results if isinstance(results, Tensor) else results[0]


_KG, _KG_TINY = {"batch": 1000, "tails": 51}, {"batch": 3, "tails": 4}

ROWS = [
    Row(
        "row-products",
        "products with candidates, RotH and MuRP, 1,000 x 51, d 32, plain = 1",
        row_products,
        {**_KG, "d": 32},
        {**_KG_TINY, "d": 3},
        gates=[Gate(0.5)],
    ),
    Row(
        "squared-length",
        "squared distances, RotH and MuRP, 1,000 x 1,000, plain = 1",
        squared_length,
        {"batch": 1000, "tails": 1000},
        {"batch": 3, "tails": 4},
        gates=[Gate(0.7)],
    ),
    Row(
        "table-products",
        "scores of candidates, DistMult, 1,000 x 51 of 40,943, d 32, plain = 1",
        table_products,
        {**_KG, "entities": 40_943, "d": 32},
        {**_KG_TINY, "entities": 9, "d": 3},
        gates=[Gate(0.7)],
    ),
    Row(
        "neighbour-sum",
        "sums over neighbours, HyboNet on graphs, 2,665 nodes, d 16, plain = 1",
        neighbour_sum,
        {"nodes": 2665, "d": 16},
        {"nodes": 7, "d": 3},
        gates=[Gate(0.85)],
    ),
    Row(
        "distance-softmax",
        "loss of Poincaré embeddings, 2,000 pairs x 500 others, d 10, plain = 1",
        distance_softmax,
        {"pairs": 2000, "others": 500, "d": 10},
        {"pairs": 3, "others": 4, "d": 2},
        gates=[Gate(0.5)],
    ),
    Row(
        "ball-sum",
        "Möbius sums of 30 points, deep averaging network, batch 64, d 5, plain = 1",
        ball_sum,
        {"steps": 30, "d": 5, "batch": 64},
        {"steps": 3, "d": 2, "batch": 2},
        gates=[Gate(0.85)],
    ),
]
