"""Filtered ranks against a loop over queries and candidates."""

from itertools import pairwise

import pytest
import torch

from tasks.metrics import answers_of, filtered_ranks, ranks_of

TIES = pytest.mark.parametrize("ties", ["pessimistic", "optimistic", "mean"])


def looped(scores, target, known, ties):
    """Ranks by sorting out one candidate after another; known: a set for each row."""
    ranks = []
    for row, goal, answers in zip(scores.tolist(), target.tolist(), known, strict=True):
        others = [s for i, s in enumerate(row) if i != goal and i not in answers]
        above, equal = sum(s > row[goal] for s in others), sum(s == row[goal] for s in others)
        ranks.append(1 + above + {"pessimistic": equal, "optimistic": 0, "mean": equal / 2}[ties])
    return torch.tensor(ranks, dtype=torch.float64 if ties == "mean" else torch.long)


def listed(known, repeat=1):
    """Sets as (offsets, indices), every entry ``repeat`` times."""
    flat = [i for answers in known for i in list(answers) * repeat]
    counts = torch.tensor([len(answers) * repeat for answers in known], dtype=torch.long)
    return torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]), torch.tensor(flat, dtype=torch.long)


def example(batch=40, candidates=23, values=6):
    scores = torch.randint(values, (batch, candidates)).float()  # many ties
    target = torch.randint(candidates, (batch,))
    known = [set(torch.randint(candidates, (int(n),)).tolist()) for n in torch.randint(8, (batch,))]
    for row in range(0, batch, 2):
        known[row].add(int(target[row]))
    return scores, target, known


@TIES
@pytest.mark.parametrize("repeat", [1, 2])
def test_equal_to_the_loop(ties, repeat):
    scores, target, known = example()
    expected = looped(scores, target, known, ties)
    assert torch.equal(filtered_ranks(scores, target, listed(known, repeat), ties), expected)
    width = max(map(len, known)) * repeat
    padded = torch.tensor([(list(a) * repeat + [-1] * width)[:width] for a in known])
    assert torch.equal(filtered_ranks(scores, target, padded, ties), expected)
    assert torch.equal(filtered_ranks(scores.double(), target, padded, ties), expected)
    assert torch.equal(filtered_ranks(scores.t().contiguous().t(), target, padded.flip(-1), ties), expected)


@TIES
@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches(ties, batch):
    scores, target, known = example(batch)
    assert torch.equal(filtered_ranks(scores, target, listed(known), ties), looped(scores, target, known, ties))
    none = torch.empty(batch, 0, dtype=torch.long)
    assert torch.equal(filtered_ranks(scores, target, none, ties), looped(scores, target, [set()] * batch, ties))


def test_constant_scores_are_no_success():
    scores, target = torch.zeros(2, 10), torch.tensor([3, 4])
    known = torch.tensor([[3, 5], [-1, -1]])
    assert filtered_ranks(scores, target, known).tolist() == [9, 10]
    assert filtered_ranks(scores, target, known, "mean").tolist() == [5.0, 5.5]
    assert filtered_ranks(scores, target, known, "optimistic").tolist() == [1, 1]


def test_candidates_without_a_number_count_as_better():
    scores = torch.tensor([[1.0, torch.nan, 0.0, -torch.inf]])
    assert filtered_ranks(scores, torch.tensor([0]), torch.tensor([[-1]])).tolist() == [2]
    assert filtered_ranks(scores, torch.tensor([0]), torch.tensor([[1]])).tolist() == [1]
    assert filtered_ranks(scores, torch.tensor([3]), torch.tensor([[-1]])).tolist() == [4]
    with pytest.raises(ValueError, match="NaN"):
        filtered_ranks(scores, torch.tensor([1]), torch.tensor([[-1]]))


def test_answers_of_queries():
    keys, answers = torch.tensor([5, 2, 5, 9, 2, 5]), torch.tensor([1, 4, 0, 7, 4, 3])
    offsets, indices = answers_of(torch.tensor([2, 5, 3, 5, 99]), keys, answers)
    assert offsets.tolist() == [0, 2, 5, 5, 8, 8]
    assert [sorted(indices[a:b].tolist()) for a, b in pairwise(offsets.tolist())] == [
        [4, 4], [0, 1, 3], [], [0, 1, 3], []
    ]  # fmt: skip


@TIES
@pytest.mark.parametrize("chunk", [1, 7, 10, 40, 100])
def test_in_chunks(ties, chunk):
    scores, target, known = example()
    sizes = []

    def score(rows):
        sizes.append(len(rows))
        return scores[rows]

    ranks = ranks_of(score, torch.arange(40), target, listed(known), ties, chunk)
    assert torch.equal(ranks, looped(scores, target, known, ties))
    assert max(sizes) <= chunk
    assert ranks_of(score, torch.arange(0), target[:0], listed([]), ties, chunk).shape == (0,)


def test_mistakes():
    scores, target, none = torch.zeros(2, 4), torch.tensor([0, 1]), torch.empty(2, 0, dtype=torch.long)
    with pytest.raises(ValueError, match="ties must be one of"):
        filtered_ranks(scores, target, none, "random")
    with pytest.raises(ValueError, match=r"target 4, but there are 4 candidates"):
        filtered_ranks(scores, target + 3, none)
    with pytest.raises(ValueError, match="known answer 9"):
        filtered_ranks(scores, target, torch.tensor([[9], [-1]]))
    with pytest.raises(ValueError, match=r"\(2, L\)"):
        filtered_ranks(scores, target, none[:1])
    with pytest.raises(ValueError, match=r"offsets must have the shape \(3,\)"):
        filtered_ranks(scores, target, (torch.tensor([0, 1]), torch.tensor([0])))
    with pytest.raises(ValueError, match=r"\(2, 4\) and \(3,\)"):
        filtered_ranks(scores, torch.zeros(3, dtype=torch.long), none)
