"""The network of Lopez and Strube 2020, A Fully Hyperbolic Neural Model for Hierarchical Multi-Class Classification."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.entity_typing.points import AttentionWeights, TextNetwork, WordPoints, length_mask
from tasks.word_vectors import WordVectors

AttentionInputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None]  # points (B, N, D), positions (B, N), mask (B, N)


@dataclass(frozen=True)
class HyFiSettings:
    """What only this design has. bidirectional, nonlinearity: of the encoder of the contexts, where it has these
    settings, in the place of its own; a nonlinearity of None leaves it its own. layers: defaults of layers by family,
    see `Geometry.with_defaults`."""

    bidirectional: bool
    nonlinearity: str | None
    layers: dict[str, dict[str, dict[str, Any]]]


class HyFi(TextNetwork):
    """Mention, its characters and its context as one point of the size 5s.

    mention     distance attention over tanh(W ⊗ w_i ⊕ b), positions 1..M in the mention: 2s
    characters  midpoint of the states of an RNN without non-linearity: s
    context     distance attention over the states of a recurrent encoder from both ends, positions relative to the
                mention: 2s
    text        ((M_1 ⊗ mention ⊕ M_2 ⊗ context) ⊕ M_3 ⊗ characters) ⊕ b: 5s

    in the operations of the geometry. Encoders (all of it before the attentions, and the characters), attentions and
    concatenation have a geometry each; log_0 and exp_0, or an isometry, stand between them.

    encoder: called with geometry, d_in, d_hidden and streams, and of the settings those that it takes. max_mention,
    max_context: the longest mention and context in words. input_dropout: of word vectors; concat_dropout: of the three
    points. mask_padding: false: padding counts as words at the origin do (official code).
    """

    def __init__(
        self,
        parts: dict[str, Geometry],
        encoder: Callable[..., nn.Module],
        words: WordVectors,
        n_characters: int,
        s: int,
        max_mention: int,
        max_context: int,
        input_dropout: float,
        concat_dropout: float,
        mask_padding: bool,
        settings: HyFiSettings,
    ):
        inner, attention, concat = parts["encoder"], parts["attention"], parts["concat"]
        super().__init__(attention, mask_padding)
        self.words = WordPoints(words, inner, input_dropout)
        self.mention = inner.linear(words.d, 2 * s)
        self.activation = inner.activation("tanh")
        self.characters = inner.embedding(n_characters, s, init_norm=embedding_norm(s))
        self.spelling = inner.rnn(s, s, nonlinearity="identity")
        self.midpoint = inner.centroid()
        options = {"bidirectional": settings.bidirectional, "nonlinearity": settings.nonlinearity}
        parameters = inspect.signature(encoder).parameters
        options = {name: value for name, value in options.items() if value is not None and name in parameters}
        d_context = s if options.get("bidirectional") else 2 * s
        self.context = encoder(geometry=inner, d_in=words.d, d_hidden=d_context, streams=1, **options)
        self.to_attention = ChangeGeometry(inner, attention)
        d_states = self.context.d_out
        assert isinstance(d_states, int)  # of every encoder
        self.mention_attention = attention.attention(2 * s, n_positions=max_mention + 1)
        self.context_attention = attention.attention(d_states, n_positions=2 * max_context + 2)
        self.to_concat = ChangeGeometry(attention, concat)
        self.characters_to_concat = ChangeGeometry(inner, concat)
        self.dropout = concat.dropout(concat_dropout)
        self.concat = concat.concat((2 * s, d_states, s), 5 * s)
        self.d_out = 5 * s

    def attention_inputs(self, batch: dict[str, Tensor]) -> tuple[AttentionInputs, AttentionInputs]:
        """What the two attentions take, points (B, N, 2s) in their geometry, positions (B, N) and a mask (B, N):
        of the mentions and of the contexts."""
        words = self.activation(self.mention(self.words(batch["mention"])))
        positions = torch.arange(1, words.shape[1] + 1, device=words.device)
        positions = positions * length_mask(batch["mention_length"], words.shape[1])
        mention = self.to_attention(words), positions, self.mask(batch, "mention")
        points = self.words(batch["context"])
        states, _ = self.context(points, self.length(batch, "context"))
        return mention, (self.to_attention(states), batch["positions"], self.mask(batch, "context"))

    def character_points(self, batch: dict[str, Tensor]) -> Tensor:
        """The characters of the mentions, points (B, s) of the encoders' geometry."""
        states, _ = self.spelling(self.characters(batch["characters"]), self.length(batch, "characters"))
        return self.midpoint(states, mask=self.mask(batch, "characters"))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """(B, 5s) points in the geometry of the concatenation."""
        mention, context = self.attention_inputs(batch)
        mention = self.to_concat(self.mention_attention(*mention)[0])
        context = self.to_concat(self.context_attention(*context)[0])
        characters = self.characters_to_concat(self.character_points(batch))
        return self.concat(self.dropout(mention), self.dropout(context), self.dropout(characters))

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, AttentionWeights]:
        mention, context = self.attention_inputs(batch)
        return {
            "mention": self.weights(self.mention_attention, *mention),
            "context": self.weights(self.context_attention, *context),
        }


def embedding_norm(d: int, bound: float = 1e-4) -> float:
    """The `init_norm` of an embedding of size d whose rows start uniform in -bound..bound, as in the official code."""
    return (2 * d * bound**3 / 3) ** 0.5
