"""Texts as word ids in flat arrays: sentences of words and documents of sentences, and padded batches of them."""

import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tasks.text import PAD, UNK, vocabulary

CHUNK = 1 << 13  # examples whose words are counted together; 100 times as many words are renumbered together
FIRST = 2  # row of the first word of a vocabulary, behind padding and the unknown word


def length_mask(lengths: Tensor, steps: int) -> Tensor:
    """True at the positions before the end: lengths (...) -> (..., steps)."""
    return torch.arange(steps, device=lengths.device) < lengths.unsqueeze(-1)


@dataclass(frozen=True)
class Sentences:
    """N sentences of words, one after the other: sentence k is ids[starts[k]:starts[k + 1]].

    ids (sum,) int32, starts (N + 1,) int64: 4 bytes a word and 8 a sentence. Both may be mapped into memory.
    """

    ids: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Tensor:
        """(N,) int64: the words of each sentence."""
        return self.starts.diff()

    def pad(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The sentences that `index` (...) names: ids (..., T), T the words of the longest, PAD behind the end of the
        others, and lengths (...); both int64. Time and memory are those of the result."""
        first = self.starts[index]
        lengths = self.starts[index + 1] - first
        return _pad(self.ids, first, lengths), lengths


@dataclass(frozen=True)
class Documents:
    """N documents of sentences of words: document k has the sentences from starts[k] to starts[k + 1].

    starts (N + 1,) int64: 8 bytes a document more than its sentences take.
    """

    sentences: Sentences
    starts: Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Tensor:
        """(N,) int64: the words of each document, as for batches of documents of about the same size."""
        return self.sentences.starts[self.starts].diff()

    def pad(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The documents that `index` (B,) names: ids (B, S, T) for their most sentences S and their longest sentence T,
        PAD elsewhere; lengths (B, S), 0 behind the last sentence; and the sentences of each, (B,). All int64."""
        first = self.starts[index]
        counts = self.starts[index + 1] - first
        place = torch.arange(max(1, int(counts.max())))
        inside = place < counts.unsqueeze(-1)
        rows = torch.where(inside, first.unsqueeze(-1) + place, 0)
        begin = self.sentences.starts[rows]
        lengths = torch.where(inside, self.sentences.starts[(rows + 1).clamp_max(len(self.sentences))] - begin, 0)
        return _pad(self.sentences.ids, begin, lengths), lengths, counts

    def pad_sentences(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All M sentences of the documents that `index` (B,) names, one document's after the other's: ids (M, T) for
        the longest sentence T, PAD behind the end of the others; lengths (M,); and the sentences of each document,
        (B,). All int64. It is `pad` without the rows that are padding alone."""
        first = self.starts[index]
        counts = self.starts[index + 1] - first
        return *self.sentences.pad(ranges(first, counts)[1]), counts


def ranges(first: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The places first, first + 1, ... of which each of B rows has as many as counts (B,) says, one row's after the
    other's: the rows (sum,) and the places (sum,)."""
    rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    return rows, first[rows] + torch.arange(len(rows), device=counts.device) - (counts.cumsum(0) - counts)[rows]


def _pad(ids: Tensor, first: Tensor, lengths: Tensor) -> Tensor:
    """ids[first:first + length] of each length (...), filled up with PAD: (..., longest), which is at least 1."""
    place = torch.arange(max(1, int(lengths.max())))
    inside = place < lengths.unsqueeze(-1)
    if not len(ids):
        return torch.full(inside.shape, PAD)
    return torch.where(inside, ids[torch.where(inside, first.unsqueeze(-1) + place, 0)].long(), PAD)


def encode_texts(texts: Sequence[Sequence[Sequence[str]]], rows: Mapping[str, int]) -> Documents:
    """Examples of sentences of words as ids of a vocabulary that is there: `rows` of each word, UNK of others. For new
    examples, see `TaskData.encode`."""
    sentences = [words for text in texts for words in text]
    ids = torch.tensor([rows.get(word, UNK) for words in sentences for word in words], dtype=torch.int32)
    starts = torch.tensor([0, *itertools.accumulate(map(len, sentences))])
    return Documents(Sentences(ids, starts), torch.tensor([0, *itertools.accumulate(map(len, texts))]))


class TextStore:
    """Collects examples of any number of sentences (a pair has two, a document its own), words numbered as they come.

    4 bytes a word, 8 a sentence and 8 an example, and the distinct words once; `encode` renumbers the words where they
    are. So 3.6 million documents of 100 words are held and encoded in 1.5 GB and what the distinct words take.
    """

    def __init__(self) -> None:
        self.numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self._ids, self._sentences, self._examples = array("i"), array("q", [0]), array("q", [0])

    def add(self, sentences: Iterable[Sequence[str]]) -> None:
        """One example more. What is too long is cut before, see `tasks.tokens.TextOptions`."""
        for words in sentences:
            self._ids.extend([self.numbers[word] for word in words])
            self._sentences.append(len(self._ids))
        self._examples.append(len(self._sentences) - 1)

    def encode(
        self, counted: np.ndarray | None, min_count: int, max_size: int | None = None
    ) -> tuple[Documents, list[str]]:
        """The examples with ids of a vocabulary, and its words, of row FIRST and on. Nothing can be added afterwards.

        counted: bool (N,), the examples whose words are counted; None: all. min_count, max_size: see
        `tasks.text.vocabulary`. Other words are UNK.
        """
        ids = np.frombuffer(self._ids, np.int32)  # in the store's own memory, where it is renumbered
        sentences, examples = (np.frombuffer(a, np.int64) for a in (self._sentences, self._examples))
        names, starts = list(self.numbers), sentences[examples]
        frequencies = np.zeros(len(names), np.int64)
        for first in range(0, len(starts) - 1, CHUNK):
            bounds = starts[first : first + CHUNK + 1]
            part = ids[bounds[0] : bounds[-1]]
            if counted is not None:
                part = part[np.repeat(counted[first : first + CHUNK], np.diff(bounds))]
            frequencies += np.bincount(part, minlength=len(names))
        frequent = np.flatnonzero(frequencies >= max(min_count, 1))
        counts = Counter({names[k]: int(frequencies[k]) for k in frequent})
        words = list(vocabulary(counts, max_size, min_count).itos)
        rows = np.full(len(names), UNK, np.int32)
        rows[[self.numbers[word] for word in words]] = np.arange(FIRST, FIRST + len(words), dtype=np.int32)
        for first in range(0, len(ids), 100 * CHUNK):
            part = ids[first : first + 100 * CHUNK]
            part[:] = rows[part]
        flat, begins, documents = (torch.from_numpy(a) for a in (ids, sentences, examples))
        return Documents(Sentences(flat, begins), documents), words
