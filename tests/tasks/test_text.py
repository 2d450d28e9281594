"""Sentences are cut into the words of the Penn Treebank; vocabularies are sorted and cut."""

import warnings
from collections import Counter

import pytest

from tasks.text import TOKENIZERS, tokenize, vocabulary


def test_tokens_are_those_of_the_treebank():
    assert tokenize("John's dog doesn't eat 3,000.5 apples.") == [
        "John", "'s", "dog", "does", "n't", "eat", "3,000.5", "apples", ".",
    ]  # fmt: skip
    assert tokenize('"You\'ll see," said (a) well-known U.S. man...') == [
        '"', "You", "'ll", "see", ",", '"', "said", "(", "a", ")", "well-known", "U.S.", "man", "...",
    ]  # fmt: skip
    assert tokenize("Müller kostet 5€ – ja") == ["Müller", "kostet", "5", "€", "–", "ja"]
    assert tokenize("  ") == []


@pytest.mark.parametrize(
    "sentence",
    [
        "किताब क्रिकेट", "বাংলা ভাষা", "தமிழ் மொழி", "مَرْحَبًا بِكَ", "שָׁלוֹם עֲלֵיכֶם", "می\u200cروم خانه", "cafe\u0301 nai\u0308ve",
        "\U0001e900\U0001e944\U0001e901 \U00011103\U00011127", "e\u0301.a\u0300. 5\ufe0f\u20e3", "\u0301 \u2764\ufe0f",
        "葛\U000e0100 क्यों-क्या",
    ],
)  # fmt: skip
def test_a_word_keeps_its_combining_marks(sentence):
    assert tokenize(sentence) == sentence.split()


def test_words_with_marks_are_cut_as_others():
    assert tokenize("cafe\u0301's (e\u0301a), 3e\u0301 \u2764\ufe0f.") == [
        "cafe\u0301", "'s", "(", "e\u0301a", ")", ",", "3e\u0301", "\u2764\ufe0f", ".",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sentence", ["a_b c", "¿Qué? #tag @me 50% x=y", "e-mail: a@b.c", "'quoted' 'tis o'clock", "1990s"]
)
def test_no_letter_is_lost(sentence):
    assert "".join(tokenize(sentence)) == sentence.replace(" ", "")


def test_a_vocabulary_is_sorted_and_cut():
    chosen = vocabulary(Counter({"b": 2, "a": 2, "c": 5, "d": 1}), None, 2)
    assert chosen.itos == ["c", "a", "b"]
    assert vocabulary(Counter({"b": 2, "a": 2, "c": 5}), 2, 1).itos == ["c", "a"]


def test_torchtext_is_imported_and_used_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TOKENIZERS["basic_english"]("Hello, World!") == ["hello", ",", "world", "!"]
