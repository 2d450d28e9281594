"""Operators and row functions against their plain formulas, at the sizes of the models that use them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.encoders.relational.translational import ModulusDistances, ModulusSums
from hyperbolic.kernels.class_losses.passes import CrossEntropy
from hyperbolic.kernels.distance_softmax.passes import DistanceSoftmax
from hyperbolic.kernels.mobius_sum.passes import BallSum
from hyperbolic.kernels.neighbour_sum import NeighbourSum
from hyperbolic.kernels.relation_linear import RelationLinear
from hyperbolic.kernels.table_products import TableProducts
from hyperbolic.kernels.table_rows import TableRows
from hyperbolic.kernels.tangent_distance.passes import RowProducts, SquaredLength
from hyperbolic.layers.neighbours import with_themselves
from hyperbolic.manifolds import PoincareBall
from hyperbolic.manifolds.poincare import mobius_add
from hyperbolic.operator import Operator
from hyperbolic.rows import row_dot, row_scale, weighted_sum
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import Pass, leaf, passes, vectors

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


def table_rows(setting: Setting, batch: int, tails: int, entities: int, d: int) -> Case:
    table = leaf(vectors(entities, d, setting=setting))
    return _case(TableRows, table, torch.randint(entities, (batch, tails), device=setting.device))


def relation_linear(setting: Setting, batch: int, relations: int, d: int) -> Case:
    x, weight = leaf(vectors(batch, d, setting=setting)), leaf(vectors(relations, d, d, setting=setting))
    return _case(RelationLinear, x, weight, torch.randint(relations, (batch,), device=setting.device))


def modulus_sums(setting: Setting, batch: int, tails: int, d: int) -> Case:
    return _case(ModulusSums, leaf(vectors(batch, tails, d, setting=setting)))


def modulus_distances(setting: Setting, batch: int, entities: int, d: int) -> Case:
    return _case(ModulusDistances, *(leaf(vectors(n, d, setting=setting)) for n in (batch, entities)))


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


def cross_entropy(setting: Setting, batch: int, classes: int, d: int) -> Case:
    place = {"device": setting.device}
    x, w = leaf(vectors(batch, d, setting=setting)), leaf(vectors(classes, d, setting=setting))
    bias, target = leaf(torch.zeros(classes, **setting.placed)), torch.randint(classes, (batch,), **place)
    return _case(CrossEntropy, x, w, None, bias, target, torch.ones(batch, dtype=torch.bool, **place), 0.1)


def ball_rows(setting: Setting, n: int, d: int) -> Case:
    """The distance of Möbius sums ``x (+) y`` from y."""
    ball = PoincareBall().to(setting.device)
    x, y = (leaf(ball.expmap0(vectors(n, d, setting=setting, std=0.5))) for _ in range(2))
    return _functions(lambda: ball.dist(mobius_add(x, y, ball.c), y), x, y)


def row_sums(setting: Setting, n: int, count: int, d: int) -> Case:
    """Weighted sums of points that are scaled to length 1."""
    x = leaf(vectors(n, count, d, setting=setting))
    weights = leaf(torch.rand(n, count, device=setting.device, dtype=_WIDE))
    return _functions(lambda: weighted_sum(weights, row_scale(row_dot(x, x).rsqrt(), x)), x, weights)


def _functions(forward: Callable[[], Tensor], *leaves: Tensor) -> Case:
    """Forward and backward pass of functions: with plain kernels, and as they are."""
    gradient = torch.randn_like(forward())
    both = Pass(forward, leaves, gradient)

    def plain(work: Callable[[], Tensor]) -> Tensor:
        mode = switch.mode()
        switch.use_kernels("plain")
        try:
            return work().detach()
        finally:
            switch.use_kernels(mode)

    return Case(
        Variant("plain formula", lambda: plain(both), lambda: plain(forward)),
        passes("ours", forward, leaves, gradient),
    )


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
        kernels=("tangent_distance", "row_products"),
    ),
    Row(
        "squared-length",
        "squared distances, RotH and MuRP, 1,000 x 1,000, plain = 1",
        squared_length,
        {"batch": 1000, "tails": 1000},
        {"batch": 3, "tails": 4},
        gates=[Gate(0.7)],
        kernels=("tangent_distance", "squared_length"),
    ),
    Row(
        "table-products",
        "scores of candidates, DistMult, 1,000 x 51 of 40,943, d 32, plain = 1",
        table_products,
        {**_KG, "entities": 40_943, "d": 32},
        {**_KG_TINY, "entities": 9, "d": 3},
        gates=[Gate(0.7)],
        kernels=("table_products",),
    ),
    Row(
        "table-rows",
        "rows of a table, 1,000 x 51 of 40,943, d 33, plain = 1",
        table_rows,
        {**_KG, "entities": 40_943, "d": 33},
        {**_KG_TINY, "entities": 7, "d": 3},
        gates=[Gate(0.8)],
        kernels=("table_rows",),
    ),
    Row(
        "relation-linear",
        "products with a matrix of each relation, FB15k-237, 1,000, d 128, plain = 1",
        relation_linear,
        {"batch": 1000, "relations": 237, "d": 128},
        {"batch": 17, "relations": 2, "d": 512},
        gates=[Gate(0.5)],
        kernels=("relation_linear",),
    ),
    Row(
        "modulus-sums",
        "distances of RotatE from candidates, 1,000 x 51, d 32, plain = 1",
        modulus_sums,
        {**_KG, "d": 32},
        {**_KG_TINY, "d": 4},
        gates=[Gate(0.8)],
        kernels=("modulus_sums",),
    ),
    Row(
        "modulus-distances",
        "distances of RotatE from all entities of FB15k-237, 256 x 14,541, d 32, plain = 1",
        modulus_distances,
        {"batch": 256, "entities": 14_541, "d": 32},
        {"batch": 3, "entities": 5, "d": 4},
        gates=[Gate(0.2)],
        kernels=("modulus_distances",),
    ),
    Row(
        "neighbour-sum",
        "sums over neighbours, HyboNet on graphs, 2,665 nodes, d 16, plain = 1",
        neighbour_sum,
        {"nodes": 2665, "d": 16},
        {"nodes": 7, "d": 3},
        gates=[Gate(0.95)],  # 1 ms of work, whose ratio is 0.78 to 0.95 in repeated runs
        kernels=("neighbour_sum",),
    ),
    Row(
        "distance-softmax",
        "loss of Poincaré embeddings, 2,000 pairs x 500 others, d 10, plain = 1",
        distance_softmax,
        {"pairs": 2000, "others": 500, "d": 10},
        {"pairs": 3, "others": 4, "d": 2},
        gates=[Gate(0.5)],
        kernels=("distance_softmax",),
    ),
    Row(
        "ball-sum",
        "Möbius sums of 30 points, deep averaging network, batch 64, d 5, plain = 1",
        ball_sum,
        {"steps": 30, "d": 5, "batch": 64},
        {"steps": 3, "d": 2, "batch": 2},
        gates=[Gate(0.95)],  # its ratio is 0.81 to 0.91 in repeated runs
        kernels=("ball_sum",),
    ),
    Row(
        "cross-entropy",
        "cross entropy over classes, translation, 1,280 words x 6,000, d 64, plain = 1",
        cross_entropy,
        {"batch": 1280, "classes": 6000, "d": 64},
        {"batch": 6, "classes": 11, "d": 5},
        gates=[Gate(0.7)],
        kernels=("losses", "streamed_cross_entropy"),
    ),
    Row(
        "ball-rows",
        "Möbius sums and distances of pairs of points, 20,000, d 50, plain = 1",
        ball_rows,
        {"n": 20_000, "d": 50},
        {"n": 600, "d": 32},
        gates=[Gate(0.5)],
        kernels=("ball", "ball_add", "ball_distance_square"),
    ),
    Row(
        "row-sums",
        "lengths, multiples and weighted sums of rows, 900 x 25, d 50, plain = 1",
        row_sums,
        {"n": 900, "count": 25, "d": 50},
        {"n": 60, "count": 10, "d": 32},
        gates=[Gate(0.8)],
        kernels=("row_operations", "row_dot", "row_scale", "weighted_sum"),
    ),
]
