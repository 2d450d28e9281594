"""The network of Lopez and Strube 2020, A Fully Hyperbolic Neural Model for Hierarchical Multi-Class Classification."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from hyperbolic.layers.initial import norm_of_bound
from tasks.encoders import make_encoder
from tasks.entity_typing.points import AttentionWeights, TextNetwork, WordPoints
from tasks.errors import UserError, one_of
from tasks.ragged import length_mask
from tasks.word_vectors import WordVectors

PARTS, MIDPOINTS = ("mention", "context", "characters"), ("encoder", "attention")
AttentionInputs: TypeAlias = tuple[Tensor, Tensor, Tensor | None]  # points (B, N, D), positions (B, N), mask (B, N)


@dataclass(frozen=True)
class HyFiSettings:
    """What only this design has. bidirectional, nonlinearity: of the encoder of the contexts, where it has these
    settings, in the place of its own; a nonlinearity of None leaves it its own. layers: defaults of layers by family,
    see `Geometry.with_defaults`. midpoint: in whose geometry the midpoint of the characters is taken, that of the
    encoder (paper) or that of the attention, after the change of geometry (official code). order: in which PARTS are
    joined; the paper's text has mention, characters, context, the code mention, context, characters.

    Raises UserError for another midpoint, and an order that is none of PARTS.
    """

    bidirectional: bool
    nonlinearity: str | None
    layers: dict[str, dict[str, dict[str, Any]]]
    midpoint: str = "encoder"  # runs from before these settings have none
    order: Sequence[str] = PARTS

    def __post_init__(self) -> None:
        one_of("task.model.hyfi.midpoint", self.midpoint, MIDPOINTS)
        if sorted(self.order) != sorted(PARTS):
            raise UserError(
                f"task.model.hyfi.order={list(self.order)} must have each of {', '.join(PARTS)} once; (+) does not "
                "commute, so the order is part of the model."
            )


class HyFi(TextNetwork):
    """Mention, its characters and its context as one point of the size 5s.

    mention     distance attention over tanh(W ⊗ w_i ⊕ b), positions 1..M in the mention: 2s
    characters  midpoint of the states of an RNN without non-linearity: s
    context     distance attention over the states of a recurrent encoder from both ends, positions relative to the
                mention: 2s
    text        ((M_1 ⊗ mention ⊕ M_2 ⊗ characters) ⊕ M_3 ⊗ context) ⊕ b: 5s, or the three in another order

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
        bound = 1e-4  # as in the official code
        self.characters = inner.embedding(n_characters, s, init_norm=norm_of_bound(s, bound))
        self.spelling = inner.rnn(s, s, nonlinearity="identity")
        spelled = inner if settings.midpoint == "encoder" else attention
        self.to_midpoint, self.midpoint = ChangeGeometry(inner, spelled), spelled.centroid()
        options = {"bidirectional": settings.bidirectional, "nonlinearity": settings.nonlinearity}
        parameters = inspect.signature(encoder).parameters
        options = {name: value for name, value in options.items() if value is not None and name in parameters}
        d_context = s if options.get("bidirectional") else 2 * s
        sizes = {"d_in": words.d, "d_hidden": d_context, "streams": 1}
        self.context, d_states = make_encoder(encoder, inner.manifold, geometry=inner, **sizes, **options)
        self.to_attention = ChangeGeometry(inner, attention)
        self.mention_attention = attention.attention(2 * s, n_positions=max_mention + 1)
        self.context_attention = attention.attention(d_states, n_positions=2 * max_context + 2)
        self.to_concat = ChangeGeometry(attention, concat)
        self.characters_to_concat = ChangeGeometry(spelled, concat)
        self.dropout = concat.dropout(concat_dropout)
        self.order = tuple(settings.order)
        sizes = {"mention": 2 * s, "context": d_states, "characters": s}
        self.concat = concat.concat(tuple(sizes[name] for name in self.order), 5 * s)
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
        """The characters of the mentions, points (B, s) of the geometry that their midpoint is taken in."""
        states, _ = self.spelling(self.characters(batch["characters"]), self.length(batch, "characters"))
        return self.midpoint(self.to_midpoint(states), mask=self.mask(batch, "characters"))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """(B, 5s) points in the geometry of the concatenation."""
        mention, context = self.attention_inputs(batch)
        parts = {
            "mention": self.to_concat(self.mention_attention(*mention)[0]),
            "context": self.to_concat(self.context_attention(*context)[0]),
            "characters": self.characters_to_concat(self.character_points(batch)),
        }
        dropped = {name: self.dropout(parts[name]) for name in PARTS}
        return self.concat(*(dropped[name] for name in self.order))

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, AttentionWeights]:
        mention, context = self.attention_inputs(batch)
        return {
            "mention": self.weights(self.mention_attention, *mention),
            "context": self.weights(self.context_attention, *context),
        }
