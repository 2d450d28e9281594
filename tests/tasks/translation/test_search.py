"""Beam search on small made distributions, where every sequence can be listed."""

import itertools
import math

import pytest
import torch

from tasks.errors import UserError
from tasks.translation.search import SearchOptions, SpecialTokens, search

PAD, BOS, EOS, A, B, C = range(6)
SPECIAL = SpecialTokens(bos=BOS, eos=EOS, pad=PAD)
SETTINGS = {
    "beam_size": 1, "n_best": 1, "length_penalty": "none", "alpha": 1.0, "min_length": 0, "max_length_ratio": 1.0,
    "max_length_constant": 5,
}  # fmt: skip


def options(**settings) -> SearchOptions:
    return SearchOptions(**SETTINGS | settings)


class Table:
    """Next tokens of a distribution of each sentence: a function of the whole prefix, as long as it remembers them."""

    def __init__(self, *distributions):
        self.rows = [(distribution, ()) for distribution in distributions]
        self.calls = []

    def scores(self, tokens):
        self.rows = [(d, (*prefix, token)) for (d, prefix), token in zip(self.rows, tokens[:, 0].tolist(), strict=True)]
        self.calls.append(len(self.rows))
        return torch.stack([distribution(prefix) for distribution, prefix in self.rows])

    def reorder(self, index):
        self.rows = [self.rows[i] for i in index.tolist()]


def probabilities(**following):
    """A distribution from {"": {token: p}, "A": ...}, by the letters of the prefix; others end at once."""

    def distribution(prefix):
        given = following.get("".join("ABC"[token - A] for token in prefix[1:]) or "start", {"E": 1.0})
        p = torch.zeros(6)
        for name, value in given.items():
            p[{"E": EOS, "A": A, "B": B, "C": C}[name]] = value
        return p.log()

    return distribution


def drawn(seed, sharpness=1.0):
    """A random distribution, another one for each prefix."""

    def distribution(prefix):
        generator = torch.Generator().manual_seed(hash((seed, prefix)) % 2**31)
        return (sharpness * torch.randn(6, generator=generator)).log_softmax(-1)

    return distribution


def best_of_all(distribution, limit, settings, least=0):
    """Every sequence of A, B, C that ends within the limit, the best score first."""
    rows = []
    for length in range(least, limit):
        for words in itertools.product((A, B, C), repeat=length):
            prefix, total = (BOS,), 0.0
            for token in (*words, EOS):
                total += float(distribution(prefix)[token])
                prefix = (*prefix, token)
            size = len(words) + 1
            divisor = {"none": 1, "average": size, "wu": ((5 + size) / 6) ** settings.alpha}[settings.length_penalty]
            rows.append((total / divisor, total, list(words)))
    return sorted(rows, reverse=True)


def greedy(distribution, limit):
    prefix = (BOS,)
    while len(prefix) < limit:
        scores = distribution(prefix)
        scores[[PAD, BOS]] = -math.inf
        prefix = (*prefix, int(scores.argmax()))
        if prefix[-1] == EOS:
            return list(prefix[1:-1])
    return list(prefix[1:])


MISLEADING = probabilities(
    start={"A": 0.6, "B": 0.4},
    A={"A": 0.34, "B": 0.33, "C": 0.33},
    B={"C": 0.9, "A": 0.1},
)


def test_a_beam_finds_the_best_sequence_where_greedy_search_misses_it():
    limits = torch.tensor([6])
    [[first]] = search(Table(MISLEADING), limits, SPECIAL, options())
    assert first.tokens == [A, A]
    assert first.log_probability == pytest.approx(math.log(0.6 * 0.34), abs=1e-6)
    [[best]] = search(Table(MISLEADING), limits, SPECIAL, options(beam_size=2))
    assert best.tokens == [B, C]
    assert best.log_probability == pytest.approx(math.log(0.36), abs=1e-6)


@pytest.mark.parametrize("length_penalty", ["none", "average", "wu"])
def test_a_beam_of_one_is_greedy(length_penalty):
    distributions = [drawn(seed, sharpness=2) for seed in range(12)]
    limits = torch.tensor([3, 7, 5] * 4)
    results = search(Table(*distributions), limits, SPECIAL, options(length_penalty=length_penalty))
    assert [result.tokens for [result] in results] == [
        greedy(distribution, limit) for distribution, limit in zip(distributions, limits.tolist(), strict=True)
    ]


@pytest.mark.parametrize("alpha", [0.6, 2.0])
@pytest.mark.parametrize("length_penalty", ["none", "average", "wu"])
def test_a_beam_with_room_for_all_finds_the_best_of_all(length_penalty, alpha):
    distributions = [drawn(seed) for seed in range(6)]
    settings = options(beam_size=100, n_best=7, length_penalty=length_penalty, alpha=alpha)
    results = search(Table(*distributions), torch.full((6,), 5), SPECIAL, settings)
    for result, distribution in zip(results, distributions, strict=True):
        best = best_of_all(distribution, 5, settings)[:7]
        assert [hypothesis.tokens for hypothesis in result] == [words for _, _, words in best]
        assert [hypothesis.score for hypothesis in result] == pytest.approx([score for score, _, _ in best], abs=1e-5)
        assert [h.log_probability for h in result] == pytest.approx([total for _, total, _ in best], abs=1e-5)


def test_sentences_of_a_batch_do_not_know_of_each_other():
    distributions = [drawn(seed, sharpness=2) for seed in range(8)]
    limits = torch.tensor([2, 9, 4, 7, 1, 8, 3, 6])
    settings = options(beam_size=3, n_best=3, length_penalty="wu")
    together = search(Table(*distributions), limits, SPECIAL, settings)
    apart = [
        search(Table(d), limit.view(1), SPECIAL, settings)[0] for d, limit in zip(distributions, limits, strict=True)
    ]
    assert together == apart
    assert together[4][0].tokens == []


def test_a_sentence_that_is_done_costs_no_more():
    short = probabilities(start={"E": 0.9, "A": 0.1})
    long = probabilities(start={"A": 1.0}, A={"A": 1.0}, AA={"A": 1.0})
    table = Table(short, long)
    results = search(table, torch.tensor([6, 6]), SPECIAL, options(beam_size=2))
    assert [[h.tokens for h in result] for result in results] == [[[]], [[A, A, A]]]
    assert table.calls == [4, 2, 2, 2]


def test_the_search_goes_on_as_long_as_an_open_hypothesis_can_win():
    """A finished hypothesis of the higher log-probability loses to a longer one, by the length penalty."""
    distribution = probabilities(
        start={"E": 0.5, "A": 0.5}, A={"A": 0.9, "E": 0.1}, AA={"A": 0.9, "E": 0.1}, AAA={"E": 0.9, "A": 0.1}
    )
    [[plain]] = search(Table(distribution), torch.tensor([6]), SPECIAL, options(beam_size=2))
    assert plain.tokens == []
    [[mean]] = search(Table(distribution), torch.tensor([6]), SPECIAL, options(beam_size=2, length_penalty="average"))
    assert mean.tokens == [A, A, A]
    assert mean.score == pytest.approx(math.log(0.5 * 0.9**3) / 4, abs=1e-6)


def test_length_penalties_follow_their_formulas():
    lengths = torch.tensor([1, 7, 13])
    assert options(length_penalty="wu", alpha=1.0).penalty(lengths).tolist() == [1, 2, 3]
    assert options(length_penalty="wu", alpha=2.0).penalty(lengths).tolist() == pytest.approx([1, 4, 9])
    assert options(length_penalty="wu", alpha=0.0).penalty(lengths).tolist() == [1, 1, 1]
    assert options(length_penalty="average").penalty(lengths).tolist() == [1, 7, 13]
    assert options(length_penalty="none").penalty(lengths).tolist() == [1, 1, 1]


def test_least_and_most_lengths_are_kept():
    ending, going_on = probabilities(start={"E": 0.9, "A": 0.1}, A={"E": 0.8, "B": 0.2}), drawn(3, sharpness=0)
    [[result]] = search(Table(ending), torch.tensor([6]), SPECIAL, options(beam_size=2, min_length=2))
    assert result.tokens == [A, B]
    settings = options(beam_size=4, n_best=4, min_length=3)
    [[none], full] = search(Table(*[going_on] * 2), torch.tensor([1, 4]), SPECIAL, settings)
    assert none.tokens == []
    assert {len(h.tokens) for h in full} == {3}


def test_limits_follow_the_sources():
    settings = options(max_length_ratio=1.5, max_length_constant=3)
    assert settings.limits(torch.tensor([1, 4, 7, 100]), most=50).tolist() == [5, 10, 14, 50]
    assert options(max_length_ratio=1e30).limits(torch.tensor([1]), most=50).tolist() == [50]


def test_fewer_hypotheses_where_there_are_no_more():
    only = probabilities(start={"A": 1.0}, A={"E": 1.0})
    [results] = search(Table(only), torch.tensor([5]), SPECIAL, options(beam_size=4, n_best=4))
    assert [h.tokens for h in results] == [[A]]
    assert search(Table(), torch.tensor([], dtype=torch.long), SPECIAL, options()) == []


def test_probabilities_that_are_no_numbers_are_refused():
    with pytest.raises(UserError, match="not numbers"):
        search(Table(lambda prefix: torch.full((6,), math.nan)), torch.tensor([5]), SPECIAL, options(beam_size=2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_size": 0}, "search.beam_size must be a whole number of at least 1"),
        ({"beam_size": 2, "n_best": 3}, "search.n_best=3 is more than task.module.search.beam_size=2"),
        ({"length_penalty": "google"}, "search.length_penalty must be one of none, average, wu"),
        ({"alpha": -1.0}, "search.alpha must be a number of at least 0"),
        ({"min_length": -1}, "search.min_length must be"),
        ({"max_length_constant": 0}, "search.max_length_constant must be"),
        ({"max_length_ratio": -1}, "search.max_length_ratio must be"),
    ],
)
def test_settings_that_cannot_be_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        options(**settings)
