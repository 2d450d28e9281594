"""Pairs of sentences of word ids, and the generator that makes them (Ganea et al. 2018, section 4)."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PAD = 0  # id 0 is the unknown word of the vocabulary; it also fills up short sentences


@dataclass(frozen=True)
class Pairs:
    """N labelled pairs of sentences.

    words (2, N, L) ids, premises first; lengths (2, N); labels (N,) 1 where the second is a noisy prefix of the first.
    """

    words: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def sha256(self) -> str:
        """Fingerprint of the contents: the same for the same pairs, however they are stored."""
        digest = hashlib.sha256()
        for array, kind in ((self.words, "<u2"), (self.lengths, "<u2"), (self.labels, "<u1")):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array, dtype=kind).tobytes())
        return digest.hexdigest()

    def tensors(self) -> "PairTensors":
        words = self.words if self.words.dtype == np.uint8 else self.words.astype(np.int32)  # torch has no uint16 maths
        return PairTensors(*(torch.from_numpy(a) for a in (words, self.lengths.astype(np.int64), self.labels)))


@dataclass(frozen=True)
class PairTensors:
    """The same as tensors: indexing with a 1-D tensor of positions gives the batch of these pairs."""

    words: Tensor
    lengths: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """words (2, B, T) for the longest sentence T of the batch, lengths (2, B), labels (B,); all int64."""
        lengths = self.lengths[:, index]
        longest = int(lengths.max())
        words = self.words[:, index, :longest].long()
        return {"words": words, "lengths": lengths, "labels": self.labels[index].long()}


def generate(n: int, noise: int, vocabulary: int, max_length: int, seed: list[int]) -> Pairs:
    """`n` pairs by the paper's recipe; `n` is even, word ids are 1..`vocabulary`.

    The shorter length is uniform on 1..`max_length`, the longer one adds a uniform number of words up to `max_length`,
    all words are uniform. Each first sentence stands twice in a row: with a fresh random second sentence (label 0) and
    with its own prefix (label 1), in which floor(`noise` / 100 * length) positions, each at most once, are redrawn; a
    redrawn word may be the old one.
    """
    draw = np.random.default_rng(seed)
    m, word = n // 2, np.uint8 if vocabulary < 256 else np.uint16
    short = draw.integers(1, max_length + 1, size=m)
    long = short + draw.integers(0, max_length - short + 1)
    first, other, fresh = (draw.integers(1, vocabulary + 1, size=(m, max_length), dtype=word) for _ in range(3))

    place = np.arange(max_length)
    key = np.where(place < short[:, None], draw.random((m, max_length)), 2.0)  # positions behind the prefix come last
    rank = key.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    noisy = np.where(rank < (noise * short // 100)[:, None], fresh, first)

    words = np.empty((2, m, 2, max_length), dtype=word)
    words[0] = np.where(place < long[:, None], first, PAD)[:, None]
    words[1, :, 0] = np.where(place < short[:, None], other, PAD)
    words[1, :, 1] = np.where(place < short[:, None], noisy, PAD)
    lengths = np.stack([long.repeat(2), short.repeat(2)]).astype(np.uint16)
    labels = np.tile(np.array([0, 1], dtype=np.uint8), m)
    return Pairs(words.reshape(2, 2 * m, max_length), lengths, labels)
