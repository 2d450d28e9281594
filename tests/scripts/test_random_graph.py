"""python scripts/random_graph.py: the files, the same for the same seed, and what is refused."""

from scripts import random_graph
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
