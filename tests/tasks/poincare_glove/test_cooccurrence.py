"""Co-occurrence counts are those of a brute-force count, whatever the sizes of blocks and of what memory holds."""

import collections

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.poincare_glove import corpus
from tasks.poincare_glove.cooccurrence import PARTS, pair_counts, part_of, write_parts
from tasks.poincare_glove.corpus import blocks, count_words, word_numbers
from tasks.poincare_glove.toy import sentences

TEXT = "a b a c\n\nb b x a\n" + " ".join("abcab" * 40) + "\nc\nä b ä\n"
INDEX = {"a": 0, "b": 1, "c": 2, "ä": 3}


def brute_force(text: str, index: dict[str, int], window: int) -> dict[tuple[int, int], float]:
    """GloVe's cooccur, symmetric: both entries of the matrix for each pair of places; i <= j of it."""
    matrix = collections.defaultdict(float)
    for line in text.split("\n"):
        ids = [index[w] for w in line.split() if w in index]
        for i, first in enumerate(ids):
            for k in range(1, window + 1):
                if i + k < len(ids):
                    matrix[first, ids[i + k]] += 1 / k
                    matrix[ids[i + k], first] += 1 / k
    return {pair: x for pair, x in matrix.items() if pair[0] <= pair[1]}


def ignore(_: int) -> None:
    pass


@pytest.mark.parametrize("window", [1, 3, 10, 1000])
@pytest.mark.parametrize("block", [1 << 22, 16, 3])
@pytest.mark.parametrize("in_memory", [1 << 20, 4, 1])
def test_counts_are_those_of_a_brute_force_count(tmp_path, monkeypatch, window, block, in_memory):
    monkeypatch.setattr(corpus, "BLOCK", block)
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    result, last = {}, -1
    for keys, counts in pair_counts(word_numbers(path, str.split, False, INDEX, ignore), len(INDEX), window, in_memory):
        assert keys[0] > last
        assert (np.diff(keys) > 0).all(), "sorted, each pair once"
        last = keys[-1]
        result.update(zip(((k // 4, k % 4) for k in keys.tolist()), counts.tolist(), strict=True))
    expected = brute_force(TEXT, INDEX, window)
    assert result.keys() == expected.keys()
    assert result == pytest.approx(expected)


def test_a_random_text_with_many_runs_on_disk(tmp_path):
    draw = np.random.default_rng(0)
    words = draw.integers(60, size=4000)
    lines = np.repeat(np.arange(40), 100)
    text = "\n".join(" ".join(f"w{w}" for w in words[lines == k]) for k in range(40))
    chunks = list(pair_counts(((words[i : i + 90], lines[i : i + 90]) for i in range(0, 4000, 90)), 60, 5, in_memory=200))
    assert len(chunks) > 3, "it was merged in ranges"
    assert max(len(keys) for keys, _ in chunks) <= 400
    expected = brute_force(text, {f"w{k}": k for k in range(60)}, 5)
    result = {
        (k // 60, k % 60): x for keys, counts in chunks for k, x in zip(keys.tolist(), counts.tolist(), strict=True)
    }
    assert result.keys() == expected.keys()
    assert result == pytest.approx(expected)


def test_no_pair_gives_no_chunk():
    assert list(pair_counts([(np.empty(0, np.int64), np.empty(0, np.int64))], 5, 3)) == []
    assert list(pair_counts([(np.array([1]), np.array([0]))], 5, 3)) == []


@pytest.mark.parametrize("block", [1 << 22, 5])
def test_words_are_counted_whole_across_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(corpus, "BLOCK", block)
    path = tmp_path / "text.txt"
    path.write_text("The theory of the\ntheatre, äöü äöü", encoding="utf-8")
    assert count_words(path, str.split, True, ignore) == {"the": 2, "theory": 1, "of": 1, "theatre,": 1, "äöü": 2}
    assert count_words(path, str.split, False, ignore)["The"] == 1
    assert sum(b.size for b in blocks(path)) == path.stat().st_size
    path.write_text("\ufeffThe end", encoding="utf-8")
    assert count_words(path, str.split, True, ignore) == {"the": 1, "end": 1}, "without the mark of byte order"


def test_faulty_texts_are_named(tmp_path):
    path = tmp_path / "text.txt"
    with pytest.raises(UserError, match=r"There is no text file .*text\.txt"):
        list(blocks(path))
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"text\.txt is empty"):
        list(blocks(path))
    path.write_bytes(b"good\nna\xefve\n")
    with pytest.raises(UserError, match=r"text\.txt, line 2: byte 0xef is not UTF-8.*iconv"):
        list(blocks(path))


def test_parts_hold_every_pair_once_with_words_with_themselves_last(tmp_path):
    keys = np.arange(10_000)
    counts = 1.0 + keys
    shares = {"dev": 0.1, "test": 0.2}
    chunks = [(keys[a : a + 3000], counts[a : a + 3000]) for a in range(0, 10_000, 3000)]
    result = write_parts(iter(chunks), 100, shares, 0, tmp_path)
    parts = []
    for part in PARTS:
        pairs = np.fromfile(tmp_path / f"{part}.pairs.bin", "<i4").reshape(-1, 2)
        values = np.fromfile(tmp_path / f"{part}.counts.bin", "<f4")
        assert len(pairs) == len(values) == result[part]["pairs"]
        diagonal = pairs[:, 0] == pairs[:, 1]
        same = result[part]["same"]
        assert not diagonal[: len(pairs) - same].any()
        assert diagonal[len(pairs) - same :].all()
        np.testing.assert_array_equal(values, 1 + pairs @ [100, 1])
        parts += (pairs @ [100, 1]).tolist()
    assert sorted(parts) == keys.tolist()
    assert result["dev"]["pairs"] == pytest.approx(1000, abs=100)
    assert result["test"]["pairs"] == pytest.approx(2000, abs=150)
    (tmp_path / "again").mkdir()
    again = write_parts(iter([(keys, counts)]), 100, shares, 0, tmp_path / "again")
    assert again == result, "the fingerprint does not depend on the chunks"
    assert (part_of(keys, shares, 1) != part_of(keys, shares, 0)).any()


def test_sentences_of_the_toy_corpus_are_about_their_topic():
    lines = sentences(topics=3, words=5, common=2, strays=0, lines=50, length=9, seed=0)
    assert len(lines) == 50
    for line in lines:
        assert len(line.split()) == 9
        assert len({w.rstrip("0123456789") for w in line.split()} - {"common"}) == 1
    assert lines == sentences(topics=3, words=5, common=2, strays=0, lines=50, length=9, seed=0)
    mixed = sentences(topics=3, words=5, common=2, strays=90, lines=50, length=9, seed=0)
    assert any(len({w.rstrip("0123456789") for w in line.split()} - {"common"}) == 3 for line in mixed)
