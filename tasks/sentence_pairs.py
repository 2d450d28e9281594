"""What tasks on pairs of sentences share: the two-sentence network of Hyperbolic Neural Networks, written against a
geometry, and its training by cross-entropy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hyperbolic.encoders.kinds import kind_of
from hyperbolic.geometry import ChangeGeometry, Geometry, Options
from hyperbolic.manifolds import Manifold
from hyperbolic.nonlinearity import NONLINEARITIES
from tasks.base import NamedPoints, Points
from tasks.classification import ClassificationTask
from tasks.encoders import make_encoder
from tasks.errors import UserError, one_of, positive, rate, whole
from tasks.word_table import WordTable
from tasks.word_vectors import VectorRows

JOINS = ("mobius", "plain", "hypera")
WORDS = ("points", "tangents")


@runtime_checkable
class AttendingEncoder(Protocol):
    """An encoder that attends to the words of the premise, as some of pairs do (kind = "pairs")."""

    def weights(self, x: Tensor, lengths: Tensor) -> Tensor: ...


class SentencePairClassifier(nn.Module):
    """An encoder of both sentences, a feed-forward layer on them and their distance, and an MLR.

    f = ((W1 ⊗ s1 ⊕ W2 ⊗ s2) ⊕ b) ⊕ (d²(s1, s2) ⊗ b_d), logits = MLR(φ(f)); premise and hypothesis share the word table,
    and the encoder has its own parameters for each. The squared distance is that of the sentences' geometry, also where
    the layer has another one. Of an encoder of pairs, s1 is what the hypothesis attends to in the premise.

    geometry: of all components, or one for each of `components`. encoder: called with geometry, d_in, d_hidden and
    streams=2. distance: whether f has its last term. join: "mobius": as above; "plain": one matrix on the coordinates
    side by side, f = W ⊗ proj(s1 | s2) ⊕ b, with the same last term; "hypera": plain for encoders that take means of
    words, as "dan", else mobius. layers: defaults of layers by family, see `Geometry.with_defaults`. words: "points": a
    parameter of the space for each; "tangents": a `WordTable`, which starts from the data's `vectors` where there are
    some, with word_c and word_dropout. dropout: of the sentences that the feed-forward layer gets. activation: φ, a
    name in `NONLINEARITIES`; without one the Euclidean logits are linear in both sentences and their distance, where
    hyperbolic layers are not.
    Sources: Ganea, Bécigneul and Hofmann 2018, section 4, and their code (hyp_rnn.py); "plain" the deep averaging
    network in the program of Patel et al., Attention Networks in Hyperbolic Space (HyperA), and "hypera" all of it.
    """

    components = ("sentence", "ffnn", "classifier")
    encoder_kind = ("sequences", "pairs")

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., nn.Module],
        n_words: int,
        n_classes: int,
        d_word: int,
        d_hidden: int,
        d_ffnn: int,
        init_norm: float,
        distance: bool,
        join: str,
        words: str = "points",  # runs from before this setting and those below have none: see tasks/settings.py
        word_c: float = 1.0,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
        activation: str = "identity",
        vectors: VectorRows | None = None,
        layers: Mapping[str, Options] | None = None,
    ):
        super().__init__()
        geometry.check_components(self.components)
        for name, size in (("d_word", d_word), ("d_hidden", d_hidden), ("d_ffnn", d_ffnn)):
            whole(f"task.model.{name}", size, 1)
        positive("task.model.init_norm", init_norm)
        positive("task.model.word_c", word_c)
        one_of("task.model.activation", activation, tuple(NONLINEARITIES))
        rate("task.model.word_dropout", word_dropout)
        rate("task.model.dropout", dropout)
        if one_of("task.model.words", words, WORDS) == "points" and (vectors is not None or word_dropout):
            raise UserError(
                "task.model.words=points has neither word vectors nor dropout of words; take task.model.words=tangents,"
                " or task.data.vectors=null with task.model.word_dropout=0."
            )
        geometry = geometry.with_defaults(layers or {})
        self.distance, self.join = distance, one_of("task.model.join", join, JOINS)
        sentence, ffnn, classifier = (geometry.part(name) for name in self.components)
        self.manifold = sentence.manifold
        self.embedding = (
            WordTable(sentence, n_words, d_word, vectors, word_c, True, word_dropout)
            if words == "tangents"
            else sentence.embedding(n_words, d_word, init_norm=init_norm)
        )
        sizes = {"d_in": d_word, "d_hidden": d_hidden, "streams": 2}
        self.encoder, d_out = make_encoder(encoder, sentence.manifold, geometry=sentence, **sizes)
        if join == "hypera":
            self.join = join = "plain" if getattr(self.encoder, "averages", False) else "mobius"
        self.to_ffnn, self.dropout = ChangeGeometry(sentence, ffnn), ffnn.dropout(dropout)
        self.ffnn = ffnn.concat((d_out, d_out) if join == "mobius" else (2 * d_out,), d_ffnn, n_features=int(distance))
        self.activation, self.to_classifier = ffnn.activation(activation), ChangeGeometry(ffnn, classifier)
        self.classifier = classifier.logits(d_ffnn, n_classes)

    def encode(self, words: Tensor, lengths: Tensor) -> Tensor:
        """words (2, B, T), lengths (2, B) -> both sentences (2, B, D) as points."""
        return self.encoder(self.embedding(words), lengths)[1]

    def attention(self, words: Tensor, lengths: Tensor) -> Tensor | None:
        """words (2, B, T), lengths (2, B) -> the weights (B, T) of the premise's words, zeros behind its end; None for
        an encoder that does not attend, or does not say so by its method `weights`."""
        if kind_of(self.encoder) != "pairs" or not isinstance(self.encoder, AttendingEncoder):
            return None
        return self.encoder.weights(self.embedding(words), lengths)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """words (2, B, T), lengths (2, B) -> logits (B, n_classes)."""
        first, second = self.encode(words, lengths)
        distance = self.manifold.dist2(first, second, keepdim=True) if self.distance else None
        sentences: tuple[Tensor, ...] = tuple(self.dropout(self.to_ffnn(s)) for s in (first, second))
        if self.join == "plain":
            manifold = self.ffnn.manifold
            assert isinstance(manifold, Manifold)  # of every layer
            sentences = (side_by_side(manifold, *sentences),)
        joined = self.activation(self.ffnn(*sentences, features=distance))
        return self.classifier(self.to_classifier(joined))


def side_by_side(manifold: Manifold, *points: Tensor) -> Tensor:
    """The point of the coordinates of all points (..., D_i) one after the other, brought back into the space:
    (..., D) with the sum of their intrinsic sizes. A coordinate that the manifold adds follows from the others."""
    extra = points[0].shape[-1] - manifold.intrinsic_dim(points[0].shape[-1])
    return manifold.projx(torch.cat([points[0][..., :extra], *(x[..., extra:] for x in points)], -1))


class PairTask(ClassificationTask):
    """Classes of pairs of sentences. Batches are {"words": (2, B, T), premise first, "lengths": (2, B),
    "labels": (B,)}, all int64."""

    model: SentencePairClassifier

    def logits(self, batch: dict[str, Any]) -> Tensor:
        return self.model(batch["words"], batch["lengths"])

    def named_words(self, words: Sequence[str], first: int) -> dict[str, NamedPoints]:
        """The points of words whose rows begin with `first`, and those of the classes, for `named_points`."""
        rows = torch.arange(first, first + len(words), device=self.device)
        points = NamedPoints(words, self.model.manifold, self.model.embedding(rows))
        return {"words": points} | self.named_classes(self.model.classifier)

    def points(self, batch: dict[str, Any]) -> dict[str, Points]:
        return {"sentences": Points(self.model.manifold, self.model.encode(batch["words"], batch["lengths"]))}
