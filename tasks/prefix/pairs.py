"""Pairs of sentences of word ids, and the generator that makes them (Ganea et al. 2018, section 4)."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PAD = 0  # id 0 is the unknown word of the vocabulary; it also fills up short sentences


@dataclass(frozen=True)
class Pairs:
    """N labelled pairs of sentences: indexing with a 1-D tensor of positions gives the batch of these pairs.

    words (2, N, L) uint8 or int32 ids, premises first; lengths (2, N) int64; labels (N,) uint8, 1 where the second is a
    noisy prefix of the first.
    """

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

    def sha256(self) -> str:
        """Fingerprint of the contents: the same for the same pairs, however they are stored."""
        digest = hashlib.sha256()
        for tensor, kind in ((self.words, "<u2"), (self.lengths, "<u2"), (self.labels, "<u1")):
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(np.ascontiguousarray(tensor.numpy(), dtype=kind).tobytes())
        return digest.hexdigest()


def make_pairs(words: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> Pairs:
    """Pairs of arrays of any whole numbers; torch has no maths of uint16."""
    kinds = (np.uint8 if words.dtype == np.uint8 else np.int32, np.int64, np.uint8)
    arrays = zip((words, lengths, labels), kinds, strict=True)
    return Pairs(*(torch.from_numpy(array.astype(kind, copy=False)) for array, kind in arrays))


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
    lengths = np.stack([long.repeat(2), short.repeat(2)])
    return make_pairs(words.reshape(2, 2 * m, max_length), lengths, np.tile([0, 1], m))
