"""Graphs as examples: pairs of nodes to train and to test links, or nodes with a class."""

import functools
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks import folders
from tasks.base import TaskData
from tasks.batches import MaskedSplit, Split, TensorSplit, TrainBatches
from tasks.errors import UserError, one_of, positive, share, toy_recipe, whole
from tasks.fingerprints import cache_place, joined_sha256
from tasks.graph.features import scaled
from tasks.graph.folder import read_folder
from tasks.graph.graph import Graph, adopted_graph, kept_graph
from tasks.graph.queries import KEYS, Ends, read_queries, read_query_table
from tasks.graph.releases import READERS, read_release
from tasks.graph.splits import SPLITS, keys_of, non_edges, parts_of, split_by_class, split_edges, split_nodes
from tasks.graph.toy import toy_graph
from tasks.names import Names, pairs_of
from tasks.processes import is_first
from tasks.rows import read_examples

KINDS = (*READERS, "folder", "toy")
FORMAT = 6  # of the cache
CUT_OFF = 0.25  # parts that a graph gains for each held-out edge, from which on it is said


@dataclass(frozen=True)
class GraphOptions:
    """Which graph it is, what is known of its nodes, and how it is split.

    kind: one of KINDS: a published graph, the user's folder (see `folder.read_folder`), or a generated one by the
    recipe `toy` (see `toy.toy_graph`). folder: with the files; None for a toy. cache: folder in which the graph is kept
    in a form that is read quickly. features: use those of the nodes; False: the model learns a point for each node.
    normalize, standardize, feature_norm: what is done to the features, see `features.scaled`. degrees: add the degree
    in the edges for training, cut off at this number, as indicators, and a 1 (HGCN does so for Airport: 5); None: do
    not. shares: of the splits dev and test. split_seed: of the splits, the same for all runs. passes: how often an
    epoch goes over the examples: a step on a whole small graph takes milliseconds, less than what a run does around an
    epoch.

    Raises UserError for a value that cannot be.
    """

    kind: str
    folder: str | None
    toy: dict[str, Any] | None
    cache: str
    features: bool
    normalize: bool
    degrees: int | None
    shares: dict[str, float]
    split_seed: int
    passes: int
    feature_norm: float | None = None  # runs from before this setting have none
    standardize: bool = False  # as in runs from before this setting

    def __post_init__(self) -> None:
        one_of("task.data.kind", self.kind, KINDS)
        if self.kind == "folder" and self.folder is None:
            raise UserError("This task needs a folder with edges.tsv or edges.csv; name it with data.dir=my_graph.")
        if self.kind == "toy":
            least = {"depth": 0, "branching": 0, "nodes": 0, "edges": 0, "seed": 0}  # of which a shape uses some
            toy_recipe(self.toy, shape=None, **least)
        if self.degrees is not None:
            whole("task.data.degrees", self.degrees, 1)
        if self.feature_norm is not None:
            positive("task.data.feature_norm", self.feature_norm)
        whole("task.data.split_seed", self.split_seed, 0)
        whole("task.data.passes", self.passes, 1)
        for split in self.shares:
            one_of("a split of task.data.shares", split, ("dev", "test"))
        for split in ("dev", "test"):
            share(f"task.data.shares.{split}", self.shares.get(split))
        if sum(self.shares.values()) >= 1:
            raise UserError(f"task.data.shares={dict(self.shares)}: they leave nothing for training.")


class GraphData(TaskData):
    """One graph, whose nodes are computed together: what link prediction and node classification share.

    batch_size: edges or nodes of a step. options: the fields of `GraphOptions`. The others are TaskData's.
    """

    Options = GraphOptions
    labelled: bool  # whether nodes have classes
    unit: str  # what examples are

    def __init__(self, batch_size: int, eval_batch_size: int, seed: int, **options: Any):
        super().__init__(shuffle="examples", batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        self.options = GraphOptions(**options)

    @functools.cached_property
    def _notes(self) -> tuple[str, ...]:
        """What is still to be said of the graph's files."""
        return self.graph.notes

    @functools.cached_property
    def graph(self) -> Graph:
        """The graph, read at first use."""
        if self.options.kind == "toy":
            graph = toy_graph(labelled=self.labelled, **(self.options.toy or {}))
        else:
            folder = Path(str(self.options.folder)).expanduser()
            name, read = (
                (folder.name, read_folder) if self.options.kind == "folder" else (self.options.kind, read_release)
            )
            made: list[Graph] = []  # where it is not in the cache; it was warned of then

            def make() -> Graph:
                made.append(read(folder, name, self.labelled))
                return made[0]

            graph = self._kept(folder, make)
            for caution in graph.cautions if is_first() and not made else ():
                warnings.warn(caution, stacklevel=1)
        rank_zero_only(print)(f"{graph}.", flush=True)
        return graph

    def _kept(self, folder: Path, read: Callable[[], Graph]) -> Graph:
        """The graph of a folder, from the cache where its files are those of the last time."""
        if not folder.exists():
            return read()  # which says what is missing
        within = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        there = [file for file in within if file.is_file() and not file.name.startswith(".")]
        files = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in there]
        settings = {
            "format": FORMAT,
            "kind": self.options.kind,
            "labelled": self.labelled,
            "files": files,
            "folder": str(folder.resolve()),
        }

        def write(place: Path, graph: Graph) -> None:
            arrays = {"edges": graph.edges} | {f"part_{k}": nodes for k, nodes in graph.parts.items()}
            arrays |= {k: v for k, v in (("features", graph.features), ("labels", graph.labels)) if v is not None}
            known = ("name", "n", "classes", "names", "notes", "files", "sha256", "cautions")
            facts = {k: getattr(graph, k) for k in known}
            folders.write_arrays(place, arrays, settings, facts)

        def stored() -> Graph:
            arrays, facts = folders.read_arrays(place, settings)
            parts = {name.removeprefix("part_"): arrays.pop(name) for name in list(arrays) if name.startswith("part_")}
            known: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in facts.items()}
            return Graph(**known, **dict[str, Any](arrays), parts=parts)

        place = cache_place(Path(self.options.cache), f"graph-{self.options.kind}", settings)
        return folders.cached(place, stored, read, write, "arrays of the graph")

    def vocabulary(self) -> dict[str, Any]:
        """The whole graph: the points of its nodes are made from it."""
        return kept_graph(self.graph)

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        self.__dict__["graph"] = adopted_graph(vocabulary)

    def model_edges(self) -> np.ndarray:
        """The edges (E, 2) along which nodes take each other in: those for training."""
        return self.graph.edges

    def train_dataloader(self) -> TrainBatches:
        if self._notes:  # of training alone, and once
            rank_zero_only(print)("\n".join(f"{note}." for note in self._notes), flush=True)
            self._notes = ()
        split = self.splits()["train"]
        again = (len(split), self.options.passes - 1)
        return TrainBatches(split, self.batch_size, self.shuffle, self.seed, *self._place(), again=again)

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"n_nodes": self.graph.n, "edges": torch.as_tensor(self.model_edges()), "features": self._features()}

    def _features(self) -> Tensor | None:
        """Features (N, F) as the model gets them, or None."""
        graph, parts = self.graph, []
        if self.options.features and graph.features is not None:
            options = self.options
            parts.append(scaled(graph.features, options.normalize, options.standardize, options.feature_norm))
        if self.options.degrees is not None:
            degree = np.bincount(self.model_edges().reshape(-1), minlength=graph.n).clip(max=self.options.degrees)
            parts += [np.eye(self.options.degrees + 1)[degree], np.ones((graph.n, 1))]
        return torch.tensor(np.concatenate(parts, axis=1), dtype=torch.float32) if parts else None

    @property
    def identity(self) -> dict[str, str]:
        graph = f"{self.graph.n} nodes with sha256 {self.graph.sha256[:12]}"
        return {"graph": graph, "splits": f"sha256 {joined_sha256(list(self._sha256.values()))[:12]}"}

    @functools.cached_property
    def _sha256(self) -> dict[str, str]:
        """Of each split the fingerprint of the graph's files and of the split's examples."""
        rows = {split: hashlib.sha256(rows.astype("<i8").tobytes()) for split, rows in self.examples().items()}
        return {split: joined_sha256([self.graph.sha256, digest.hexdigest()]) for split, digest in rows.items()}

    @functools.cached_property
    def node_names(self) -> Names:
        return Names(self.graph.names or [str(k) for k in range(self.graph.n)], "node", self.graph.name)

    def fingerprint(self) -> dict[str, Any]:
        graph = self.graph
        counts: dict[str, Any] = {split: {self.unit: len(part)} for split, part in self.parts().items()}
        counts["train"] |= {"nodes": graph.n, "all_edges": len(graph.edges), "isolated": graph.isolated}
        return {
            "files": dict.fromkeys(SPLITS, graph.files),
            "counts": counts,
            "sha256": self._sha256,
        }

    def parts(self) -> dict[str, np.ndarray]:
        """The edges (E, 2) or the nodes of each split."""
        raise NotImplementedError

    def examples(self) -> dict[str, np.ndarray]:
        """What each split is evaluated on: `parts`, and of links the pairs without an edge, too."""
        return self.parts()


class LinkData(GraphData):
    """Edges in three parts, and as many pairs of nodes without an edge for dev and test; only edges for training are
    seen by the model. Training draws its own pairs without an edge, see `task.LinkTask`.

    known_in_training: the splits whose edges are never drawn there. With dev and test among them training can learn
    their edges, as all other pairs are drawn.

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
        known = np.concatenate([self._edges[split] for split in sorted(set(self.known_in_training))])
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
        whole, left = (parts_of(edges, n) for edges in (self.graph.edges, self.model_edges()))
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
        return read_query_table(path, self.node_names)

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

    def parts(self) -> dict[str, np.ndarray]:
        return self._nodes

    def fingerprint(self) -> dict[str, Any]:
        """Of train the nodes that are trained on, too; its `nodes` are those of the whole graph."""
        facts = super().fingerprint()
        facts["counts"]["train"] = {"training_nodes": len(self._nodes["train"])} | facts["counts"]["train"]
        return facts

    @property
    def model_sizes(self) -> dict[str, Any]:
        graph = self.graph
        classes = graph.classes or tuple(str(k) for k in range(graph.n_classes))
        train = np.unique(self._nodes["train"])  # of splits that overlap some stand there twice
        counts = tuple(np.bincount(np.asarray(graph.labels)[train], minlength=len(classes)).tolist())
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

    def encode(self, inputs: Sequence[int]) -> Split:
        return TensorSplit({"rows": torch.tensor(inputs)})

    def test_inputs(self) -> Iterator[tuple[int, dict[str, Any]]]:
        classes, labels = self.model_sizes["classes"], np.asarray(self.graph.labels)
        for node in self._nodes["test"].tolist():
            yield node, {"gold": classes[int(labels[node])]}

    def describe(self, example: int) -> dict[str, Any]:
        return {"node": self.node_names.names[example]}
