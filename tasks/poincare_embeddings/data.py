"""A hierarchy as pairs to learn from: WordNet's nouns, or any list of edges."""

import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.base import TaskData
from tasks.batches import SPLITS, Split, TensorSplit
from tasks.edges import FIELDS, Edges, check_cycles, closure
from tasks.errors import sizes_of, toy_recipe, whole
from tasks.fingerprints import identity_of
from tasks.hierarchies import Hierarchy
from tasks.names import Names, pairs_of
from tasks.node_queries import Ends, read_query_table
from tasks.poincare_embeddings.pairs import Ancestors
from tasks.rows import read_examples

FORMS = "a node, or `node <tab> node above it`"


class HierarchyData(TaskData):
    """All pairs of a node and an ancestor; all are trained on, and it is tested how near the ancestors of a node are.

    wordnet, file, toy: see `hierarchies.Hierarchy`. closure: pairs over several edges, too; false: the edges alone.
    eval_nodes: so many nodes, drawn with eval_seed, are measured during training; at the end all are. sizes:
    {train: n}, the first n pairs only; null: all. The others are TaskData's.
    """

    def __init__(
        self,
        wordnet: str | None,
        file: str | None,
        toy: dict[str, int] | None,
        closure: bool,
        eval_nodes: int,
        eval_seed: int,
        sizes: dict[str, int | None],
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        self.eval_nodes = whole("task.data.eval_nodes", eval_nodes, 1)
        self.eval_seed = whole("task.data.eval_seed", eval_seed, 0)
        self.limit = sizes_of(sizes, ("train",))["train"]
        if toy is not None:
            toy_recipe(toy, depth=1, branching=1)
        self.hierarchy, self.closure = Hierarchy(wordnet, file, toy), closure

    @property
    def edges(self) -> Edges:
        return self.hierarchy.edges

    @functools.cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """children and parents, int32 (M,), sorted by child. Raises UserError where there are too many."""
        edges = self.edges
        if self.closure:
            check_cycles(edges)
            return closure(edges.child, edges.parent, len(edges.names))
        order = np.lexsort((edges.parent, edges.child))
        return edges.child[order], edges.parent[order]

    @property
    def ancestors(self) -> Ancestors:
        child, parent = self.pairs
        offsets = np.searchsorted(child, np.arange(len(self.edges.names) + 1))
        return Ancestors(torch.from_numpy(offsets), torch.from_numpy(parent.astype(np.int64)))

    def vocabulary(self) -> dict[str, Any]:
        """The whole hierarchy: is-a scores name what is known."""
        return self.hierarchy.kept()

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        self.hierarchy.adopt(vocabulary)

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"edges": self.edges, "ancestors": self.ancestors, "source": self.hierarchy.source}

    @property
    def identity(self) -> dict[str, str]:
        return {"names": identity_of(self.edges.names)}

    @functools.cached_property
    def node_names(self) -> Names:
        return Names(self.edges.names, "node", self.edges.source)

    @property
    def input_keys(self) -> tuple[str, ...]:
        return ("node", "above")

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Ends]:
        """Nodes, of which the nearest ones are asked for, and pairs of a node and one that may be above it."""
        return read_examples(lines, name, self.node_names.ends_of, "nodes", f"Each line is {FORMS}", self.input_keys)

    def read_table(self, path: Path) -> Iterator[tuple[Ends, dict[str, str]]] | None:
        return read_query_table(path, self.node_names, FIELDS, FORMS)

    def encode(self, inputs: Sequence[Ends]) -> Split:
        """others: NO_NAME where nearest nodes are asked for."""
        pairs = pairs_of(inputs)
        return TensorSplit({"nodes": pairs[:, 0], "others": pairs[:, 1]})

    def describe(self, example: Ends) -> dict[str, Any]:
        return self.node_names.named(example, self.input_keys)

    def test_inputs(self) -> Iterator[tuple[Ends, dict[str, Any]]]:
        """Every node that has others above it; gold: these."""
        (child, parent), names = self.pairs, self.edges.names
        nodes, starts = np.unique(child, return_index=True)
        for node, above in zip(nodes.tolist(), np.split(parent, starts[1:]), strict=True):
            yield (node,), {"gold": [names[k] for k in above]}

    def load(self) -> dict[str, Split]:
        child, parent = self.pairs
        pairs = {"children": child, "parents": parent}
        nodes = torch.from_numpy(np.unique(child).astype(np.int64))
        sample = np.random.default_rng(self.eval_seed).permutation(len(nodes))[: self.eval_nodes]
        return {
            "train": TensorSplit({name: torch.from_numpy(ends[: self.limit]) for name, ends in pairs.items()}),
            "dev": TensorSplit({"nodes": nodes[torch.from_numpy(np.sort(sample))]}),
            "test": TensorSplit({"nodes": nodes}),
        }

    def fingerprint(self) -> dict[str, Any]:
        edges, (child, parent) = self.edges, self.pairs
        digest = hashlib.sha256(np.ascontiguousarray(np.stack([child, parent]), dtype="<i4").tobytes())
        digest.update("\n".join(edges.names).encode())
        counts = {"nodes": len(edges.names), "edges": len(edges.child), "pairs": len(child[: self.limit])}
        splits = self.splits()
        return {
            "files": dict.fromkeys(SPLITS, edges.source),
            "counts": {"train": counts, **{name: {"nodes": len(splits[name])} for name in ("dev", "test")}},
            "sha256": dict.fromkeys(SPLITS, digest.hexdigest()),
        }
