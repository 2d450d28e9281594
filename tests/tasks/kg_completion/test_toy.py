"""The generated graph: sizes, and that dev and test follow from train."""

import pytest

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.kg_completion.categories import categories
from tasks.kg_completion.toy import ANCESTOR, NOISE, PARENT, SIBLING, toy_graph

RECIPE = {"depth": 3, "branching": 4, "noise": 20, "held_out": 0.1, "seed": 0}


def named(graph, split):
    return [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.triples[split].tolist()]


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_held_out_can_be_inferred(seed):
    graph = toy_graph(**RECIPE | {"seed": seed})
    train = set(named(graph, "train"))
    assert len(graph.entities) == 85
    assert set(graph.relations) == {PARENT, ANCESTOR, SIBLING, NOISE}
    assert sum(r == NOISE for _, r, _ in train) == 20
    assert graph.remarks() == []
    parent = {t: h for h, r, t in train if r == PARENT}
    assert len(parent) == 84
    for split in ("dev", "test"):
        rows = named(graph, split)
        assert len(rows) == 14 + 13
        assert not graph.unseen(split).any()
        for h, r, t in rows:
            assert r in (ANCESTOR, SIBLING)
            if r == SIBLING:
                assert (t, SIBLING, h) in train
                assert parent[h] == parent[t]
            else:
                above, node = [], t
                while node in parent:
                    above.append(node := parent[node])
                assert h in above[1:]
    everything = [row for split in SPLITS for row in named(graph, split)]
    assert len(everything) == len(set(everything)) == 84 + 84 + 144 + 252 + 20


def test_the_seed_decides():
    graph, same, other = (toy_graph(**RECIPE | {"seed": seed}) for seed in (5, 5, 6))
    assert graph.sha256 == same.sha256 != other.sha256
    assert graph.entities == same.entities
    assert all(graph.triples[s].equal(same.triples[s]) for s in SPLITS)


def test_its_relations_have_their_categories():
    graph = toy_graph(**RECIPE)
    kinds = dict(zip(graph.relations, categories(graph.triples["train"], 4), strict=True))
    assert kinds == {PARENT: "1-N", ANCESTOR: "N-N", SIBLING: "N-N", NOISE: kinds[NOISE]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 1}, "depth must be"),
        ({"branching": 1}, "branching must be"),
        ({"noise": -1}, "noise must be"),
        ({"noise": 10**6}, "too many for 85 nodes"),
        ({"held_out": 0.5}, "held_out must be between"),
        ({"held_out": 0.0}, "held_out must be between"),
    ],
)
def test_settings_that_cannot_be(change, message):
    with pytest.raises(UserError, match=message):
        toy_graph(**RECIPE | change)
