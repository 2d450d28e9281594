"""Generated graphs: a tree whose links or classes follow from where its nodes stand, and a large random graph."""

import hashlib

import numpy as np

from tasks.edges import complete_tree
from tasks.errors import UserError, one_of, whole
from tasks.graph.graph import Graph

SHAPES = ("tree", "random")


def toy_graph(labelled: bool, shape: str, depth: int, branching: int, nodes: int, edges: int, seed: int) -> Graph:
    """A generated graph.

    shape="tree": of `depth` levels below its root, where each node has `branching` children; the class of a node is the
    child of the root that it is below, 0 for the root itself; its features are indicators of which child it is below,
    or is, on each level. shape="random": `nodes` nodes and `edges` edges or a few
    less, each end drawn with odds that fall with its number as in a power law; two classes by parity.

    Raises UserError for settings that cannot be.
    """
    one_of("task.data.toy.shape", shape, SHAPES)
    whole("task.data.toy.seed", seed, 0)
    if shape == "tree":
        tree = complete_tree(depth, branching)
        n, pairs = len(tree.names), np.stack([tree.parent, tree.child], axis=1).astype(np.int64)
        branches = [int(name.split(".")[1]) if "." in name else 0 for name in tree.names]
        labels = np.array(branches) if labelled else None
        features = np.zeros((n, depth * branching), dtype=np.float32)
        for k, name in enumerate(tree.names):
            for level, child in enumerate(name.split(".")[1:]):
                features[k, level * branching + int(child)] = 1
        name = f"tree-{branching}-{depth}"
        return Graph(name, n, pairs, features, labels, (), tree.names, {}, (), "generated", tree.sha256)
    whole("task.data.toy.nodes", nodes, 2)
    whole("task.data.toy.edges", edges, 1)
    if edges > nodes * (nodes - 1) // 8:
        raise UserError(f"task.data.toy.edges={edges} are too many for {nodes} nodes.")
    draw = np.random.default_rng(seed)
    ends = (nodes * draw.random((2 * edges, 2)) ** 1.5).astype(np.int64)
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    keys = draw.permutation(np.unique(ends[:, 0] * nodes + ends[:, 1]))[:edges]
    keys.sort()
    pairs = np.stack([keys // nodes, keys % nodes], axis=1)
    sha256 = hashlib.sha256(pairs.tobytes()).hexdigest()
    labels = np.arange(nodes) % 2
    return Graph("random", nodes, pairs, None, labels if labelled else None, (), (), {}, (), "generated", sha256)
