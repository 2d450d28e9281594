"""Ways to cut a sentence into words."""

import functools
import importlib
import re

from tasks.errors import UserError, one_of
from tasks.text import TOKENIZERS, Tokenizer, tokenize

NO_LETTER = re.compile("[^a-zA-Z]")
START, END = "<s>", "</s>"
NAMES = ("words", "letters", "spacy", *TOKENIZERS)


def make_tokenizer(name: str, lower: bool) -> Tokenizer:
    """The tokeniser of a name; with `lower` the sentence is put into lower case before it.

        words    the Penn Treebank's manner (tasks.text.tokenize)
        letters  cut at everything that is no letter of a-z, empty words kept (Ganea et al.'s code)
        spacy    that of spaCy for English, which needs the package `spacy` (the MultiNLI report)

    and those of tasks.text. Raises UserError for an unknown one, and where spaCy is not installed.
    """
    one_of("task.data.tokenizer", name, NAMES)
    cut = _spacy() if name == "spacy" else {"words": tokenize, "letters": NO_LETTER.split, **TOKENIZERS}[name]
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
