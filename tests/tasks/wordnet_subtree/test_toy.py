"""The points of the made-up tree are where Sarkar's construction has them."""

import numpy as np
import pytest
import torch

from hyperbolic.manifolds import PoincareBall
from tasks.edges import complete_tree
from tasks.errors import UserError
from tasks.wordnet_subtree.toy import toy_points


@pytest.mark.parametrize("length", [0.7, 2.0])
def test_neighbours_are_as_far_apart_as_asked_and_evenly_around(length):
    tree = complete_tree(3, 3)
    points = torch.from_numpy(toy_points(tree, length, 2).points).double()
    ball = PoincareBall(1.0)
    assert (points[0] == 0).all()
    distances = ball.dist(points[tree.child], points[tree.parent])
    torch.testing.assert_close(distances, torch.full_like(distances, length), rtol=1e-3, atol=0)
    node = tree.names.index("0.1")
    around = np.concatenate([tree.child[tree.parent == node], tree.parent[tree.child == node]])
    directions = ball.logmap0(ball.mobius_add(-points[node], points[around]))  # directions, seen from the node
    angles = torch.atan2(directions[:, 1], directions[:, 0]).sort().values
    gaps = torch.cat([angles.diff(), 2 * torch.pi + angles[:1] - angles[-1:]])
    torch.testing.assert_close(gaps, torch.full((4,), torch.pi / 2, dtype=gaps.dtype), rtol=1e-3, atol=0)


def test_nodes_that_are_no_neighbours_are_farther_apart():
    tree = complete_tree(4, 3)
    points = torch.from_numpy(toy_points(tree, 2.0, 2).points).double()
    distances = PoincareBall(1.0).dist(points[:, None], points[None])
    near = torch.zeros_like(distances, dtype=torch.bool)
    near[tree.child, tree.parent] = near[tree.parent, tree.child] = True
    near.fill_diagonal_(True)
    assert distances[~near].min() > 2.5


def test_more_dimensions_are_empty():
    embedding = toy_points(complete_tree(2, 2), 1.0, 5)
    assert embedding.points.shape == (7, 5)
    assert (embedding.points[:, 2:] == 0).all()
    assert (embedding.manifold, embedding.c, embedding.names) == ("PoincareBall", 1.0, complete_tree(2, 2).names)


@pytest.mark.parametrize(("depth", "branching", "length", "dim", "message"), [
    (0, 2, 1.0, 2, "toy.depth"), (2, 0, 1.0, 2, "toy.branching"), (2, 2, 0.0, 2, "toy.length"), (2, 2, 1.0, 1, "task.dim"),
])  # fmt: skip
def test_a_recipe_that_cannot_be(depth, branching, length, dim, message):
    with pytest.raises(UserError, match=message):
        toy_points(complete_tree(depth, branching), length, dim)
