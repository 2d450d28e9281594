"""Kinds of relations."""

import torch

from tasks.kg_completion.categories import categories


def test_categories_by_the_threshold():
    one_to_one = [(0, 0, 1), (2, 0, 3)]
    one_to_many = [(0, 1, 1), (0, 1, 2), (3, 1, 4)]  # 1.5 tails a head
    many_to_one = [(1, 2, 0), (2, 2, 0), (4, 2, 3)]
    many_to_many = [(a, 3, b) for a in (0, 1) for b in (2, 3)]
    below = [(0, 4, 1), (0, 4, 2), (3, 4, 4), (5, 4, 6)]  # 4 / 3 tails a head
    triples = torch.tensor([*one_to_one, *one_to_many, *many_to_one, *many_to_many, *below])
    assert categories(triples, 6) == ["1-1", "1-N", "N-1", "N-N", "1-1", "unseen"]
