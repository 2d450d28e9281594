"""Edges from files and made up, and what is above and below a node, against counting by hand."""

import numpy as np
import pytest

from tasks.edges import (
    Edges,
    check_cycles,
    closure,
    complete_tree,
    depths,
    descendants,
    levels_below_tops,
    nodes_on_cycles,
    read_edges,
)
from tasks.errors import UserError

#       0
#     1   2
#    3  4     (4 is below 1 and 2)
#    5
CHILD, PARENT = np.array([1, 2, 3, 4, 4, 5]), np.array([0, 0, 1, 1, 2, 3])


def brute(child, parent, n) -> set[tuple[int, int]]:
    reach = np.zeros((n, n), dtype=bool)
    reach[child, parent] = True
    for _ in range(n):
        reach |= (reach.astype(int) @ reach.astype(int)) > 0
    return {(int(i), int(j)) for i, j in zip(*np.nonzero(reach), strict=True) if i != j}


def test_closure_by_hand():
    low, high = closure(CHILD, PARENT, 6)
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [
        (1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 3),
    ]  # fmt: skip
    assert len(nodes_on_cycles(CHILD, PARENT, 6)) == 0
    assert low.dtype == np.int32


@pytest.mark.parametrize("seed", range(5))
def test_closure_of_graphs_with_cycles_against_matrix_powers(seed):
    draw = np.random.default_rng(seed)
    ends = np.unique(draw.integers(0, 12, size=(14, 2)), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    low, high = closure(ends[:, 0], ends[:, 1], 12)
    pairs = brute(ends[:, 0], ends[:, 1], 12)
    assert set(zip(low.tolist(), high.tolist(), strict=True)) == pairs
    assert len(low) == len(pairs)
    assert {*nodes_on_cycles(ends[:, 0], ends[:, 1], 12).tolist()} == {i for i, j in pairs if (j, i) in pairs}


def test_descendants():
    assert descendants(CHILD, PARENT, 6, 1).nonzero()[0].tolist() == [3, 4, 5]
    assert descendants(CHILD, PARENT, 6, 5).sum() == 0
    assert descendants(np.array([0, 1, 2]), np.array([1, 0, 0]), 3, 0).nonzero()[0].tolist() == [1, 2], "a cycle ends"


def test_a_file_of_edges(tmp_path):
    path = tmp_path / "edges.tsv"
    path.write_text("dog\tmammal\nmammal\tanimal\ndog\tdog\ndog\tmammal\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="left out") as warned:
        edges = read_edges(path, "task.data.file")
    assert edges.names == ("dog", "mammal", "animal")
    assert edges.child.tolist() == [0, 1]
    assert edges.parent.tolist() == [1, 2]
    assert "1 edges from a node to itself were left out (first: line 3, 'dog')" in str(warned[0].message)
    assert "1 lines repeat earlier ones" in str(warned[1].message)


def test_a_header_is_named(tmp_path):
    path = tmp_path / "edges.tsv"
    path.write_text("species\torder\ndog\tmammal\nmammal\tanimal\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="'species' and 'order', are in no other. If it is a header, remove it"):
        assert len(read_edges(path, "task.data.file").child) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("edges.tsv", "child\tparent\ndog\tmammal\nmammal\tanimal\n"),
        ("edges.csv", "dog,mammal\r\n\r\nmammal,animal\r\n"),
        ("edges.csv", '\ufeffParent;id;Child\nmammal;1;dog\n" animal";2;"mammal"\n'),
    ],
)
def test_names_of_columns_and_commas(tmp_path, recwarn, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    edges = read_edges(tmp_path / name, "task.data.file")
    assert sorted((edges.names[a], edges.names[b]) for a, b in zip(edges.child, edges.parent, strict=True)) == [
        ("dog", "mammal"), ("mammal", "animal"),
    ]  # fmt: skip
    assert not recwarn.list


def test_which_column_is_the_child_is_said(tmp_path, capsys):
    (tmp_path / "edges.csv").write_text("from;to\nmammal;dog\nanimal;mammal\n", encoding="utf-8")
    read_edges(tmp_path / "edges.csv", "task.data.file")
    assert "names the columns (from, to); 'from' is the child, 'to' its parent." in capsys.readouterr().out


@pytest.mark.parametrize("text", ["a\ta\nb\tc\na\td\n", "a\tb\na\tb\nc\td\n", "a\tb\na\ta\nc\td\n", "a\tb\n"])
@pytest.mark.filterwarnings("ignore:.*left out")
def test_what_is_no_header_is_not_named_as_one(tmp_path, recwarn, text):
    (tmp_path / "edges.tsv").write_text(text, encoding="utf-8")
    read_edges(tmp_path / "edges.tsv", "task.data.file")
    assert not any("If it is a header" in str(each.message) for each in recwarn)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\na b\n", "line 2: 'a b' is not of the form child <tab> parent (task.data.file)"),
        (b"a\tb\r\nann0\r\n", "line 2: 'ann0' is not of the form"),
        (b"a\tb\tc\n", "line 1: 'a\\tb\\tc' is not of the form"),
        (b"a\tb\t0.5\n", "Further columns, such as weights, are not read: cut -f1-2 < FILE > NEW_FILE leaves them out."),
        (b"a\t\n", "line 1: 'a\\t' is not of the form child <tab> parent (task.data.file). A column is empty: fill it, or leave"),
        (b"", "is empty; it must have lines of the form child <tab> parent (task.data.file)"),
        (b"a\tb\n\xff\tb\n", "line 2: it is not UTF-8 (byte 1); `iconv -f WINDOWS-1252"),
        ("\ufeffa\tb\n".encode("utf-16-le"), "line 1: it is not UTF-8 (byte 1); `iconv -f UTF-16 -t"),
    ],
)
def test_faulty_files(tmp_path, content, message):
    path = tmp_path / "edges.tsv"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_edges(path, "task.data.file")
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*edges.tsv; correct task.data.file."):
        read_edges(tmp_path / "edges.tsv", "task.data.file")


def test_levels_below_tops():
    """Node 5 is below 3, and 4 has two parents of one level; 6 and 7 are on a cycle that nothing is above."""
    child, parent = np.append(CHILD, [6, 7]).astype(np.int32), np.append(PARENT, [7, 6]).astype(np.int32)
    levels = list(levels_below_tops(child, parent, 8))
    assert [(nodes.tolist(), parents.tolist()) for nodes, parents in levels] == [
        ([1, 2], [0, 0]), ([3, 4], [1, 1]), ([5], [3]),
    ]  # fmt: skip


def test_depths_by_the_shortest_way_up():
    #   0   1      6 -> 7 -> 6, a cycle that no root is above
    #   |\ /
    #   2 3 <- 4 <- 5, and 5 is below 1 as well
    child, parent = np.array([2, 3, 3, 4, 5, 5, 6, 7]), np.array([0, 0, 1, 3, 4, 1, 7, 6])
    assert depths(child, parent, 8).tolist() == [0, 0, 1, 1, 2, 1, 8, 8]
    assert depths(np.array([], int), np.array([], int), 2).tolist() == [0, 0]


def test_the_tree_has_all_nodes_once_and_their_paths_say_what_is_above():
    tree = complete_tree(3, 2)
    assert len(tree.names) == len(set(tree.names)) == 15
    low, high = closure(tree.child, tree.parent, 15)
    pairs = {(tree.names[a], tree.names[b]) for a, b in zip(low, high, strict=True)}
    assert len(nodes_on_cycles(tree.child, tree.parent, 15)) == 0
    assert pairs == {(a, b) for a in tree.names for b in tree.names if a.startswith(b + ".")}


def test_nodes_on_cycles_by_hand():
    """2 -> 3 -> 2 and 5 -> 6 -> 7 -> 5; 4 is between them, 1 above and 0 below all, and 6 and 7 are on a second cycle."""
    child, parent = np.array([0, 2, 3, 3, 4, 5, 6, 7, 7, 5]), np.array([2, 3, 2, 4, 5, 6, 7, 5, 6, 1])
    assert nodes_on_cycles(child, parent, 8).tolist() == [2, 3, 5, 6, 7]
    assert len(nodes_on_cycles(child[:0], parent[:0], 8)) == 0


def test_cycles_whose_closure_is_too_large_are_named():
    nodes = np.arange(1, 20_001)
    rings = np.where(nodes % 10_000, nodes + 1, nodes - 9_999)  # two of 10,000 nodes, above a node on none
    names = tuple(f"n{k}" for k in range(20_001))
    check_cycles(Edges(names, nodes, rings, "rings.tsv", ""))  # 199,980,000 pairs
    message = (
        r"rings\.tsv: 20,000 nodes .*, among them 'n1'\. So there are at least 399,980,000 pairs of .*; "
        r"at most 200,000,000 are learned\. .* task\.data\.closure=false"
    )
    with pytest.raises(UserError, match=message):
        check_cycles(Edges(names, np.append(nodes, [1, 20_000]), np.append(rings, [20_000, 1]), "rings.tsv", ""))


def test_names_in_quotes_and_json(tmp_path):
    file = tmp_path / "edges.tsv"
    file.write_text('child\tparent\n"dog ""x"""\tanimal\n"plain"\tanimal\n')
    assert tuple(read_edges(file, "data.dir").names) == ('dog "x"', "animal", '"plain"')
    for name in ("edges.tsv", "edges.csv", "edges.jsonl"):
        (tmp_path / name).write_text('{"child": "dog", "parent": "animal"}\n')
        with pytest.raises(UserError, match=rf"{name}, line 1: .* JSON is not read here: write columns with tabs"):
            read_edges(tmp_path / name, "data.dir")
