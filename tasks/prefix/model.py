"""The two-sentence network of Hyperbolic Neural Networks, written against a geometry."""

from collections.abc import Callable

from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.errors import UserError, whole


class SentencePairClassifier(nn.Module):
    """Two recurrent encoders, a feed-forward layer on both sentences and their distance, and an MLR.

    f = ((W1 ⊗ s1 ⊕ W2 ⊗ s2) ⊕ b) ⊕ (d²(s1, s2) ⊗ b_d), logits = MLR(f); premise and hypothesis share the word table and
    have a cell each. The squared distance is that of the sentences' geometry, also where the layer has another one.

    geometry: of all components, or one for each of `components`. encoder: called with geometry, d_in, d_hidden and
    streams=2. Source: Ganea, Bécigneul and Hofmann 2018, section 4, and their code (hyp_rnn.py).
    """

    components = ("sentence", "ffnn", "classifier")

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
    ):
        super().__init__()
        geometry.check_components(self.components)
        for name, size in (("d_word", d_word), ("d_hidden", d_hidden), ("d_ffnn", d_ffnn)):
            whole(f"task.model.{name}", size, 1)
        if not init_norm > 0:
            raise UserError(f"task.model.init_norm must be positive, and it is {init_norm}.")
        sentence, ffnn, classifier = (geometry.part(name) for name in self.components)
        self.manifold = sentence.manifold
        self.embedding = sentence.embedding(n_words, d_word, init_norm=init_norm)
        self.encoder = encoder(geometry=sentence, d_in=d_word, d_hidden=d_hidden, streams=2)
        self.to_ffnn = ChangeGeometry(sentence, ffnn)
        self.ffnn = ffnn.concat((self.encoder.d_out, self.encoder.d_out), d_ffnn, n_features=1)
        self.to_classifier = ChangeGeometry(ffnn, classifier)
        self.classifier = classifier.logits(d_ffnn, n_classes)

    def encode(self, words: Tensor, lengths: Tensor) -> Tensor:
        """words (2, B, T), lengths (2, B) -> both sentences (2, B, D) as points."""
        return self.encoder(self.embedding(words), lengths)[1]

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """words (2, B, T), lengths (2, B) -> logits (B, n_classes)."""
        first, second = self.encode(words, lengths)
        distance = self.manifold.dist2(first, second, keepdim=True)
        joined = self.ffnn(self.to_ffnn(first), self.to_ffnn(second), features=distance)
        return self.classifier(self.to_classifier(joined))
