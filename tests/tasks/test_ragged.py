"""Texts of two and three levels are held flat and gathered as they were, padded to the longest."""

import numpy as np
import pytest
import torch

from tasks.ragged import FIRST, Documents, Sentences, TextStore, encode_texts
from tasks.text import PAD, UNK

TEXTS = [[["a", "b"], ["c"]], [["b"]], [], [["a", "b", "b", "d"], [], ["b"]]]


def store(texts=TEXTS) -> TextStore:
    texts_store = TextStore()
    for text in texts:
        texts_store.add(text)
    return texts_store


def words(ids: torch.Tensor, names: list[str]) -> list:
    table = ["", "?", *names]
    return [[[table[k] for k in sentence] for sentence in document] for document in ids.tolist()]


def test_documents_are_padded_to_their_longest():
    documents, names = store().encode(None, 1)
    assert names == ["b", "a", "c", "d"], "by frequency, then by name"
    assert len(documents) == 4
    assert documents.sizes.tolist() == [3, 1, 0, 5]
    ids, lengths, counts = documents.pad(torch.tensor([1, 0]))
    assert words(ids, names) == [[["b", ""], ["", ""]], [["a", "b"], ["c", ""]]], "no wider than these two need"
    assert lengths.tolist() == [[1, 0], [2, 1]]
    assert counts.tolist() == [1, 2]
    assert ids.dtype == lengths.dtype == counts.dtype == torch.int64
    ids, lengths, counts = documents.pad(torch.tensor([3, 2]))
    assert words(ids, names)[0] == [["a", "b", "b", "d"], [""] * 4, ["b", "", "", ""]]
    assert lengths.tolist() == [[4, 0, 1], [0, 0, 0]]
    assert documents.pad(torch.tensor([2]))[0].tolist() == [[[PAD]]]


def test_a_batch_is_what_padding_one_document_after_the_other_gives():
    draw = np.random.default_rng(0)
    texts = [[[f"w{k}" for k in draw.integers(20, size=draw.integers(6))] for _ in range(draw.integers(5))] for _ in range(50)]
    documents, names = store(texts).encode(None, 1)
    index = torch.from_numpy(draw.permutation(50)[:20])
    ids, lengths, counts = documents.pad(index)
    assert ids.shape == (20, int(counts.max()), int(lengths.max()))
    for document, row, n, k in zip(words(ids, names), lengths.tolist(), counts.tolist(), index.tolist(), strict=True):
        assert [sentence[:m] for sentence, m in zip(document, row, strict=True)][:n] == texts[k]
        assert sum(word != "" for sentence in document for word in sentence) == documents.sizes[k]


def test_sentences_of_documents_stand_one_after_the_other_without_rows_of_padding():
    documents, names = store().encode(None, 1)
    ids, lengths, counts = documents.pad_sentences(torch.tensor([3, 1, 0]))
    rows = [["a", "b", "b", "d"], [""] * 4, ["b", "", "", ""], ["b", "", "", ""], ["a", "b", "", ""], ["c", "", "", ""]]
    assert words(ids.unsqueeze(0), names) == [rows]
    assert (lengths.tolist(), counts.tolist()) == ([4, 0, 1, 1, 2, 1], [3, 1, 2])


def test_what_is_counted_and_renumbered_in_parts_is_as_in_one(monkeypatch):
    texts = [[[f"w{k % 7}", f"w{k % 3}"], ["a"] * (k % 4)] for k in range(200)]
    counted = np.arange(200) % 2 == 0
    whole, names = store(texts).encode(counted, 2)
    monkeypatch.setattr("tasks.ragged.CHUNK", 2)
    parts, same = store(texts).encode(counted, 2)
    assert names == same
    assert torch.equal(whole.sentences.ids, parts.sentences.ids)


def test_words_that_are_rare_or_not_counted_are_unknown():
    documents, names = store().encode(np.array([True, True, False, False]), 1)
    assert names == ["b", "a", "c"]
    assert documents.sentences.ids.tolist() == [FIRST + 1, FIRST, FIRST + 2, FIRST, FIRST + 1, FIRST, FIRST, UNK, FIRST]
    assert store().encode(None, 2)[1] == ["b", "a"]
    assert store().encode(None, 1, 1)[1] == ["b"]


@pytest.mark.parametrize("shape", [(2,), (2, 3)])
def test_sentences_are_padded_in_any_shape(shape):
    sentences = encode_texts([[["a", "b"], []], [["c", "d", "e"], ["f"]]], dict(zip("abcdf", (5, 6, 7, 8, 4), strict=True))).sentences
    assert (len(sentences), sentences.lengths.tolist()) == (4, [2, 0, 3, 1])
    index = torch.tensor([0, 3, 1, 3, 0, 0])[: int(np.prod(shape))].view(shape)
    ids, lengths = sentences.pad(index)
    assert ids.shape == (*shape, 2)
    assert torch.equal(lengths, sentences.lengths[index])
    for row, k in zip(ids.view(-1, 2).tolist(), index.flatten().tolist(), strict=True):
        assert row == [[5, 6], [PAD, PAD], [7, 8], [4, PAD]][k]
    assert sentences.pad(torch.tensor([2]))[0].tolist() == [[7, 8, UNK]]


def test_a_word_takes_four_bytes_and_nothing_is_needed_of_it():
    documents, _ = store([[["a"] * 1000]] * 100).encode(None, 1)
    assert documents.sentences.ids.nbytes == 4 * 100_000
    assert documents.sentences.starts.nbytes + documents.starts.nbytes == 8 * 2 * 101
    empty = Documents(Sentences(torch.empty(0, dtype=torch.int32), torch.zeros(2, dtype=torch.long)), torch.tensor([0, 1]))
    assert empty.pad(torch.tensor([0]))[0].tolist() == [[[PAD]]]
