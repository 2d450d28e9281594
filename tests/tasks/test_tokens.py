"""Texts are cut into words in the way that their settings name."""

import sys
import types

import pytest

from tasks.errors import UserError
from tasks.tokens import NAMES, TextOptions, make_tokenizer

OPTIONS = {"tokenizer": "blanks", "lower": True, "ends": False, "max_length": 2, "vocabulary": "train", "min_count": 1}


def test_options_cut_and_mark_sentences():
    options = TextOptions(**OPTIONS)
    words = options.cutter()("A b C")
    assert (words, options.limit(words)) == (["a", "b", "c"], ["a", "b"])
    assert TextOptions(**OPTIONS | {"ends": True}).limit(words) == ["<s>", "a", "b", "</s>"]


@pytest.mark.parametrize("change", [{"tokenizer": "word"}, {"max_length": 0}, {"vocabulary": "dev"}, {"min_count": 0}])
def test_a_wrong_option_is_named(change):
    with pytest.raises(UserError, match=rf"task\.data\.{next(iter(change))} must be"):
        TextOptions(**OPTIONS | change)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("words", ["it", "'s", "2", "a.m."]),
        ("letters", ["it", "s", "", "", "a", "m", ""]),
        ("blanks", ["it's", "2", "a.m."]),
        ("basic_english", ["it", "'", "s", "2", "a", ".", "m", "."]),
    ],
)
def test_each_tokeniser_cuts_in_its_way(name, words):
    assert make_tokenizer(name, True)("It's 2 a.m.") == words


def test_letters_keep_empty_words_as_the_code_of_the_paper():
    assert make_tokenizer("letters", True)("Two dogs, 1 cat.") == ["two", "dogs", "", "", "", "cat", ""]
    assert make_tokenizer("letters", False)("A b") == ["A", "b"]


def test_an_unknown_tokeniser_is_named():
    with pytest.raises(UserError, match=r"task\.data\.tokenizer must be one of words, letters, spacy"):
        make_tokenizer("word", True)
    assert "basic_english" in NAMES


@pytest.fixture
def spacy(monkeypatch):
    """Stands for the package: cuts at blanks, and has a blank as a word of its own."""
    token = types.SimpleNamespace
    english = types.SimpleNamespace(tokenizer=lambda s: [token(text=w or " ") for w in s.split(" ")])
    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(blank=lambda name: english))
    make_tokenizer.__globals__["_spacy"].cache_clear()
    yield
    make_tokenizer.__globals__["_spacy"].cache_clear()


def test_spacy_is_used_where_it_is_installed(spacy):
    assert make_tokenizer("spacy", True)("A  Dog") == ["a", "dog"]


def test_without_spacy_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    make_tokenizer.__globals__["_spacy"].cache_clear()
    with pytest.raises(UserError, match="needs the package spacy: `pip install spacy`"):
        make_tokenizer("spacy", True)
