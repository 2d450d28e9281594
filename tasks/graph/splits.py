"""Which edges and which nodes are for training, validation and test, and pairs of nodes that no edge joins."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.graph.graph import Graph
from tasks.split_column import require_train, split_of


def given_parts(path: Path, rows: Iterable[tuple[int, int, str, str]]) -> dict[str, np.ndarray]:
    """The nodes or edges of each split that the column "split" of the user's table has, as numbers, in their order.

    rows: the line, the number and the name of each, and what stands in that column. Raises UserError, which names file
    and line, for no word of a split, for two splits of one node or edge, and where none is for training.
    """
    splits: dict[int, str] = {}
    for k, number, name, word in rows:
        if (split := split_of(path, k, word)) is None:
            continue
        if (before := splits.setdefault(number, split)) != split:
            raise UserError(f"{path}, line {k}: {name} is of {split} here, and of {before} on a line before; keep one.")
    require_train(path, splits.values())
    parts = {split: [number for number, own in splits.items() if own == split] for split in SPLITS}
    return {split: np.array(numbers) for split, numbers in parts.items() if numbers}


def split_edges(graph: Graph, shares: Mapping[str, float], seed: int) -> dict[str, np.ndarray]:
    """The edges of each split, (E', 2): those that the user's table gives, and of others shares["dev"] and
    shares["test"], cut off (HGCN: 0.05 and 0.1), of all or of those given for training, where the rest remains. The
    draw that HGCN's program makes for its `split-seed`, where the graph has no edge from a node to itself.

    Raises UserError where a split has no edge.
    """
    user_parts = {split: graph.edges[rows] for split, rows in graph.edge_parts.items()}
    pool = user_parts.pop("train", graph.edges)
    order = pool[np.random.RandomState(seed).permutation(len(pool))]
    n_dev, n_test = (0 if split in user_parts else int(len(order) * shares[split]) for split in ("dev", "test"))
    parts = {"dev": order[:n_dev], "test": order[n_dev : n_dev + n_test], "train": order[n_dev + n_test :]} | user_parts
    for split in SPLITS:
        if not len(parts[split]):
            raise UserError(
                f"{graph.name}: {len(order)} edges are too few for shares of {shares['dev']:g} and {shares['test']:g}: "
                f"{split} has none. Take other task.data.shares, or a larger graph{_remedy(split, graph.edge_parts)}."
            )
    return parts


def _remedy(split: str, parts: Mapping[str, np.ndarray]) -> str:
    """What is to be done besides, as the end of a message, where the user's table has the splits."""
    return f", or give more the split {split}" if parts else ""


def parts_of(edges: np.ndarray, n: int) -> int:
    """Into how many connected parts a graph of n nodes with these edges (E, 2) falls."""
    ones = np.ones(len(edges), dtype=bool)
    return int(connected_components(coo_array((ones, edges.T), shape=(n, n)), directed=False)[0])


def non_edges(graph: Graph, count: int, seed: int) -> np.ndarray:
    """`count` different pairs of nodes that no edge joins, (count, 2), drawn from all such pairs; so a graph need not
    fit into memory as a square table. Raises UserError where there are too few for drawing."""
    n, known = graph.n, keys_of(graph.edges, graph.n)
    free = n * (n - 1) // 2 - len(known)
    if count > free // 2:
        raise UserError(
            f"{graph.name}: {count} pairs of nodes without an edge are needed, and there are {free} in all; the graph "
            "is too dense for link prediction."
        )
    draw, draws = np.random.RandomState(seed), np.empty(0, dtype=np.int64)
    while len(draws) < count:
        pairs = np.sort(draw.randint(n, size=(2 * count, 2)), axis=1)
        keys = keys_of(pairs[pairs[:, 0] < pairs[:, 1]], n)
        draws = np.concatenate([draws, keys[~np.isin(keys, known)]])
        draws = draws[np.sort(np.unique(draws, return_index=True)[1])]
    return np.stack([draws[:count] // n, draws[:count] % n], axis=1)


def keys_of(pairs: np.ndarray, n: int) -> np.ndarray:
    """One number for each pair (E, 2) of n nodes whose smaller one stands first."""
    return pairs[:, 0] * n + pairs[:, 1]


def split_nodes(graph: Graph, shares: Mapping[str, float], seed: int, disjoint: bool) -> dict[str, np.ndarray]:
    """The nodes of each split: those that a release fixes, or shares of those of class 0, and as many of the others
    (HGCN: Disease 0.1 and 0.6, Airport 0.15 and 0.15 of the smaller of the two groups), and the rest for training.

    disjoint: false does as HGCN's program, whose second group is all nodes but those of class 1: with more than two
    classes, nodes of the others are in two splits, so that training sees a part of the test, or twice in one. Raises
    UserError where a class is not among the nodes for training, or a split is empty.
    """
    labels = graph.labels
    assert labels is not None  # as the graph was read with them
    if graph.parts:
        return _usable(graph, {split: nodes[labels[nodes] >= 0] for split, nodes in graph.parts.items()})
    others = labels == 0 if disjoint else (labels != 1) & (labels >= 0)
    groups = [np.flatnonzero(labels > 0), np.flatnonzero(others)]
    smaller = min(map(len, groups))
    counts = {split: round(shares[split] * smaller) for split in ("dev", "test")}
    return _usable(graph, _parts([(nodes, counts["dev"], counts["test"]) for nodes in groups], seed))


def split_by_class(graph: Graph, shares: Mapping[str, float], seed: int) -> dict[str, np.ndarray]:
    """The nodes of each split: those that the user's table gives, and of others each class's shares for dev and test,
    rounded, of all its nodes or of those given for training, where the rest remains. Raises UserError where a class is
    not among the nodes for training, or a split is empty."""
    labels = graph.labels
    assert labels is not None  # as the graph was read with them
    user_parts = dict(graph.parts)
    pool = user_parts.pop("train", np.arange(graph.n))
    classes = [pool[labels[pool] == k] for k in range(graph.n_classes)]
    n_dev, n_test = (
        [0 if split in user_parts else round(shares[split] * len(nodes)) for nodes in classes]
        for split in ("dev", "test")
    )
    return _usable(graph, _parts(list(zip(classes, n_dev, n_test, strict=True)), seed) | user_parts)


def _parts(groups: Sequence[tuple[np.ndarray, int, int]], seed: int) -> dict[str, np.ndarray]:
    """Of each group of nodes in an order that is drawn, so many for dev, so many for test, and the rest for train."""
    draw, cut = np.random.RandomState(seed), []
    for nodes, n_dev, n_test in groups:
        draw.shuffle(nodes)
        cut.append(np.split(nodes, [n_dev, n_dev + n_test]))
    dev, test, train = (np.concatenate(parts) for parts in zip(*cut, strict=True))
    return {"dev": dev, "test": test, "train": train}


def _usable(graph: Graph, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parts, where each has nodes and training all classes."""
    assert graph.labels is not None
    for split in SPLITS:
        if not len(parts[split]):
            also = _remedy(split, graph.parts)
            raise UserError(f"{graph.name}: no node is left for {split}; take other task.data.shares{also}.")
    absent = sorted(set(range(graph.n_classes)) - set(graph.labels[parts["train"]].tolist()))
    if absent:
        name = graph.classes[absent[0]] if graph.classes else str(absent[0])
        remedy = (
            "give one of its nodes the split train"
            if graph.parts
            else "take smaller task.data.shares for dev and test, another task.data.split_seed"
        )
        raise UserError(
            f"{graph.name}: no node for training has the class {name}, so it cannot be learned; {remedy}, or leave the "
            "class out."
        )
    return parts
