"""The network of a document: words as points, an encoder, a classifier, each in a geometry of its own."""

from collections.abc import Callable

from torch import Tensor, nn

from hyperbolic.encoders.han import Trace
from hyperbolic.encoders.kinds import kind_of
from hyperbolic.geometry import ChangeGeometry, Geometry
from tasks.document_classification.ngrams import whole_documents, with_ngrams
from tasks.encoders import make_encoder
from tasks.errors import UserError, positive, rate, whole
from tasks.word_table import WordTable
from tasks.word_vectors import VectorRows


class DocumentClassifier(nn.Module):
    """Words as points, an encoder of them, and the logits of an MLR.

    An encoder of documents (kind = "documents", as HAN) reads sentences, in a geometry for each of its own components.
    An encoder of sequences reads the words of a document one after the other, in the geometry of `words`, and its last
    state is the document. Behind the words it may read their n-grams, which have rows in the same table (as fastText,
    where the encoder takes the mean).

    geometry: of the components. encoder: called with geometry, d_in and d_hidden, of sequences also with streams.
    d_word, word_c, train_words, word_dropout: see `WordTable`. d_hidden: of the encoder. ngrams: longest n-grams, 1:
    the words alone; buckets: rows that n-grams share by a hash. dropout: of documents.
    """

    components = ("words", "classifier")  # and those of an encoder of documents
    encoder_kind = ("documents", "sequences")

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., nn.Module],
        n_words: int,
        n_classes: int,
        vectors: VectorRows | None,
        d_word: int,
        d_hidden: int,
        word_c: float,
        train_words: bool,
        word_dropout: float,
        ngrams: int,
        buckets: int,
        dropout: float,
    ):
        super().__init__()
        whole("task.model.d_word", d_word, 1)
        whole("task.model.d_hidden", d_hidden, 1)
        positive("task.model.word_c", word_c)
        rate("task.model.word_dropout", word_dropout)
        rate("task.model.dropout", dropout)
        self.reads_sentences = kind_of(encoder) == "documents"
        self.ngrams, self.n_words = whole("task.model.ngrams", ngrams, 1), n_words
        self.buckets = whole("task.model.buckets", buckets, 1) if ngrams > 1 else 0
        if self.reads_sentences and ngrams > 1:
            raise UserError(f"task.model.ngrams={ngrams} is for encoders of sequences, as encoder=dan; take 1.")
        own = getattr(getattr(encoder, "func", encoder), "components", ()) if self.reads_sentences else ()
        geometry.check_components(dict.fromkeys([*self.components, *own]))
        words, classifier = geometry.part("words"), geometry.part("classifier")
        self.manifold = classifier.manifold
        self.words = WordTable(words, n_words + self.buckets, d_word, vectors, word_c, train_words, word_dropout)
        if self.reads_sentences:
            self.encoder, d_out = make_encoder(
                encoder, self.manifold, geometry=geometry, d_in=d_word, d_hidden=d_hidden
            )
        else:
            self.encoder, d_out = make_encoder(
                encoder, words.manifold, geometry=words, d_in=d_word, d_hidden=d_hidden, streams=1
            )
        self.change = ChangeGeometry(words, classifier)
        self.dropout = classifier.dropout(dropout)
        self.classifier = classifier.logits(d_out, n_classes)

    def encode(self, words: Tensor, lengths: Tensor, sentences: Tensor) -> tuple[Tensor, Trace | None]:
        """words (M, T) of all sentences, lengths (M,), sentences (B,) -> the documents (B, D), points of the
        classifier's geometry, and of an encoder that attends to sentences and words what they were made from."""
        if self.reads_sentences:
            document, trace = self.encoder(self.words(words), lengths, sentences)
            return document, trace if isinstance(trace, Trace) else None
        words, lengths = whole_documents(words, lengths, sentences)
        if self.buckets:
            words, lengths = with_ngrams(words, lengths, self.ngrams, self.n_words, self.buckets)
        return self.change(self.encoder(self.words(words), lengths)[1]), None

    def forward(self, words: Tensor, lengths: Tensor, sentences: Tensor) -> Tensor:
        """words (M, T), lengths (M,), sentences (B,) -> logits (B, n_classes)."""
        logits: Tensor = self.classifier(self.dropout(self.encode(words, lengths, sentences)[0]))
        return logits
