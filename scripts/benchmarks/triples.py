"""The test queries of WN18RR: read from `HYPERBOLIC_DATA`, or drawn at random with as many of everything."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

ENTITIES = 40_943
_SPLITS = {"train": 86_835, "valid": 3_034, "test": 3_134}


@dataclass
class Queries:
    """(head, relation, ?) and (?, relation, tail), the second kind as a reversed relation.

    Args:
        heads, targets: (Q,) the entity in the question and the right answer. answers: for each query all answers that
            are true in any split, its own among them. entities: their number. origin: where the triples come from.
    """

    heads: Tensor
    targets: Tensor
    answers: list[Tensor]
    entities: int
    origin: str

    def joined(self) -> tuple[Tensor, Tensor]:
        """All answers in one tensor: offsets (Q + 1,), and the answers of query i from offset i to i + 1."""
        sizes = torch.tensor([len(answers) for answers in self.answers])
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]), torch.cat(self.answers)


def load(tiny: bool = False) -> Queries:
    """All queries of the test split, in both directions.

    Raises:
        ValueError: a file with lines that are no triples.
    """
    folder = Path(os.environ["HYPERBOLIC_DATA"]).expanduser() / "WN18RR" if os.environ.get("HYPERBOLIC_DATA") else None
    if not tiny and folder is not None and all((folder / f"{split}.txt").is_file() for split in _SPLITS):
        return _queries(*_read(folder), "WN18RR's own triples")
    return _queries(*_drawn(tiny), "triples drawn at random in WN18RR's number (HYPERBOLIC_DATA has no WN18RR)")


def _read(folder: Path) -> tuple[dict[str, Tensor], int]:
    entities, relations = {}, {}
    splits = {}
    for split in _SPLITS:
        rows = []
        for number, line in enumerate((folder / f"{split}.txt").read_text(encoding="utf-8").splitlines(), 1):
            fields = line.split("\t")
            if len(fields) != 3:
                raise ValueError(f"{split}.txt of WN18RR, line {number}: three fields between tabs expected")
            head, relation, tail = fields
            numbers = [entities.setdefault(name, len(entities)) for name in (head, tail)]
            rows.append([numbers[0], relations.setdefault(relation, len(relations)), numbers[1]])
        splits[split] = torch.tensor(rows)
    return splits, len(entities)


def _drawn(tiny: bool) -> tuple[dict[str, Tensor], int]:
    """Few entities have many neighbours, as in a graph of words."""
    entities, relations, part = (30, 2, 2_000) if tiny else (ENTITIES, 11, 1)
    generator = torch.Generator().manual_seed(0)

    def ends(n: int) -> Tensor:
        return (entities * torch.rand(n, generator=generator) ** 3).long()

    splits = {}
    for split, size in _SPLITS.items():
        n = size // part + 1 if tiny else size
        splits[split] = torch.stack([ends(n), torch.randint(relations, (n,), generator=generator), ends(n)], 1)
    return splits, entities


def _queries(splits: dict[str, Tensor], entities: int, origin: str) -> Queries:
    relations = 1 + max(int(triples[:, 1].max()) for triples in splits.values())
    both = {
        split: torch.cat([triples, torch.stack([triples[:, 2], triples[:, 1] + relations, triples[:, 0]], 1)])
        for split, triples in splits.items()
    }
    answers: dict[tuple[int, int], set[int]] = {}
    for triples in both.values():
        for head, relation, tail in triples.tolist():
            answers.setdefault((head, relation), set()).add(tail)
    test = both["test"]
    true_answers = [torch.tensor(sorted(answers[head, relation])) for head, relation, _ in test.tolist()]
    return Queries(test[:, 0], test[:, 2], true_answers, entities, origin)
