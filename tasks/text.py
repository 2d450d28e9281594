"""Words: tokens and vocabularies. The only module that uses torchtext."""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

from torchtext.data.utils import get_tokenizer
from torchtext.vocab import Vocab

PAD, UNK = 0, 1  # ids of padding and of unknown words
HIGH = re.compile("[\U00010000-\U0010ffff]")
HIGH_CODES = (*range(0x10000, 0x20000), *range(0xE0100, 0xE01F0))  # where there are marks beyond U+FFFF
ENDING = re.compile(r"(\w.*?)(n['’]t|['’](?:s|S|ll|re|ve|m|d))", re.IGNORECASE)
Tokenizer = Callable[[str], list[str]]
TOKENIZERS: dict[str, Tokenizer] = {"blanks": str.split, "basic_english": get_tokenizer("basic_english")}


def tokenize(sentence: str) -> list[str]:
    """The words of a sentence in the manner of the Penn Treebank, which GloVe's vocabularies follow: punctuation marks
    and the endings 's, n't, 'll, 're, 've, 'm, 'd are words of their own; numbers, dates and abbreviations stay whole.

    Letters keep their case, and the marks that are combined with them. Nothing is dropped: without blanks, the words
    are the sentence.
    """
    words = []
    for word in _word(bool(HIGH.search(sentence) and _high_mark().search(sentence))).findall(sentence):
        match = ENDING.fullmatch(word)
        words += [part for part in match.groups() if part] if match else [word]
    return words


def _marks(codes: Iterable[int]) -> str:
    return "".join(c for c in map(chr, codes) if unicodedata.category(c).startswith("M"))


@functools.cache
def _high_mark() -> re.Pattern[str]:
    return re.compile(f"[{_marks(HIGH_CODES)}]")


@functools.cache
def _word(has_high: bool) -> re.Pattern[str]:
    """A number with signs inside (1,998.5, 10:30, 3-4), letters with dots (U.S.), words with hyphens and apostrophes,
    punctuation; each with the marks that are combined with its characters, which ``\\w`` lacks: vowels of Hindi,
    Bengali or Tamil, points of Arabic and Hebrew, accents that are characters of their own, joiners.

    has_high: with the marks from U+10000 on, which make it several times as slow.
    """
    marks = "\u200c\u200d" + _marks(range(0x300, 0x10000)) + (_marks(HIGH_CODES) if has_high else "")
    word = rf"\w[\w{marks}]*"
    return re.compile(
        rf"\d+(?:[.,:/-]\d+)*[\w{marks}]*|(?:[^\W\d_][{marks}]*\.){{2,}}|{word}(?:[-'’.&@]{word})*|\.{{2,}}|--+|``|''"
        rf"|[^\w\s][{marks}]*"
    )


def vocabulary(counts: Counter, max_size: int | None, min_count: int) -> Vocab:
    """torchtext's vocabulary of the words that were counted at least `min_count` times, the most frequent `max_size` of
    them, most frequent first, equally frequent ones by name; without special words."""
    return Vocab(counts, max_size=max_size, min_freq=min_count, specials=[])
