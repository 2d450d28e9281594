"""The generator follows the paper's recipe, and agrees with the official files."""

import numpy as np
import pytest
import torch

from tasks.prefix.files import read_tab_file
from tasks.prefix.pairs import Pairs, generate

MAX = 20


def parts(pairs: Pairs) -> tuple[np.ndarray, ...]:
    """(first, second, their lengths) of the negatives and of the positives."""
    negative, positive = slice(0, None, 2), slice(1, None, 2)
    return tuple(
        a.numpy()
        for rows in (negative, positive)
        for a in (pairs.words[0, rows], pairs.words[1, rows], pairs.lengths[0, rows], pairs.lengths[1, rows])
    )


def changed(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Of the positives: how many words of the prefix differ, and the length of the prefix."""
    *_, first, second, _, short = parts(pairs)
    inside = np.arange(second.shape[1]) < short[:, None]
    width = second.shape[1]
    return ((first[:, :width] != second) & inside).sum(axis=1), short.astype(int)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


@pytest.fixture(scope="module", params=[0, 10, 30, 50, 100])
def noisy(request) -> tuple[int, Pairs]:
    return request.param, generate(20000, request.param, 100, MAX, [0, 0])


def test_sentences_have_the_lengths_and_words_of_the_recipe(noisy):
    _, pairs = noisy
    first, other, long, short, again, second, long_again, short_again = parts(pairs)
    assert (pairs.labels[0::2] == 0).all()
    assert (pairs.labels[1::2] == 1).all()
    assert (first == again).all(), "each first sentence stands twice"
    assert (long == long_again).all()
    assert (short == short_again).all()
    place = np.arange(MAX)
    for words, lengths in ((first, long), (other, short), (second, short)):
        assert ((words > 0) == (place < lengths[:, None])).all(), "words up to the length, 0 behind it"
        assert words.max() == 100
    assert short.min() == 1
    assert long.max() == MAX
    assert (short <= long).all()
    counts = np.bincount(short, minlength=MAX + 1)[1:]
    assert np.abs(counts - 500).max() < 5 * 500**0.5, "the shorter length is uniform"
    rest = (long - short)[short == 11]
    assert set(rest) == set(range(10)), "the longer one adds 0 to 20 - 11 words"
    words = np.bincount(first[first > 0], minlength=101)[1:]
    assert np.abs(words - words.mean()).max() < 5 * words.mean() ** 0.5, "words are uniform"


def test_positives_redraw_the_share_of_the_prefix_without_repetition(noisy):
    noise, pairs = noisy
    differ, short = changed(pairs)
    redrawn = noise * short // 100
    assert (differ <= redrawn).all()
    same = 1 / 100  # a redrawn word is the old one
    assert abs(differ.sum() - (1 - same) * redrawn.sum()) <= 5 * (redrawn.sum() * same) ** 0.5


def test_redrawn_positions_are_uniform():
    pairs = generate(20000, 30, 100, MAX, [1, 0])
    *_, first, second, _, short = parts(pairs)
    rows = short == 10
    hits = (first != second)[rows, :10].sum(axis=0)
    assert np.abs(hits - hits.mean()).max() < 5 * hits.mean() ** 0.5


def test_negatives_are_unrelated():
    first, other, _, short, *_ = parts(generate(20000, 0, 100, MAX, [2, 0]))
    inside = np.arange(MAX) < short[:, None]
    assert abs(((first == other) & inside).sum() / inside.sum() - 0.01) < 0.002


def test_the_seed_decides():
    assert generate(100, 10, 10, 6, [0, 1]).sha256() == generate(100, 10, 10, 6, [0, 1]).sha256()
    assert generate(100, 10, 10, 6, [0, 1]).sha256() != generate(100, 10, 10, 6, [0, 2]).sha256()


def test_large_vocabularies_and_short_sentences():
    pairs = generate(100, 10, 1000, 1, [0, 0])
    assert pairs.words.max() > 255
    assert pairs.words.shape == (2, 100, 1)
    batch = pairs[torch.tensor([3, 5])]
    assert batch["words"].shape == (2, 2, 1)


@pytest.mark.data
@pytest.mark.parametrize("noise", [10, 30, 50])
def test_official_dev_files_are_draws_of_our_generator(data_dir, noise):
    official = read_tab_file(data_dir / "prefix_official" / f"prefix{noise}_dev.tsv", 100)
    ours = generate(10000, noise, 100, MAX, [0, 1])
    assert len(official) == len(ours)
    assert (official.labels == ours.labels).all()
    first, _, _, short, again, *_ = parts(official)
    assert (first == again).all()
    differ, _ = changed(official)
    assert (differ <= noise * short // 100).all(), "no more words differ than the recipe redraws"
    for measure in (
        lambda p: changed(p)[0],
        lambda p: changed(p)[0] == 0,
        lambda p: p.lengths[0].numpy(),
        lambda p: p.lengths[1].numpy(),
        lambda p: p.words[p.words > 0].numpy(),
    ):
        (mean, error), (our_mean, our_error) = mean_and_error(measure(official)), mean_and_error(measure(ours))
        assert abs(mean - our_mean) < 4 * (error**2 + our_error**2) ** 0.5
    # With repetition a position could be drawn twice, and fewer words would differ.
    redrawn = noise * short.astype(int) // 100
    assert abs(differ.sum() / redrawn.sum() - 0.99) < 0.01
