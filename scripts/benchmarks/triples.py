"""The test queries of WN18RR: read from `HYPERBOLIC_DATA`, or drawn at random with as many of everything."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tasks.kg_completion.facts import Facts
from tasks.kg_completion.triples import FILES, read_graph

ENTITIES = 40_943
_SIZES = {"train": 86_835, "dev": 3_034, "test": 3_134}


@dataclass
class Queries:
    """(head, relation, ?) and (?, relation, tail), the second kind as a reversed relation.

    Args:
        targets: (Q,) the right answers. offsets, answers: (Q + 1,) and (A,), all answers of query i that are true in
            any split, its own among them, from offset i to i + 1. entities: their number. origin: of the triples.
    """

    targets: Tensor
    offsets: Tensor
    answers: Tensor
    entities: int
    origin: str


def load(tiny: bool = False) -> Queries:
    """All queries of the test split, in both directions.

    Raises:
        UserError: a file with lines that are no triples.
    """
    data = os.environ.get("HYPERBOLIC_DATA")
    folder = Path(data).expanduser() / "WN18RR" if data and not tiny else None
    if folder is not None and all((folder / name).is_file() for name in FILES.values()):
        graph = read_graph(folder)
        splits, entities, relations = graph.triples, len(graph.entities), len(graph.relations)
        origin = "WN18RR's own triples"
    else:
        entities, relations = (30, 2) if tiny else (ENTITIES, 11)
        splits = _drawn(entities, relations, tiny)
        origin = "triples drawn at random in WN18RR's number (HYPERBOLIC_DATA has no WN18RR)"
    h, r, t = splits["test"].unbind(-1)
    facts = Facts(torch.cat(list(splits.values())), entities, relations)
    offsets, answers = facts.answers(torch.cat([h, t]), torch.cat([r, r + relations]))
    return Queries(torch.cat([t, h]), offsets, answers, entities, origin)


def _drawn(entities: int, relations: int, tiny: bool) -> dict[str, Tensor]:
    """Few entities have many neighbours, as in a graph of words."""
    generator = torch.Generator().manual_seed(0)

    def ends(n: int) -> Tensor:
        return (entities * torch.rand(n, generator=generator) ** 3).long()

    sizes = {split: size // 2_000 + 1 if tiny else size for split, size in _SIZES.items()}
    return {
        split: torch.stack([ends(n), torch.randint(relations, (n,), generator=generator), ends(n)], 1)
        for split, n in sizes.items()
    }
