"""The network of a translation: pieces as points, an encoder and its decoder, and an MLR over the target's pieces."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.encoders import make_encoder
from tasks.errors import UserError, whole
from tasks.text import PAD


class Translator(nn.Module):
    """Encoder and decoder of one size, each with an embedding of its own, and logits over the target's pieces.

    geometry: of the components. encoder: a class with a decoder (its method `decoder`) and its settings, called with
    geometry, d_in and d_hidden. n_source, n_target: ids of both vocabularies. max_length: most pieces of a sentence. d:
    size of all points. layers: settings of layers by family, see `Geometry.with_defaults`.
    copy_embedding: class points start as a copy of the target's embedding, where logits have class points that may lie
    anywhere (the Lorentz family's).

    Raises UserError where the encoder's positions do not suffice.
    """

    components = ("encoder", "decoder", "classifier")
    encoder_kind = "sequences with a decoder"

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., nn.Module],
        n_source: int,
        n_target: int,
        max_length: int,
        d: int,
        layers: dict[str, dict[str, dict[str, Any]]],
        copy_embedding: bool,
    ):
        super().__init__()
        whole("task.model.d", d, 1)
        geometry.check_components(self.components)
        geometry = geometry.with_defaults(layers)
        source, target, classifier = (geometry.part(name) for name in self.components)
        kind: Any = getattr(encoder, "func", encoder)
        settings = getattr(encoder, "keywords", {})
        n_positions = settings.get("n_positions")
        if n_positions is not None and n_positions <= max_length:
            raise UserError(
                f"encoder.n_positions={n_positions} must be more than task.data.max_length={max_length}, as a target "
                "has a beginning besides."
            )
        self.source_embedding = source.embedding(n_source, d, padding_idx=PAD)
        self.target_embedding = target.embedding(n_target, d, padding_idx=PAD)
        self.encoder, _ = make_encoder(encoder, source.manifold, geometry=source, d_in=d, d_hidden=d, streams=1)
        self.decoder = kind.decoder(geometry=target, d_in=d, d_hidden=d, **settings)
        self.to_decoder = ChangeGeometry(source, target)
        self.to_classifier = ChangeGeometry(target, classifier)
        self.classifier = classifier.logits(d, n_target)
        self.encoder_geometry = source
        start_at = getattr(self.classifier, "start_at", None)
        if copy_embedding and target.manifold is classifier.manifold and callable(start_at):
            start_at(self.target_embedding.weight)
        self.decoder_manifold = target.manifold

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        """source (B, N) ids, lengths (B,) -> memory (B, N, D), points of the decoder's geometry."""
        states: Tensor = self.to_decoder(self.encoder(self.source_embedding(source), lengths)[0])
        return states

    def start(self, alignment: bool = False) -> Any:
        """An empty state, for decoding step by step. alignment: it keeps the attention to the source, as `alignment`
        (B, T, N)."""
        return self.decoder.start(alignment=alignment)

    def states(self, target: Tensor, memory: Tensor, lengths: Tensor, state: Any = None) -> Tensor:
        """target (B, T) ids that begin with BOS, memory (B, N, D), lengths (B,) of the sources -> points (B, T, D) of
        the classifier's geometry; point t is made from the ids 0..t. state: of `start`, updated here; target then has
        the ids that follow those decoded so far."""
        states: Tensor = self.to_classifier(self.decoder(self.target_embedding(target), memory, lengths, state))
        return states

    def decode(self, target: Tensor, memory: Tensor, lengths: Tensor, state: Any = None) -> Tensor:
        """As `states`, with the logits (B, T, V) of the next piece."""
        logits: Tensor = self.classifier(self.states(target, memory, lengths, state))
        return logits

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor) -> Tensor:
        """Ids (B, N) and (B, T) -> logits (B, T, V)."""
        return self.decode(target, self.encode(source, source_lengths), source_lengths)
