"""A scorer of triples with the names of what it scores."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import Geometry

BLOCK = 1 << 25  # scores of entities that are made at once: 128 MB in float32


class LinkPredictor(nn.Module):
    """Scores of all entities as answers of queries (e, r, ?), where r + R asks for heads.

    geometry: of the entities, and all that belongs to them; the model has no other component. encoder: a relational
    one, called with geometry, n_entities, n_relations and sparse. entities, relations: names, from the data.
    n_relations: R, or 2R with reciprocal relations. sparse: gradients of the rows that a batch uses, for an optimiser
    with lazy=True.
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
    ):
        super().__init__()
        geometry.check_components(self.components)
        self.entities, self.relations, self.sparse = tuple(entities), tuple(relations), sparse
        self.reciprocal = n_relations > len(self.relations)
        self.scorer = encoder(geometry=geometry, n_entities=len(self.entities), n_relations=n_relations, sparse=sparse)
        self.manifold = self.scorer.manifold

    def forward(self, e: Tensor, r: Tensor) -> Tensor:
        """Scores (B, E) for queries e, r (B,)."""
        n = len(self.entities)
        step = max(1, BLOCK // max(len(e), 1))
        if n <= step:
            return self._block(e, r, 0, n)
        scores = None
        for start in range(0, n, step):
            part = self._block(e, r, start, min(start + step, n))
            scores = part.new_empty(len(e), n) if scores is None else scores
            scores[:, start : start + part.shape[1]] = part
        return scores

    def _block(self, e: Tensor, r: Tensor, start: int, stop: int) -> Tensor:
        of_heads = r >= len(self.relations)
        if self.reciprocal or not of_heads.any():
            return self.scorer.tails(e, r, start, stop)
        if of_heads.all():
            return self.scorer.heads(r - len(self.relations), e, start, stop)
        heads, tails = of_heads.nonzero().squeeze(-1), (~of_heads).nonzero().squeeze(-1)
        part = self.scorer.tails(e[tails], r[tails], start, stop)
        scores = part.new_empty(len(e), stop - start)
        scores[tails] = part
        scores[heads] = self.scorer.heads(r[heads] - len(self.relations), e[heads], start, stop)
        return scores

    def negative_scores(self, h: Tensor, r: Tensor, t: Tensor, wrong: Tensor, of_heads: Tensor | None = None) -> Tensor:
        """Scores (B, 1 + N) of triples (B,) and of those in which other entities stand for the tail.

        wrong: (B, N). of_heads: bool (B,), true where they stand for the head; None: nowhere.
        """
        if of_heads is None:
            return self.scorer(h, r, torch.cat([t.unsqueeze(-1), wrong], -1))
        heads, tails = of_heads.nonzero().squeeze(-1), (~of_heads).nonzero().squeeze(-1)
        order = torch.cat([tails, heads]).argsort()
        parts = (
            self.scorer(h[tails], r[tails], torch.cat([t[tails].unsqueeze(-1), wrong[tails]], -1)),
            self.scorer.of_heads(torch.cat([h[heads].unsqueeze(-1), wrong[heads]], -1), r[heads], t[heads]),
        )
        return torch.cat(parts)[order]
