"""The typing model of Chen et al., Fully Hyperbolic Neural Networks (2022), appendix A.2."""

from collections.abc import Callable

from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.entity_typing.points import Attended, WordPoints, inside
from tasks.word_vectors import WordVectors


class HyboNet(nn.Module):
    """Mention and context as one point of the size d.

    words       a linear layer to the size d and positions, shared by mention and context: the encoder's own entrance
    mention     centroid of its words
    context     distance attention, softmax of -d²(q_i, k_i) / sqrt(d), over the states of the Transformer
    text        both joined as two heads are: a linear layer of [mention | context]

    The paper says nothing about the positions in the attention; here they are those of Lopez and Strube, relative to
    the mention, as nothing else tells where in its context the mention stands. Characters are not used.

    encoder: a Transformer with an entrance `enter`, called with geometry, d_in, d_hidden and streams.
    The others are HyFi's.
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
        super().__init__()
        inner, attention, concat = parts["encoder"], parts["attention"], parts["concat"]
        self.mask_padding = mask_padding
        self.words = WordPoints(words, inner, input_dropout)
        self.context = encoder(geometry=inner, d_in=words.d, d_hidden=d, streams=1)
        self.centroid = inner.centroid()
        self.to_attention = ChangeGeometry(inner, attention)
        self.context_attention = attention.attention(d, n_positions=2 * max_context + 2, score="squared")
        self.to_concat = ChangeGeometry(attention, concat)
        self.mention_to_concat = ChangeGeometry(inner, concat)
        self.dropout = concat.dropout(concat_dropout)
        self.concat = concat.concat((d, d), d)
        self.d_out = d

    def _mask(self, batch: dict[str, Tensor], name: str) -> Tensor | None:
        return inside(batch[f"{name}_length"], batch[name].shape[1]) if self.mask_padding else None

    def encoded(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the attention takes: points (B, T, d) in its geometry, positions (B, T) and a mask (B, T)."""
        points = self.words(batch["context"])
        states, _ = self.context(points, batch["context_length"] if self.mask_padding else None)
        return self.to_attention(states), batch["positions"], self._mask(batch, "context")

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """(B, d) points in the geometry of the concatenation."""
        words = self.context.enter(self.words(batch["mention"]))
        mention = self.mention_to_concat(self.centroid(words, mask=self._mask(batch, "mention")))
        context = self.to_concat(self.context_attention(*self.encoded(batch))[0])
        return self.concat(self.dropout(mention), self.dropout(context))

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, Attended]:
        """Queries, keys and weights of the contexts' words."""
        (x, places, mask), layer = self.encoded(batch), self.context_attention
        return {"context": Attended(*layer.pairs(x, places), layer(x, places, mask)[1], layer.manifold)}
