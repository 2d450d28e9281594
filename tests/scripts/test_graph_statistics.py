"""python scripts/graph_statistics.py: the table, the sentence below it, and what it says of a folder it cannot read."""

import gzip
import json

import pytest

from scripts import graph_statistics
from tasks.kg_completion.toy import toy_graph
from tasks.kg_completion.triples import FILES


@pytest.fixture
def folder(tmp_path):
    graph = toy_graph(depth=3, branching=3, noise=4, held_out=0.2, seed=0)
    for split, name in FILES.items():
        rows = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.triples[split].tolist()]
        (tmp_path / name).write_text("".join("\t".join(row) + "\n" for row in rows))
    return tmp_path


def test_the_table_of_a_small_graph(folder, capsys):
    assert graph_statistics.main([str(folder), "--samples", "100"]) == 0
    output = capsys.readouterr().out
    assert "40 entities, 4 relations" in output
    table = {line.split()[-1]: line.split()[:-1] for line in output.splitlines() if line.endswith(("_of", "_to"))}
    assert set(table) == {"parent_of", "ancestor_of", "sibling_of", "linked_to"}
    assert table["parent_of"][:4] == ["39", "1-N", "1.00", "1.00"]
    assert float(table["parent_of"][4]) < -1
    header = next(line for line in output.splitlines() if line.endswith("relation"))
    row = next(line for line in output.splitlines() if line.endswith("parent_of"))
    assert header.index("relation") == row.index("parent_of")
    assert output.splitlines()[-1].endswith("compare both on the dev split.")
    assert graph_statistics.main([str(folder), "--samples", "100"]) == 0
    assert capsys.readouterr().out == output
    assert graph_statistics.main([str(folder), "--samples", "100", "--seed", "1"]) == 0
    assert capsys.readouterr().out != output


def test_a_graph_of_edges(tmp_path, capsys):
    """A cycle of 8 nodes: the sums of opposite pairs are 8, 4 and 4, so delta is 2, half of the diameter."""
    circle, lone = tmp_path / "circle", tmp_path / "tree"
    for folder in (circle, lone):
        folder.mkdir()
    (circle / "edges.tsv").write_text("".join(f"{k}\t{(k + 1) % 8}\n" for k in range(8)))
    (lone / "disease_nc.edges.csv").write_text("".join(f"{k},{(k - 1) // 2}\n" for k in range(1, 31)))
    written = tmp_path / "out.json"
    assert graph_statistics.main([str(circle), str(lone), "--samples", "50", "--output", str(written)]) == 0
    output = capsys.readouterr().out
    assert "circle: 8 nodes, 8 edges, 0 isolated\nneighbours of a node, mean 2.00; largest connected part 100.0%" in output
    assert "largest 2.00, mean" in output
    assert "diameter seen 4; 2 delta / diameter 1.00" in output
    assert "disease_nc: 31 nodes, 30 edges" in output
    assert "largest 0.00, mean 0.00; diameter seen 8;" in output
    assert output.count("Gromov's hyperbolicity") == 1
    graphs = json.loads(written.read_text())["graphs"]
    assert (graphs["circle"]["delta_max"], graphs["tree"]["delta_max"], graphs["tree"]["diameter"]) == (2.0, 0.0, 8)


def test_a_file_is_a_hierarchy(tmp_path, capsys):
    (tmp_path / "animals.tsv").write_text("".join(f"n{k}\tn{(k - 1) // 2}\n" for k in range(1, 31)))
    assert graph_statistics.main([str(tmp_path / "animals.tsv"), "--samples", "50"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("animals.tsv: read as edges\nanimals.tsv: 31 nodes, 30 edges, 0 isolated")
    assert ": the graph is a tree; the more it branches, " in output
    (tmp_path / "circle.tsv").write_text("".join(f"n{k}\tn{(k + 1) % 9}\n" for k in range(9)))
    assert graph_statistics.main([str(tmp_path / "circle.tsv"), "--samples", "50"]) == 0
    assert ": the graph is little like a tree" in capsys.readouterr().out


def test_triples_are_known_by_what_stands_in_them(tmp_path, folder, capsys):
    """One file, a folder of train alone, and edges with commas beside."""
    assert graph_statistics.main([str(folder), "--samples", "20"]) == 0
    entities = capsys.readouterr().out.split("entities")[0].rpartition(" ")[0].rpartition(" ")[2]
    triples = "".join((folder / f"{name}.txt").read_text() for name in ("train", "valid", "test"))
    (tmp_path / "mine.csv").write_text("head,relation,tail\n" + triples.replace("\t", ","))
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "train.tsv").write_text(triples)
    for place in (tmp_path / "mine.csv", tmp_path / "alone"):
        assert graph_statistics.main([str(place), "--samples", "20"]) == 0
        assert f"{place.name}, train: 223 triples, {entities} entities" in capsys.readouterr().out
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    assert graph_statistics.main([str(tmp_path), "--samples", "5"]) == 0
    assert "3 nodes, 2 edges" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("header", "row"), [("source,target,weight", "{},{},1"), ("weight,Dst,Src", "1,{},{}"), ("child,since,parent", "{},1,{}")]
)
def test_a_file_whose_first_line_names_columns_of_edges_has_edges(tmp_path, capsys, header, row):
    """As in a folder; of three columns without such a line it has triples, and one of pairs has edges."""
    lines = [row.format(*ends) for ends in ("ab", "bc", "cd")]
    (tmp_path / "mine").mkdir()
    for file in (tmp_path / "links.csv", tmp_path / "mine" / "edges.csv"):
        file.write_text("\n".join([header, *lines]) + "\n")
    said = []
    for place in (tmp_path / "links.csv", tmp_path / "mine"):
        assert graph_statistics.main([str(place), "--samples", "5"]) == 0
        said.append(capsys.readouterr().out.replace(str(place), "PLACE").replace("PLACE/edges.csv", "PLACE"))
    assert said[0] == "links.csv: read as edges\n" + said[1].replace("mine: 4 nodes, 3 edges", "links.csv: 4 nodes, 3 edges")
    (tmp_path / "links.csv").write_text("\n".join(lines))
    assert graph_statistics.main([str(tmp_path / "links.csv"), "--samples", "5"]) == 0
    assert "links.csv: read as triples; of edges with a further column, as a weight, the first line" in capsys.readouterr().out


def test_a_folder_that_has_no_graph_is_told(tmp_path, folder, capsys):
    (tmp_path / "empty").mkdir()
    assert graph_statistics.main([str(tmp_path / "empty")]) == 1
    assert "has the files of none of the published graphs cora, citeseer" in capsys.readouterr().err
    assert graph_statistics.main([str(folder), "--samples", "5", "--output", str(tmp_path / "out.json")]) == 1
    assert "--output keeps what was measured of graphs" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_files_are_those_that_tasks_read(tmp_path, folder, capsys):
    """Packed, and with other names; two graphs of one name would be one in the file."""
    assert graph_statistics.main([str(folder), "--samples", "50"]) == 0
    expected = capsys.readouterr().out
    (folder / "train.txt.gz").write_bytes(gzip.compress((folder / "train.txt").read_bytes()))
    (folder / "train.txt").unlink()
    assert graph_statistics.main([str(folder), "--samples", "50"]) == 0
    assert capsys.readouterr().out == expected
    places = [tmp_path / place / "g" for place in "ab"]
    for place in places:
        place.mkdir(parents=True)
        (place / "edges.tsv.gz").write_bytes(gzip.compress(b"a\tb\nb\tc\n"))
    written = tmp_path / "out.json"
    assert graph_statistics.main([str(places[0]), "--samples", "5", "--output", str(written)]) == 0
    assert list(json.loads(written.read_text())["graphs"]) == ["g"]
    assert graph_statistics.main([*map(str, places), "--output", str(written)]) == 1
    assert "and g is there twice" in capsys.readouterr().err


def test_other_graphs_of_the_file_stay_in_it(tmp_path, capsys):
    """One that is measured again is replaced; a file of other samples, and one that cannot be read, stay as they are."""
    written = tmp_path / "out.json"
    for name, edges in (("a", "a,b\nb,c\n"), ("b", "a,b\nb,c\n"), ("a", "a,b\n")):
        (tmp_path / f"{name}.csv").write_text(edges)
        assert graph_statistics.main([str(tmp_path / f"{name}.csv"), "--samples", "5", "--output", str(written)]) == 0
    graphs = json.loads(written.read_text())["graphs"]
    assert {name: facts["nodes"] for name, facts in graphs.items()} == {"a.csv": 2, "b.csv": 3}
    capsys.readouterr()
    for text, words, said in (
        (written.read_text(), ["--samples", "6"], f"{written} has graphs of --samples 5 --seed 0, and these are of --samples 6"),
        (written.read_text(), ["--samples", "5", "--seed", "1"], "--samples 5 --seed 1: one file has numbers of one kind."),
        ("{", ["--samples", "5"], f"{written} is damaged or older (JSONDecodeError"),
        ('{"graphs": {"a": {}}}', [], f"{written} is damaged or older (ValueError: delta_max of a is None); delete it and make it again"),
    ):
        written.write_text(text)
        assert graph_statistics.main([str(tmp_path / "b.csv"), "--output", str(written), *words]) == 1
        output = capsys.readouterr()
        assert (output.out, said in output.err) == ("", True), output.err
        assert written.read_text() == text


def test_shared_triples_are_a_note(folder, capsys):
    (folder / "test.txt").write_text((folder / "train.txt").read_text())
    assert graph_statistics.main([str(folder), "--samples", "10"]) == 0
    assert "triples are also in train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("xi", "words"),
    [(-2.0, "much like a tree"), (-0.5, "somewhat like a tree"), (0.1, "little like a tree"), (float("nan"), "do not say")],
)
def test_the_sentence_follows_the_weighted_mean(xi, words):
    rows = [
        graph_statistics.Row("big", 1000, "1-N", 1.0, 1.0, xi), graph_statistics.Row("small", 1, "1-1", 0.0, 0.0, xi),
        graph_statistics.Row("pairs", 5000, "1-1", 1.0, 1.0, float("nan")),
    ]  # fmt: skip
    assert words in graph_statistics.verdict(rows)


def test_faults_take_one_line(folder, capsys):
    assert graph_statistics.main([str(folder / "nowhere")]) == 1
    assert graph_statistics.main([str(folder), "--samples", "0"]) == 1
    assert graph_statistics.main([str(folder), "--seed", "-1"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert "--samples must be a whole number of at least 1" in lines[1]
