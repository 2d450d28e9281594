"""Networks for entity typing, written against a geometry: a point of the text, and a logit for each type."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.base import Points
from tasks.entity_typing.hybonet import HyboNet
from tasks.entity_typing.hyfi import HyFi
from tasks.entity_typing.points import Attended
from tasks.entity_typing.types import TypeInventory
from tasks.errors import UserError, one_of, rate, whole
from tasks.word_vectors import WordVectors

DESIGNS = ("hyfi", "hybonet")


class EntityTyper(nn.Module):
    """Types of a mention in its context: `logits = MLR(text(mention, characters, context))`.

    geometry: of all components, or one for each of `components`. encoder: of the contexts, called with geometry, d_in,
    d_hidden and streams. words, types, n_characters: from the data. design: hyfi (Lopez and Strube 2020), hybonet (Chen
    et al. 2022; the encoder is a Transformer), or None: the one that the encoder belongs to. s: size of a part in hyfi,
    whose text has the size 5s. d: size of the text and of the states in hybonet. max_mention, max_context: the longest
    in words. input_dropout: of word vectors; concat_dropout: of what the concatenation joins. mask_padding: false:
    padding counts as words at the origin do. bidirectional, nonlinearity: what hyfi asks of an encoder that has these
    settings, in their place; a nonlinearity of None leaves the encoder its own. layers: for each design settings of
    layers by class, which the families that have them take (`Geometry.preferring`).

    Raises UserError for sizes below 1, a dropout outside of 0..1, an unknown design and one that the encoder cannot
    have, and for an encoder with fewer positions than the longest mention or context.
    """

    components = ("encoder", "attention", "concat", "classifier")

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., nn.Module],
        words: WordVectors,
        types: TypeInventory,
        n_characters: int,
        design: str | None,
        s: int,
        d: int,
        max_mention: int,
        max_context: int,
        input_dropout: float,
        concat_dropout: float,
        mask_padding: bool,
        bidirectional: bool,
        nonlinearity: str | None,
        layers: dict[str, dict[str, Any]],
    ):
        super().__init__()
        geometry.check_components(self.components)
        for name, value in (("s", s), ("d", d), ("max_mention", max_mention), ("max_context", max_context)):
            whole(f"task.model.{name}", value, 1)
        for name, p in (("input_dropout", input_dropout), ("concat_dropout", concat_dropout)):
            rate(f"task.model.{name}", p)
        self.design = _design(design, encoder)
        for name in layers:
            one_of("task.model.layers", name, DESIGNS)
        geometry = geometry.preferring(layers.get(self.design) or {})
        parts = {name: geometry.part(name) for name in self.components}
        drops = (input_dropout, concat_dropout)
        if self.design == "hyfi":
            sizes = (n_characters, s, max_mention, max_context)
            self.text = HyFi(parts, encoder, words, *sizes, *drops, mask_padding, bidirectional, nonlinearity)
        else:
            self.text = HyboNet(parts, encoder, words, d, max_context, *drops, mask_padding)
        positions, longest = getattr(self.text.context, "n_positions", None), max(max_mention, max_context)
        if positions is not None and positions < longest:
            raise UserError(
                f"encoder.n_positions={positions} is too small: a mention or context may have {longest} words "
                f"(task.data.limits). Set encoder.n_positions to {longest} or more, or make the limits smaller."
            )
        self.to_classifier = ChangeGeometry(parts["concat"], parts["classifier"])
        self.manifold = parts["classifier"].manifold
        self.classifier = parts["classifier"].logits(self.text.d_out, len(types.names))
        self.register_buffer("groups", types.granularity, persistent=False)

    def features(self, batch: dict[str, Tensor]) -> Tensor:
        """The text as a point (B, m) in the classifier's geometry, for a batch of `EntityTypingData`."""
        return self.to_classifier(self.text(batch))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Logits (B, K)."""
        return self.classifier(self.features(batch))

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, Attended]:
        """Queries, keys and weights of the words, under "mention" (in hyfi) and "context"."""
        return self.text.attentions(batch)

    @property
    def class_points(self) -> Points:
        """A point for each type (K, D): the p_k that its hyperplane goes through, or the type's own point."""
        return Points(self.manifold, self.classifier.class_points)


def _design(design: str | None, encoder: Callable[..., nn.Module]) -> str:
    enters = hasattr(getattr(encoder, "func", encoder), "enter")  # hydra gives a partial of the class
    if design is None:
        return "hybonet" if enters else "hyfi"
    if one_of("task.model.design", design, DESIGNS) == "hybonet" and not enters:
        raise UserError(
            "task.model.design=hybonet: mention and context share the entrance of a Transformer, which this encoder "
            "does not have; choose encoder=transformer, or task.model.design=hyfi (or null, which fits the encoder)."
        )
    return design
