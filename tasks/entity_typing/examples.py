"""Mentions as numbers: columns of arrays, in memory or on disk, and the batches that are gathered from them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tasks.entity_typing.mentions import Mention
from tasks.errors import UserError, whole
from tasks.reading import Fault, brief
from tasks.text import PAD, UNK

# Characters by id, from 1; 0 is any other character and padding too (the table of Lopez & Strube's code).
CHARACTERS = "".join(chr(k) for k in range(33, 127) if chr(k) not in "()") + "·ÌÛàòö˙\u0650’→■□●【】の・一（）＊：￥"
N_CHARACTERS = len(CHARACTERS) + 1
IN_MENTION = 1  # position of the words of the mention; those before it count from 2, those after it from limit + 2


@dataclass(frozen=True)
class Limits:
    """The most words of a mention, characters of a mention, and words of mention and context together.

    Raises UserError for a limit that is not in 1..255, and more words of a mention than of both together.
    """

    mention: int
    characters: int
    context: int

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if whole(f"task.data.limits.{name}", limit, 1) > 255:
                raise UserError(f"task.data.limits.{name} must be at most 255, and it is {limit}.")
        if self.mention > self.context:
            raise UserError(
                f"task.data.limits.mention={self.mention} is more than task.data.limits.context={self.context}, "
                "the words of mention and context together; make it smaller."
            )


class Columns(NamedTuple):
    """N mentions. Words and types of all of them stand one after the other; those of mention i go from starts[i] on.

    words (sum,) int32 rows of the vectors: the trimmed context with the mention in it. word_starts (N + 1,) int64.
    spans (N, 3) uint8: words before the mention, words of the mention in the context, characters. characters (N, C)
    uint8. types (sum,) int32, without repetition, in the order of the file. type_starts (N + 1,) int64.
    """

    words: np.ndarray
    word_starts: np.ndarray
    spans: np.ndarray
    characters: np.ndarray
    types: np.ndarray
    type_starts: np.ndarray

    @property
    def mentions(self) -> int:
        return len(self.spans)


class Rows(dict[str, int]):
    """The row of each word that was looked up: of the word in lower case, -1, -2, .. where it has none.

    unknown: the words of -1, -2, .., in lower case.
    """

    def __init__(self, index: dict[str, int]):
        super().__init__()
        self.index = index
        self.unknown: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        low = word.lower()
        row = self.index.get(low)
        if row is None:
            row = self.unknown.setdefault(low, -1 - len(self.unknown))
        self[word] = row
        return row


class Encoder:
    """Turns mentions into columns.

    index: row of each word in lower case. limits: see Limits. types: id of each type; grow: whether new types are given
    the next ids (and entered in `types`), or are faults. drop: leave out types that are not in `types`, as long as one
    is left, instead of a fault. keep_untyped: whether a mention may have no type.

    cut: mentions so far that were longer than the limit. untyped: without a type. outside: types that were left out.
    unknown: words without a row in the columns so far; unknown_words: the distinct ones, in lower case.
    """

    def __init__(
        self,
        index: dict[str, int],
        limits: Limits,
        types: dict[str, int],
        grow: bool = False,
        drop: bool = False,
        keep_untyped: bool = False,
    ):
        self.rows, self.limits, self.types = Rows(index), limits, types
        self.grow, self.drop, self.keep_untyped = grow, drop, keep_untyped
        self.character = {c: k for k, c in enumerate(CHARACTERS, start=1)}.get
        self.cut = self.untyped = self.outside = self.unknown = 0
        self.unknown_words: set[str] = set()
        self._words: list[int] = []
        self._types: list[int] = []
        self._ends: list[tuple[int, int]] = []
        self._spans: list[tuple[int, int, int]] = []
        self._characters: list[bytes] = []

    def add(self, left: list[str], mention: str, right: list[str], types: list[str]) -> None:
        """Append a mention. Raises Fault, and then nothing is appended."""
        span = mention.split()
        if not span:
            raise Fault("the mention is empty")
        n_words = len(span)
        left, span, right = trim(left, span, right, self.limits.context)
        try:
            words = list(map(self.rows.__getitem__, [*left, *span, *right]))
        except (AttributeError, TypeError):
            raise Fault("a word of the context is not a string") from None
        ids = self._ids(types)
        letters = mention[: self.limits.characters]
        character = self.character
        self._words += words
        self._types += ids
        self._ends.append((len(self._words), len(self._types)))
        self._spans.append((len(left), len(span), len(letters)))
        self._characters.append(bytes([character(c, 0) for c in letters]))
        self.cut += n_words > self.limits.mention
        self.untyped += not ids

    def _ids(self, types: list[str]) -> list[int]:
        if not types and not self.keep_untyped:
            raise Fault("the mention has no type (y_str is empty; task.data.untyped=keep takes such mentions)")
        type_ids = self.types
        try:
            ids = [type_ids[t] for t in types]
        except (KeyError, TypeError):
            ids = self._new_ids(types)
        return ids if len(ids) < 2 else list(dict.fromkeys(ids))

    def _new_ids(self, types: list[str]) -> list[int]:
        if not all(isinstance(t, str) and t for t in types):
            raise Fault("a type in y_str is not a string or empty")
        new = [t for t in dict.fromkeys(types) if t not in self.types]
        if self.grow:
            self.types.update({t: k for k, t in enumerate(new, start=len(self.types))})
        elif not self.drop or len(new) == len(set(types)):
            raise Fault(f"the type {brief(new[0])} is not in the list of types")
        else:
            self.outside += len(new)
        return [self.types[t] for t in types if t in self.types]

    def columns(self) -> Columns:
        """What was added since the last call."""
        n, width = len(self._spans), self.limits.characters
        ends = np.array(self._ends, np.int64).reshape(n, 2)
        starts = np.concatenate([np.zeros((1, 2), np.int64), ends])
        characters = np.frombuffer(b"".join(c.ljust(width, b"\0") for c in self._characters), np.uint8)
        words = np.array(self._words, np.int32)
        unknown = words < 0
        names = list(self.rows.unknown)
        self.unknown += int(unknown.sum())
        self.unknown_words.update(names[-1 - k] for k in np.unique(words[unknown]).tolist())
        words[unknown] = UNK
        columns = Columns(
            words, starts[:, 0].copy(), np.array(self._spans, np.uint8).reshape(n, 3),
            characters.reshape(n, width), np.array(self._types, np.int32), starts[:, 1].copy(),
        )  # fmt: skip
        self._words, self._types, self._ends, self._spans, self._characters = [], [], [], [], []
        return columns


def trim(left: list[str], span: list[str], right: list[str], limit: int) -> tuple[list[str], list[str], list[str]]:
    """At most `limit` words: from the longer side one after the other, from the right one where both are equal.

    A mention of more words is cut to its first and has no context (Lopez & Strube's code, mention.py).
    """
    spare = limit - len(span)
    if spare < 0:
        return [], span[:limit], []
    if len(left) + len(right) <= spare:
        return left, span, right
    before = min(len(left), max((spare + 1) // 2, spare - len(right)))
    return left[len(left) - before :], span, right[: spare - before]


def encode(mentions: Iterable[Mention], encoder: Encoder) -> Columns:
    """Columns of some mentions. Raises Fault, which counts them from 1."""
    for number, mention in enumerate(mentions, start=1):
        try:
            encoder.add(*mention)
        except Fault as fault:
            raise Fault(f"mention {number}: {fault}") from None
    return encoder.columns()


class Examples:
    """A split: parts of some columns, one after the other; `examples[index]` is a batch, a dict of tensors.

    mention (B, M) rows of the word vectors, 0 where padded; mention_length (B,); characters (B, C), ids of
    N_CHARACTERS; characters_length (B,); context (B, T), the words around and in the mention; context_length (B,);
    positions (B, T), ids: 0 padding, 1 in the mention, 2, 3, .. the first, second, .. word to its left,
    limit + 2, limit + 3, .. to its right; targets (B, L) ids of types, filled up with -1. All long.

    M, C and T are those of the longest in the batch, or where `full`, the limits.
    """

    def __init__(self, columns: Columns, parts: Sequence[tuple[int, int]], limits: Limits, full: bool):
        self.columns, self.limits, self.full = columns, limits, full
        self.parts = [(start, stop) for start, stop in parts if stop > start]
        sizes = np.array([stop - start for start, stop in self.parts], np.int64)
        self._ends = np.cumsum(sizes)
        self._shift = np.array([start for start, _ in self.parts], np.int64) - (self._ends - sizes)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        i = index.numpy().astype(np.int64)
        i = i + self._shift[np.searchsorted(self._ends, i, side="right")]
        spans = self.columns.spans[i].astype(np.int64)
        n_left, n_span, n_characters = spans.T
        words, lengths = _pad(self.columns.words, self.columns.word_starts, i, PAD, self._width(self.limits.context))
        targets, _ = _pad(self.columns.types, self.columns.type_starts, i, -1, None)
        j = np.arange(words.shape[1])
        after = j - (n_left + n_span)[:, None]
        positions = np.where(after >= 0, after + self.limits.context + 2, IN_MENTION)
        positions = np.where(j < n_left[:, None], n_left[:, None] - j + IN_MENTION, positions)
        positions[j >= lengths[:, None]] = PAD

        mention_length = np.minimum(n_span, self.limits.mention)
        k = np.arange(self._width(self.limits.mention) or mention_length.max(initial=1))
        mention = np.take_along_axis(words, np.minimum(n_left[:, None] + k, words.shape[1] - 1), axis=1)
        mention[k >= mention_length[:, None]] = PAD
        wide = self._width(self.limits.characters) or n_characters.max(initial=1)
        batch = {
            "mention": mention, "mention_length": mention_length, "characters": self.columns.characters[i, :wide],
            "characters_length": n_characters, "context": words, "context_length": lengths, "positions": positions,
            "targets": targets,
        }  # fmt: skip
        return {name: torch.from_numpy(np.ascontiguousarray(x, dtype=np.int64)) for name, x in batch.items()}

    def _width(self, limit: int) -> int | None:
        return limit if self.full else None

    def chunks(self, size: int = 200_000) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Types of all mentions one after the other and their number per mention, in chunks of `size` mentions."""
        for begin, end in self.parts:
            for start in range(begin, end, size):
                starts = self.columns.type_starts[start : min(start + size, end) + 1]
                yield self.columns.types[starts[0] : starts[-1]], np.diff(starts)


def _pad(
    values: np.ndarray, starts: np.ndarray, rows: np.ndarray, fill: int, width: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """(B, width) int64 with the values of some rows, filled up at the end, and their lengths (B,)."""
    first = starts[rows]
    lengths = starts[rows + 1] - first
    j = np.arange(width or max(1, lengths.max(initial=1)))
    filled = j >= lengths[:, None]
    if not len(values):
        return np.full(filled.shape, fill, np.int64), lengths
    padded = values[np.minimum(first[:, None] + j, len(values) - 1)].astype(np.int64)
    padded[filled] = fill
    return padded, lengths
