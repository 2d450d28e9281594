"""The typing model of Chen et al., Fully Hyperbolic Neural Networks (2022), appendix A.2."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.encoders import make_encoder
from tasks.entity_typing.points import AttentionWeights, TextNetwork, WordPoints
from tasks.word_vectors import WordVectors


@dataclass(frozen=True)
class HyboNetSettings:
    """What only this design has. layers: defaults of layers by family, see `Geometry.with_defaults`."""

    layers: dict[str, dict[str, dict[str, Any]]]


class HyboNet(TextNetwork):
    """Mention and context as one point of the size d.

    words       a linear layer to the size d and positions, shared by mention and context: the encoder's own entrance
    mention     centroid of its words
    context     distance attention, softmax of -d²(q_i, k_i) / sqrt(d), over the states of the Transformer
    text        both joined as two heads are: a linear layer of [mention | context]

    The paper's attention has the position encoding of its inputs (appendix C.6); here it has a table of positions
    relative to the mention, as Lopez and Strube, as nothing else tells where in its context the mention stands.
    Characters are not used.

    encoder: one with an entrance (`embeds_positions`), called with geometry, d_in, d_hidden and streams. The others
    are HyFi's.
    """

    def __init__(
        self,
        parts: dict[str, Geometry],
        encoder: Callable[..., nn.Module],
        words: WordVectors,
        d: int,
        max_context: int,
        input_dropout: float,
        concat_dropout: float,
        mask_padding: bool,
    ):
        inner, attention, concat = parts["encoder"], parts["attention"], parts["concat"]
        super().__init__(attention, mask_padding)
        self.words = WordPoints(words, inner, input_dropout)
        self.context, _ = make_encoder(encoder, inner.manifold, geometry=inner, d_in=words.d, d_hidden=d, streams=1)
        self.centroid = inner.centroid()
        self.to_attention = ChangeGeometry(inner, attention)
        self.context_attention = attention.attention(d, n_positions=2 * max_context + 2, score="squared")
        self.to_concat = ChangeGeometry(attention, concat)
        self.mention_to_concat = ChangeGeometry(inner, concat)
        self.dropout = concat.dropout(concat_dropout)
        self.concat = concat.concat((d, d), d)
        self.d_out = d

    def attention_inputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the attention takes: points (B, T, d) in its geometry, positions (B, T) and a mask (B, T)."""
        points = self.words(batch["context"])
        states, _ = self.context(points, self.length(batch, "context"))
        return self.to_attention(states), batch["positions"], self.mask(batch, "context")

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """(B, d) points in the geometry of the concatenation."""
        enter = self.context.enter
        assert callable(enter)  # of encoders that embed positions
        words = enter(self.words(batch["mention"]))
        mention = self.mention_to_concat(self.centroid(words, mask=self.mask(batch, "mention")))
        context = self.to_concat(self.context_attention(*self.attention_inputs(batch))[0])
        return self.concat(self.dropout(mention), self.dropout(context))

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, AttentionWeights]:
        return {"context": self.weights(self.context_attention, *self.attention_inputs(batch))}
