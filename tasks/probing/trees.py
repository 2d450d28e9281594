"""Trees of words: their distances and depths, and trees that distances span."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph


class TreeError(ValueError):
    """Heads that are no tree; `node` is the first word at fault, and the message says what it does."""

    def __init__(self, node: int, message: str):
        super().__init__(message)
        self.node = node


def check_tree(heads: Sequence[int]) -> None:
    """Refuse what is no tree.

    heads: of each of W words the number of its head, -1 of the root.

    Raises:
        TreeError: a head that is no word, no root or two, a word that is not below the root.
    """
    for node, head in enumerate(heads):
        if not -1 <= head < len(heads):
            raise TreeError(node, f"has the head {head + 1}, and the sentence has {len(heads)} words")
    roots = [node for node, head in enumerate(heads) if head == -1]
    if len(roots) > 1:
        raise TreeError(roots[1], f"is a root (head 0), and word {roots[0] + 1} is one, too")
    below = set(roots)
    for node in range(len(heads)):
        path: list[int] = []
        while node not in below:
            if node in path:
                raise TreeError(node, "is below itself, as its heads form a cycle")
            path.append(node)
            node = heads[node]
        below.update(path)


def measure(heads: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Distances (W, W), the edges of the path between two words, and depths (W,), those up to the root; int16.

    heads: of a tree, as `check_tree` takes them.
    """
    children: list[list[int]] = [[] for _ in heads]
    for node, head in enumerate(heads):
        if head >= 0:
            children[head].append(node)
    order = [heads.index(-1)]
    for node in order:  # grows while it is gone through
        order += children[node]
    distances = np.zeros((len(heads), len(heads)), np.int16)
    for k, node in enumerate(order[1:], start=1):
        before = order[:k]
        distances[node, before] = distances[before, node] = distances[heads[node], before] + 1
    return distances, distances[order[0]].copy()


def heads_of(edges: np.ndarray, root: int) -> list[int | None]:
    """The number, from 1, of the head of each word in a tree of undirected edges (W, W) that hangs below the root, of
    which it is 0; None of words that no edge leads to."""
    order, above = csgraph.breadth_first_order(sparse.csr_array(edges), root, directed=False)
    heads: list[int | None] = [None] * len(edges)
    for node in order.tolist():
        heads[node] = 0 if node == root else int(above[node]) + 1
    return heads


def spanning_trees(distances: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The edges of the minimum spanning trees of tables of distances (..., W, W), each of the words that are `counted`
    (..., W): bool (..., W, W), above the diagonal. Of equal distances that of the earlier words comes first, as in
    Kruskal's algorithm, which goes over the pairs row by row. Only distances above the diagonal are looked at.
    """
    shape, words = distances.shape, distances.shape[-1]
    distances, counted = distances.reshape(-1, words, words), counted.reshape(-1, words)
    pairs = np.triu(counted[:, :, None] & counted[:, None, :], 1)
    table, row, column = np.nonzero(pairs)
    order = distances[pairs].argsort(kind="stable")
    places = np.empty(len(order))  # of the pairs in that order: never equal and, unlike distances, never 0
    places[order] = np.arange(1, len(order) + 1)
    ends, size = (table * words + row, table * words + column), counted.size
    forest = csgraph.minimum_spanning_tree(sparse.csr_array((places, ends), (size, size))).tocoo()
    edges = np.zeros(distances.shape, bool)
    edges[forest.row // words, forest.row % words, forest.col % words] = True
    return edges.reshape(shape)
