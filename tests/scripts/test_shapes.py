"""Scores of graphs whose shape is known, and of random graphs against plain loops over all nodes."""

import itertools
import math

import numpy as np
import pytest
import torch

from scripts.shapes import (
    FAR,
    Net,
    _different,
    curvature,
    hyperbolicity,
    krackhardt,
    one_way,
    relative_delta,
    shape,
)

PATH = [(k, k + 1) for k in range(40)]
CYCLE = [(k, (k + 1) % 41) for k in range(41)]
TREE = [((k - 1) // 3, k) for k in range(1, 121)]  # each node has three children
GRID = [(10 * i + j, 10 * i + j + step) for i in range(10) for j in range(10) for step in (1, 10)
        if (step == 10 and i < 9) or (step == 1 and j < 9)]  # fmt: skip


def generator(seed=0):
    return np.random.default_rng(seed)


def random_edges(n, m, seed):
    return generator(seed).integers(n, size=(m, 2))


def plain_distances(edges, directed):
    """{u: {v: steps}} by a search from each node."""
    ends = {int(u): set() for u in edges.ravel()}
    for u, v in edges.tolist():
        ends[u].add(v)
        if not directed:
            ends[v].add(u)
    distances = {}
    for source in ends:
        distances[source], level = {source: 0}, [source]
        for steps in itertools.count(1):
            level = [v for v in set().union(*(ends[u] for u in level)) if v not in distances[source]]
            if not level:
                break
            distances[source] |= dict.fromkeys(level, steps)
    return distances


@pytest.mark.parametrize("seed", range(3))
def test_distances_and_components_are_those_of_a_plain_search(seed):
    edges = random_edges(90, 70, seed)
    net, expected, nodes = Net(edges), plain_distances(edges, directed=False), np.unique(edges)
    for part in np.split(np.arange(net.n), range(64, net.n, 64)):
        far = net.distances(part)
        for column, source in enumerate(part):
            result = {int(nodes[k]): int(far[k, column]) for k in range(net.n) if far[k, column] != FAR}
            assert result == expected[int(nodes[source])]
    same = {(u, v) for u in expected for v in expected[u]}
    assert same == {(int(u), int(v)) for i, u in enumerate(nodes) for j, v in enumerate(nodes)
                    if net.component[i] == net.component[j]}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_krackhardt_is_the_share_of_pairs(seed):
    edges = random_edges(80, 100, seed)
    reached = {(u, v) for u, far in plain_distances(edges, directed=True).items() for v in far if u != v}
    expected = sum((v, u) not in reached for u, v in reached) / len(reached)
    assert krackhardt(edges, 1000, generator()) == pytest.approx(expected)
    assert krackhardt(edges, 20, generator()) == pytest.approx(expected, abs=0.4)


def test_krackhardt_of_known_graphs():
    assert krackhardt(np.array(TREE), 1000, generator()) == one_way(np.array(TREE)) == 1
    both = np.array(TREE + [(v, u) for u, v in TREE])
    assert krackhardt(both, 1000, generator()) == one_way(both) == 0
    assert krackhardt(np.array(CYCLE), 1000, generator()) == 0
    assert one_way(np.array(CYCLE)) == 1
    assert one_way(np.array([(0, 1), (1, 0), (1, 2), (3, 3)])) == pytest.approx(1 / 3)
    for nothing in (np.empty((0, 2), dtype=int), np.array([(3, 3)])):
        assert math.isnan(krackhardt(nothing, 10, generator()))
        assert math.isnan(one_way(nothing))


def test_curvature_of_a_star_is_known():
    """a, b, c are leaves: m is the hub and xi = (1 + 1 - 4) / 2 = -1; one of them the hub happens in few triangles."""
    star = Net(np.array([(0, k) for k in range(1, 2000)]))
    assert curvature(star, 200, generator()) == pytest.approx(-1, abs=0.05)


def test_the_sign_of_the_curvature():
    of = {name: curvature(Net(np.array(edges)), 600, generator(1)) for name, edges in
          (("path", PATH), ("cycle", CYCLE), ("tree", TREE), ("grid", GRID))}  # fmt: skip
    assert abs(of["path"]) < 0.1
    assert of["cycle"] > 0.5
    assert of["tree"] < -1
    assert of["tree"] < of["grid"]


def test_curvature_is_the_mean_of_the_formula():
    edges = random_edges(12, 16, 3)
    far = plain_distances(edges, directed=False)
    nodes = max((sorted(f) for f in far.values()), key=len)
    values = []
    for a, b, c in itertools.permutations(nodes, 3):
        middle = [m for m in nodes if far[b][m] == far[b][c] // 2 and far[b][m] + far[m][c] == far[b][c] and m != a]
        values += [(far[a][m] ** 2 + far[b][c] ** 2 / 4 - (far[a][b] ** 2 + far[a][c] ** 2) / 2) / (2 * far[a][m])
                   for m in middle[:1]]  # fmt: skip
    assert curvature(Net(edges), 4000, generator()) == pytest.approx(np.mean(values), abs=0.1)


def test_curvature_needs_three_connected_nodes():
    assert math.isnan(curvature(Net(np.array([(0, 1), (2, 3), (4, 4)])), 10, generator()))
    assert math.isnan(curvature(Net(np.empty((0, 2), dtype=int)), 10, generator()))


def test_hyperbolicity_of_known_graphs():
    assert hyperbolicity(Net(np.array(TREE)), 50, generator())[:2] == (0, 0)
    cycle = Net(np.array([(k, (k + 1) % 40) for k in range(40)]))
    largest, mean, diameter = hyperbolicity(cycle, 200, generator())
    assert (largest, diameter) == (10, 20)
    assert 0 < mean < 10
    assert hyperbolicity(Net(np.array([(0, 1), (1, 2)])), 50, generator()) == (0, 0, 2)


def test_the_four_nodes_of_a_quadruple_are_different():
    square = Net(np.array([(0, 1), (1, 2), (2, 3), (3, 0)]))
    assert hyperbolicity(square, 5, generator()) == (1, 1, 2)
    drawn = _different(5, 10_000, generator())
    assert {len({*column}) for column in drawn.T} == {4}
    assert np.abs(np.bincount(drawn.ravel(), minlength=5) / 8_000 - 1).max() < 0.02  # each alike


def test_hyperbolicity_is_of_the_largest_component():
    net = Net(np.array(TREE + [(1000 + u, 1000 + v) for u, v in CYCLE]))
    assert hyperbolicity(net, 50, generator())[0] == 0


def test_shape_has_the_facts_and_the_seed_decides():
    triples = torch.tensor([(u, k % 2, v) for k, (u, v) in enumerate([*TREE, (5, 5), (1, 0)])])
    result = shape(triples, 50, 0)
    assert (result.triples, result.entities, result.relations, result.component) == (122, 121, 2, 1)
    assert result.mean_degree == pytest.approx(2 * 120 / 121)
    assert result == shape(triples, 50, 0)
    empty = shape(torch.empty(0, 3, dtype=torch.long), 50, 0)
    assert (empty.triples, empty.entities, empty.diameter) == (0, 0, 0)


def test_relative_delta_is_that_of_half_the_diameter():
    assert relative_delta(0.0, 8) == 0
    assert relative_delta(1.5, 6) == 0.5
    assert relative_delta(2.0, 4) == 1
    assert math.isnan(relative_delta(math.nan, 0))
