"""A column `split` in the user's tables says which edges and nodes are for training, validation and test."""

import numpy as np
import pytest

from configs import build, composing
from tasks.errors import UserError
from tasks.graph.folder import read_folder
from tasks.graph.graph import adopted_graph, kept_graph
from tasks.graph.splits import keys_of, split_by_class, split_edges
from tasks.vocabularies import pack_values, unpack
from tests.configurations import checked

SHARES = {"dev": 0.5, "test": 0.25}
EDGES = "source,target,split\na,b,train\nb,c,train\nc,d,valid\nd,e,TEST\na,a,\ne,a,train\nf,b,train\nf,a,\n"
LABELS = "node,split,class\na,train,x\nb,train,y\nc,train,x\nd,train,y\ne,test,x\nf,,x\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "labels.csv").write_text(LABELS)
    return tmp_path


def names_of(graph, rows) -> set:
    return {frozenset(graph.names[k] for k in np.atleast_1d(row)) for row in rows}


def test_edges_are_split_as_their_table_says(folder):
    graph = read_folder(folder, "g", labelled=False)
    parts = split_edges(graph, SHARES, 0)
    assert names_of(graph, parts["train"]) == {frozenset(pair) for pair in ("ab", "bc", "ea", "fb")}
    assert names_of(graph, parts["dev"]) == {frozenset("cd")}
    assert names_of(graph, parts["test"]) == {frozenset("de")}
    assert names_of(graph, graph.edges) >= {frozenset("fa")}  # of no split, and no wrong answer
    stored = adopted_graph(unpack(pack_values(kept_graph(graph)), "it"))
    again = split_edges(stored, SHARES, 1)
    assert all(names_of(graph, parts[split]) == names_of(graph, again[split]) for split in parts)


def test_a_kept_graph_has_its_features_to_the_last_digit(folder):
    """Times within an hour, in seconds since 1970, differ by less than float32 tells."""
    times = {name: 1.7e9 + 61.3 * k for k, name in enumerate("abcdef")}
    (folder / "features.csv").write_text("node,time\n" + "".join(f"{name},{time}\n" for name, time in times.items()))
    graph = read_folder(folder, "g", labelled=False)
    stored = adopted_graph(unpack(pack_values(kept_graph(graph)), "it"))
    assert stored.features[:, 0].tolist() == [times[name] for name in graph.names]


def test_nodes_are_split_as_their_table_says_and_what_it_lacks_is_drawn_from_train(folder):
    graph = read_folder(folder, "g", labelled=True)
    assert not graph.edge_parts  # all edges are seen
    parts = split_by_class(graph, SHARES, 0)
    assert names_of(graph, parts["test"]) == {frozenset("e")}
    assert names_of(graph, [*parts["train"], *parts["dev"]]) == {frozenset(node) for node in "abcd"}
    assert len(parts["dev"]) == 2  # half of each class
    assert any("labels.csv: 1 of 6 known classes have no split" in note for note in graph.notes)
    assert any("labels.csv: nothing has the split dev; shares of train are taken" in note for note in graph.notes)


def test_a_table_of_any_ending_may_have_splits(folder):
    (folder / "edges.txt").write_text(EDGES.replace(",", "\t"))
    graph = read_folder(folder / "edges.txt", "g", labelled=False)
    assert {split: len(rows) for split, rows in graph.edge_parts.items()} == {"train": 4, "dev": 1, "test": 1}
    assert not read_folder(folder / "edges.txt", "g", labelled=False, splits=False).edge_parts


@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_nodes_for_the_test_without_a_class_are_none(folder):
    (folder / "labels.csv").write_text(LABELS.replace("e,test,x", "e,test,") + "g,train,x\nh,train,y\n")
    graph = read_folder(folder, "g", labelled=True)
    parts = split_by_class(graph, {"dev": 0.3, "test": 0.3}, 0)
    assert names_of(graph, np.concatenate([*parts.values()])) == {frozenset(node) for node in "abcdgh"}  # all train
    assert len(parts["test"]) == 2


def test_a_class_that_no_node_for_training_has_is_named_with_its_remedy(folder):
    (folder / "labels.csv").write_text(LABELS.replace("e,test,x", "e,test,z"))
    with pytest.raises(UserError, match="class z, so it cannot be learned; give one of its nodes the split train, or"):
        split_by_class(read_folder(folder, "g", labelled=True), SHARES, 0)


def test_edges_of_no_split_for_validation_are_drawn_from_train(folder):
    (folder / "edges.csv").write_text(EDGES.replace("valid", "train"))
    graph = read_folder(folder, "g", labelled=False)
    parts = split_edges(graph, SHARES, 0)
    assert [len(parts[split]) for split in ("train", "dev", "test")] == [3, 2, 1]
    assert names_of(graph, parts["test"]) == {frozenset("de")}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("edges.csv", "valid", "fold 3", "edges.csv, line 4: 'fold 3' is no split; write train, dev or test"),
        ("labels.csv", "test", "not test", "labels.csv, line 6: 'not test' is no split"),
        ("edges.csv", "f,a,", "b,a,test", "line 9: the edge 'b', 'a' is of test here, and of train on a line before"),
        ("labels.csv", "f,,x", "a,test,x", "line 7: the node 'a' is of test here, and of train on a line before"),
        ("labels.csv", "train", "dev", "labels.csv: nothing that can be used has the split train"),
    ],
)
def test_what_cannot_be_a_split_is_named(folder, file, old, new, said):
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(UserError, match=said):
        read_folder(folder, "g", labelled=file == "labels.csv")


@pytest.mark.parametrize("task", ["graph", "graph_nc"])
def test_splits_of_a_table_go_through_the_cache_and_bound_what_training_draws(folder, tmp_path, task, capsys):
    (folder / "edges.csv").write_text(EDGES + "g,a,\n")
    composing.register()
    words = (f"task={task}", f"data.dir={folder}", f"paths.cache_dir={tmp_path / 'cache'}", "task.data.shares.dev=0.5")
    data = [build.build(checked(*words))[1] for _ in range(2)]
    splits = [{split: rows.tolist() for split, rows in each.parts().items()} for each in data]
    assert splits[0] == splits[1]
    assert len(splits[1]["test"]) == 1
    if task == "graph":  # an edge of no split is no wrong answer
        sizes = data[1].model_sizes
        names = data[1].graph.names
        pair = sorted(names.index(node) for node in "fa")
        assert keys_of(np.array([pair]), len(names))[0] in sizes["known_links"]
        data[1].load()
        assert "falls into 3 parts instead of 2" in capsys.readouterr().out  # g was alone before


def test_a_split_beside_an_empty_class_counts_where_the_class_stands_on_another_line(folder):
    (folder / "labels.csv").write_text(LABELS.replace("e,test,x", "e,test,\ne,,x") + "a,train,x\n")
    graph = read_folder(folder, "g", labelled=True)
    assert names_of(graph, graph.parts["test"]) == {frozenset("e")}
    assert any("1 of 6 known classes have no split" in note for note in graph.notes)
