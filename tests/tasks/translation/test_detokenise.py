"""Texts with and without blanks around their words."""

import pytest

from tasks.errors import UserError
from tasks.translation.detokenise import Writing

PLAIN = 'Ein "großer" Hund (braun) rennt, springt & bellt: wau!'
WORDS = "Ein &quot; großer &quot; Hund ( braun ) rennt , springt &amp; bellt : wau !"


def test_texts_of_moses_are_put_together():
    writing = Writing("moses", "de")
    assert writing.plain(WORDS) == PLAIN
    assert writing.words(WORDS) == WORDS
    assert writing.plain("it is n &apos;t , the man &apos;s hat") == "it is n 't, the man 's hat"
    assert Writing("moses", "en").plain("the man &apos;s hat , isn &apos;t it ?") == "the man's hat, isn't it?"


def test_plain_texts_are_cut_into_words():
    writing = Writing("none", "de")
    assert writing.plain(PLAIN) == PLAIN
    assert writing.words(PLAIN) == WORDS


def test_an_empty_text_stays_empty():
    for kind in ("none", "moses"):
        assert Writing(kind, "en").plain("") == Writing(kind, "en").words("") == ""


def test_an_unknown_manner_is_named():
    with pytest.raises(UserError, match="tokenised must be one of none, moses"):
        Writing("spacy", "en")
