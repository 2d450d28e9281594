"""Splits are disjoint, pairs without an edge have none, and what HGCN's program does differently is a choice."""

from types import SimpleNamespace

import numpy as np
import pytest

from configs import checks, composing
from configs.build import build
from tasks.errors import UserError
from tasks.graph.graph import Graph, undirected
from tasks.graph.splits import keys_of, non_edges, split_by_class, split_edges, split_nodes
from tasks.graph.toy import toy_graph
from tests.tasks.graph.releases import planetoid_files

TREE = {"shape": "tree", "depth": 4, "branching": 3, "nodes": 0, "edges": 0, "seed": 0}


def graph(**changes) -> Graph:
    return toy_graph(labelled=True, **{**TREE, **changes})


def test_edges_are_in_one_split_each():
    tree = graph()
    parts = split_edges(tree, {"dev": 0.1, "test": 0.2}, 1234)
    keys = np.concatenate([keys_of(part, tree.n) for part in parts.values()])
    assert sorted(keys) == sorted(keys_of(tree.edges, tree.n))
    assert {split: len(part) for split, part in parts.items()} == {"dev": 12, "test": 24, "train": 84}
    again = split_edges(tree, {"dev": 0.1, "test": 0.2}, 1234)
    assert all(np.array_equal(parts[split], again[split]) for split in parts)


def test_pairs_without_an_edge_are_different_and_clean():
    tree = graph()
    pairs = non_edges(tree, 500, 7)
    keys = keys_of(pairs, tree.n)
    assert len(set(keys.tolist())) == 500
    assert not set(keys.tolist()) & set(keys_of(tree.edges, tree.n).tolist())
    assert (pairs[:, 0] < pairs[:, 1]).all()
    complete = Graph("complete", 4, np.array([[a, b] for a in range(4) for b in range(a + 1, 4)]))
    with pytest.raises(UserError, match="too dense"):
        non_edges(complete, 1, 0)


def test_of_splits_that_a_release_fixes_is_said_that_settings_do_nothing(tmp_path):
    (tmp_path / "graphs").mkdir()
    planetoid_files(tmp_path / "graphs" / "cora")
    composing.register()
    for task, said in (("cora_nc", True), ("graph_nc_toy", False)):
        cfg = composing.composed(f"task={task}", f"paths.data_dir={tmp_path}")
        _, data = build(checks.check(cfg))
        assert any("shares and task.data.split_seed do nothing" in note for note in data._notes) == said


def test_no_pair_of_nodes_is_in_two_splits():
    composing.register()
    _, data = build(checks.check(composing.composed("task=graph_toy")))
    pairs = {split: {tuple(sorted(pair)) for pair in of.tolist()} for split, of in data.examples().items()}
    assert len(set.union(*pairs.values())) == sum(map(len, pairs.values()))
    assert len(pairs["test"]) > len(data.parts()["test"]), "wrong ones are among them"


def labelled(labels) -> Graph:
    labels = np.array(labels)
    return Graph("g", len(labels), np.array([[0, 1]]), labels=labels)


def test_nodes_are_in_one_split_each_and_balanced():
    four = labelled([0] * 40 + [1] * 60 + [2] * 50 + [3] * 50)
    parts = split_nodes(four, {"dev": 0.15, "test": 0.15}, 1234, disjoint=True)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(200))
    for split in ("dev", "test"):
        assert (four.labels[parts[split]] == 0).sum() == 6 == (four.labels[parts[split]] > 0).sum()


def test_the_overlapping_splits_of_the_program_are_a_choice():
    four = labelled([0] * 40 + [1] * 60 + [2] * 50 + [3] * 50)
    parts = split_nodes(four, {"dev": 0.15, "test": 0.15}, 1234, disjoint=False)
    assert set(parts["train"].tolist()) & set(parts["test"].tolist())
    two = labelled([0] * 40 + [1] * 60)  # with two classes both are the same
    first, second = (split_nodes(two, {"dev": 0.1, "test": 0.6}, 1, disjoint=d) for d in (True, False))
    assert all(np.array_equal(first[split], second[split]) for split in first)


def test_a_graph_of_ones_own_is_split_by_class():
    graph = labelled([0] * 3 + [1] * 60 + [-1] * 7 + [2] * 40 + [3])
    parts = split_by_class(graph, {"dev": 0.1, "test": 0.2}, 0)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == np.flatnonzero(graph.labels >= 0).tolist()
    counts = {split: np.bincount(graph.labels[nodes], minlength=4).tolist() for split, nodes in parts.items()}
    assert counts == {"dev": [0, 6, 4, 0], "test": [1, 12, 8, 0], "train": [2, 42, 28, 1]}
    assert not np.array_equal(parts["test"], split_by_class(graph, {"dev": 0.1, "test": 0.2}, 1)["test"])
    with pytest.raises(UserError, match="no node for training has the class 3"):
        split_by_class(graph, {"dev": 0.1, "test": 0.6}, 0)


def test_nodes_without_a_class_are_in_no_split():
    graph = labelled([0, 1, 2, -1] * 30)
    for disjoint in (True, False):
        parts = split_nodes(graph, {"dev": 0.2, "test": 0.2}, 0, disjoint=disjoint)
        assert all((graph.labels[nodes] >= 0).all() for nodes in parts.values())


def test_a_class_that_training_lacks_and_an_empty_split_are_told():
    with pytest.raises(UserError, match="no node for training has the class"):
        split_nodes(labelled([0, 0, 1, 1, 2]), {"dev": 0.4, "test": 0.4}, 3, disjoint=True)
    with pytest.raises(UserError, match="no node is left for dev"):
        split_nodes(labelled([0, 0, 1, 1, 1]), {"dev": 0.0, "test": 0.5}, 0, disjoint=True)
    with pytest.raises(UserError, match="dev has none"):
        split_edges(graph(), {"dev": 0.001, "test": 0.2}, 0)


def test_edges_are_taken_in_both_directions_once():
    edges, notes = undirected(np.array([[1, 0], [0, 1], [2, 2], [3, 1], [3, 1]]), 4, "file")
    assert edges.tolist() == [[0, 1], [1, 3]]
    assert notes == (
        "1 edges from a node to itself were left out",
        "1 repeated edges were left out",
        "1 edges have no reverse; all are taken in both directions",
    )
    with pytest.raises(UserError, match=r"file, edge 2: it joins 1 and 4, and nodes are numbered from 0 to 3"):
        undirected(np.array([[0, 1], [1, 4]]), 4, "file")
    with pytest.raises(UserError, match="no edge between two nodes"):
        undirected(np.array([[1, 1]]), 4, "file")


def test_the_random_graph_has_the_edges_that_were_asked_for():
    random = graph(shape="random", nodes=500, edges=2000)
    assert (random.n, len(random.edges)) == (500, 2000)
    assert len(np.unique(keys_of(random.edges, random.n))) == 2000
    assert (random.edges[:, 0] < random.edges[:, 1]).all()


def test_dev_is_cut_off_before_test_as_in_hgcns_program():
    edges = np.stack([np.zeros(40, int), np.arange(1, 41)], 1)
    graph = SimpleNamespace(edges=edges, edge_parts={}, name="star")
    order = edges[np.random.RandomState(7).permutation(40)]
    parts = split_edges(graph, {"dev": 0.05, "test": 0.1}, 7)
    assert [parts[k].tolist() for k in ("dev", "test", "train")] == [order[:2].tolist(), order[2:6].tolist(), order[6:].tolist()]
