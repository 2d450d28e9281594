"""How texts become words: ways to cut a sentence, and the settings that say which one and how much is taken."""

import functools
import importlib
import re
from dataclasses import dataclass

from tasks.errors import UserError, one_of, whole
from tasks.text import TOKENIZERS, Tokenizer, tokenize

NO_LETTER = re.compile("[^a-zA-Z]")
START, END = "<s>", "</s>"
NAMES = ("words", "letters", "spacy", *TOKENIZERS)


@dataclass(frozen=True)
class TextOptions:
    """How texts become words.

    tokenizer, lower: see `make_tokenizer`. ends: marks of beginning and end around each sentence. max_length: most
    words of a sentence, without its ends; further ones are cut off. vocabulary: which split has the words that have a
    row each, "train" or "all". min_count: how often a word must be there, or it is the unknown word.
    Raises UserError for settings that cannot be.
    """

    tokenizer: str
    lower: bool
    ends: bool
    max_length: int
    vocabulary: str
    min_count: int

    def __post_init__(self) -> None:
        whole("task.data.max_length", self.max_length, 1)
        one_of("task.data.vocabulary", self.vocabulary, ("train", "all"))
        whole("task.data.min_count", self.min_count, 1)
        self.cutter()  # an unknown tokeniser, or one that is not installed, is reported at once

    def cutter(self) -> Tokenizer:
        """The function that cuts a sentence into all its words."""
        return make_tokenizer(self.tokenizer, self.lower)

    def limit(self, words: list[str]) -> list[str]:
        """The words of a sentence that the model sees."""
        words = words[: self.max_length]
        return [START, *words, END] if self.ends else words


def make_tokenizer(name: str, lower: bool) -> Tokenizer:
    """The tokeniser of a name; with `lower` the sentence is put into lower case before it.

        words    the Penn Treebank's manner (tasks.text.tokenize)
        letters  cut at everything that is no letter of a-z, empty words kept (Ganea et al.'s code)
        spacy    that of spaCy for English, which needs the package `spacy` (the MultiNLI report)

    and those of tasks.text. Raises UserError for an unknown one, and where spaCy is not installed.
    """
    one_of("task.data.tokenizer", name, NAMES)
    cutters: dict[str, Tokenizer] = {"words": tokenize, "letters": NO_LETTER.split, **TOKENIZERS}
    cut = _spacy() if name == "spacy" else cutters[name]
    return (lambda sentence: cut(sentence.lower())) if lower else cut


@functools.cache
def _spacy() -> Tokenizer:
    try:
        spacy = importlib.import_module("spacy")
    except ImportError:
        raise UserError(
            "task.data.tokenizer=spacy needs the package spacy: `pip install spacy` (no model of it is needed); or "
            "take task.data.tokenizer=words."
        ) from None
    english = spacy.blank("en").tokenizer
    return lambda sentence: [token.text for token in english(sentence) if not token.text.isspace()]
