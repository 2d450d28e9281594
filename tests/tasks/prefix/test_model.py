"""The two-sentence network is the one of the paper, whichever geometry its parts have."""

import functools

import pytest
import torch

from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import make_geometry
from tasks.errors import UserError
from tasks.prefix.model import SentencePairClassifier

ENCODER = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
SIZES = {"n_words": 11, "n_classes": 2, "d_word": 3, "d_hidden": 4, "d_ffnn": 5, "init_norm": 0.1}


def model(name="poincare", manifold="PoincareBall", layers="mobius", c=1.0, parts=None, **sizes):
    geometry = make_geometry(name, manifold, layers, c=c, parts=parts)
    return SentencePairClassifier(geometry, ENCODER, **{**SIZES, **sizes}).double()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    words = torch.randint(1, 11, (2, 6, 7))
    lengths = torch.tensor([[7, 7, 5, 3, 1, 6], [2, 7, 1, 3, 1, 4]])
    return words, lengths


def test_it_is_the_formula_of_the_paper(batch):
    """f = ((W1 ⊗ s1 ⊕ W2 ⊗ s2) ⊕ b) ⊕ (d²(s1, s2) ⊗ b_d), by the manifold's own operations."""
    net = model(c=0.7)
    ball = net.manifold
    for p in net.ffnn.parameters():
        p.data += 0.1 * torch.randn_like(p)
    first, second = net.encode(*batch)
    w1, w2 = net.ffnn.weights
    joined = ball.mobius_add(ball.mobius_matvec(w1, first), ball.mobius_matvec(w2, second))
    joined = ball.mobius_add(joined, net.ffnn.bias)
    distance = ball.dist(first, second, keepdim=True) ** 2
    joined = ball.mobius_add(joined, ball.mobius_scalar(distance, net.ffnn.feature_bias.expand(len(distance), -1)))
    torch.testing.assert_close(net(*batch), net.classifier(joined))


def test_euclidean_sentences_make_the_euclidean_network(batch):
    net = model("euclidean", "Euclidean", "euclidean", None)
    first, second = net.encode(*batch)
    distance = ((first - second) ** 2).sum(-1, keepdim=True)
    for p in net.ffnn.parameters():
        p.data += 0.1 * torch.randn_like(p)
    net.ffnn(first, second, features=distance)
    torch.testing.assert_close(net(*batch), net.classifier(net.ffnn(first, second, features=distance)))


@pytest.mark.parametrize(
    ("parts", "ffnn", "classifier"),
    [
        ({"classifier": "euclidean"}, "poincare", "euclidean"),
        ({"ffnn": "euclidean", "classifier": "euclidean"}, "euclidean", "euclidean"),
    ],
)
def test_log_at_the_origin_stands_where_geometries_meet(batch, parts, ffnn, classifier):
    net = model(parts=parts)
    for p in net.parameters():
        p.data += 0.01 * torch.randn_like(p)
    ball = net.manifold
    first, second = net.encode(*batch)
    distance = ball.dist2(first, second, keepdim=True)
    if ffnn == "euclidean":
        first, second = ball.logmap0(first), ball.logmap0(second)
    joined = net.ffnn(first, second, features=distance)
    if ffnn != classifier:
        joined = ball.logmap0(joined)
    torch.testing.assert_close(net(*batch), net.classifier(joined))


def test_premise_and_hypothesis_have_a_cell_each_and_share_the_words(batch):
    net = model()
    words, lengths = batch
    same = torch.stack([words[0], words[0]]), torch.stack([lengths[0], lengths[0]])
    first, second = net.encode(*same)
    assert not torch.allclose(first, second)
    assert [name for name, _ in net.named_parameters() if "embedding" in name] == ["embedding.weight"]


def test_padding_does_not_matter(batch):
    net, (words, lengths) = model(), batch
    place = torch.arange(words.shape[-1])
    padded = torch.where(place < lengths.unsqueeze(-1), words, 0)
    other = torch.where(place < lengths.unsqueeze(-1), words, torch.randint(1, 11, words.shape))
    torch.testing.assert_close(net(padded, lengths), net(other, lengths))
    torch.testing.assert_close(net(padded, lengths)[3:4], net(padded[:, 3:4, :3], lengths[:, 3:4]))


@pytest.mark.parametrize("setting", ["d_word", "d_hidden", "d_ffnn"])
def test_a_size_below_one_is_named(setting):
    with pytest.raises(UserError, match=f"task.model.{setting} must be a whole number of at least 1"):
        model(**{setting: 0})


def test_an_unknown_component_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="sentence, ffnn, classifier"):
        model(parts={"clasifier": "euclidean"})
