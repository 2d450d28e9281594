"""An undirected graph with features and classes of its nodes, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.errors import UserError, whole
from tasks.vocabularies import check_names, check_numbers


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph of N nodes, numbered from 0.

    edges: int64 (E, 2), each once, the smaller number first, none from a node to itself; sorted. features: floats
    (N, F); None: none, so that the model learns a point for each node. labels: int64 (N,), -1 for a node without;
    None: none. classes, names: of the labels and of the nodes; an empty tuple where they are the numbers. parts: nodes
    of the splits that a release or the user's table fixes, by split. notes: what was left out of the files, in words.
    files, sha256: of what was read. cautions: what looks wrong in the files, in words. edge_parts: rows of edges of the
    splits that the user's table fixes, by split.
    """

    name: str
    n: int
    edges: np.ndarray
    features: np.ndarray | None = None
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: str = ""
    sha256: str = ""
    cautions: tuple[str, ...] = ()
    edge_parts: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def isolated(self) -> int:
        """How many nodes have no edge."""
        return self.n - len(np.unique(self.edges))

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.n} nodes, {len(self.edges)} edges"]
        parts += [] if self.features is None else [f"{self.features.shape[1]} features"]
        parts += [] if self.labels is None else [f"{self.n_classes} classes"]
        parts += [f"{self.isolated} isolated"] if self.isolated else []
        return ", ".join(parts)

    @property
    def n_classes(self) -> int:
        assert self.labels is not None  # who asks for classes has them
        return len(self.classes) or int(self.labels.max()) + 1


def undirected(pairs: np.ndarray, n: int, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The edges of a graph of n nodes as `Graph` has them, and notes on what was left out.

    pairs: whole numbers (E, 2), each edge in one direction or in both. Raises UserError, which begins with `where`, for
    numbers that are no nodes, and where nothing is left.
    """
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(1))
    if len(outside):
        row = outside[0]
        raise UserError(
            f"{where}, edge {row + 1}: it joins {pairs[row, 0]} and {pairs[row, 1]}, and nodes are numbered from 0 to "
            f"{n - 1}, one for each row of the features or labels. Correct the edge or add the node."
        )
    loops = pairs[:, 0] == pairs[:, 1]
    kept = np.sort(pairs[~loops], axis=1)
    keys = np.unique(kept[:, 0] * n + kept[:, 1])
    if not len(keys):
        raise UserError(f"{where}: it has no edge between two nodes.")
    directed = len(np.unique(pairs[~loops][:, 0] * n + pairs[~loops][:, 1]))
    notes = [f"{int(loops.sum())} edges from a node to itself were left out"] if loops.any() else []
    if (repeated := len(kept) - directed) > 0:
        notes.append(f"{repeated} repeated edges were left out")
    if len(keys) < directed < 2 * len(keys):
        notes.append(f"{2 * len(keys) - directed} edges have no reverse; all are taken in both directions")
    return np.stack([keys // n, keys % n], axis=1), tuple(notes)


def checked(graph: Graph) -> Graph:
    """The graph, whose features and labels fit its nodes. Raises UserError, which names the file, where they do not."""
    if graph.features is not None:
        if len(graph.features) != graph.n:
            raise UserError(
                f"{graph.name}: there are features of {len(graph.features)} nodes, and the graph has {graph.n}; give "
                "one row for each node."
            )
        wrong = np.flatnonzero(~np.isfinite(graph.features).all(1))
        if len(wrong):
            raise UserError(
                f"{graph.name}: the features of {len(wrong)} nodes have values that are not finite, first of node "
                f"{wrong[0]}; correct them or leave the nodes out."
            )
    if graph.labels is not None:
        if len(graph.labels) != graph.n:
            raise UserError(
                f"{graph.name}: there are labels of {len(graph.labels)} nodes, and the graph has {graph.n}; give one "
                "for each node."
            )
        if graph.labels.max() < 1:
            raise UserError(f"{graph.name}: all labels are of one class, so there is nothing to tell apart.")
    return graph


def kept_graph(graph: Graph) -> dict[str, Any]:
    """What a checkpoint keeps of a graph, of features the numbers that are not 0."""
    known: dict[str, Any] = {key: getattr(graph, key) for key in ("name", "n", "files", "sha256", "labels")}
    known |= {"classes": list(graph.classes), "names": list(graph.names), "parts": dict(graph.parts)}
    known["edge_parts"] = dict(graph.edge_parts)
    known |= {"edges": graph.edges.astype(np.int32), "features": None}
    if graph.features is not None:
        flat = graph.features.reshape(-1)
        place = np.flatnonzero(flat)
        known["features"] = {"columns": graph.features.shape[1], "place": place, "value": flat[place]}
    return known


def adopted_graph(contents: Mapping[str, Any]) -> Graph:
    """The graph of `kept_graph`. Raises any error for one that cannot be."""

    def numbers(values: Tensor, below: int) -> np.ndarray:
        return check_numbers(values.unsqueeze(-1), 1, below).squeeze(-1).numpy()

    n = whole("its number of nodes", contents["n"], 1)
    classes, names = (tuple(check_names(contents[key])) for key in ("classes", "names"))
    name, files, sha256 = check_names([contents[key] for key in ("name", "files", "sha256")], different=False)
    parts = {split: numbers(nodes, n) for split, nodes in contents["parts"].items()}
    labels = None if contents["labels"] is None else numbers(contents["labels"] + 1, 1 << 31) - 1  # -1: none
    if len(names) not in (0, n):
        raise ValueError("names of other nodes")
    features = None
    if contents["features"] is not None:
        features = contents["features"]
        columns = whole("its number of features", features["columns"], 1)
        values = features["value"]  # in the precision that they were read in, as they may be standardised
        values = values if values.is_floating_point() else values.double()
        table = torch.zeros(n * columns, dtype=values.dtype)
        table[torch.from_numpy(numbers(features["place"], n * columns))] = values
        features = table.view(n, columns).numpy()
    edges = check_numbers(contents["edges"], 2, n).numpy()
    edge_parts = {split: numbers(rows, len(edges)) for split, rows in contents.get("edge_parts", {}).items()}
    graph = Graph(
        name, n, edges, features, labels, classes, names, parts, files=files, sha256=sha256, edge_parts=edge_parts
    )  # fmt: skip
    return checked(graph)
