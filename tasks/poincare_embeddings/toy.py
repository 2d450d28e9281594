"""A complete tree, of which it is known how it can be embedded."""

import numpy as np

from tasks.edges import Edges


def toy_tree(branching: int, depth: int) -> Edges:
    """The tree in which every node above the last level has `branching` children; `depth` edges lead to a leaf. A node
    is called by the way to it: "root", "root.0", "root.0.2"."""
    names, parent = ["root"], [-1]
    level = [0]
    for _ in range(depth):
        below = []
        for node in level:
            for k in range(branching):
                below.append(len(names))
                names.append(f"{names[node]}.{k}")
                parent.append(node)
        level = below
    child = np.arange(1, len(names), dtype=np.int32)
    return Edges(tuple(names), child, np.array(parent[1:], dtype=np.int32), f"tree {branching}^{depth}", "")
