"""What is drawn as a wrong answer, and ranks and precisions against counting by hand."""

import numpy as np
import pytest
import torch

from tasks.poincare_embeddings import pairs
from tasks.poincare_embeddings.pairs import Ancestors, excluded_pairs, ranks

# 0 and 1 are at the top; 2 is below 0; 3 is below 0, 1 and 2; 4 is below nothing
ANCESTORS = Ancestors(torch.tensor([0, 0, 0, 1, 4, 4]), torch.tensor([0, 0, 1, 2]))


def test_ancestors_of_some_nodes():
    rows, ancestors = ANCESTORS.pairs(torch.tensor([3, 4, 2, 3]))
    assert rows.tolist() == [0, 0, 0, 2, 3, 3, 3]
    assert ancestors.tolist() == [0, 1, 2, 0, 0, 1, 2]


def test_neither_ancestors_nor_the_node_itself_are_wrong_answers():
    slots = torch.full((5,), -1)
    rows, columns = excluded_pairs(torch.tensor([3, 2, 4]), torch.tensor([0, 2, 4]), ANCESTORS, slots)
    result = {(int(i), int(j)) for i, j in zip(rows, columns, strict=True)}
    assert result == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)}
    assert len(rows) == len(result)
    assert slots.eq(-1).all(), "it can be used again"


def test_ranks_by_hand():
    """Node 3 has its ancestors 1 first, then node 4, then its ancestors 0 and 2 (as near as each other)."""
    order = torch.tensor([[3.0, 1.0, 3.0, 0.0, 2.0]], dtype=torch.float64)
    total, precision = ranks(order, torch.tensor([3]), ANCESTORS)
    assert total.tolist() == [1 + 2 + 2]
    torch.testing.assert_close(precision, torch.tensor([(1 / 1 + 2 / 3 + 3 / 4) / 3], dtype=torch.float64))


def test_others_as_near_come_first():
    total, precision = ranks(torch.zeros(1, 5, dtype=torch.float64), torch.tensor([2]), ANCESTORS)
    assert total.tolist() == [4], "all at one place is the worst there is"
    assert precision.tolist() == [0.25]


@pytest.mark.parametrize("many", [0.0, 1.0], ids=["all", "few"])
def test_against_sorting_all_nodes(monkeypatch, many):
    monkeypatch.setattr(pairs, "_DENSE", many)
    draw = np.random.default_rng(0)
    n = 40
    above = [np.sort(draw.choice(n, size=draw.integers(1, 6), replace=False)) for _ in range(n)]
    above = [a[a != k] if len(a[a != k]) else np.array([(k + 1) % n]) for k, a in enumerate(above)]
    offsets = torch.tensor([0, *np.cumsum([len(a) for a in above])])
    order = torch.from_numpy(draw.permutation(n * n).reshape(n, n).astype(float))
    nodes = torch.from_numpy(draw.permutation(n)[:25])
    totals, precisions = ranks(order[nodes].clone(), nodes, Ancestors(offsets, torch.from_numpy(np.concatenate(above))))
    for k, total, precision in zip(nodes.tolist(), totals.tolist(), precisions.tolist(), strict=True):
        ranked = [j for j in order[k].argsort().tolist() if j != k]
        places = [place for place, j in enumerate(ranked, start=1) if j in above[k]]
        assert total == sum(place - already for already, place in enumerate(places))
        assert precision == pytest.approx(np.mean([(already + 1) / place for already, place in enumerate(places)]), abs=1e-12)
