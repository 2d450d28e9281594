"""Filtered ranks against a loop over queries and candidates; Choi's scores against cases worked by hand and sets."""

import pytest
import torch

from tasks.metrics import (
    TYPING_SCORES,
    average_precision,
    filtered_rank_bounds,
    roc_auc,
    typing_scores,
    typing_sums,
)

TIES = pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])


def filtered_ranks(scores, target, answers, ties="pessimistic"):
    """One of the bounds."""
    return filtered_rank_bounds(scores, target, answers)[ties == "pessimistic"]


def looped(scores, target, answers_by_row, ties):
    """Ranks by sorting out one candidate after another; known: a set for each row."""
    ranks = []
    for row, goal, answers in zip(scores.tolist(), target.tolist(), answers_by_row, strict=True):
        others = [s for i, s in enumerate(row) if i != goal and i not in answers]
        above, equal = sum(s > row[goal] for s in others), sum(s == row[goal] for s in others)
        ranks.append(1 + above + (equal if ties == "pessimistic" else 0))
    return torch.tensor(ranks, dtype=torch.long)


def listed(answers_by_row, repeat=1):
    """Sets as (offsets, indices), every entry ``repeat`` times."""
    flat = [i for answers in answers_by_row for i in list(answers) * repeat]
    counts = torch.tensor([len(answers) * repeat for answers in answers_by_row], dtype=torch.long)
    return torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]), torch.tensor(flat, dtype=torch.long)


def example(batch=40, candidates=23, values=6):
    scores = torch.randint(values, (batch, candidates)).float()  # many ties
    target = torch.randint(candidates, (batch,))
    answers_by_row = [set(torch.randint(candidates, (int(n),)).tolist()) for n in torch.randint(8, (batch,))]
    for row in range(0, batch, 2):
        answers_by_row[row].add(int(target[row]))
    return scores, target, answers_by_row


@TIES
@pytest.mark.parametrize("repeat", [1, 2])
def test_equal_to_the_loop(ties, repeat):
    scores, target, answers_by_row = example()
    expected = looped(scores, target, answers_by_row, ties)
    assert torch.equal(filtered_ranks(scores, target, listed(answers_by_row, repeat), ties), expected)
    width = max(map(len, answers_by_row)) * repeat
    padded = torch.tensor([(list(a) * repeat + [-1] * width)[:width] for a in answers_by_row])
    assert torch.equal(filtered_ranks(scores, target, padded, ties), expected)
    assert torch.equal(filtered_ranks(scores.double(), target, padded, ties), expected)
    assert torch.equal(filtered_ranks(scores.t().contiguous().t(), target, padded.flip(-1), ties), expected)


@TIES
@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches(ties, batch):
    scores, target, answers_by_row = example(batch)
    assert torch.equal(filtered_ranks(scores, target, listed(answers_by_row), ties), looped(scores, target, answers_by_row, ties))
    none = torch.empty(batch, 0, dtype=torch.long)
    assert torch.equal(filtered_ranks(scores, target, none, ties), looped(scores, target, [set()] * batch, ties))


@pytest.mark.parametrize("batch", [0, 1, 40])
def test_bounds_are_both_ranks_at_once(batch):
    scores, target, answers_by_row = example(batch)
    optimistic, pessimistic = filtered_rank_bounds(scores, target, listed(answers_by_row, 2))
    assert optimistic.dtype == pessimistic.dtype == torch.long
    assert torch.equal(optimistic, looped(scores, target, answers_by_row, "optimistic"))
    assert torch.equal(pessimistic, looped(scores, target, answers_by_row, "pessimistic"))
    assert batch < 40 or (optimistic < pessimistic).any()


def test_bounds_of_distinct_constant_and_missing_scores():
    none = torch.tensor([[-1]])
    two = filtered_rank_bounds(torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([1]), none)
    assert [r.tolist() for r in two] == [[2], [2]]
    constant = filtered_rank_bounds(torch.zeros(1, 9), torch.tensor([4]), torch.tensor([[4, 7, 7, 8]]))
    assert [r.tolist() for r in constant] == [[1], [7]]
    missing = filtered_rank_bounds(torch.tensor([[1.0, torch.nan, 1.0, 0.0]]), torch.tensor([0]), none)
    assert [r.tolist() for r in missing] == [[2], [3]], "what has no score counts as better in both"
    with pytest.raises(ValueError, match="NaN"):
        filtered_rank_bounds(torch.full((1, 3), torch.nan), torch.tensor([0]), none)


def test_constant_scores_are_no_success():
    scores, target = torch.zeros(2, 10), torch.tensor([3, 4])
    answers_by_row = torch.tensor([[3, 5], [-1, -1]])
    assert filtered_ranks(scores, target, answers_by_row).tolist() == [9, 10]
    assert filtered_ranks(scores, target, answers_by_row, "optimistic").tolist() == [1, 1]


def test_candidates_without_a_number_count_as_better():
    scores = torch.tensor([[1.0, torch.nan, 0.0, -torch.inf]])
    assert filtered_ranks(scores, torch.tensor([0]), torch.tensor([[-1]])).tolist() == [2]
    assert filtered_ranks(scores, torch.tensor([0]), torch.tensor([[1]])).tolist() == [1]
    assert filtered_ranks(scores, torch.tensor([3]), torch.tensor([[-1]])).tolist() == [4]
    with pytest.raises(ValueError, match="NaN"):
        filtered_ranks(scores, torch.tensor([1]), torch.tensor([[-1]]))


def test_mistakes():
    scores, target, none = torch.zeros(2, 4), torch.tensor([0, 1]), torch.empty(2, 0, dtype=torch.long)
    with pytest.raises(ValueError, match=r"target 4, but there are 4 candidates"):
        filtered_ranks(scores, target + 3, none)
    with pytest.raises(ValueError, match="answer 9"):
        filtered_ranks(scores, target, torch.tensor([[9], [-1]]))
    with pytest.raises(ValueError, match=r"\(2, L\)"):
        filtered_ranks(scores, target, none[:1])
    with pytest.raises(ValueError, match=r"offsets must have the shape \(3,\)"):
        filtered_ranks(scores, target, (torch.tensor([0, 1]), torch.tensor([0])))
    with pytest.raises(ValueError, match=r"\(2, 4\) and \(3,\)"):
        filtered_ranks(scores, torch.zeros(3, dtype=torch.long), none)


GROUPS = torch.tensor([0, 0, 1, 1, 2, 2, 2])
NAMES = ("coarse", "fine", "ultrafine")


def scores_of(predicted, gold):
    """Scores of mentions whose predicted and right types are given as sets and lists of ids."""
    matrix = torch.zeros(len(gold), len(GROUPS), dtype=torch.bool)
    for row, types in enumerate(predicted):
        matrix[row, list(types)] = True
    sums = typing_sums(matrix, filled(gold), GROUPS, NAMES)
    return {k: float(v) for k, v in sums.items()}, typing_scores({k: float(v) for k, v in sums.items()}, NAMES)


def filled(lists):
    width = max(1, *map(len, lists))
    return torch.tensor([list(types) + [-1] * (width - len(types)) for types in lists]).reshape(len(lists), width)


def brute_force(predicted, gold):
    """Choi's eval_metric.py in sets: separate denominators, F1 of the two means."""
    scores = {}
    for k, name in enumerate(("", *NAMES)):
        mine = {i for i, g in enumerate(GROUPS.tolist()) if k == 0 or g == k - 1}
        pairs = [(set(p) & mine, set(g) & mine) for p, g in zip(predicted, gold, strict=True)]
        precisions = [len(p & g) / len(p) for p, g in pairs if p]
        recalls = [len(p & g) / len(g) for p, g in pairs if g]
        right, claimed, gold_count = (sum(map(len, sets)) for sets in zip(*((p & g, p, g) for p, g in pairs), strict=True))
        means = {
            "macro": (mean(precisions), mean(recalls)),
            "micro": (right / claimed if claimed else 0.0, right / gold_count if gold_count else 0.0),
        }
        for kind, (p, r) in means.items():
            at = f"{name}/{kind}" if name else kind
            scores |= {f"{at}_precision": p, f"{at}_recall": r, f"{at}_f1": 2 * p * r / (p + r) if p + r else 0.0}
    return scores


def mean(values):
    return sum(values) / len(values) if values else 0.0


def test_choi_scores_of_a_case_worked_by_hand():
    # coarse {0, 1}, fine {2, 3}, ultra-fine {4, 5, 6}
    predicted = [{0, 2, 4}, {1}, {0, 5, 6}]
    gold = [[0, 4, 5], [1], [0, 3]]
    sums, scores = scores_of(predicted, gold)
    assert scores["macro_precision"] == pytest.approx((2 / 3 + 1 + 1 / 3) / 3)
    assert scores["macro_recall"] == pytest.approx((2 / 3 + 1 + 1 / 2) / 3)
    p, r = 2 / 3, 13 / 18
    assert scores["macro_f1"] == pytest.approx(2 * p * r / (p + r))
    assert (scores["micro_precision"], scores["micro_recall"]) == pytest.approx((4 / 7, 4 / 6))
    # fine: mention 0 predicts 2 (wrong), only mention 2 has a right one
    assert scores["fine/macro_f1"] == 0
    # ultra-fine: mentions 0 (1 of 1 right) and 2 (0 of 2) predict; only mention 0 has right ones (1 of 2)
    assert scores["ultrafine/macro_precision"] == pytest.approx(0.5)
    assert scores["ultrafine/macro_recall"] == pytest.approx(0.5)
    assert scores["ultrafine/micro_precision"] == pytest.approx(1 / 3)
    assert (sums["exact"], sums["ordered"]) == (1, 1)
    assert set(scores) == {a + s for a in ("", "coarse/", "fine/", "ultrafine/") for s in TYPING_SCORES}


def test_the_f1_is_of_the_mean_precision_and_the_mean_recall():
    """48.5 and 29.1 give 36.4 (Lopez and Strube 2020, table 1), and not the mean of the mentions' F1."""
    sums, _ = scores_of([{0}], [[0]])
    sums |= {"precision": 48.5, "with_predicted": 100, "recall": 29.1, "with_gold": 100}
    assert typing_scores(sums, NAMES)["macro_f1"] == pytest.approx(0.364, abs=5e-4)


def test_mentions_without_types_leave_only_one_denominator():
    _, scores = scores_of([{0}, set(), {4}], [[0], [1], []])
    assert scores["macro_precision"] == pytest.approx(1 / 2)
    assert scores["macro_recall"] == pytest.approx(1 / 2)
    assert scores["ultrafine/macro_recall"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_choi_scores_equal_a_brute_force_implementation(seed):
    torch.manual_seed(seed)
    predicted = [set((torch.rand(7) < 0.3).nonzero().flatten().tolist()) for _ in range(50)]
    gold = [torch.randperm(7)[: int(torch.randint(5, ()))].tolist() for _ in range(50)]
    sums, scores = scores_of(predicted, gold)
    expected = brute_force(predicted, gold)
    assert scores == pytest.approx(expected)
    assert sums["exact"] == sum(p == set(g) for p, g in zip(predicted, gold, strict=True))
    assert sums["ordered"] == sum(sorted(p) == g for p, g in zip(predicted, gold, strict=True))
    parts = [scores_of(predicted[i : i + 7], gold[i : i + 7])[0] for i in range(0, 50, 7)]
    assert typing_scores({k: sum(part[k] for part in parts) for k in sums}, NAMES) == pytest.approx(expected)


def test_a_right_type_that_is_named_twice_counts_once():
    once, _ = scores_of([{0, 2}], [[0, 2]])
    twice, _ = scores_of([{0, 2}], [[0, 2, 2]])
    assert twice == {**once, "ordered": 0}, "the program compares sorted predictions with the list as it stands"


def test_the_order_in_the_file_counts_in_the_authors_variant_only():
    sums, _ = scores_of([{0, 2}, {0, 2}, {0}], [[0, 2], [2, 0], [0, 1]])
    assert (sums["exact"], sums["ordered"]) == (2, 1)


@pytest.mark.parametrize("values", [1000, 7])  # many different scores, and many equal ones
def test_areas_under_curves_are_those_of_scikit_learn(values):
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores, labels = -torch.randint(values, (200,)).float() / 3, torch.rand(200) < 0.3
    assert roc_auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


def test_areas_under_curves_need_both_kinds_and_numbers():
    with pytest.raises(ValueError, match="right and wrong"):
        roc_auc(torch.ones(3), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="NaN"):
        average_precision(torch.tensor([torch.nan, 1.0]), torch.tensor([True, False]))
