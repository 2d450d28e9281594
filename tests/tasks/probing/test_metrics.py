"""Trees and metrics against brute force, scipy's spearmanr, and trees whose numbers are known."""

import itertools

import numpy as np
import pytest
from scipy.stats import spearmanr

from tasks.probing.metrics import LENGTHS, mean_over_lengths, root, spearman
from tasks.probing.trees import TreeError, check_tree, measure, spanning_trees

CHAIN, STAR = [-1, 0, 1, 2], [-1, 0, 0, 0]


def random_heads(draw, n):
    """A tree whose words are in any order."""
    order = draw.permutation(n)
    heads = np.full(n, -1)
    for k in range(1, n):
        heads[order[k]] = order[draw.integers(k)]
    return heads.tolist()


def kruskal(distances, counted):
    """By hand: the shortest pair that joins two parts, pairs of the same length row by row."""
    words = [k for k in range(len(distances)) if counted[k]]
    part, edges = {k: {k} for k in words}, set()
    for i, j in sorted(itertools.combinations(words, 2), key=lambda pair: distances[pair]):
        if part[i] is not part[j]:
            edges.add((i, j))
            part[i] |= part[j]
            for k in part[j]:
                part[k] = part[i]
    return edges


def test_distances_and_depths_of_trees_by_hand():
    distances, depths = measure(CHAIN)
    assert depths.tolist() == [0, 1, 2, 3]
    assert distances.tolist() == [[abs(i - j) for j in range(4)] for i in range(4)]
    distances, depths = measure(STAR)
    assert depths.tolist() == [0, 1, 1, 1]
    assert distances[1:, 1:].tolist() == [[0, 2, 2], [2, 0, 2], [2, 2, 0]]
    assert measure([-1])[0].tolist() == [[0]]


@pytest.mark.parametrize("n", [2, 7, 20])
def test_distances_are_the_shortest_paths(n):
    heads = random_heads(np.random.default_rng(n), n)
    paths = np.where(np.eye(n), 0, np.inf)
    for child, head in enumerate(heads):
        if head >= 0:
            paths[child, head] = paths[head, child] = 1
    for k in range(n):
        paths = np.minimum(paths, paths[:, [k]] + paths[[k]])
    distances, depths = measure(heads)
    assert (distances == paths).all()
    assert (depths == paths[heads.index(-1)]).all()


@pytest.mark.parametrize(
    ("heads", "node"), [([-1, 5], 1), ([-1, -2], 1), ([-1, 0, -1], 2), ([1, 0], 0), ([-1, 2, 3, 1], 1), ([-1, 1], 1)]
)
def test_what_is_no_tree_is_refused(heads, node):
    with pytest.raises(TreeError) as caught:
        check_tree(heads)
    assert caught.value.node == node


@pytest.mark.parametrize("ties", [False, True])
def test_spanning_trees_are_those_of_kruskal(ties):
    draw = np.random.default_rng(3)
    counted = draw.random((2, 30, 9)) < 0.8
    counted[:, 0], counted[:, 1, 1:] = False, False  # nobody, and at most one
    upper = draw.integers(0, 4, (2, 30, 9, 9)) if ties else draw.random((2, 30, 9, 9))
    distances = np.triu(upper, 1).astype(float)
    distances += distances.swapaxes(-2, -1)
    trees = spanning_trees(distances, counted)
    for place in np.ndindex(2, 30):
        edges = set(map(tuple, np.argwhere(trees[place]).tolist()))
        assert edges == kruskal(distances[place], counted[place])
        assert len(edges) == max(0, counted[place].sum() - 1)


def test_the_spanning_tree_of_the_gold_distances_is_the_tree():
    heads = random_heads(np.random.default_rng(5), 12)
    edges = {tuple(sorted((child, head))) for child, head in enumerate(heads) if head >= 0}
    tree = spanning_trees(measure(heads)[0], np.ones(12, bool))
    assert set(map(tuple, np.argwhere(tree).tolist())) == edges


def test_punctuation_is_bridged():
    """A chain whose second word is punctuation: the first and the third are joined over it."""
    tree = spanning_trees(measure(CHAIN)[0], np.array([True, False, True, True]))
    assert np.argwhere(tree).tolist() == [[0, 2], [2, 3]]


@pytest.mark.parametrize("values", ["all different", "ties", "one value"])
def test_correlations_are_those_of_scipy(values):
    draw = np.random.default_rng(1)
    x, y = draw.random((6, 9)), draw.integers(0, 4, (6, 9))
    if values != "all different":
        x = draw.integers(0, 3, (6, 9)).astype(float)
    if values == "one value":
        x[2], y[4] = 1.5, 2
    with np.errstate(all="ignore"):
        expected = [spearmanr(a, b).statistic for a, b in zip(x, y, strict=True) if len(set(a)) > 1 and len(set(b)) > 1]
    correlations = spearman(x, y)
    if values == "one value":
        assert (correlations[2], correlations[4]) == (0, 0)
        correlations = np.delete(correlations, [2, 4])
    np.testing.assert_allclose(correlations, expected, rtol=1e-12)


def test_the_root_is_the_least_deep_word_that_is_no_punctuation():
    depths = np.array([3.0, 0.5, 2.0, 2.0])
    assert root(depths, np.array([True, False, True, True])) == 2
    assert root(depths, np.ones(4, bool)) == 1
    assert root(depths, np.zeros(4, bool)) == 1


def test_each_length_counts_the_same():
    sums, counts = np.zeros((2, len(LENGTHS))), np.zeros(len(LENGTHS))
    sums[:, 0], counts[0] = [1.0, 2.0], 2  # two sentences of 5 words
    sums[:, 45], counts[45] = [0.9, -0.1], 1  # one of 50
    np.testing.assert_allclose(mean_over_lengths(sums, counts), [0.7, 0.45])
    assert mean_over_lengths(sums * 0, counts * 0).tolist() == [0, 0]
