"""Pieces of sentences and sentences of pieces."""

import pytest

from tasks.errors import UserError
from tasks.translation.subwords import Subwords, learn
from tests.tasks.translation.files import TRAIN, german

BOTH = [*TRAIN, *map(german, TRAIN)]


def test_learnt_pieces_make_the_sentence_again():
    model = learn(BOTH, 60)
    assert learn(BOTH, 60) == model, "the same every time"
    subwords = Subwords("bpe", model)
    for sentence in [*BOTH, "sleeping cats run", "ein läufer &amp; co", "x ☃ y ﬁ ½"]:
        (pieces,) = subwords.split([sentence])
        assert subwords.join(pieces) == sentence
        assert len(pieces) >= len(sentence.split())
    assert subwords.split(["a dog"]) == [["▁a", "▁dog"]], "frequent words are whole"
    assert subwords.join(subwords.split(["a   dog"])[0]) == "a dog"
    assert subwords.split([""]) == [[]]


def test_files_that_are_split_already_stay_so():
    text = "the lo@@ ads ever allo@@ wed . a@@"
    assert Subwords("@@").split([text]) == [text.split()]
    assert Subwords("@@").join(text.split()) == "the loads ever allowed . a"
    assert Subwords("@@").join(["a@@", "@@", "b"]) == "a@@ b".replace("@@ ", ""), "only at the end of a piece"
    assert Subwords("none").join(text.split()) == text


@pytest.mark.parametrize(
    ("size", "sentences", "reason"),
    [(4, BOTH, "smaller than required_chars"), (50, [], "no sentence has from 1 to 4,192 bytes")],
)
def test_numbers_of_pieces_that_do_not_fit_are_told(size, sentences, reason):
    with pytest.raises(UserError, match=rf"task\.data\.pieces={size}: byte pair encoding cannot be learnt.*{reason}"):
        learn(sentences, size)


def test_another_kind_is_refused():
    with pytest.raises(UserError, match=r"task\.data\.subwords must be one of bpe, none, @@"):
        Subwords("words")
