"""The network of documents: padding changes nothing, words start at their vectors, n-grams stand behind the words."""

import functools

import pytest
import torch
from torch import nn

from hyperbolic.encoders.dan import DeepAveragingEncoder
from hyperbolic.encoders.han import HierarchicalAttention
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import GEOMETRIES, ChangeGeometry, make_geometry
from hyperbolic.manifolds import Lorentz, PoincareBall
from tasks.document_classification.model import DocumentClassifier
from tasks.document_classification.ngrams import whole_documents, with_ngrams
from tasks.errors import UserError
from tasks.ragged import encode_texts
from tasks.text import PAD
from tasks.word_table import WordTable
from tasks.word_vectors import VectorRows
from tests.tolerances import tolerance

GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=True)
HAN = functools.partial(
    HierarchicalAttention, words=GRU, sentences=GRU, hidden="direction", join="plain", score=None, gate="softmax",
    beta="softplus", context_std=0.1, word_keys="tangent", word_nonlinearity="tanh", sentence_keys="mobius",
    sentence_nonlinearity=None, passage="isometry",
)  # fmt: skip
PARTS = {"words": "euclidean", "attention": "lorentz", "sentences": "poincare", "classifier": "poincare"}
TEXTS = [[["a", "b", "c"], ["d"]], [["e", "a"]], [["b"], ["c", "d", "e", "a", "b"], ["a"]]]
DOCUMENTS = encode_texts(TEXTS, {word: k for k, word in enumerate("abcde", start=2)})


def geometry(name: str):
    manifold, layers = GEOMETRIES.get(name, GEOMETRIES["poincare"])
    curved = {} if manifold == "Euclidean" else {"c": 0.7}
    return make_geometry(name, manifold, layers, parts=PARTS if name == "hype_han" else None, **curved)


def model(name: str = "poincare", encoder=HAN, **changes) -> DocumentClassifier:
    torch.manual_seed(0)
    settings = {"n_words": 7, "n_classes": 3, "vectors": None, "d_word": 4, "d_hidden": 4, "word_c": 0.1, "train_words": True}
    settings |= {"word_dropout": 0.0, "ngrams": 1, "buckets": 10, "dropout": 0.0}
    return DocumentClassifier(geometry(name), encoder, **settings | changes).double()


@pytest.mark.parametrize("encoder", [HAN, GRU], ids=["han", "gru"])
@pytest.mark.parametrize("name", ["euclidean", "poincare", "lorentz", "hype_han"])
def test_padding_of_sentences_and_documents_changes_nothing(name, encoder):
    if name == "hype_han" and encoder is GRU:
        pytest.skip("its parts are those of an encoder of documents")
    network = model(name, encoder)
    together = network(*DOCUMENTS.pad_sentences(torch.arange(3)))
    assert torch.isfinite(together).all()
    alone = torch.cat([network(*DOCUMENTS.pad_sentences(torch.tensor([k]))) for k in range(3)])
    torch.testing.assert_close(together, alone, **tolerance(torch.float64, "model"))
    words, lengths, sentences = DOCUMENTS.pad_sentences(torch.arange(3))
    wider = torch.cat([words, torch.full((len(words), 3), PAD)], 1)
    torch.testing.assert_close(network(wider, lengths, sentences), together, **tolerance(torch.float64, "model"))
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(network(*DOCUMENTS.pad_sentences(order)), together[order], **tolerance(torch.float64, "model"))


class Bag(nn.Module):
    """An encoder of documents that attends to nothing: a part of the geometry that is its own, no trace."""

    kind, components = "documents", ("pool",)

    def __init__(self, geometry, d_in, d_hidden):
        super().__init__()
        assert geometry.part("pool").name == "lorentz"
        self.d_out, self.change = d_in, ChangeGeometry(geometry.part("words"), geometry.part("classifier"))

    def forward(self, x, lengths, sentences):
        return self.change(x[sentences.cumsum(0) - 1, 0]), x


def test_an_encoder_of_documents_of_ones_own_has_its_parts_and_need_not_attend():
    words = {"n_words": 7, "n_classes": 3, "vectors": None, "d_word": 4, "d_hidden": 4, "word_c": 0.1, "train_words": True}
    words |= {"word_dropout": 0.0, "ngrams": 1, "buckets": 10, "dropout": 0.0}
    ball = functools.partial(make_geometry, "poincare", *GEOMETRIES["poincare"], c=0.7)
    network = DocumentClassifier(ball(parts={"pool": "lorentz"}), Bag, **words)
    documents, trace = network.encode(*DOCUMENTS.pad_sentences(torch.arange(3)))
    assert documents.shape == (3, 4)
    assert trace is None
    with pytest.raises(ValueError, match="has no component 'attention'; its components are words, classifier, pool"):
        DocumentClassifier(ball(parts={"attention": "lorentz"}), Bag, **words)


def test_a_document_of_an_encoder_of_sequences_is_the_sequence_of_its_words():
    words, lengths = whole_documents(*DOCUMENTS.pad_sentences(torch.arange(3)))
    assert words.tolist() == [[2, 3, 4, 5, 0, 0, 0], [6, 2, 0, 0, 0, 0, 0], [3, 4, 5, 6, 2, 3, 2]]
    assert lengths.tolist() == [4, 2, 7]


def test_ngrams_stand_behind_the_words_and_equal_ones_share_a_row():
    words, lengths = torch.tensor([[2, 3, 2, 3], [2, 3, 0, 0], [4, 0, 0, 0]]), torch.tensor([4, 2, 1])
    rows, sizes = with_ngrams(words, lengths, 3, 7, 1000)
    assert sizes.tolist() == [4 + 3 + 2, 2 + 1, 1]
    first, second, third = ([k for k in row if k != PAD] for row in rows.tolist())
    assert (first[:4], second[:2], third) == ([2, 3, 2, 3], [2, 3], [4])
    assert first[4] == first[6] == second[2] != first[5]
    assert first[7] != first[8]
    assert all(7 <= row < 1007 for row in (*first[4:], *second[2:]))


def test_the_mean_of_words_and_bigrams_is_fasttext():
    dan = functools.partial(DeepAveragingEncoder, linear=False)
    network = model("euclidean", dan, ngrams=2, buckets=20)
    words, lengths, sentences = DOCUMENTS.pad_sentences(torch.tensor([1]))
    rows, _ = with_ngrams(torch.tensor([[6, 2]]), torch.tensor([2]), 2, 7, 20)
    expected = network.classifier(network.words.weight[rows[0]].mean(0, keepdim=True))
    torch.testing.assert_close(network(words, lengths, sentences), expected, **tolerance(torch.float64, "model"))


def test_words_start_at_their_vectors_on_every_manifold():
    matrix, has_row = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([True, False])
    vectors = VectorRows(matrix, has_row, "vectors.txt", "")
    flat = WordTable(geometry("euclidean"), 4, 2, vectors, 0.04, True, 0.0)
    assert flat(torch.tensor([0, 2])).tolist() == [[0, 0], [3, 4]]
    assert flat.weight[3].abs().min() > 0, "a word without a vector starts somewhere"
    distances = []
    for name, kind in (("poincare", PoincareBall), ("lorentz", Lorentz)):
        table = WordTable(geometry(name), 4, 2, vectors, 0.04, True, 0.0)
        space = geometry(name).manifold
        assert isinstance(space, kind)
        distances.append(space.dist0(table(torch.tensor([2]))).item() * 0.7**0.5)
    assert distances == pytest.approx([2.0, 2.0], rel=1e-5), "2 artanh(tanh(0.2 * 5)), whatever c is"
    assert not WordTable(geometry("poincare"), 4, 2, vectors, 0.04, False, 0.0).weight.requires_grad


def test_words_without_a_vector_start_as_far_out_as_the_others():
    has_row = torch.arange(4000) % 4 == 0
    matrix = torch.where(has_row.unsqueeze(-1), torch.tensor([3.0, 4.0]), torch.zeros(2))
    table = WordTable(geometry("euclidean"), 4002, 2, VectorRows(matrix, has_row, "vectors.txt", ""), 0.04, True, 0.0)
    others = table.weight[2:][~has_row]
    assert others.square().mean().sqrt().item() == pytest.approx(12.5**0.5, rel=0.05)


def test_settings_that_cannot_be_are_named():
    vectors = VectorRows(torch.zeros(5, 3), torch.zeros(5, dtype=torch.bool), "glove.txt", "")
    with pytest.raises(UserError, match=r"task\.model\.d_word=4, and the word vectors of glove\.txt have 3 numbers; make them equal"):
        model(vectors=vectors)
    with pytest.raises(UserError, match=r"task\.model\.ngrams=2 is for encoders of sequences, as encoder=dan; take 1"):
        model(ngrams=2)
    with pytest.raises(UserError, match=r"task\.model\.word_c must be a positive number"):
        model(word_c=0.0)
    with pytest.raises(ValueError, match=r"geometry\.parts\.attention: this model has no component 'attention'; its components are words, classifier"):
        model("hype_han", GRU)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["word_dropout", "dropout"])
@pytest.mark.parametrize("encoder", [HAN, GRU], ids=["han", "gru"])
def test_each_dropout_is_of_training_alone(name, encoder):
    batch = DOCUMENTS.pad_sentences(torch.arange(3))
    net = model(encoder=encoder, **{name: 0.5})
    assert not torch.equal(net(*batch), net(*batch))
    net.eval()
    assert torch.equal(net(*batch), net(*batch))
