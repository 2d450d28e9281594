"""Texts as sentences, by the rules of a language."""

import sentencex

from tasks.errors import UserError


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, without blanks around them; an empty line ends one, too. None where there are blanks
    only.

    language: a code of ISO 639, as "en"; of the Wikimedia Foundation's sentencex, which has the rules.
    """
    return [sentence for part in sentencex.segment(language, text) if (sentence := part.strip())]


def check_language(name: str, language: str) -> str:
    """`language` if it is a code of two or three letters. Raises UserError, which names the setting, if not."""
    if not (isinstance(language, str) and language.isascii() and language.isalpha() and 2 <= len(language) <= 3):
        raise UserError(f"{name} must be the code of a language, as en or de, and it is {language!r}.")
    return language
