"""Networks for entity typing, written against a geometry: a point of the text, and a logit for each type."""

from collections.abc import Callable

from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from hyperbolic.layers.classes import ClassLogits
from tasks.base import Points
from tasks.entity_typing.hybonet import HyboNet, HyboNetSettings
from tasks.entity_typing.hyfi import HyFi, HyFiSettings
from tasks.entity_typing.points import AttentionWeights, TextNetwork, TypingModel
from tasks.entity_typing.types import TypeInventory
from tasks.errors import UserError, one_of, rate, whole
from tasks.word_vectors import WordVectors

DESIGNS = ("auto", "hyfi", "hybonet")


class EntityTyper(TypingModel):
    """Types of a mention in its context: `logits = MLR(text(mention, characters, context))`.

    geometry: of all components, or one for each of `components`. encoder: of the contexts, called with geometry, d_in,
    d_hidden and streams. words, types, n_characters: from the data. design: hyfi (Lopez and Strube 2020), hybonet (Chen
    et al. 2022), whose encoder embeds positions itself, or auto: hybonet for such an encoder and hyfi for others. s:
    size of a part in hyfi, whose text has the size 5s. d: size of the text and of the states in hybonet. max_mention,
    max_context: the longest in words. input_dropout: of word vectors; concat_dropout: of what the concatenation joins.
    mask_padding: false: padding counts as words at the origin do. hyfi, hybonet: what only one of the designs has.

    Raises UserError for sizes below 1, a dropout outside of 0..1, an unknown design and one that the encoder cannot
    have, and for an encoder with fewer positions than the longest mention or context; ValueError for defaults of layers
    that their family does not have.
    """

    components = ("encoder", "attention", "concat", "classifier")

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., nn.Module],
        words: WordVectors,
        types: TypeInventory,
        n_characters: int,
        design: str,
        s: int,
        d: int,
        max_mention: int,
        max_context: int,
        input_dropout: float,
        concat_dropout: float,
        mask_padding: bool,
        hyfi: HyFiSettings,
        hybonet: HyboNetSettings,
    ):
        super().__init__()
        geometry.check_components(self.components)
        for name, value in (("s", s), ("d", d), ("max_mention", max_mention), ("max_context", max_context)):
            whole(f"task.model.{name}", value, 1)
        for name, p in (("input_dropout", input_dropout), ("concat_dropout", concat_dropout)):
            rate(f"task.model.{name}", p)
        self.design = _design(design, encoder)
        geometry = geometry.with_defaults((hyfi if self.design == "hyfi" else hybonet).layers)
        parts = {name: geometry.part(name) for name in self.components}
        drops = (input_dropout, concat_dropout)
        self.text: TextNetwork
        if self.design == "hyfi":
            sizes = (n_characters, s, max_mention, max_context)
            self.text = HyFi(parts, encoder, words, *sizes, *drops, mask_padding, hyfi)
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
        classifier = parts["classifier"].logits(self.text.d_out, len(types.names))
        assert isinstance(classifier, ClassLogits)
        self.classifier = classifier
        self.register_buffer("groups", types.granularity, persistent=False)

    def features(self, batch: dict[str, Tensor]) -> Tensor:
        """The text as a point (B, m) in the classifier's geometry, for a batch of `EntityTypingData`."""
        return self.to_classifier(self.text(batch))

    def attentions(self, batch: dict[str, Tensor]) -> dict[str, AttentionWeights]:
        """Queries, keys and weights of the words, under "mention" (in hyfi) and "context"."""
        return self.text.attentions(batch)

    @property
    def class_points(self) -> Points:
        """A point for each type (K, D): the p_k that its hyperplane goes through, or the type's own point."""
        return Points(self.manifold, self.classifier.class_points)


def _design(design: str, encoder: Callable[..., nn.Module]) -> str:
    """hyfi or hybonet. Raises UserError where the encoder cannot have it."""
    encoder = getattr(encoder, "func", encoder)  # a configuration gives a partial of the class
    embeds_positions = getattr(encoder, "embeds_positions", False)
    if one_of("task.model.design", design, DESIGNS) == "auto":
        return "hybonet" if embeds_positions else "hyfi"
    if design == "hybonet" and not embeds_positions:
        raise UserError(
            "task.model.design=hybonet needs an encoder that embeds positions itself, which mention and context share, "
            f"and {getattr(encoder, '__name__', encoder)} does not; choose encoder=transformer, or "
            "task.model.design=hyfi (or auto, which fits the encoder)."
        )
    return design
