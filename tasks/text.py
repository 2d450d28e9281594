"""Words: tokens and vocabularies. The only module that uses torchtext."""

import re
from collections import Counter
from collections.abc import Callable

from torchtext.data.utils import get_tokenizer
from torchtext.vocab import Vocab

PAD, UNK = 0, 1  # ids of padding and of unknown words
# A number with signs inside (1,998.5, 10:30, 3-4), letters with dots (U.S.), words with hyphens and apostrophes, marks.
WORD = re.compile(
    r"\d+(?:[.,:/-]\d+)*(?:\w+)?|(?:[^\W\d_]\.){2,}|\w+(?:[-'’.&@]\w+)*|\.{2,}|--+|``|''|[^\w\s]", re.UNICODE
)
ENDING = re.compile(r"(\w.*?)(n['’]t|['’](?:s|S|ll|re|ve|m|d))", re.IGNORECASE)
Tokenizer = Callable[[str], list[str]]
TOKENIZERS: dict[str, Tokenizer] = {"blanks": str.split, "basic_english": get_tokenizer("basic_english")}


def tokenize(sentence: str) -> list[str]:
    """The words of a sentence in the manner of the Penn Treebank, which GloVe's vocabularies follow: punctuation marks
    and the endings 's, n't, 'll, 're, 've, 'm, 'd are words of their own; numbers, dates and abbreviations stay whole.

    Letters keep their case. Nothing is dropped: without blanks, the words are the sentence.
    """
    words = []
    for word in WORD.findall(sentence):
        match = ENDING.fullmatch(word)
        words += [part for part in match.groups() if part] if match else [word]
    return words


def vocabulary(counts: Counter, max_size: int | None, min_count: int) -> Vocab:
    """torchtext's vocabulary of the words that were counted at least `min_count` times, the most frequent `max_size` of
    them, most frequent first, equally frequent ones by name; without special words."""
    return Vocab(counts, max_size=max_size, min_freq=min_count, specials=[])
