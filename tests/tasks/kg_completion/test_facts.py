"""True triples are found, listed and kept out of what is drawn, as with sets of tuples."""

from itertools import pairwise, product

import pytest
import torch

from tasks.errors import UserError
from tasks.kg_completion.facts import Facts, answers_among, corrupt

E, R = 12, 3


def random_facts(count: int = 120) -> tuple[Facts, set[tuple[int, int, int]]]:
    """Facts of random triples, some repeated, and the set of them in both directions."""
    triples = torch.stack([torch.randint(n, (count,)) for n in (E, R, E)], -1)
    rows = [tuple(row) for row in triples.tolist()]
    assert len(set(rows)) < count
    return Facts(triples, E, R), set(rows) | {(t, r + R, h) for h, r, t in rows}


def every_query() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(list(product(range(E), range(2 * R)))).unbind(-1)


def listed(offsets: torch.Tensor, entities: torch.Tensor) -> list[list[int]]:
    return [entities[a:b].tolist() for a, b in pairwise(offsets.tolist())]


def test_a_triple_is_true_in_both_directions_as_in_a_set():
    facts, truth = random_facts()
    assert len(facts) == len(truth)
    result = facts.contain(*(torch.arange(n) for n in (E,)), torch.arange(2 * R)[:, None, None], torch.arange(E)[:, None])
    assert result.shape == (2 * R, E, E)
    for r, answer, e in product(range(2 * R), range(E), range(E)):
        assert bool(result[r, answer, e]) == ((e, r, answer) in truth)


def test_the_answers_of_a_query_are_all_of_them_sorted():
    facts, truth = random_facts()
    e, r = every_query()
    order = torch.randperm(len(e))
    e, r = e[order], r[order]
    expected = [[a for a in range(E) if (x, y, a) in truth] for x, y in zip(e.tolist(), r.tolist(), strict=True)]
    assert [] in expected
    assert listed(*facts.answers(e, r)) == expected
    repeated = torch.tensor([3, 3, 0])
    assert listed(*facts.answers(e[repeated], r[repeated])) == [expected[k] for k in (3, 3, 0)]
    assert listed(*facts.answers(e[:0], r[:0])) == []


def test_queries_are_those_with_answers_once_each():
    facts, truth = random_facts(60)
    rows = [tuple(row) for row in facts.queries().tolist()]
    assert len(rows) == len(set(rows))
    assert set(rows) == {(e, r) for e, r, _ in truth}


def test_without_triples_nothing_is_true():
    facts = Facts(torch.empty(0, 3, dtype=torch.long), E, R)
    e, r = every_query()
    assert not facts.contain(e, r, e).any()
    assert listed(*facts.answers(e, r)) == [[]] * len(e)
    assert facts.queries().shape == (0, 2)
    assert len(facts) == 0


def test_the_largest_numbers_of_entities_fit_and_more_are_refused():
    n = 1 << 30
    last = n - 1
    facts = Facts(torch.tensor([[last, 2, last], [last, 2, 0], [0, 0, last]]), n, 3)
    assert facts.contain(torch.tensor([last, last, 0, last]), torch.tensor([2, 2, 0, 0]), torch.tensor([last, 1, last, 0]))\
        .tolist() == [True, False, True, False]  # fmt: skip
    assert listed(*facts.answers(torch.tensor([last, last, last]), torch.tensor([2, 5, 3]))) == [[0, last], [last], [0]]
    assert facts.queries()[-1].tolist() == [last, 5]
    with pytest.raises(UserError, match=r"1,073,741,824 entities and 4 relations is too large"):
        Facts(torch.empty(0, 3, dtype=torch.long), n, 4)


def test_on_another_device_they_are_others():
    facts, _ = random_facts()
    moved = facts.to(torch.device("meta"))
    assert moved.codes.is_meta
    assert (moved.n_entities, moved.n_relations, len(moved)) == (E, R, len(facts))
    assert not facts.codes.is_meta, "the data keep using these"
    assert facts.to(torch.device("cpu")) is facts


def dense_facts(n: int, wrong: int) -> Facts:
    """Of n entities and one relation: all but `wrong` answer every query, in both directions."""
    rows = [(h, 0, t) for h in range(n) for t in range(n) if (t - h) % n >= wrong]
    return Facts(torch.tensor(rows), n, 1)


@pytest.mark.parametrize("r", [0, 1])
def test_wrong_answers_are_wrong_and_uniform_where_most_answers_are_right(r):
    n, wrong = 40, 8
    facts = dense_facts(n, wrong)
    e = torch.tensor([0, 13, 39, 13])
    negatives = corrupt(e, torch.full_like(e, r), 4000, facts)
    assert negatives.shape == (4, 4000)
    assert negatives.dtype == torch.long
    for row, entity in zip(negatives, e.tolist(), strict=True):
        right = [(entity + k) % n for k in range(wrong)] if r == 0 else [(entity - k) % n for k in range(wrong)]
        counts = torch.bincount(row, minlength=n)
        assert sorted(counts.nonzero().flatten().tolist()) == sorted(right), "these are no facts, all others are"
        assert (counts[right] - 500).abs().max() < 120, "5 standard deviations"


def test_wrong_answers_depend_on_each_query():
    facts, truth = random_facts()
    e, r = every_query()
    negatives = corrupt(e, r, 30, facts)
    for x, y, row in zip(e.tolist(), r.tolist(), negatives.tolist(), strict=True):
        assert not [a for a in row if (x, y, a) in truth]
    assert corrupt(e[:0], r[:0], 30, facts).shape == (0, 30)


def test_the_first_wrong_answer_is_the_entity_of_the_query_unless_it_is_right():
    facts, truth = random_facts()
    e, r = every_query()
    first, *others = corrupt(e, r, 30, facts, self_share=1.0).T.tolist()
    loops = [(x, y, x) in truth for x, y in zip(e.tolist(), r.tolist(), strict=True)]
    assert 0 < sum(loops) < len(loops)
    for x, y, loop, answer in zip(e.tolist(), r.tolist(), loops, first, strict=True):
        assert (x, y, answer) not in truth
        assert loop or answer == x
    alone = sum(answer == x for column in others for answer, x in zip(column, e.tolist(), strict=True))
    assert alone < 0.5 * sum(map(len, others)), "the others are random"


def test_a_share_of_the_queries_has_its_own_entity():
    facts = Facts(torch.tensor([[0, 0, 1]]), 10_000, 1)
    e = torch.arange(10_000)
    negatives = corrupt(e, torch.zeros_like(e), 2, facts, self_share=0.1)
    assert abs(int((negatives[:, 0] == e).sum()) - 1000) < 150, "5 standard deviations"
    assert int((negatives[:, 1] == e).sum()) < 10


def test_drawing_ends_where_every_entity_is_right():
    facts = dense_facts(5, 0)
    negatives = corrupt(torch.tensor([0, 4]), torch.tensor([0, 1]), 50, facts)
    assert set(negatives.flatten().tolist()) == set(range(5))


@pytest.mark.parametrize("count", [E, 5, 1])
def test_which_of_some_entities_answer(count):
    facts, truth = random_facts()
    e, r = every_query()
    entities = torch.randperm(E)[:count]
    result = torch.zeros(len(e), count, dtype=torch.bool)
    result[answers_among(e, r, entities, facts)] = True
    assert result.tolist() == [
        [(x, y, a) in truth for a in entities.tolist()] for x, y in zip(e.tolist(), r.tolist(), strict=True)
    ]
    assert result.any()
