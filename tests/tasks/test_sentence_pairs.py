"""The two-sentence network is the one of the papers, whichever geometry its parts have; its loss and metrics."""

import functools

import pytest
import torch

from configs import composing
from hyperbolic.encoders.dan import DeepAveragingEncoder
from hyperbolic.encoders.pair_attention import PairAttention
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from tasks.errors import UserError
from tasks.sentence_pairs import PairTask, SentencePairClassifier, side_by_side
from tasks.word_vectors import VectorRows

ENCODER = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
SIZES = {"n_words": 11, "n_classes": 2, "d_word": 3, "d_hidden": 4, "d_ffnn": 5, "init_norm": 0.1}
SIZES |= {"distance": True, "join": "mobius"}


def model(name="poincare", manifold="PoincareBall", layers="mobius", c=1.0, parts=None, encoder=ENCODER, **sizes):
    geometry = make_geometry(name, manifold, layers, c=c, parts=parts)
    return SentencePairClassifier(geometry, encoder, **{**SIZES, **sizes}).double()


def with_vectors(**sizes) -> SentencePairClassifier:
    """Of words that start at vectors, but for the last, which has none."""
    matrix = torch.randn(9, 3) * (torch.arange(9) < 8).unsqueeze(-1)
    vectors = VectorRows(matrix, torch.arange(9) < 8, "vectors.txt", "")
    return model(**{"words": "tangents", "vectors": vectors, "word_c": 0.01, "c": 0.7, **sizes})


def test_words_start_at_their_vectors_as_points():
    torch.manual_seed(0)
    net = with_vectors()
    torch.manual_seed(0)
    matrix = torch.randn(9, 3)[:8].double()
    ball = PoincareBall(c=0.7)
    own = PoincareBall(c=0.01).expmap0(matrix) * (0.01 / 0.7) ** 0.5  # the same point at curvature -0.7
    torch.testing.assert_close(net.embedding(torch.arange(2, 10)), own, rtol=1e-5, atol=1e-6)
    assert ball.dist0(net.embedding(torch.tensor([10]))).item() > 0, "a word without a vector does not start at 0"


def test_dropout_of_words_and_sentences_is_of_training_alone(batch):
    net = with_vectors(word_dropout=0.5, dropout=0.5)
    assert not torch.equal(net(*batch), net(*batch))
    net.eval()
    assert torch.equal(net(*batch), net(*batch))


def test_points_start_from_no_vectors():
    with pytest.raises(UserError, match=r"take task\.model\.words=tangents, or task\.data\.vectors=null"):
        with_vectors(words="points")


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


DAN = functools.partial(DeepAveragingEncoder, linear=True)


@pytest.mark.parametrize(
    ("encoder", "join"),
    [
        (ENCODER, "mobius"),
        (DAN, "plain"),
        (functools.partial(PairAttention, reader=ENCODER, combine="mean", norm="key"), "mobius"),
        (functools.partial(PairAttention, reader=DAN, combine="mean", norm="key"), "plain"),
    ],
)
def test_the_program_of_the_report_joins_means_of_words_side_by_side(batch, encoder, join):
    net, other = (model(encoder=encoder, join=name) for name in ("hypera", join))
    other.load_state_dict(net.state_dict())
    assert net.join == join
    torch.testing.assert_close(net(*batch), other(*batch))


def test_defaults_of_layers_reach_the_encoder_and_options_come_first(batch):
    layers = {"mobius": {"GRU": {"variant": "hypera"}}}
    geometry = make_geometry("poincare", "PoincareBall", "mobius", c=1.0)
    net = SentencePairClassifier(geometry, ENCODER, **SIZES, layers=layers).double()
    assert {module.variant for module in net.modules() if isinstance(module, mobius.GRU)} == {"hypera"}
    assert net(*batch).isfinite().all()
    own = make_geometry("poincare", "PoincareBall", "mobius", c=1.0, options={"GRU": {"variant": "paper"}})
    net = SentencePairClassifier(own, ENCODER, **SIZES, layers=layers)
    assert {module.variant for module in net.modules() if isinstance(module, mobius.GRU)} == {"paper"}


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


def test_without_the_distance_the_layer_has_no_feature(batch):
    net = model(c=0.7, distance=False)
    for p in net.ffnn.parameters():
        p.data += 0.1 * torch.randn_like(p)
    assert net.ffnn.feature_bias is None
    ball, (first, second), (w1, w2) = net.manifold, net.encode(*batch), net.ffnn.weights
    joined = ball.mobius_add(ball.mobius_matvec(w1, first), ball.mobius_matvec(w2, second))
    torch.testing.assert_close(net(*batch), net.classifier(ball.mobius_add(joined, net.ffnn.bias)))


@pytest.mark.parametrize("distance", [True, False])
def test_a_plain_join_is_one_matrix_on_the_coordinates_side_by_side(batch, distance):
    net = model(c=0.7, join="plain", distance=distance)
    for p in net.ffnn.parameters():
        p.data += 0.1 * torch.randn_like(p)
    ball, (first, second), (weight,) = net.manifold, net.encode(*batch), net.ffnn.weights
    assert weight.shape == (5, 8)
    joined = ball.mobius_add(ball.mobius_matvec(weight, torch.cat([first, second], -1)), net.ffnn.bias)
    if distance:
        square = ball.dist2(first, second, keepdim=True)
        joined = ball.mobius_add(joined, ball.mobius_scalar(square, net.ffnn.feature_bias.expand(len(square), -1)))
    torch.testing.assert_close(net(*batch), net.classifier(joined))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_points_side_by_side_are_a_point_with_their_coordinates(name):
    kind, layers = GEOMETRIES[name]
    space = make_geometry(name, kind, layers, c=None if kind == "Euclidean" else 2.0).manifold
    x, y = space.random(4, 3, std=0.2, dtype=torch.float64), space.random(4, 2, std=0.2, dtype=torch.float64)
    joined = side_by_side(space, x, y)
    assert joined.shape == (4, space.ambient_dim(5))
    assert space.check_point_on_manifold(joined, atol=1e-9)
    torch.testing.assert_close(joined[:, -5:], torch.cat([x[:, -3:], y[:, -2:]], -1))
    far = [space.random(4, 3, std=9.0, dtype=torch.float64) for _ in range(2)]
    assert space.check_point_on_manifold(side_by_side(space, *far), atol=1e-9)


def test_an_encoder_of_sequences_has_no_attention(batch):
    assert model().attention(*batch) is None


def test_an_encoder_of_pairs_stands_in_the_places_of_both_sentences(batch):
    attention = functools.partial(PairAttention, reader=ENCODER, combine="sum", norm="key")
    net = model(c=0.7, encoder=attention)
    points = net.embedding(batch[0])
    states, last = net.encoder.reader(points, batch[1])
    weights = net.attention(*batch)
    torch.testing.assert_close(weights, net.encoder.weights(points, batch[1]))
    assert torch.equal(weights != 0, torch.arange(7) < batch[1][0].unsqueeze(-1))
    attended, query = net.encode(*batch)
    torch.testing.assert_close(query, last[1])
    torch.testing.assert_close(attended, net.encoder.sum(states[0], weights))
    distance = net.manifold.dist2(attended, query, keepdim=True)
    torch.testing.assert_close(net(*batch), net.classifier(net.ffnn(attended, query, features=distance)))


def test_an_unknown_join_is_named():
    with pytest.raises(UserError, match=r"task.model.join must be one of mobius, plain, hypera, and it is 'concat'"):
        model(join="concat")


def test_the_task_is_cross_entropy_and_accuracy(batch):
    words, lengths = batch
    task = PairTask(model(n_classes=3), torch.optim.SGD, ("a", "b", "c"), "val/accuracy", "max")
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    step = task.step({"words": words, "lengths": lengths, "labels": labels})
    logits = task.model(words, lengths)
    torch.testing.assert_close(step.loss, -logits.log_softmax(-1)[torch.arange(6), labels].mean())
    metrics = task.summary({name: float(value) for name, value in step.sums.items()})
    assert set(metrics) == {"loss", "accuracy"}, "in training only what single numbers give"
    assert metrics["loss"] == pytest.approx(step.loss.item())
    assert metrics["accuracy"] == (logits.argmax(-1) == labels).double().mean()
    assert torch.equal(task.points({"words": words, "lengths": lengths})["sentences"].x, task.model.encode(*batch))


def test_the_activation_comes_before_the_classifier(batch):
    """By default one in flat space, where the network would be linear in both sentences, and none elsewhere."""
    flat = {"name": "euclidean", "manifold": "Euclidean", "layers": "euclidean", "c": None}
    torch.manual_seed(0)
    plain = model(**flat)
    torch.manual_seed(0)
    rectified = model(**flat, activation="relu")
    first, second = plain.encode(*batch)
    distance = (first - second).square().sum(-1, keepdim=True)
    joined = plain.ffnn(first, second, features=distance)
    torch.testing.assert_close(rectified(*batch), plain.classifier(joined.relu()))
    assert not torch.equal(rectified(*batch), plain(*batch))
    composing.register()
    for task in ("prefix_toy", "nli_toy"):
        for geometry, name in (("euclidean", "relu"), ("poincare", "identity"), ("lorentz_tangent", "identity")):
            cfg = composing.composed(f"task={task}", f"geometry={geometry}", "encoder=gru")
            assert cfg.task.model.activation == name
    with pytest.raises(UserError, match=r"task\.model\.activation must be one of"):
        model(activation="bent")


def test_an_encoder_of_pairs_need_not_say_what_it_attends_to():
    class Silent(PairAttention):
        weights = None

    reader = {"reader": ENCODER, "combine": "sum", "norm": "none"}
    words, lengths = torch.randint(11, (2, 3, 4)), torch.full((2, 3), 4)
    assert model(encoder=functools.partial(PairAttention, **reader)).attention(words, lengths).shape == (3, 4)
    assert model(encoder=functools.partial(Silent, **reader)).attention(words, lengths) is None


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["word_dropout", "dropout"])
def test_each_dropout_works_alone(name):
    words, lengths = torch.randint(2, 11, (2, 6, 5)), torch.full((2, 6), 5)
    net = with_vectors(**{name: 0.5})
    assert not torch.equal(net(words, lengths), net(words, lengths))
    net.eval()
    assert torch.equal(net(words, lengths), net(words, lengths))
