"""Examples of a graph: pairs of nodes to train and to test links, or nodes with a class."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.batches import SPLITS, MaskedSplit, Split, TensorSplit
from tasks.errors import UserError, one_of
from tasks.graph.folder import CLASSES, ENDS
from tasks.graph.graph_data import GraphData
from tasks.graph.queries import FORMS, KEYS, read_queries
from tasks.graph.splits import keys_of, non_edges, parts_of, split_by_class, split_edges, split_nodes
from tasks.names import pairs_of
from tasks.node_queries import Ends, read_query_table
from tasks.rows import read_examples, read_new_rows

CUT_OFF = 0.25  # parts that a graph gains for each held-out edge, from which on it is said


class LinkData(GraphData):
    """Edges in three parts, and as many pairs of nodes without an edge for dev and test; only edges for training are
    seen by the model. Training draws its own pairs without an edge, see `task.LinkTask`.

    known_in_training: the splits whose edges are never drawn there; nor are edges of none. With dev and test among them
    training can learn their edges, as all other pairs are drawn.

    Raises UserError for another split, or without train.
    """

    labelled, unit = False, "edges"

    def __init__(self, known_in_training: list[str], batch_size: int, eval_batch_size: int, seed: int, **options: Any):
        super().__init__(batch_size, eval_batch_size, seed, **options)
        for split in known_in_training:
            one_of("task.data.known_in_training", split, SPLITS)
        if "train" not in known_in_training:
            raise UserError("task.data.known_in_training needs train, or edges that are right are drawn as wrong ones.")
        self.known_in_training = known_in_training

    @functools.cached_property
    def _edges(self) -> dict[str, np.ndarray]:
        return split_edges(self.graph, self.options.shares, self.options.split_seed)

    def parts(self) -> dict[str, np.ndarray]:
        return self._edges

    def model_edges(self) -> np.ndarray:
        return self._edges["train"]

    @property
    def model_sizes(self) -> dict[str, Any]:
        own = [*self.graph.edge_parts.values()]
        unsplit = np.delete(self.graph.edges, np.concatenate(own), axis=0) if own else self.graph.edges[:0]
        known = np.concatenate([unsplit, *(self._edges[split] for split in sorted(set(self.known_in_training)))])
        keys = torch.as_tensor(np.sort(keys_of(known, self.graph.n)))
        most = 2 * max(len(self._edges[split]) for split in ("dev", "test"))
        every = torch.as_tensor(np.sort(keys_of(self.graph.edges, self.graph.n)))
        names = self.graph.names
        return super().model_sizes | {"known_links": keys, "all_links": every, "names": names, "n_evaluated": most}

    @functools.cached_property
    def _pairs(self) -> dict[str, np.ndarray]:
        """The edges of each split; in dev and test as many pairs without an edge follow."""
        wrong = non_edges(self.graph, len(self._edges["dev"]) + len(self._edges["test"]), self.options.split_seed)
        n_dev = len(self._edges["dev"])
        negatives = {"dev": wrong[:n_dev], "test": wrong[n_dev:]}
        return self._edges | {k: np.concatenate([self._edges[k], pairs]) for k, pairs in negatives.items()}

    def examples(self) -> dict[str, np.ndarray]:
        return self._pairs

    def _note_parts(self) -> None:
        """Print a line where many of the edges that are held out were all that joined two parts of the graph."""
        n, held_out = self.graph.n, len(self._edges["dev"]) + len(self._edges["test"])
        whole, left = (parts_of(edges, n) for edges in (np.concatenate([*self._edges.values()]), self.model_edges()))
        if left - whole >= CUT_OFF * held_out:
            rank_zero_only(print)(
                f"note: without the {held_out:,} edges of dev and test the graph falls into {left:,} parts instead of "
                f"{whole:,}. Only features can say where a part that was cut off belongs, so these edges may be told "
                "no better than by a guess. Of a tree, task=poincare_embeddings learns all edges.",
                flush=True,
            )

    def load(self) -> dict[str, Split]:
        self._note_parts()
        splits: dict[str, Split] = {"train": TensorSplit({"pair": torch.as_tensor(self._pairs["train"])})}
        for split in ("dev", "test"):
            both = self._pairs[split]
            label = np.arange(len(both)) < len(self._edges[split])
            row = np.arange(len(both)).reshape(2, -1).T.ravel()  # in turn, so that part of them has both kinds
            columns = {"pair": both[row], "label": label[row].astype(np.int64), "row": row}
            splits[split] = TensorSplit({k: torch.as_tensor(v) for k, v in columns.items()})
        return splits

    @property
    def input_keys(self) -> tuple[str, ...]:
        return KEYS

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Ends]:
        return read_queries(lines, name, self.node_names)

    def read_table(self, path: Path) -> Iterator[tuple[Ends, dict[str, str]]] | None:
        return read_query_table(path, self.node_names, ENDS, FORMS)

    def encode(self, inputs: Sequence[Ends]) -> Split:
        return TensorSplit({"pair": pairs_of(inputs)})

    def test_inputs(self) -> Iterator[tuple[Ends, dict[str, Any]]]:
        """The edges first, then as many pairs without one; gold: whether there is an edge."""
        for k, (a, b) in enumerate(self._pairs["test"].tolist()):
            yield (a, b), {"gold": k < len(self._edges["test"])}

    def describe(self, example: Ends) -> dict[str, Any]:
        names = [self.node_names.names[k] for k in example]
        return {"nodes": names} if len(names) > 1 else {"node": names[0]}


class NodeData(GraphData):
    """Nodes with a class, in three parts; the model sees all edges and the features of all nodes.

    disjoint: see `splits.split_nodes`; a folder of the user's is split by `splits.split_by_class`.
    """

    labelled, unit = True, "nodes"

    def __init__(self, disjoint: bool, batch_size: int, eval_batch_size: int, seed: int, **options: Any):
        super().__init__(batch_size, eval_batch_size, seed, **options)
        self.disjoint = disjoint

    @functools.cached_property
    def _nodes(self) -> dict[str, np.ndarray]:
        if self.options.kind == "folder":
            return split_by_class(self.graph, self.options.shares, self.options.split_seed)
        return split_nodes(self.graph, self.options.shares, self.options.split_seed, self.disjoint)

    @functools.cached_property
    def _notes(self) -> tuple[str, ...]:
        notes = super()._notes
        if self.graph.parts and self.options.kind != "folder":
            notes += (f"{self.graph.name} comes with its splits: task.data.shares and task.data.split_seed do nothing",)
        return notes

    def parts(self) -> dict[str, np.ndarray]:
        """Each node once: of splits that overlap some are drawn twice, and weigh twice in HGCN's program."""
        first = {split: np.sort(np.unique(nodes, return_index=True)[1]) for split, nodes in self._nodes.items()}
        return {split: nodes[first[split]] for split, nodes in self._nodes.items()}

    def examples(self) -> dict[str, np.ndarray]:
        return self._nodes

    def fingerprint(self) -> dict[str, Any]:
        """Of train the nodes that are trained on, too; its `nodes` are those of the whole graph."""
        facts = super().fingerprint()
        facts["counts"]["train"] = {"training_nodes": len(self.parts()["train"])} | facts["counts"]["train"]
        return facts

    @property
    def model_sizes(self) -> dict[str, Any]:
        graph = self.graph
        classes = graph.classes or tuple(str(k) for k in range(graph.n_classes))
        labels = np.asarray(graph.labels)[self.parts()["train"]]
        counts = tuple(np.bincount(labels, minlength=len(classes)).tolist())
        return super().model_sizes | {"classes": classes, "n_classes": len(classes), "class_counts": counts}

    def load(self) -> dict[str, Split]:
        labels = torch.as_tensor(np.asarray(self.graph.labels))
        return {split: self._split(labels, nodes) for split, nodes in self._nodes.items()}

    def _split(self, labels: Tensor, nodes: np.ndarray) -> MaskedSplit:
        mask = torch.zeros(self.graph.n, dtype=torch.bool)
        mask[torch.as_tensor(nodes)] = True
        return MaskedSplit({}, labels, mask)

    @property
    def input_keys(self) -> tuple[str, ...]:
        return ("node",)

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[int]:
        def parse(line: str) -> int:
            return self.node_names.number_of(line.strip())

        return read_examples(lines, name, parse, "nodes", "Each line is a node", self.input_keys)

    def read_table(self, path: Path) -> Iterator[tuple[int, dict[str, str]]] | None:
        """The nodes of a table whose first line names their column as that of labels may; its class is handed on."""
        names = {"node": CLASSES["node"]}
        return read_new_rows(path, names, lambda row: self.node_names.number_of(row["node"]))

    def encode(self, inputs: Sequence[int]) -> Split:
        return TensorSplit({"rows": torch.tensor(inputs)})

    def test_inputs(self) -> Iterator[tuple[int, dict[str, Any]]]:
        classes, labels = self.model_sizes["classes"], np.asarray(self.graph.labels)
        for node in self.parts()["test"].tolist():
            yield node, {"gold": classes[int(labels[node])]}

    def describe(self, example: int) -> dict[str, Any]:
        return {"node": self.node_names.names[example]}
