"""Knowledge graphs as examples: triples or queries to train on, queries in both directions to evaluate."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.base import TaskData
from tasks.batches import SPLITS, Split, TensorSplit
from tasks.errors import UserError, held_out_shares, one_of, sizes_of, toy_recipe, whole
from tasks.fingerprints import identity_of
from tasks.kg_completion.facts import Facts
from tasks.kg_completion.queries import KEYS, UNKNOWN, Query, read_queries, read_query_table
from tasks.kg_completion.toy import toy_graph
from tasks.kg_completion.triples import Graph, assemble, read_graph
from tasks.local_paths import user_path
from tasks.names import Names
from tasks.vocabularies import check_names, check_numbers

EXAMPLES = ("triples", "queries")
UNSEEN = ("keep", "drop")
NO_TARGET = -1  # of a question whose answer is not known


@dataclass(frozen=True)
class TrainQueries:
    """Training examples: queries (e, r), long (Q, 2), with all their answers."""

    pairs: Tensor
    facts: Facts

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """h, r (B,); offsets (B + 1,) and answers, see `Facts.answers`."""
        h, r = self.pairs[index].unbind(-1)
        offsets, answers = self.facts.answers(h, r)
        return {"h": h, "r": r, "offsets": offsets, "answers": answers}


@dataclass(frozen=True)
class EvaluationQueries:
    """Queries sorted by relation, so that a batch has few: e, r, target long (Q,).

    r is below R where the tail is sought, and r + R where the head is. target: NO_TARGET where it is not known.
    facts: whose answers, but the target, are no candidates. without_self: neither is e.
    """

    e: Tensor
    r: Tensor
    target: Tensor
    facts: Facts
    without_self: bool

    def __len__(self) -> int:
        return len(self.e)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """e, r, target (B,); offsets (B + 1,) and answers: those in `facts`, and e `without_self`; excluded (B,): the
        entity that is no candidate, e `without_self`, else -1."""
        e, r = self.e[index], self.r[index]
        offsets, answers = self.facts.answers(e, r)
        if self.without_self:  # e stands behind the answers of each query
            rows = torch.arange(len(e))
            order = torch.cat([rows.repeat_interleave(offsets.diff()), rows]).argsort(stable=True)
            offsets, answers = offsets + torch.arange(len(offsets)), torch.cat([answers, e])[order]
        excluded = e if self.without_self else torch.full_like(e, -1)
        targets = {"target": self.target[index], "excluded": excluded}
        return {"e": e, "r": r, "offsets": offsets, "answers": answers} | targets


class GraphData(TaskData):
    """Triples of a folder as WN18RR has them: train.txt, valid.txt, test.txt, rows `head <tab> relation <tab> tail`.

    folder, held_out, held_out_seed: see `triples.read_graph`; a folder of null generates one by the recipe `toy` (see
    `toy.toy_graph`). sizes: by split, how many triples are used, from the first; null: all. examples: what a training
    batch holds, triples, or queries with all their answers (for 1-N losses). reciprocal: every relation has a reversed
    one with parameters of its own, on which is trained too, and with which heads are sought. known: for the splits dev
    and test, the splits whose triples are no negatives. known_in_training: the splits whose triples are not drawn
    as negatives. without_self: the entity that a query names is no candidate either. unseen: keep | drop the
    queries of dev and test with an entity or relation that train does not have. The others are TaskData's.
    """

    def __init__(
        self,
        folder: str | None,
        toy: dict[str, Any] | None,
        sizes: dict[str, int | None],
        examples: str,
        reciprocal: bool,
        known: dict[str, list[str]],
        known_in_training: list[str],
        without_self: bool,
        unseen: str,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        drop_last: bool = False,  # runs from before these settings have none
        held_out: dict[str, float] | None = None,
        held_out_seed: int = 0,
    ):
        super().__init__(
            shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed, drop_last=drop_last
        )
        if folder is None and toy is None:
            raise UserError(
                "task=kg needs a folder with train.txt, valid.txt and test.txt, or one file of triples; name it with "
                "data.dir=my_graph."
            )
        self.examples = one_of("task.data.examples", examples, EXAMPLES)
        self.unseen = one_of("task.data.unseen", unseen, UNSEEN)
        for name, splits in (*((f"known.{k}", v) for k, v in known.items()), ("known_in_training", known_in_training)):
            for split in splits:
                one_of(f"task.data.{name}", split, SPLITS)
        for split in ("dev", "test"):
            if split not in known.get(split, ()):
                raise UserError(f"task.data.known.{split} needs {split} itself, or other right answers count as wrong.")
        self.held_out = {split: part for split, part in (held_out or {}).items() if part}
        self.held_out_seed = whole("task.data.held_out_seed", held_out_seed, 0)
        held_out_shares("task.data.held_out", self.held_out, "triples")
        if folder is None:
            toy = toy_recipe(toy, depth=2, branching=2, noise=0, held_out=None, seed=0)
        self.folder, self.toy, self.sizes = folder, toy, sizes_of(sizes, SPLITS)
        self.reciprocal, self.without_self = reciprocal, without_self
        self.known, self.known_in_training = known, known_in_training
        self._facts: dict[frozenset[str], Facts] = {}

    @functools.cached_property
    def graph(self) -> Graph:
        """The triples, read at first use."""
        if self.folder is not None:
            graph = read_graph(user_path(self.folder), self.held_out, self.held_out_seed)
        else:
            assert self.toy is not None
            graph = toy_graph(**self.toy)
        lines = [f"{graph}.", *graph.remarks()]
        if any(notes.unseen for notes in graph.notes.values()):
            how = {"keep": "are evaluated", "drop": "are left out"}[self.unseen]
            lines.append(f"Questions with an entity or a relation that train does not have {how} (task.data.unseen).")
        for line in lines:
            rank_zero_only(print)(line, flush=True)
        return graph

    def vocabulary(self) -> dict[str, Any]:
        """The whole graph, 12 bytes a triple: its facts are needed to leave out known answers."""
        graph = self.graph
        return {
            "name": graph.name, "entities": list(graph.entities), "relations": list(graph.relations),
            "triples": {split: triples.int() for split, triples in graph.triples.items()},
            "files": graph.files, "sha256": graph.sha256,
        }  # fmt: skip

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        entities, relations = (check_names(vocabulary[kind]) for kind in ("entities", "relations"))
        arrays = {}
        for split in SPLITS:
            triples = check_numbers(vocabulary["triples"][split], 3, max(len(entities), len(relations)))
            if len(triples) and (triples[:, ::2].max() >= len(entities) or triples[:, 1].max() >= len(relations)):
                raise ValueError("triples of other entities or relations")
            arrays[split] = triples.numpy()
        labels = (str(vocabulary["name"]), entities, relations, arrays)
        self.__dict__["graph"] = assemble(*labels, vocabulary["files"], vocabulary["sha256"])

    @property
    def n_relations(self) -> int:
        """Relations of the model: with reciprocals twice those of the graph."""
        return len(self.graph.relations) * (2 if self.reciprocal else 1)

    @property
    def model_sizes(self) -> dict[str, Any]:
        graph = self.graph
        return {
            "entities": graph.entities,
            "relations": graph.relations,
            "n_relations": self.n_relations,
            "graph": graph,
            "known_in_training": self.facts(self.known_in_training),
            "known_triples": self.facts(SPLITS),
        }

    @property
    def identity(self) -> dict[str, str]:
        return {"entities": identity_of(self.graph.entities), "relations": identity_of(self.graph.relations)}

    def facts(self, splits: Iterable[str]) -> Facts:
        """The true triples of some splits, in both directions."""
        key = frozenset(splits)
        if key not in self._facts:
            graph = self.graph
            triples = torch.cat([graph.triples[s] for s in SPLITS if s in key] or [torch.empty(0, 3, dtype=torch.long)])
            self._facts[key] = Facts(triples, len(graph.entities), len(graph.relations))
        return self._facts[key]

    def load(self) -> dict[str, Split]:
        return {"train": self._train(), **{split: self._evaluation(split) for split in ("dev", "test")}}

    def _triples(self, split: str) -> Tensor:
        triples = self.graph.triples[split][: self.sizes.get(split)]
        if split != "train" and self.unseen == "drop":
            triples = triples[~self.graph.unseen(split)[: len(triples)]]
            if not len(triples):
                raise UserError(
                    f"All triples of {split} have an entity or a relation that train does not have; take "
                    "task.data.unseen=keep."
                )
        return triples

    def _both_directions(self, triples: Tensor) -> Tensor:
        """The triples, and (t, r + R, h) of each."""
        h, r, t = triples.unbind(-1)
        return torch.cat([triples, torch.stack([t, r + len(self.graph.relations), h], -1)])

    def _train(self) -> TensorSplit | TrainQueries:
        triples = self._triples("train")
        if self.examples == "triples":
            triples = self._both_directions(triples) if self.reciprocal else triples
            return TensorSplit(dict(zip("hrt", triples.T.contiguous(), strict=True)))
        facts = Facts(triples, len(self.graph.entities), len(self.graph.relations))
        pairs = facts.queries()
        return TrainQueries(pairs if self.reciprocal else pairs[pairs[:, 1] < len(self.graph.relations)], facts)

    def _evaluation(self, split: str) -> EvaluationQueries:
        triples = self._both_directions(self._triples(split))
        e, r, target = triples[triples[:, 1].argsort(stable=True)].unbind(-1)
        return EvaluationQueries(e, r, target, self.facts(self.known[split]), self.without_self)

    def fingerprint(self) -> dict[str, Any]:
        graph = self.graph
        counts = {s: {"triples": len(self._triples(s)), "unseen": graph.notes[s].unseen} for s in SPLITS}
        counts["train"] |= {"entities": len(graph.entities), "relations": len(graph.relations)}
        return {"files": dict(graph.files), "counts": counts, "sha256": dict(graph.sha256)}

    @property
    def input_keys(self) -> tuple[str, ...]:
        return KEYS

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Query]:
        yield from read_queries(lines, name, *self._names())

    def read_table(self, path: Path) -> Iterator[tuple[Query, dict[str, str]]] | None:
        return read_query_table(path, *self._names())

    def _names(self) -> tuple[Names, Names]:
        graph = self.graph
        return Names(graph.entities, "entity", graph.name), Names(graph.relations, "relation", graph.name)

    def encode(self, inputs: Sequence[Query]) -> Split:
        e = torch.tensor([query.e for query in inputs])
        r = torch.tensor([query.r + len(self.graph.relations) * query.seeks_head for query in inputs])
        target = torch.tensor([NO_TARGET if query.target is None else query.target for query in inputs])
        from_test = all(query.target is not None and not query.is_triple for query in inputs)
        facts = self.facts(self.known["test"] if from_test else SPLITS)
        return EvaluationQueries(e, r, target, facts, self.without_self)

    def test_inputs(self) -> Iterator[tuple[Query, dict[str, Any]]]:
        """Both questions of each triple, which also say the "rank" of the right answer."""
        names, relations = self.graph.entities, self.graph.relations
        for h, r, t in self._triples("test").tolist():
            yield Query(names[h], relations[r], UNKNOWN, h, r, False, t), {"gold": names[t]}
            yield Query(UNKNOWN, relations[r], names[t], t, r, True, h), {"gold": names[h]}

    def describe(self, example: Query) -> dict[str, Any]:
        """The question; "unseen": the names in it that train does not have, if there are some."""
        graph, (entities, relations) = self.graph, self.graph.in_train
        unseen = [] if entities[example.e] else [graph.entities[example.e]]
        unseen += [] if relations[example.r] else [graph.relations[example.r]]
        if example.is_triple and not entities[example.target]:
            unseen.append(example.tail)
        question = {"head": example.head, "relation": example.relation, "tail": example.tail}
        return question | ({"unseen": unseen} if unseen else {})
