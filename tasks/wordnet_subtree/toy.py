"""A made-up tree with points in the ball that are a good embedding of it, so that no file is needed."""

import hashlib

import numpy as np

from tasks.edges import Edges
from tasks.errors import UserError, whole
from tasks.points_files import PointsFile

SOURCE = "generated"  # where a file would be named


def toy_tree(depth: int, branching: int) -> Edges:
    """A tree of `depth` levels below its root, where each node has `branching` children. Nodes are named by their path:
    0, 0.2, 0.2.1."""
    whole("task.data.toy.depth", depth, 1)
    whole("task.data.toy.branching", branching, 1)
    names, parent = ["0"], [-1]
    for node, name in enumerate(names):  # grows while it is gone through
        if name.count(".") < depth:
            names += [f"{name}.{k}" for k in range(branching)]
            parent += [node] * branching
    child, above = np.arange(1, len(names), dtype=np.int32), np.array(parent[1:], dtype=np.int32)
    return Edges(tuple(names), child, above, SOURCE, hashlib.sha256("\n".join(names).encode()).hexdigest())


def toy_points(tree: Edges, length: float, dim: int) -> PointsFile:
    """Points of the disk of curvature -1 in Sarkar's construction (2011): the root is the origin, and around a node its
    parent and its children lie in equally spaced directions at the hyperbolic distance `length`. With z ⊕ y =
    (z + y) / (1 + z̄ y), which keeps angles, a child in the direction e^iθ is z ⊕ tanh(length / 2) e^iθ. Coordinates
    after the second are 0.

    tree: as `toy_tree` gives it, parents before children.
    """
    whole("task.dim", dim, 2)
    if not 0 < length < float("inf"):
        raise UserError(f"task.data.toy.length must be a positive number, and it is {length}.")
    step = np.tanh(length / 2)
    z = np.zeros(len(tree.names), dtype=complex)
    up = np.zeros(len(tree.names))  # the direction of the parent, seen from the node
    children: dict[int, list[int]] = {}
    for child, parent in zip(tree.child.tolist(), tree.parent.tolist(), strict=True):
        children.setdefault(parent, []).append(child)
    for parent, below in children.items():
        angles = up[parent] + 2 * np.pi * np.arange(1, len(below) + 1) / (len(below) + (parent > 0))
        ahead = step * np.exp(1j * angles)
        z[below] = (z[parent] + ahead) / (1 + z[parent].conj() * ahead)
        back = (z[parent] - z[below]) / (1 - z[below].conj() * z[parent])
        up[below] = np.angle(back)
    points = np.zeros((len(z), dim), dtype=np.float32)
    points[:, 0], points[:, 1] = z.real, z.imag
    return PointsFile(tree.names, points, "PoincareBall", 1.0, hashlib.sha256(points.tobytes()).hexdigest())
