"""Directed graphs of names, child to parent: read from a file or generated, and everything above a node."""

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pytorch_lightning.utilities import rank_zero_only
from scipy import sparse
from scipy.sparse import csgraph

from tasks.errors import UserError, whole
from tasks.fingerprints import contents_sha256
from tasks.name_tables import read_names
from tasks.reading import brief, warn_of_header

FORM = "child <tab> parent"
FIELDS = {
    "child": ("child", "hyponym", "narrower", "node", "source", "from"),
    "parent": ("parent", "hypernym", "broader", "target", "to"),
}
MOST_PAIRS = 200_000_000  # of a transitive closure: 1.6 GB, and several times that while it is made


@dataclass(frozen=True, eq=False)
class Edges:
    """names: of the nodes. child, parent: int32 (E,), the two ends of each edge, none twice. source: name of the file;
    sha256: of its contents."""

    names: tuple[str, ...]
    child: np.ndarray
    parent: np.ndarray
    source: str
    sha256: str


def read_edges(path: Path, setting: str) -> Edges:
    """Edges from a text file, UTF-8, plain or .gz, a line for each: child <tab> parent, or in a .csv child,parent; a
    first line may name the columns, see `read_names`. Nodes are numbered as they appear.

    Repeated lines and edges from a node to itself are left out, with a warning that counts them, and a first line that
    looks like a header is named in one. Raises UserError, which names `setting`, the file and the line, where the file
    is missing, empty or not of this form.
    """
    if not path.exists():
        raise UserError(f"There is no file {path}; correct {setting}.")
    table = read_names(path, FIELDS, FORM, setting)
    number: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    repeated, loops, first_loop = 0, 0, ""
    header: list[str] | None = None  # the first row, as long as no other has a name of it
    for k, fields in table.rows:
        if not number:
            header = fields if table.header is None else None
        elif header is not None and not {*header}.isdisjoint(fields):
            header = None
        child, parent = (number.setdefault(name, len(number)) for name in fields)
        if child == parent:
            loops, first_loop = loops + 1, first_loop or f"line {k}, {brief(fields[0])}"
        elif (child, parent) in edges:
            repeated += 1
        else:
            edges[child, parent] = None
    if not edges:
        raise UserError(f"{path} has no edge between two nodes; {setting} needs lines of the form {FORM}.")
    if table.header is not None:
        below, above = (brief(name) for name in table.header)
        rank_zero_only(print)(f"note: {table.note(path)}; {below} is the child, {above} its parent.", flush=True)
    if loops:
        warnings.warn(f"{path}: {loops} edges from a node to itself were left out (first: {first_loop}).", stacklevel=2)
    if repeated:
        warnings.warn(f"{path}: {repeated} lines repeat earlier ones and were left out.", stacklevel=2)
    ends = np.array(list(edges), dtype=np.int32)
    if header is not None and header[0] != header[1] and len(ends) > 1:
        warn_of_header(path, header, "an edge")
    return Edges(tuple(number), ends[:, 0], ends[:, 1], path.name, contents_sha256(path))


def complete_tree(depth: int, branching: int) -> Edges:
    """A tree of `depth` levels below its root, where each node has `branching` children; level by level, parents before
    children. Nodes are named by their path: 0, 0.2, 0.2.1."""
    whole("task.data.toy.depth", depth, 1)
    whole("task.data.toy.branching", branching, 1)
    names, parent = ["0"], [-1]
    for node, name in enumerate(names):  # grows while it is gone through
        if name.count(".") < depth:
            names += [f"{name}.{k}" for k in range(branching)]
            parent += [node] * branching
    child, above = np.arange(1, len(names), dtype=np.int32), np.array(parent[1:], dtype=np.int32)
    sha256 = hashlib.sha256("\n".join(names).encode()).hexdigest()
    return Edges(tuple(names), child, above, f"tree {branching}^{depth}", sha256)


def closure(child: np.ndarray, parent: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (node, one above it): the transitive closure of E edges among n nodes.

    Returns: descendants and ancestors, int32 (M,), sorted by descendant, then ancestor, without pairs of a node with
    itself. Nodes of one cycle are above each other. Memory is a few times that of the result; a step for each edge of
    the longest path.
    """
    edges = reached = new = _matrix(child, parent, n)
    while new.nnz:
        new = new @ edges  # squares of `reached` take fewer steps, and minutes where many nodes lie on one cycle
        new.sort_indices()
        new = new > reached
        reached = reached + new
    low, high = reached.tocoo().coords
    apart = low != high
    return low[apart].astype(np.int32), high[apart].astype(np.int32)


def nodes_on_cycles(child: np.ndarray, parent: np.ndarray, n: int) -> np.ndarray:
    """Those of n nodes that lie on a cycle of two or more."""
    return np.flatnonzero(_cycle_sizes(child, parent, n) > 1)


def check_cycles(edges: Edges) -> None:
    """Raise UserError where the nodes on cycles, which are above each other, alone make the transitive closure larger
    than MOST_PAIRS."""
    sizes = _cycle_sizes(edges.child, edges.parent, len(edges.names))
    if (pairs := int((sizes - 1).sum())) > MOST_PAIRS:
        node = int(sizes.argmax())
        raise UserError(
            f"{edges.source}: {sizes[node]:,} nodes are above each other, as they lie on cycles, among them "
            f"{brief(edges.names[node])}. So there are at least {pairs:,} pairs of a node and one above it; at most "
            f"{MOST_PAIRS:,} are learned. Take out the edges that close the cycles, or learn the edges alone with "
            "task.data.closure=false."
        )


def _cycle_sizes(child: np.ndarray, parent: np.ndarray, n: int) -> np.ndarray:
    """How many nodes lie on cycles with each of n nodes and are above it, itself among them: (n,)."""
    parts = csgraph.connected_components(_matrix(child, parent, n), connection="strong")[1]
    return np.bincount(parts)[parts]


def descendants(child: np.ndarray, parent: np.ndarray, n: int, root: int) -> np.ndarray:
    """bool (n,): the nodes below `root`, without itself."""
    below = np.zeros(n, dtype=bool)
    below[csgraph.breadth_first_order(_matrix(parent, child, n), root, return_predecessors=False)[1:]] = True
    return below


def levels_below_tops(child: np.ndarray, parent: np.ndarray, n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Nodes below the tops, nearest first, with one node above each: (nodes, parents) for each number of edges to the
    nearest top. A node has the first of its parents that is as near to a top as any. Nodes that no top is above (all
    above them lie on a cycle) are left out."""
    reached = np.ones(n, dtype=bool)
    reached[child] = False
    level = reached.copy()
    while level.any():
        places = np.flatnonzero(level[parent] & ~reached[child])
        nodes, first = np.unique(child[places], return_index=True)
        if len(nodes):
            yield nodes, parent[places[first]]
        level = np.zeros_like(reached)
        level[nodes] = True
        reached |= level


def depths(child: np.ndarray, parent: np.ndarray, n: int) -> np.ndarray:
    """The number of edges from each of n nodes up to the nearest top (a node without parents): (n,); n of a node that
    no top is above."""
    depth = np.zeros(n, dtype=np.int64)
    depth[child] = n
    for level, (nodes, _) in enumerate(levels_below_tops(child, parent, n), start=1):
        depth[nodes] = level
    return depth


def _matrix(rows: np.ndarray, columns: np.ndarray, n: int) -> sparse.csr_array:
    """bool (n, n): true at these places."""
    return sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(n, n))
