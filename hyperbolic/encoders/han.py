"""Hierarchical attention over documents: words to sentences, sentences to a document (HAN and Hype-HAN)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hyperbolic.encoders.kinds import require_sequences
from hyperbolic.geometry import ChangeGeometry, Geometry
from hyperbolic.layers.guard import check_choice, check_range
from hyperbolic.layers.sequence import length_mask
from hyperbolic.manifolds import Manifold

HIDDEN, PASSAGES = ("direction", "total"), ("isometry", "tangent")


@dataclass(frozen=True)
class Trace:
    """What a document was made from, for B documents of at most S sentences, M in all, of at most T words. Points are
    those of ``space``, where the attention is; behind the end of a sentence or a document they mean nothing.

    word_vectors (M, T, d): states of the words in their sentence, as vectors at the origin.
    word_weights (M, T): sum to 1, 0 behind the end.
    midpoints (M, D): the sentences, as weighted midpoints of their words.
    sentences (B, S, D): states of the sentences in their document. sentence_weights (B, S): as those of the words.
    documents (B, D): weighted midpoints of their sentences.
    """

    space: Manifold
    word_vectors: Tensor
    word_weights: Tensor
    midpoints: Tensor
    sentences: Tensor
    sentence_weights: Tensor
    documents: Tensor

    @property
    def words(self) -> Tensor:
        """The states of the words as points (M, T, D)."""
        return self.space.expmap0(self.word_vectors)

    def lorentz_factors(self, points: Tensor) -> Tensor:
        """``gamma = cosh(sqrt(c) d(0, x))`` of points (..., D), which is ``1 / sqrt(1 - c|x|^2)`` in the Klein disk and
        ``sqrt(c) x_0`` on the hyperboloid (Zhang & Gao, Eq. 9): (...), at least 1, and 1 in flat space."""
        return torch.cosh(self.space.c.to(points.dtype).sqrt() * self.space.dist0(points))


class HierarchicalAttention(nn.Module):
    """Words are read sentence by sentence, and attention makes each sentence a point; these are read in their order,
    and attention makes the document a point.

    In flat space it is HAN (Yang et al. 2016, Eq. 1-10). With ``geometry=hype_han`` it is Hype-HAN (Zhang & Gao,
    section 3): a Euclidean GRU on words, the hyperboloid for both attentions, where ``exp_0`` is Eq. 5 and the
    centroid is the Einstein midpoint (Eq. 8, 12), a Möbius GRU in the ball on sentences. The parts of the geometry are
    ``words``, ``attention`` (both levels), ``sentences``, and ``classifier``, in which the document is returned.

    Args:
        geometry: of the parts. d_in: size of the words. d_hidden: of the states of words and of sentences.
        words, sentences: make the encoders of sequences, called with geometry, d_in, d_hidden and streams.
        hidden: what d_hidden is the size of: "direction": of each of two directions; "total": of both together.
        join: of two directions, in layers that have two; see :class:`hyperbolic.layers.sequence.Recurrence`.
        score, gate, beta, context_std: of both attentions; word_keys, sentence_keys, word_nonlinearity,
            sentence_nonlinearity: of one (``keys``, ``nonlinearity``). See
            :class:`hyperbolic.layers.attention.ContextAttention`.
        passage: how midpoints leave the model of the space that they were taken in, for another one: "isometry", or
            "tangent" (``exp_0(log_0(x))``); see :class:`hyperbolic.geometry.ChangeGeometry`.

    Raises:
        ValueError: an unknown value, an encoder that does not read sequences, or an odd size of two directions.
    """

    kind = "documents"
    components = ("words", "attention", "sentences", "classifier")

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d_hidden: int,
        words: Callable[..., nn.Module],
        sentences: Callable[..., nn.Module],
        hidden: str,
        join: str,
        score: str | None,
        gate: str,
        beta: str,
        context_std: float,
        word_keys: str,
        word_nonlinearity: str | None,
        sentence_keys: str,
        sentence_nonlinearity: str | None,
        passage: str,
    ):
        super().__init__()
        for key, value, choices in (("hidden", hidden, HIDDEN), ("passage", passage, PASSAGES)):
            check_choice(f"encoder.{key}", value, choices)
        word, attention, sentence, classifier = (geometry.part(name) for name in self.components)
        common = {"score": score, "gate": gate, "beta": beta, "context_std": context_std}
        total, isometry = hidden == "total", passage == "isometry"

        self.words, d = _reader("words", words, _set_join(word, join), d_in, d_hidden, total)
        self.to_word_attention = ChangeGeometry(word, attention)
        self.word_attention: Any = attention.context_attention(
            d, keys=word_keys, nonlinearity=word_nonlinearity, **common
        )
        self.to_sentences = ChangeGeometry(attention, sentence, isometry)
        self.sentences, self.d_out = _reader("sentences", sentences, _set_join(sentence, join), d, d_hidden, total)
        self.to_sentence_attention = ChangeGeometry(sentence, attention)
        self.sentence_attention = attention.context_attention(
            self.d_out, keys=sentence_keys, nonlinearity=sentence_nonlinearity, **common
        )
        self.to_classifier = ChangeGeometry(attention, classifier, isometry)
        self.space = attention.manifold

    def forward(self, x: Tensor, lengths: Tensor, sentences: Tensor) -> tuple[Tensor, Trace]:
        """
        Args:
            x: (M, T, D), the words of all sentences of a batch, those of a document one after the other: points of the
                part ``words``. lengths: (M,), words of each sentence, 1..T; padding stands at the end.
            sentences: (B,), the number of sentences of each document, at least 1, M in all.
        Returns:
            the documents (B, D'), points of the part ``classifier``, and what they were made from.
        Raises:
            ValueError: lengths outside of 1..T, or numbers of sentences that are not M in all.
        """
        index, mask = _places(sentences, len(x))
        words: Tensor = self.to_word_attention.vectors(self.words(x, lengths)[0])
        midpoints, word_weights = self.word_attention.pool_vectors(words, length_mask(lengths, x, self))
        vectors = self.to_sentences(midpoints).index_select(0, index.flatten()).unflatten(0, index.shape)
        states = self.to_sentence_attention(self.sentences(vectors, sentences)[0])
        documents, sentence_weights = self.sentence_attention(states, mask)
        trace = Trace(self.space, words, word_weights, midpoints, states, sentence_weights, documents)
        return self.to_classifier(documents), trace


def _places(sentences: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Of B documents: rows (B, S) of their sentences among all, those behind the end being any; and which count."""
    check_range(None, sentences, 1, number, "a document has at least 1 sentence and at most those of its batch")
    ends = sentences.cumsum(0)
    longest, total = torch.stack([sentences.max(), ends[-1]]).tolist()
    if total != number:
        raise ValueError(f"the documents of a batch have {total} sentences in all, and it has {number}")
    place = torch.arange(longest, device=sentences.device)
    mask = place < sentences.unsqueeze(-1)
    return torch.where(mask, (ends - sentences).unsqueeze(-1) + place, 0), mask


def _set_join(geometry: Geometry, join: str) -> Geometry:
    """The geometry, whose recurrent layers join two directions so."""
    layers = {name: {"join": join} for name in ("RNN", "GRU") if "join" in geometry.family.options(name)}
    return geometry.with_defaults({geometry.family.name: layers})


def _reader(
    level: str, make: Callable[..., nn.Module], geometry: Geometry, d_in: int, d_hidden: int, total: bool
) -> tuple[nn.Module, int]:
    """The encoder of a level and the size of its states; with total, that of one direction is half of d_hidden."""
    require_sequences(level, make)
    reader: Any = make(geometry=geometry, d_in=d_in, d_hidden=d_hidden, streams=1)
    if not total or reader.d_out == d_hidden:
        return reader, reader.d_out
    if d_hidden % 2:
        raise ValueError(
            f"encoder.hidden=total: a size of {d_hidden} cannot be divided between two directions; take an even one, "
            f"encoder.hidden=direction or encoder.{level}.bidirectional=false"
        )
    return make(geometry=geometry, d_in=d_in, d_hidden=d_hidden // 2, streams=1), d_hidden
