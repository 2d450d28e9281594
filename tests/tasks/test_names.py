"""Names have their numbers, and an unknown one is answered with near spellings."""

import pytest

from tasks import names as module
from tasks.names import NO_NAME, Names, on_spellings, pairs_of
from tasks.reading import Fault


def test_an_unknown_name_is_answered_with_near_ones():
    names = Names(("Alan Turing", "Ada Lovelace", "Grace Hopper"), "entity", "people")
    assert names.number_of("Ada Lovelace") == 1
    with pytest.raises(Fault, match=r"people has no entity 'alan_turing'\. The nearest spellings: 'Alan Turing'"):
        names.number_of("alan_turing")
    with pytest.raises(Fault, match=r"no entity 'xyzzy'\. It has 3, as 'Alan Turing'"):
        names.number_of("xyzzy")


def test_near_names_of_a_large_vocabulary(monkeypatch):
    monkeypatch.setattr(module, "COMPARED", 50)
    names = Names([f"item{k}" for k in range(500)] + ["Paris"], "entity", "many")
    assert names.near("Pariss") == ["Paris"]
    assert names.near("PARIS") == ["Paris"]
    assert names.near("xtem499")[0] == "item499"


def test_a_line_is_a_name_or_a_pair_of_names():
    names = Names(("a", "b"), "node", "the tree")
    inputs = [names.ends_of(line) for line in ("b", " b \t a ")]
    assert inputs == [(1,), (1, 0)]
    assert pairs_of(inputs).tolist() == [[1, NO_NAME], [1, 0]]
    assert [names.named(ends, ("node", "above")) for ends in inputs] == [{"node": "b"}, {"node": "b", "above": "a"}]
    for line in ("a\tb\ta", "a\t", "\ta"):
        with pytest.raises(Fault, match="is neither a node nor a pair of nodes"):
            names.ends_of(line)


def test_names_with_the_same_word_before_a_dot_come_before_those_that_are_alike():
    names = Names(("mammal.n.01", "mammoth.n.01", "dog.n.01", "dog.n.03"), "node", "WordNet")
    assert names.near("mammal.n.02")[0] == "mammal.n.01"
    assert names.near("dog") == ["dog.n.01", "dog.n.03"]
    assert names.near("zebra.n.01") == []


def test_names_that_differ_in_their_spelling_alone_are_counted():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    (line,) = on_spellings(("a", composed, "b", decomposed), "nodes")
    assert line.startswith("2 nodes have names that differ from another's in capitals")
    assert "as 'caf\\xe9' and 'cafe\\u0301'; if" in line
    (line,) = on_spellings(("3", "4.0", "3.0", "New  York", "new york", "New York", "x.0", "x"), "entities")
    assert line.startswith("5 entities have names")
    assert on_spellings(("250", "250.0", "250.1"), "nodes") == [], "codes"
    assert on_spellings(("3.0", "4.0", "5", composed, "1.0.0", "1.0.0.0", "x", "x.0"), "nodes") == []
