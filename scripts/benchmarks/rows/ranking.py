"""Scores of all entities of a knowledge graph, as HyboNet ranks them, and the filtered ranks of a whole test split."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.manifolds import Lorentz
from hyperbolic.manifolds.lorentz import lorentz_products
from scripts.benchmarks import peers, triples
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, vectors
from tasks.metrics import filtered_rank_bounds

QUERIES = 64  # of one batch, as task.data.eval_batch_size


def scoring(setting: Setting, queries: int, entities: int, d: int) -> Case:
    """Scores of a batch of queries, and the gradients of the queries and of the table."""
    sheet = Lorentz().to(setting.device)
    h = leaf(sheet.expmap0(vectors(queries, d, setting=setting)))
    table = leaf(sheet.expmap0(vectors(entities, d, setting=setting)))
    flat = [leaf(vectors(n, d, setting=setting)) for n in (queries, entities)]
    gradient = torch.randn(queries, entities, **setting.placed)

    return Case(
        passes("h @ E.T", lambda: flat[0] @ flat[1].T, flat, gradient, compared=False),
        passes("ours", lambda: lorentz_products(h, table), [h, table], gradient),
        [passes("HyboNet", lambda: peers.hybonet_products(h, table), [h, table], gradient)],
    )


def rank_one_by_one(scores: Tensor, target: int, answers: Tensor) -> int:
    """Filtered rank of one query as MuRP's and HyboNet's programs compute it: overwrite, sort, search."""
    value = scores[target].clone()
    scores[answers] = -torch.inf
    scores[target] = value
    order = scores.argsort(descending=True)
    return 1 + int((order == target).nonzero()[0])


def evaluation(setting: Setting, d: int, loop_queries: int) -> Case:
    """Filtered ranks of the queries of the test split, scores included; times are scaled to all of them."""
    queries = triples.load(setting.tiny)
    sheet = Lorentz().to(setting.device)
    total = len(queries.targets)
    part = 4 if setting.quick and not setting.tiny else 1
    many, few, compared = total // part, min(loop_queries // part, total), min(loop_queries, total)
    h = sheet.expmap0(vectors(total, d, setting=setting))
    table = sheet.expmap0(vectors(queries.entities, d, setting=setting))
    targets = queries.targets.to(setting.device)
    offsets, answers = queries.offsets.to(setting.device), queries.answers.to(setting.device)
    answer_lists = answers.split(offsets.diff().tolist())

    def ours() -> Tensor:
        ranks = []
        for start in range(0, many, QUERIES):
            stop = min(start + QUERIES, many)
            own = offsets[start : stop + 1]
            known = own - own[0], answers[int(own[0]) : int(own[-1])]
            ranks.append(filtered_rank_bounds(lorentz_products(h[start:stop], table), targets[start:stop], known)[1])
        return torch.cat(ranks)

    def loop() -> Tensor:
        scores = (peers.hybonet_products(query, table) for query in h[:few])
        return torch.tensor([rank_one_by_one(s, int(targets[i]), answer_lists[i]) for i, s in enumerate(scores)])

    def difference() -> int:
        """Ranks that differ, both of the same scores: those of two products differ in their last bits."""
        scores = lorentz_products(h[:compared], table)
        first = offsets[: compared + 1]
        fast = filtered_rank_bounds(scores, targets[:compared], (first, answers[: int(first[-1])]))[1]
        slow = [rank_one_by_one(scores[i].clone(), int(targets[i]), answer_lists[i]) for i in range(compared)]
        return int((fast.cpu() != torch.tensor(slow)).sum())

    notes = [f"filtered evaluation: {queries.origin}; the loop ran on {few} of {total} queries, ours on {many}"]
    floor = Variant("loop over queries", loop, loop if few == total else None, share=few / total)
    return Case(floor, Variant("ours", ours, ours, share=many / total), notes=notes, difference=difference)


ROWS = [
    Row(
        "kg-scoring",
        "KG scoring, 30 queries x 40,943 entities, d 32",
        scoring,
        {"queries": 30, "entities": triples.ENTITIES, "d": 32},
        {"queries": 3, "entities": 9, "d": 4},
        gates=[Gate(1.8)],
        aim="1.2",
    ),
    Row(
        "filtered-evaluation",
        "filtered evaluation of WN18RR's test split (6,268 queries), loop = 1",
        evaluation,
        {"d": 32, "loop_queries": 100},
        {"d": 4, "loop_queries": 100},
        gates=[Gate(1 / 20), Gate(0, what="difference")],
        aim="1/50",
    ),
]
