"""Texts as people write them from texts that were cut into words by Moses's tokeniser, and the other way round."""

from __future__ import annotations

import functools
from typing import Any

from tasks.errors import one_of

TOKENISED = ("none", "moses")


class Writing:
    """The two forms of a text: plain, and cut into words that blanks separate.

    tokenised: how the data's texts are: "none", plain; "moses", as Moses's tokenizer.perl leaves them. language: code
    of two letters, for the rules of quotation marks and abbreviations; where Moses has none, those of English.
    """

    def __init__(self, tokenised: str, language: str):
        self.tokenised, self.language = one_of("task.data.tokenised", tokenised, TOKENISED), language

    def plain(self, text: str) -> str:
        """The text as people write it; "&apos;" and the like are the characters that they stand for."""
        if self.tokenised == "none":
            return text
        return str(_moses("MosesDetokenizer", self.language).detokenize(text.split()))

    def escaped(self, word: str) -> str:
        """A word as the data's texts have it: Moses's tokeniser writes "'" as "&apos;", and & | < > " [ ] likewise.
        What is written so already stays."""
        if self.tokenised == "none":
            return word
        plain = _moses("MosesDetokenizer", self.language).unescape_xml(word)
        return str(_moses("MosesTokenizer", self.language).escape_xml(plain))

    def words(self, text: str) -> str:
        """The text as words with blanks between them."""
        return text if self.tokenised == "moses" else " ".join(_moses("MosesTokenizer", self.language).tokenize(text))


@functools.cache
def _moses(name: str, language: str) -> Any:
    import sacremoses  # half a second, for the data that need it

    return getattr(sacremoses, name)(lang=language)
