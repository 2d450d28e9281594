"""A scorer of triples with the names of what it scores."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import Geometry


class LinkPredictor(nn.Module):
    """Scores of all entities as answers of queries (e, r, ?), where r + R seeks the head.

    geometry: of the entities, and all that belongs to them; the model has no other component. encoder: a relational
    one, called with geometry, n_entities, n_relations and sparse. entities, relations: names, from the data.
    n_relations: R, or 2R with reciprocal relations. sparse: gradients of the rows that a batch uses, for an optimiser
    with lazy=True. loop_bias: each of the n_relations has a number that is added to the scores of its self-loops, the
    triples (e, r, e); whether entities stand in a relation to themselves is then learned apart from which entities are
    close.
    """

    components = ()
    encoder_kind = "triples"

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., Scorer],
        entities: Sequence[str],
        relations: Sequence[str],
        n_relations: int,
        sparse: bool,
        loop_bias: bool = False,  # runs from before this setting have none: see tasks/settings.py
    ):
        super().__init__()
        geometry.check_components(self.components)
        self.entities, self.relations = tuple(entities), tuple(relations)
        self.reciprocal = n_relations > len(self.relations)
        self.scorer = encoder(geometry=geometry, n_entities=len(self.entities), n_relations=n_relations, sparse=sparse)
        self.manifold = self.scorer.manifold
        self.loop = nn.Parameter(torch.zeros(n_relations)) if loop_bias else None

    def forward(self, e: Tensor, r: Tensor) -> Tensor:
        """Scores (B, E) for queries e, r (B,); each query is made once, with one dropout and one batch norm."""
        scores = self._without_loops(e, r)
        if self.loop is None:
            return scores
        place = torch.arange(len(e), device=e.device), e
        return self._with_loops(scores, r if self.reciprocal else r % len(self.relations), place)

    def _without_loops(self, e: Tensor, r: Tensor) -> Tensor:
        seeks_head = r >= len(self.relations)
        if self.reciprocal or not seeks_head.any():
            return self.scorer.tails(e, r)
        if seeks_head.all():
            return self.scorer.heads(r - len(self.relations), e)
        heads, tails = seeks_head.nonzero().squeeze(-1), (~seeks_head).nonzero().squeeze(-1)
        part = self.scorer.tails(e[tails], r[tails])
        scores = part.new_empty(len(e), len(self.entities))
        scores[tails] = part
        scores[heads] = self.scorer.heads(r[heads] - len(self.relations), e[heads])
        return scores

    def shared_scores(self, h: Tensor, r: Tensor, t: Tensor, others: Tensor) -> Tensor:
        """Scores (B, K + N) of triples h, r (B,) with tails t (B, K) of their own, then with the others (N,)."""
        scores = self.scorer.with_shared(h, r, t, others)
        if self.loop is None:
            return scores
        e = h.unsqueeze(-1)
        return self._with_loops(scores, r, torch.cat([t == e, others == e], -1).nonzero(as_tuple=True))

    def negative_scores(self, h: Tensor, r: Tensor, t: Tensor, wrong: Tensor, is_head: Tensor | None = None) -> Tensor:
        """Scores (B, 1 + N) of triples (B,) and of those in which other entities stand for the tail.

        wrong: (B, N). is_head: bool (B,), true where they stand for the head; None: nowhere.
        """
        if is_head is None:
            return self._candidate_scores(self.scorer, h, r, torch.cat([t.unsqueeze(-1), wrong], -1))
        heads, tails = is_head.nonzero().squeeze(-1), (~is_head).nonzero().squeeze(-1)
        order = torch.cat([tails, heads]).argsort()
        as_tails = torch.cat([t[tails].unsqueeze(-1), wrong[tails]], -1)
        as_heads = torch.cat([h[heads].unsqueeze(-1), wrong[heads]], -1)
        parts = (
            self._candidate_scores(self.scorer, h[tails], r[tails], as_tails),
            self._candidate_scores(lambda e, r, x: self.scorer.of_heads(x, r, e), t[heads], r[heads], as_heads),
        )
        return torch.cat(parts)[order]

    def triple_scores(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Scores (B, N) of triples with heads h (B, N), relations r (B,) and tails t (B, N)."""
        heads, relations, tails = h.flatten(), r.repeat_interleave(h.shape[1]), t.flatten()
        return self._candidate_scores(self.scorer, heads, relations, tails.unsqueeze(-1)).view(h.shape)

    def _candidate_scores(self, scorer: Callable[..., Tensor], e: Tensor, r: Tensor, candidates: Tensor) -> Tensor:
        """Scores (B, N) of candidates (B, N) at the other end of e, r (B,)."""
        scores = scorer(e, r, candidates)
        if self.loop is None:
            return scores
        return self._with_loops(scores, r, (candidates == e.unsqueeze(-1)).nonzero(as_tuple=True))

    def _with_loops(self, scores: Tensor, r: Tensor, place: tuple[Tensor, ...]) -> Tensor:
        """Scores (B, N) with the biases of relations r (B,) at the places (rows, columns) of self-loops."""
        assert self.loop is not None
        biased = scores[place] + self.loop[r[place[0]]].to(scores.dtype)
        return scores.index_put(place, biased) if torch.is_grad_enabled() else scores.index_put_(place, biased)
