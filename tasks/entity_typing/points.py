"""What the networks of entity typing share: their interface, word vectors as points, masks of padding."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.manifolds import Manifold
from tasks.ragged import length_mask
from tasks.word_vectors import WordVectors


class TypingModel(nn.Module):
    """A network with a point for each text (`features`) and a logit for each type.

    manifold: of the points. groups (K,) long: granularity of each type.
    """

    manifold: Manifold
    classifier: ClassLogits
    groups: Tensor

    def features(self, batch: dict[str, Tensor]) -> Tensor:
        """(B, D) points, which the classifier reads, for a batch of `examples.Examples`."""
        raise NotImplementedError

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Logits (B, K)."""
        return self.classifier(self.features(batch))


class AttentionWeights(NamedTuple):
    """A distance attention at work: queries and keys (B, N, D), points of `manifold`, and the weights (B, N)."""

    queries: Tensor
    keys: Tensor
    weights: Tensor
    manifold: Manifold


class TextNetwork(nn.Module):
    """A network with a point (B, d_out) for each text, which pools its words by distance attention.

    mask_padding: false: padding counts as words at the origin do (official code of hyfi).
    """

    context: nn.Module
    d_out: int

    def __init__(self, attention: Geometry, mask_padding: bool):
        super().__init__()
        self.attention_geometry, self.mask_padding = attention, mask_padding

    def length(self, batch: dict[str, Tensor], name: str) -> Tensor | None:
        return batch[f"{name}_length"] if self.mask_padding else None

    def mask(self, batch: dict[str, Tensor], name: str) -> Tensor | None:
        return length_mask(batch[f"{name}_length"], batch[name].shape[1]) if self.mask_padding else None

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, AttentionWeights]:
        """What each attention does with the words, under "mention" (in hyfi) and "context"."""
        raise NotImplementedError

    def weights(self, layer: nn.Module, x: Tensor, positions: Tensor, mask: Tensor | None) -> AttentionWeights:
        pairs = layer.pairs
        assert callable(pairs)  # of every family's distance attention
        queries, keys = pairs(x, positions)
        return AttentionWeights(queries, keys, layer(x, positions, mask)[1], self.attention_geometry.manifold)


class WordPoints(nn.Module):
    """Frozen word vectors as points of a manifold, with dropout: rows (...) -> (..., D).

    The points are those of `WordVectors.points`; what is kept are their tangent vectors at the origin, so that only the
    words of a batch are lifted, a dropout in the tangent space costs nothing more, and a learned curvature gets the
    gradient of their places. The table is neither trained nor saved, and no buffer, which processes that train together
    would send each other at every step. It stays as it was read, often mapped into memory: only the rows of a batch are
    scaled and brought to the module's dtype.

    geometry: of the points. dropout: of the words.
    """

    def __init__(self, words: WordVectors, geometry: Geometry, dropout: float):
        super().__init__()
        self.manifold = geometry.manifold
        self.dropout = geometry.dropout(dropout)
        self.moving = self.manifold.learn_c
        self.scale = _scale(self.manifold)
        self.table, self.dtype = words.tangent, words.tangent.dtype

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "WordPoints":
        moved = fn(self.table.new_empty(0, dtype=self.dtype))
        self.table, self.dtype = self.table.to(moved.device), moved.dtype
        return super()._apply(fn, recurse)

    def forward(self, rows: Tensor) -> Tensor:
        u = nn.functional.embedding(rows, self.table).to(self.dtype)
        u = u if self.scale == 1 else u * self.scale
        from_tangent = self.dropout.from_tangent
        assert callable(from_tangent)  # of every family's dropout
        return from_tangent((u / self.manifold.c.sqrt()).to(u.dtype) if self.moving else u)

    def extra_repr(self) -> str:
        return f"{len(self.table)} words"


def _scale(manifold: Manifold) -> float:
    """What makes of a tangent vector at the origin of the unit ball one of the manifold, whose exp_0 is the same point.

    On the ball ``d(0, exp_0(u)) = 2|u|``, elsewhere |u|; a learned c is divided by later.
    """
    if not manifold.is_curved:
        return 1.0
    scale = 2 / manifold.origin_scale
    return scale if manifold.learn_c else scale / float(manifold.c.sqrt())
