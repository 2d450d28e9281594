"""What all models of knowledge graphs share: scores of triples, of many tails or heads at once, and of all entities."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hyperbolic import autocast
from hyperbolic.geometry import Geometry
from hyperbolic.kernels.relation_linear import by_relation
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.manifolds import Manifold
from hyperbolic.switch import is_followed


def leaves_autocast(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method of a scorer that computes in the points' dtype whatever autocast says, where its geometry is curved."""
    of_points = autocast.leaves_autocast(method)

    @functools.wraps(method)
    def run(self: Scorer, index: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return (of_points if self.manifold.is_curved else method)(self, index, *args, **kwargs)

    return run


class Table(nn.Embedding):
    """A table of vectors whose gradient is quick on a CPU."""

    def forward(self, index: Tensor) -> Tensor:
        return table_rows(self.weight, index, self.sparse)


class Scorer(nn.Module, abc.ABC):
    """Scores ``f(h, r, t)`` of triples (head, relation, tail); the likelier, the higher.

    A model says how ``(h, r)`` becomes a query, and how queries are compared with tails; the rest follows. A query is
    whatever a model likes: one tensor, or a tuple of them.

    Args:
        geometry: of the entities. n_entities, n_relations: sizes of the tables; where data have reciprocal relations,
            they are counted as relations.
        sparse: gradients of the rows used only, for an optimiser with ``lazy=True``.
    """

    kind = "triples"  # what an encoder reads; the others read sequences

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool):
        super().__init__()
        for name, value in (("n_entities", n_entities), ("n_relations", n_relations)):
            if value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be at least 1, got {value}")
        self.manifold = geometry.manifold
        self.n_entities, self.n_relations, self.sparse = n_entities, n_relations, sparse

    @abc.abstractmethod
    def query(self, h: Tensor, r: Tensor) -> Any:
        """What the tails of (h, r, ?) are compared with; h, r long (B,)."""

    @abc.abstractmethod
    def compare(self, query: Any, r: Tensor, t: Tensor) -> Tensor:
        """Scores (B, N) of B queries with N tails each, t long (B, N); r (B,) as it was for the queries."""

    @abc.abstractmethod
    def compare_all(self, query: Any, r: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores (B, N) of B queries with the same N entities each: those of a slice, or of an index (N,)."""

    @abc.abstractmethod
    def points(self) -> tuple[Manifold, Tensor]:
        """The entities as points (n_entities, D) of a manifold, to be looked at."""

    @abc.abstractmethod
    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        """Of triples (B,), the rows (B, ...) of parameters that a regulariser keeps small."""

    def relation_points(self) -> tuple[Manifold, Tensor] | None:
        """The relations as points (n_relations, D) of a manifold, to be looked at: what moves or scales the entities;
        None for models whose relations are no points, as matrices or rotations."""
        return None

    def head_query(self, t: Tensor, r: Tensor) -> Any:
        """A query that, compared with an entity h, gives f(h, r, t); None for models that have none."""
        return None

    @leaves_autocast
    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Scores of h (B,), r (B,) and tails t: (B,) -> (B,), or (B, N) -> (B, N)."""
        if t.dim() == 1:
            return self.compare(self.query(h, r), r, t.unsqueeze(-1)).squeeze(-1)
        return self.compare(self.query(h, r), r, t)

    @leaves_autocast
    def of_heads(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Scores (B, N) of heads h (B, N) given r (B,) and t (B,)."""
        query = self.head_query(t, r)
        if query is not None:
            return self.compare(query, r, h)
        n = h.shape[1]
        result: Tensor = self(h.flatten(), r.repeat_interleave(n), t.repeat_interleave(n)).view(h.shape)
        return result

    @leaves_autocast
    def tails(self, h: Tensor, r: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Scores (B, stop - start) of the entities as tails of (h, r, ?)."""
        return self.compare_all(self.query(h, r), r, slice(start, self.n_entities if stop is None else stop))

    @leaves_autocast
    def with_shared(self, h: Tensor, r: Tensor, t: Tensor, others: Tensor) -> Tensor:
        """Scores (B, K + N) of h, r (B,) with tails t (B, K) of their own, then with the others (N,) that all share.

        Raises:
            ValueError: t has another number of dimensions.
        """
        if t.dim() != 2:
            raise ValueError(f"{type(self).__name__}: with_shared takes tails (B, K), got {tuple(t.shape)}")
        query = self.query(h, r)
        return torch.cat([self.compare(query, r, t), self.compare_all(query, r, others)], -1)

    def compare_each(self, query: Any, r: Tensor, rows: slice | Tensor) -> Tensor:
        """As :meth:`compare_all`, with rows (B, N, d): for traced code, which cannot group queries by relation."""
        index = torch.arange(self.n_entities, device=r.device)[rows] if isinstance(rows, slice) else rows
        return self.compare(query, r, index.expand(r.shape[0], -1))

    def rows_of(self, table: Tensor, rows: slice | Tensor) -> Tensor:
        """Rows of a table, of a slice or of an index."""
        return table[rows] if isinstance(rows, slice) else table_rows(table, rows, self.sparse)

    @leaves_autocast
    def heads(self, r: Tensor, t: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Scores (B, stop - start) of the entities as heads of (?, r, t).

        Without :meth:`head_query` a query is made for each entity and relation of the batch; in traced code, which
        cannot group a batch by relation, for each entity and row: (B, stop - start, d) numbers.
        """
        stop = self.n_entities if stop is None else stop
        query = self.head_query(t, r)
        if query is not None:
            return self.compare_all(query, r, slice(start, stop))
        candidates = torch.arange(start, stop, device=t.device)
        if is_followed(t, r):
            return self.of_heads(candidates.expand(t.shape[0], -1), r, t)
        scores = torch.empty(0, len(candidates), device=t.device)
        for relation, rows in by_relation(r):
            relations = torch.full_like(candidates, relation)
            part = self.compare_all(self.query(candidates, relations), relations, t[rows]).T
            scores = scores if scores.numel() else part.new_empty(len(t), len(candidates))
            scores[rows] = part
        return scores


__all__ = ["Scorer", "Table"]
