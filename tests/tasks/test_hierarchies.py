"""Hierarchies of each source; cycles and reversed pairs are reported, once."""

import hashlib
import random

import pytest
import torch

from tasks.errors import UserError
from tasks.hierarchies import Hierarchy


def test_a_fingerprint_that_is_none_leads_nowhere(tmp_path):
    (tmp_path / "edges.tsv").write_text("a\tb\n")
    kept = Hierarchy(None, str(tmp_path / "edges.tsv"), None).kept()
    kept |= {end: torch.from_numpy(kept[end]) for end in ("child", "parent")}  # as checkpoints have them
    other = Hierarchy(None, str(tmp_path / "edges.tsv"), None)
    with pytest.raises(ValueError, match="its fingerprint is none"):
        other.adopt(kept | {"sha256": "/../../x"})
    other.adopt(kept)
    assert other.source == f"edges-{kept['sha256'][:8]}"


def test_the_generated_tree_comes_before_the_file_and_that_before_wordnet(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("b\ta\nc\ta\n", encoding="utf-8")
    toy = {"depth": 1, "branching": 2, "length": 1.0}
    generated, read = Hierarchy("nowhere", str(path), toy), Hierarchy("nowhere", str(path), None)
    assert (generated.source, generated.edges.names, generated.edges.source) == ("toy", ("0", "0.0", "0.1"), "tree 2^1")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (read.source, read.edges.names) == (f"mine-{sha256[:8]}", ("b", "a", "c"))
    assert read.edges.source == "mine.tsv"
    other = tmp_path / "other" / "mine.tsv"
    other.parent.mkdir()
    other.write_text("b\ta\n", encoding="utf-8")
    assert Hierarchy(None, str(other), None).source != read.source, "files of one name do not overwrite each other's"
    nouns = Hierarchy(str(tmp_path / "none"), None, None)
    assert nouns.source == "wordnet_nouns"
    with pytest.raises(UserError, match=r"none/data.noun cannot be read"):
        nouns.edges  # noqa: B018
    with pytest.raises(UserError, match=r"set task\.data\.wordnet to a folder or task\.data\.file to a table"):
        Hierarchy(None, None, None)
    for unknown in (Hierarchy("~nosuchuser/w", None, None), Hierarchy(None, "~nosuchuser/g.tsv", None)):
        with pytest.raises(UserError, match="the home folder ~nosuchuser is not known"):
            unknown.edges  # noqa: B018


@pytest.mark.parametrize(("lines", "count"), [("a\tb\nb\tc\nc\ta\nd\ta\n", 3), ("a\tb\nb\tc\na\tc\nd\ta\n", 0)])
def test_cycles_are_reported_once(tmp_path, capsys, lines, count):
    path = tmp_path / "mine.tsv"
    path.write_text(lines, encoding="utf-8")
    hierarchy = Hierarchy(None, str(path), None)
    assert hierarchy.edges is hierarchy.edges
    message = f"mine.tsv: {count} of 4 nodes lie on cycles, as 'a'; nodes of one cycle are above each other.\n"
    assert capsys.readouterr().out == (message if count else "")


def test_names_of_files_that_differ_in_their_spelling_alone_are_told(tmp_path, capsys):
    (tmp_path / "mine.tsv").write_text("dog\tanimal\nDog\tanimal\n", encoding="utf-8")
    for hierarchy in (Hierarchy(None, str(tmp_path / "mine.tsv"), None), Hierarchy(None, None, {"depth": 2, "branching": 2})):
        assert len(hierarchy.edges.names) > 2
    out = capsys.readouterr().out
    assert out.count("names that differ") == 1, "those of a toy tree are paths"
    assert "mine.tsv: 2 nodes have names that differ" in out


def recursive_tree(n: int) -> list[tuple[str, str]]:
    """Each node below one that is drawn of those before it."""
    draw = random.Random(n)
    return [(f"n{k}", f"n{draw.randrange(k)}") for k in range(1, n)]


@pytest.mark.parametrize(
    ("pairs", "count", "several"),
    [
        ([(f"leaf{k}", f"n{k % 50}") for k in range(100)], 0, 0),
        ([(f"n{k % 50}", f"leaf{k}") for k in range(100)], 100, 50),
        ([(f"n{k // 2}", f"n{k}") for k in range(1, 40)], 20, 19),
        # a forest of pairs: half of its nodes, and not more
        pytest.param([(f"a{k}", f"b{k}") for k in range(9)], 0, 0, marks=pytest.mark.filterwarnings("ignore:.*header")),
        (recursive_tree(300), 0, 0),
        ([(f"n{(k - 1) // 3}", f"n{k}") for k in range(1, 121)], 81, 40),
        ([(f"n{k // 2}", f"n{k}") for k in range(1, 9)] + [("x", "n0"), ("y", "n0")], 0, 0),
    ],
)
def test_pairs_that_may_be_reversed_are_reported_once(tmp_path, capsys, pairs, count, several):
    path = tmp_path / "mine.tsv"
    path.write_text("".join(f"{child}\t{parent}\n" for child, parent in pairs), encoding="utf-8")
    hierarchy = Hierarchy(None, str(path), None)
    assert hierarchy.edges is hierarchy.edges
    n = len({name for pair in pairs for name in pair})
    and_several = f"; with several above them there are {several}, with several below them none" * bool(several)
    order = "is the order in mine.tsv child <tab> parent?"
    note = f"note: {count} of {n} nodes have nothing above them{and_several}; {order}\n"
    assert capsys.readouterr().out == (note if count else "")
