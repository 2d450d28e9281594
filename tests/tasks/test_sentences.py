"""Texts are split where sentences end, and nothing of them is lost."""

import pytest

from tasks.errors import UserError
from tasks.sentences import check_language, split_sentences


def test_sentences_end_at_their_marks_and_at_empty_lines():
    text = "Dr. J. Smith pays $1.8 million (e.g. in cash). He left!\nA heading\n\nIs it over? Yes"
    assert split_sentences(text, "en") == ["Dr. J. Smith pays $1.8 million (e.g. in cash).", "He left!", "A heading", "Is it over?", "Yes"]


def test_blanks_are_no_sentences():
    assert split_sentences(" \n \n\n", "en") == split_sentences("", "en") == []


def test_a_gigantic_sentence_is_one():
    assert split_sentences("word " * 300_000, "en") == [("word " * 300_000).strip()]


@pytest.mark.parametrize("language", ["English", "e1", "", None, 3])
def test_a_language_is_a_code(language):
    with pytest.raises(UserError, match=r"task\.data\.language must be the code of a language, as en or de, and it is"):
        check_language("task.data.language", language)
    assert check_language("task.data.language", "de") == "de"
