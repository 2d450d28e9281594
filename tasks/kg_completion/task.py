"""Training on triples and negatives, filtered ranks, and answers to questions."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from hyperbolic.encoders.relational.batch_norm import uncounted_rows
from tasks.base import NamedPoints, Points, Step, Task, TaskData
from tasks.errors import UserError
from tasks.folders import write_table
from tasks.kg_completion import losses
from tasks.kg_completion.categories import categories
from tasks.kg_completion.data import GraphData
from tasks.kg_completion.facts import Facts, answers_among, corrupt
from tasks.kg_completion.model import LinkPredictor
from tasks.kg_completion.options import TIES, LinkPredictionOptions
from tasks.kg_completion.triples import Graph
from tasks.metrics import filtered_rank_bounds
from tasks.outputs import rounded

CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
AT = (1, 3, 10)
BLOCK = 1 << 25  # scores that are in memory at once: 128 MB in float32
SCORES = ("mean_rank", "mrr", *(f"hits@{k}" for k in AT))


class LinkPredictionTask(Task):
    """Which entity answers (h, r, ?) and (?, r, t)? Filtered ranks of the right ones (Bordes et al. 2013).

    Metrics are means over the queries of both directions: mean_rank, mrr, hits@1, hits@3, hits@10; of those for tails
    and heads apart (tail/mrr), by the kind of the relation (1-N/mrr), and with other ties (optimistic/mrr). Entities
    with the same score as the right one count half in a realistic rank (its mean over all orders), not at all in an
    optimistic one, wholly in a pessimistic one. `export` writes the scores of each relation and direction.

    graph, known_in_training, known_triples: from the data: the graph, the triples that are not drawn as negatives,
    and all of them. lazy: the optimiser moves only rows with a gradient. options: the fields of
    `LinkPredictionOptions`. The others are Task's.
    """

    learns_from = GraphData
    Options = LinkPredictionOptions
    metric_names = (
        *SCORES,
        *(f"{at}/{score}" for at in ("tail", "head", *CATEGORIES, *TIES) for score in SCORES),
    )
    model: LinkPredictor

    def __init__(
        self,
        model: LinkPredictor,
        optimizer: Callable[..., Optimizer],
        graph: Graph,
        known_in_training: Facts,
        known_triples: Facts,
        lazy: bool,
        select: str,
        select_mode: str,
        **options: Any,
    ):
        super().__init__(model, functools.partial(optimizer, lazy=lazy), select, select_mode)
        self.options = LinkPredictionOptions(**options)
        if self.options.corrupt == "both" and model.reciprocal:
            raise UserError(
                "task.module.corrupt=both is for data without reciprocal relations; add task.data.reciprocal=false, or "
                "take corrupt=tails, which with reciprocals are of both directions."
            )
        self.known_in_training, self.known_triples = known_in_training, known_triples
        self.n = len(model.relations)
        self.categories = categories(graph.triples["train"], self.n)
        self.in_train = graph.in_train[0]
        self.trained = Facts(graph.triples["train"], len(graph.entities), self.n)
        self.by_relation: Tensor | None = None  # of the newest evaluation

    def step(self, batch: dict[str, Tensor]) -> Step:
        if not self.training:
            return self._evaluation(batch)
        stands_in = self.share is not None and not self.share.size  # this process has none of the batch's examples
        with uncounted_rows() if stands_in else nullcontext():
            return self._training(batch)

    def _training(self, batch: dict[str, Tensor]) -> Step:
        h, r = batch["h"], batch["r"]
        if ("t" in batch) == (self.options.objective == "all_bce"):
            needed = "queries" if self.options.objective == "all_bce" else "triples"
            raise UserError(f"task.module.objective={self.options.objective} needs task.data.examples={needed}.")
        weights = self._weights(h, r, batch["t"]) if self.options.subsampling else None
        if self.options.objective == "all_bce":
            rows = torch.arange(len(h), device=h.device)
            rows = rows.repeat_interleave(batch["offsets"].diff(), output_size=len(batch["answers"]))
            loss = losses.all_bce(self.model(h, r), rows, batch["answers"], self.options.smoothing)
        elif (negatives := self.options.negatives) is None:
            loss = losses.mean(F.cross_entropy(self.model(h, r), batch["t"], reduction="none"), weights)
        else:
            loss = self._negative_loss(self._negative_scores(h, r, batch["t"], negatives), negatives, weights)
        weight = len(h) if weights is None else float(weights.sum())
        sums = {"examples": len(h), "weight": weight, "weighted_loss": loss.detach() * weight}
        if self.options.regulariser:
            factors = self.model.scorer.factors(h, r, batch["t"])
            loss = loss + self.options.regulariser * losses.power(factors, self.options.exponent, weights)
        return Step(loss, sums, None if weights is None else weight)

    def _weights(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """RotatE's weights (B,) of triples, see `LinkPredictionOptions`."""
        self.trained = trained = self.trained.to(h.device)
        return (trained.count(h, r) + trained.count(t, (r + self.n) % (2 * self.n)) + 6).double().rsqrt()

    def _negative_loss(self, scores: Tensor, negatives: int, weights: Tensor | None) -> Tensor:
        """Of scores (B, 1 + N), the true answer first; weights (B,) of the triples, None: all weigh the same."""
        if self.options.objective == "cross_entropy":
            right = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
            return losses.mean(F.cross_entropy(scores, right, reduction="none"), weights)
        if self.options.objective == "self_adversarial":
            return losses.self_adversarial(scores, self.options.temperature, weights)
        return losses.negative_bce(scores, negatives, weights)

    def _negative_scores(self, h: Tensor, r: Tensor, t: Tensor, negatives: int) -> Tensor:
        """Scores (B, 1 + N), the true answer first; with self_share and a pool (B, 2 + N), then the query's entity."""
        self.known_in_training = facts = self.known_in_training.to(h.device)
        if self.options.pool is not None:
            return self._pooled_scores(h, r, t, facts, self.options.pool)
        if self.options.double_neg:
            size = (self._examples(h), negatives)
            heads = self.own(torch.randint(facts.n_entities, size, device=h.device, generator=self.draws))
            tails = corrupt(heads, r, negatives, facts, draws=self.draws, share=self.share)
            return self.model.triple_scores(torch.cat([h[:, None], heads], 1), r, torch.cat([t[:, None], tails], 1))
        is_head = None
        if self.options.corrupt == "tails":
            e, query = h, r
        else:
            is_head = self.own(torch.arange(self._examples(h), device=h.device) % 2 == 1)
            e, query = torch.where(is_head, t, h), r + self.n * is_head
        wrong = corrupt(e, query, negatives, facts, self.options.self_share, draws=self.draws, share=self.share)
        return self.model.negative_scores(h, r, t, wrong, is_head)

    def _examples(self, h: Tensor) -> int:
        """Of the whole batch, of which this process has the heads h."""
        return len(h) if self.share is None else self.share.total

    def _pooled_scores(self, h: Tensor, r: Tensor, t: Tensor, facts: Facts, pool: int) -> Tensor:
        wrong = torch.unique(torch.randint(facts.n_entities, (pool,), device=h.device, generator=self.draws))
        tails = torch.stack([t, h], -1) if self.options.self_share else t.unsqueeze(-1)
        scores = self.model.shared_scores(h, r, tails, wrong)
        with torch.no_grad():  # losses have no gradient there
            row, column = answers_among(h, r, wrong, facts)
            scores[row, tails.shape[1] + column] = losses.EXCLUDED
            if self.options.self_share:
                numbers = self.own(torch.rand(self._examples(h), device=h.device, generator=self.draws))
                without_self = numbers >= self.options.self_share
                scores[without_self | facts.contain(h, r, h), 1] = losses.EXCLUDED
        return scores

    def _evaluation(self, batch: dict[str, Tensor]) -> Step:
        parts = (_ranks(scores, batch["target"][some], answers) for some, scores, answers in self._score(batch))
        columns = torch.cat([_columns(ranks) for ranks in parts])
        by_relation = columns.new_zeros(2 * self.n, columns.shape[1]).index_add_(0, batch["r"], columns)
        return Step(columns.new_zeros(()), {"examples": len(columns), "ranks": by_relation})

    def _score(self, batch: dict[str, Tensor]) -> Iterator[tuple[slice, Tensor, tuple[Tensor, Tensor]]]:
        """As many of the queries of a batch at a time as BLOCK allows: which they are, their scores (b, E), and their
        known answers, as (offsets, entities)."""
        for start in range(0, len(batch["e"]), size := max(1, BLOCK // len(self.model.entities))):
            some = slice(start, start + size)
            offsets = batch["offsets"][start : start + size + 1]
            with torch.autocast(offsets.device.type, enabled=False):  # scores in half precision would tie
                scores = self.model(batch["e"][some], batch["r"][some])
            yield some, scores, (offsets - offsets[0], batch["answers"][int(offsets[0]) : int(offsets[-1])])

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        if "ranks" not in sums:
            return {"loss": sums["weighted_loss"] / sums["weight"]}
        self.by_relation = ranks = sums["ranks"]
        parts = {"": ranks, "tail/": ranks[: self.n], "head/": ranks[self.n :]}
        for name in CATEGORIES:
            place = torch.tensor([k for k, kind in enumerate(self.categories) if kind == name], dtype=torch.long)
            if len(place):
                parts[f"{name}/"] = torch.cat([ranks[place], ranks[place + self.n]])
        metrics: dict[str, float] = {}
        for at, part in parts.items():
            if part[:, 0].sum():
                metrics |= {at + score: value for score, value in _scores(part.sum(0), self.options.ties).items()}
        for ties in TIES:
            metrics |= {f"{ties}/{score}": value for score, value in _scores(ranks.sum(0), ties).items()}
        return metrics

    def export(self, folder: Path) -> dict[str, Path]:
        """Write relations.csv: for each relation and direction its kind, how many queries it has, and their scores."""
        if self.by_relation is None:
            return {}
        rows = []
        for k, row in enumerate(self.by_relation):
            if row[0]:
                name, kind = self.model.relations[k % self.n], self.categories[k % self.n]
                scores = _scores(row, self.options.ties).values()
                rows.append([name, kind, "tail" if k < self.n else "head", int(row[0]), *(f"{v:.6g}" for v in scores)])
        header = ["relation", "category", "sought", "queries", *SCORES]
        return {"relations": write_table(folder / "relations.csv", header, rows)}

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """Entities, and relations where the model has points for them: those of a relation's reciprocal are named
        `<relation>^-1`."""
        model, names = self.model, self.model.relations
        points = {"entities": NamedPoints(model.entities, *model.scorer.points())}
        if relations := model.scorer.relation_points():
            names += tuple(f"{name}^-1" for name in names) if model.reciprocal else ()
            points["relations"] = NamedPoints(names, *relations)
        return points

    def predict(self, batch: dict[str, Tensor]) -> list[dict[str, Any]]:
        """{"answers": [{"entity": name, "score": s}, ...]} of each question, the likeliest first; with hide_known=false
        each says, too, whether it is "known". One that train does not have says "unseen": true. Where the right answer
        is known, it is among them even so, and its "score" and its filtered "rank" are said."""
        predictions = []
        self.known_triples = self.known_triples.to(batch["e"].device)
        for some, scores, answers in self._score(batch):
            e, r, target, excluded = (batch[key][some] for key in ("e", "r", "target", "excluded"))
            has_target = target >= 0
            places = target.clamp_min(0)  # of a question without one, whose rank and score are not said
            ranks = _ranks(scores, places, answers)[self.options.ties].tolist() if has_target.any() else [0.0] * len(e)
            right = scores.gather(1, places.unsqueeze(1)).squeeze(1)
            if self.options.hide_known:
                row = torch.arange(len(e), device=e.device).repeat_interleave(answers[0].diff())
                scores[row, answers[1]] = -torch.inf
            rows = (excluded >= 0).nonzero().squeeze(1)
            scores[rows, excluded[rows]] = -torch.inf
            rows = has_target.nonzero().squeeze(1)
            scores[rows, target[rows]] = right[rows]
            best, place = scores.topk(min(self.options.top_k, scores.shape[1]), -1)
            is_known = self.known_triples.contain(e.unsqueeze(-1), r.unsqueeze(-1), place)
            own = zip(has_target.tolist(), ranks, right.tolist(), strict=True)
            for (has, rank, score), *columns in zip(own, best.tolist(), place.tolist(), is_known.tolist(), strict=True):
                answer: dict[str, Any] = {"rank": rank, "score": rounded(score)} if has else {}
                predictions.append(answer | {"answers": list(self._answers(zip(*columns, strict=True)))})
        return predictions

    def _answers(self, candidates: Iterable[tuple[float, int, bool]]) -> Iterable[dict[str, Any]]:
        for score, entity, is_known in candidates:
            if score != -float("inf"):
                answer = {"entity": self.model.entities[entity], "score": rounded(score)}
                answer |= {} if self.options.hide_known else {"known": is_known}
                yield answer if self.in_train[entity] else answer | {"unseen": True}

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        manifold, table = self.model.scorer.points()
        return {"entities": Points(manifold, table[batch["h" if "h" in batch else "e"]])}


def _ranks(scores: Tensor, target: Tensor, answers: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """The filtered rank (B,) of each target in float64, by each of TIES."""
    optimistic, pessimistic = (rank.double() for rank in filtered_rank_bounds(scores, target, answers))
    return {"realistic": (optimistic + pessimistic) / 2, "optimistic": optimistic, "pessimistic": pessimistic}


def _columns(ranks: dict[str, Tensor]) -> Tensor:
    """Of each query (B, 1 + 3 * len(SCORES)): 1, and for each of TIES what `_scores` takes the means of."""
    columns = [torch.ones_like(ranks["realistic"])]
    for rank in (ranks[ties] for ties in TIES):
        columns += [rank, 1 / rank, *((rank <= k).double() for k in AT)]
    return torch.stack(columns, -1)


def _scores(row: Tensor, ties: str) -> dict[str, float]:
    """SCORES from the sum of `_columns`."""
    first = 1 + TIES.index(ties) * len(SCORES)
    return dict(zip(SCORES, (row[first : first + len(SCORES)] / row[0]).tolist(), strict=True))
