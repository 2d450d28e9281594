"""Sequences of words, and the n-grams in them, by a hash of their words."""

import torch
from torch import Tensor

from tasks.ragged import length_mask
from tasks.text import PAD

FACTOR = 116049371  # of the hash of n-grams in fastText (Joulin et al. 2017); int64 wraps around


def whole_documents(words: Tensor, lengths: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor]:
    """Documents as one sequence each: words (M, T), lengths (M,), sentences (B,) -> words (B, N), PAD behind the end,
    and lengths (B,)."""
    document = torch.arange(len(sentences), device=words.device).repeat_interleave(sentences)
    sizes = lengths.new_zeros(len(sentences)).index_add(0, document, lengths)
    return _pack(words[length_mask(lengths, words.shape[1])], sizes)


def with_ngrams(words: Tensor, lengths: Tensor, n: int, first: int, buckets: int) -> tuple[Tensor, Tensor]:
    """The words (B, N) of sequences and behind them their n-grams of 2 to n words, as rows from `first` on, `buckets`
    of them by a hash of the words; and the new lengths (B,). lengths (B,): of the words."""
    parts, sizes, hashed = [words], [lengths], words
    for k in range(2, n + 1):
        hashed = hashed[:, :-1] * FACTOR + words[:, k - 1 :]
        parts.append(first + (hashed + k).remainder(buckets))
        sizes.append((lengths - k + 1).clamp_min(0))
    inside = torch.cat([length_mask(size, part.shape[1]) for size, part in zip(sizes, parts, strict=True)], 1)
    return _pack(torch.cat(parts, 1)[inside], torch.stack(sizes).sum(0))


def _pack(flat: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences of these sizes (B,), which stand one after the other: (B, N), PAD behind the end, and sizes."""
    inside = length_mask(sizes, int(sizes.max()))
    return flat.new_full(inside.shape, PAD).masked_scatter(inside, flat), sizes
