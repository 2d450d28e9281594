"""A graph of any kind as data: where it comes from, the features of its nodes, and what its tasks share."""

import functools
import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks import folders
from tasks.base import TaskData
from tasks.batches import SPLITS, TrainBatches
from tasks.errors import UserError, held_out_shares, one_of, positive, share, toy_recipe, whole
from tasks.fingerprints import cache_place, joined_sha256
from tasks.graph.features import scaled
from tasks.graph.folder import read_folder
from tasks.graph.graph import Graph, adopted_graph, kept_graph
from tasks.graph.releases import READERS, read_release
from tasks.graph.toy import toy_graph
from tasks.local_paths import user_path
from tasks.names import Names, on_spellings
from tasks.processes import is_first

KINDS = (*READERS, "folder", "toy")
FORMAT = 9  # of the cache


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
        held_out_shares("task.data.shares", self.shares, "edges or nodes")
        for split in ("dev", "test"):
            share(f"task.data.shares.{split}", self.shares.get(split))


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
            folder = user_path(str(self.options.folder))
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
        for line in on_spellings(graph.names, "nodes"):
            rank_zero_only(print)(f"note: {graph.name}: {line}.", flush=True)
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
            arrays |= {f"edges_{k}": rows for k, rows in graph.edge_parts.items()}
            arrays |= {k: v for k, v in (("features", graph.features), ("labels", graph.labels)) if v is not None}
            known = ("name", "n", "classes", "names", "notes", "files", "sha256", "cautions")
            facts = {k: getattr(graph, k) for k in known}
            folders.write_arrays(place, arrays, settings, facts)

        def stored() -> Graph:
            arrays, facts = folders.read_arrays(place, settings)

            def with_prefix(prefix: str) -> dict[str, np.ndarray]:
                return {name.removeprefix(prefix): arrays.pop(name) for name in [*arrays] if name.startswith(prefix)}

            parts, edge_parts = with_prefix("part_"), with_prefix("edges_")
            known: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in facts.items()}
            return Graph(**known, **dict[str, Any](arrays), parts=parts, edge_parts=edge_parts)

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
