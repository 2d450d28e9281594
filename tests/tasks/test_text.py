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
