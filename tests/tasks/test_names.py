"""Names have their numbers, and an unknown one is answered with near spellings."""

import pytest

from tasks import names as module
from tasks.names import Names
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
