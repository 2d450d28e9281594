"""Points in the ball that are a good embedding of a made-up tree, so that no file is needed."""

import hashlib

import numpy as np

from tasks.edges import Edges
from tasks.errors import positive, whole
from tasks.points_files import PointsFile

SOURCE = "generated"  # where a file would be named


def toy_points(tree: Edges, length: float, dim: int) -> PointsFile:
    """Points of the disk of curvature -1 in Sarkar's construction (2011): the root is the origin, and around a node its
    parent and its children lie in equally spaced directions at the hyperbolic distance `length`. With z ⊕ y =
    (z + y) / (1 + z̄ y), which keeps angles, a child in the direction e^iθ is z ⊕ tanh(length / 2) e^iθ. Coordinates
    after the second are 0.

    tree: as `edges.complete_tree` gives it, parents before children.
    """
    whole("task.dim", dim, 2)
    step = np.tanh(positive("task.data.toy.length", length) / 2)
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
