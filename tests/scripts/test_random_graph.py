"""python scripts/random_graph.py: the files, the same for the same seed, and what is refused."""

import numpy as np
import pytest

from scripts import random_graph
from tasks.graph.folder import read_folder
from tasks.kg_completion.triples import FILES, read_graph

SIZES = ["--entities", "40", "--triples", "90", "--relations", "3", "--held-out", "7"]


def test_the_graph_has_the_sizes_of_its_options(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(random_graph, "BLOCK", 32)
    assert random_graph.main([str(tmp_path / "a"), *SIZES]) == 0
    assert "train.txt: 90 triples" in capsys.readouterr().out
    lines = {split: (tmp_path / "a" / name).read_text().splitlines() for split, name in FILES.items()}
    assert {split: len(rows) for split, rows in lines.items()} == {"train": 90, "dev": 7, "test": 7}
    heads = [row.split("\t")[0] for row in lines["train"]]
    assert heads[:40] == [f"e{k}" for k in range(40)]
    assert sum(int(head[1:]) < 10 for head in heads[40:]) > 20, "a few entities are frequent"
    graph = read_graph(tmp_path / "a")
    assert (len(graph.entities), len(graph.relations)) == (40, 3)
    assert not any(notes.unseen for notes in graph.notes.values())


def test_the_seed_decides(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder, seed in zip(folders, "001", strict=True):
        assert random_graph.main([str(folder), *SIZES, "--seed", seed]) == 0
    first, same, other = ((folder / "train.txt").read_text() for folder in folders)
    assert first == same != other


def test_what_is_refused(tmp_path, capsys):
    assert random_graph.main([str(tmp_path), *SIZES[2:], "--entities", "0"]) == 1
    assert "--entities must be" in capsys.readouterr().err
    (tmp_path / "valid.txt").write_text("mine")
    assert random_graph.main([str(tmp_path), *SIZES]) == 1
    assert "has a valid.txt already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["valid.txt"]


EDGES = ["--edges", "150", "--nodes", "60"]


def test_an_edge_list_has_different_edges_and_no_lonely_node(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(random_graph, "BLOCK", 32)
    assert random_graph.main([str(tmp_path / "a"), *EDGES, "--features", "5"]) == 0
    assert "edges.tsv: 150 edges" in capsys.readouterr().out
    graph = read_folder(tmp_path / "a", "a", labelled=False)
    assert (graph.n, graph.edges.shape, graph.features.shape) == (60, (150, 2), (60, 5))
    assert graph.notes == (), "no edge is repeated, in either direction, or joins a node to itself"
    assert graph.isolated == 0
    degrees = np.bincount(graph.edges.ravel())
    assert degrees[:15].sum() > degrees[-15:].sum(), "small numbers are frequent"
    assert random_graph.main([str(tmp_path / "b"), *EDGES]) == 0
    assert (tmp_path / "b" / "edges.tsv").read_text() == (tmp_path / "a" / "edges.tsv").read_text()
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["edges.tsv"]


def test_an_edge_list_has_no_triples(tmp_path, capsys):
    for option in ("--entities", "--triples"):
        assert random_graph.main([str(tmp_path), *EDGES, option, "9"]) == 1
        assert f"{option} is of a knowledge graph" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--nodes", "--features"])
def test_triples_have_no_options_of_an_edge_list(tmp_path, capsys, option):
    assert random_graph.main([str(tmp_path), "--triples", "10", option, "9"]) == 1
    assert f"{option} is of a list of edges" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_edge_list_that_is_too_dense_is_refused(tmp_path, capsys):
    assert random_graph.main([str(tmp_path), "--edges", "30", "--nodes", "10"]) == 1
    assert "more than half of all pairs of 10 nodes" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
