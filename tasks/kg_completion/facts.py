"""True triples as sorted numbers: which answers a query has, and which triples are true, without sets of tuples."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from tasks.batches import Share
from tasks.errors import UserError
from tasks.ragged import ranges

ROUNDS = 100  # so often a negative is drawn that is true


class Facts:
    """The answers of queries (e, r, ?), also in the other direction: (e, r + R, ?) asks for the heads of (?, r, e).

    A fact is the number ``(e 2R + r) E + answer``; all are kept sorted, 16 bytes a triple.

    Args:
        triples: long (N, 3) of head, relation, tail. n_entities, n_relations: E and R, reciprocals not counted.

    Raises UserError where the numbers would not fit into 63 bits.
    """

    def __init__(self, triples: Tensor, n_entities: int, n_relations: int):
        self.n_entities, self.n_relations = n_entities, n_relations
        if 2 * n_relations * n_entities**2 >= 1 << 63:
            raise UserError(
                f"A graph of {n_entities:,} entities and {n_relations:,} relations is too large: 2 R E^2 must be below "
                "2^63."
            )
        h, r, t = triples.unbind(-1)
        codes = torch.cat([self._code(h, r, t), self._code(t, r + n_relations, h)])
        self.codes = torch.unique(codes, sorted=True)

    def __len__(self) -> int:
        """Facts in both directions."""
        return len(self.codes)

    def to(self, device: torch.device) -> Facts:
        """The same facts on a device; these ones stay where they are, for the data that read them."""
        if self.codes.device == device:
            return self
        result = copy.copy(self)
        result.codes = self.codes.to(device)
        return result

    def _code(self, e: Tensor, r: Tensor, answer: Tensor) -> Tensor:
        return (e * (2 * self.n_relations) + r) * self.n_entities + answer

    def contain(self, e: Tensor, r: Tensor, answer: Tensor) -> Tensor:
        """Whether (e, r, answer) is a fact; the three broadcast."""
        code = self._code(e, r, answer)
        if not len(self.codes):
            return torch.zeros_like(code, dtype=torch.bool)
        place = torch.searchsorted(self.codes, code).clamp_max_(len(self.codes) - 1)
        return self.codes[place] == code

    def _places(self, e: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """Where the codes of the facts of B queries start and stop."""
        first = self._code(e, r, torch.zeros_like(e))
        return torch.searchsorted(self.codes, first), torch.searchsorted(self.codes, first + self.n_entities)

    def count(self, e: Tensor, r: Tensor) -> Tensor:
        """How many answers each of B queries has, long (B,)."""
        start, stop = self._places(e, r)
        return stop - start

    def answers(self, e: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """Answers of B queries, as (offsets, entities): query i has ``entities[offsets[i]:offsets[i + 1]]``, sorted."""
        start, stop = self._places(e, r)
        counts = stop - start
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return offsets, self.codes[ranges(start, counts)[1]] % self.n_entities

    def queries(self) -> Tensor:
        """All (e, r) that have answers, long (Q, 2), r up to 2R."""
        pairs = torch.unique_consecutive(self.codes.div(self.n_entities, rounding_mode="floor"))
        return torch.stack([pairs.div(2 * self.n_relations, rounding_mode="floor"), pairs % (2 * self.n_relations)], -1)


def corrupt(
    e: Tensor,
    r: Tensor,
    n: int,
    facts: Facts,
    self_share: float = 0.0,
    draws: torch.Generator | None = None,
    share: Share | None = None,
) -> Tensor:
    """Wrong answers (B, n) of the queries (e, r) (B,): uniform over the entities, with replacement, none in `facts`.
    Where e is (B, n), each of them has an entity of its own in its query.

    self_share: the share of queries whose first one is e itself, where that is wrong. What is true is drawn anew, up to
    ROUNDS times; only a query that nearly every entity answers can keep a true one. draws: None for PyTorch's own.
    share: of the whole batch, with whose other queries further processes call this; None: the queries are all of it.
    The numbers are drawn for the whole batch, but looked up in `facts` for the share alone.
    """
    share = share or Share(0, (len(e),))
    options: dict[str, Any] = {"device": e.device, "generator": draws}
    entities = torch.randint(facts.n_entities, (share.total, n), **options)[share.place]
    if self_share:
        has_self = torch.rand(share.total, **options)[share.place] < self_share
        entities[:, 0] = torch.where(has_self, e, entities[:, 0])
    e = (e if e.dim() == 2 else e.unsqueeze(-1)).expand(-1, n).flatten()
    r = r.repeat_interleave(n)
    place = facts.contain(e, r, entities.flatten()).nonzero().squeeze(-1)
    flat = entities.view(-1)
    for _ in range(ROUNDS):
        start, total = share.among(place)
        if not total:
            break
        flat[place] = torch.randint(facts.n_entities, (total,), **options)[start : start + len(place)]
        place = place[facts.contain(e[place], r[place], flat[place])]
    return entities


def answers_among(e: Tensor, r: Tensor, entities: Tensor, facts: Facts) -> tuple[Tensor, Tensor]:
    """Which of the distinct entities (N,) answer the queries (e, r) (B,): the rows of the queries, and the columns."""
    place = entities.new_full((facts.n_entities,), -1)
    place[entities] = torch.arange(len(entities), device=entities.device)
    offsets, answers = facts.answers(e, r)
    column = place[answers]
    row = torch.arange(len(e), device=e.device).repeat_interleave(offsets.diff())
    return row[column >= 0], column[column >= 0]
