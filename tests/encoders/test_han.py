"""HAN and Hype-HAN: their equations written out, isometric aggregation, padding, options, float32, training."""

import functools

import pytest
import torch
from geoopt import ManifoldParameter

from hyperbolic.encoders.han import HierarchicalAttention
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import GEOMETRIES, ChangeGeometry, make_geometry
from hyperbolic.layers.guard import validate_points
from hyperbolic.manifolds import Klein, PoincareBall
from hyperbolic.manifolds.charts import convert
from hyperbolic.optim import RiemannianAdam
from tests.layers import hype_han_formulas as paper
from tests.layers.filled import filled
from tests.tolerances import tolerance

F64 = torch.float64
GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=True)
ONE_WAY = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
OPTIONS = {
    "words": GRU,
    "sentences": GRU,
    "hidden": "direction",
    "join": "plain",
    "score": None,
    "gate": "softmax",
    "beta": "softplus",
    "context_std": 0.1,
    "word_keys": "tangent",
    "word_nonlinearity": "tanh",
    "sentence_keys": "mobius",
    "sentence_nonlinearity": None,
    "passage": "isometry",
}
HYPE_HAN = {"words": "euclidean", "attention": "lorentz", "sentences": "poincare", "classifier": "poincare"}
EVERY = [*GEOMETRIES, "hype_han"]
LENGTHS, SENTENCES = torch.tensor([4, 1, 3, 5, 2, 5]), torch.tensor([3, 1, 2])
ROWS = LENGTHS.split(SENTENCES.tolist())


def geometry(name, c=2.0, parts=None):
    if name == "hype_han":
        return make_geometry("hype_han", "PoincareBall", "mobius", c=c, parts=HYPE_HAN | (parts or {}))
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c, parts=parts)


def encoder(name, c=2.0, parts=None, d_in=3, d_hidden=2, **options):
    torch.manual_seed(3)
    net = HierarchicalAttention(geometry(name, c, parts), d_in, d_hidden, **(OPTIONS | options))
    return filled(net)


def points(name, c=2.0, dtype=F64, std=0.5):
    """Words (6, 5, D) of three documents with 3, 1 and 2 sentences."""
    return geometry(name, c).part("words").manifold.random(6, 5, 3, std=std, dtype=dtype)


def close(actual, expected, dtype=F64):
    torch.testing.assert_close(actual, expected, **tolerance(dtype, "model"))


def documents(x):
    """The words of each sentence of each document, without padding."""
    return [list(zip(*pair, strict=True)) for pair in zip(x.split(SENTENCES.tolist()), ROWS, strict=True)]


def test_han_is_its_equations():
    """Yang et al. 2016, Eq. 1-10."""
    net = encoder("euclidean")
    x = points("euclidean")

    def attend(h, layer):
        u = torch.tanh(h @ layer.key.weight.T + layer.key.bias)
        alpha = torch.exp(u @ layer.context) / torch.exp(u @ layer.context).sum()
        return alpha @ h, alpha

    result, trace = net(x, LENGTHS, SENTENCES)
    first = 0
    for i, document in enumerate(documents(x)):
        vectors = []
        for k, (sentence, length) in enumerate(document):
            h = paper.both_directions(paper.gru, sentence[:length], net.words.layer).flatten(1)
            vector, alpha = attend(h, net.word_attention)
            close(trace.words[first + k, :length], h)
            close(trace.word_weights[first + k, :length], alpha)
            close(trace.midpoints[first + k], vector)
            vectors.append(vector)
        h = paper.both_directions(paper.gru, torch.stack(vectors), net.sentences.layer).flatten(1)
        v, alpha = attend(h, net.sentence_attention)
        close(trace.sentences[i, : len(h)], h)
        close(trace.sentence_weights[i, : len(h)], alpha)
        close(result[i], v)
        first += len(document)
    assert torch.equal(result, trace.documents)


@pytest.mark.parametrize("attention", ["lorentz", "klein"])
@pytest.mark.parametrize("c", [1.0, 0.6])
def test_hype_han_is_its_equations(c, attention):
    """Zhang & Gao, Eq. 5-12; directions joined side by side in the tangent space at the origin; beta by softplus."""
    net, x = encoder("hype_han", c, {"attention": attention}), points("hype_han", c)
    first_key, second_key = net.word_attention.key, net.sentence_attention.key
    contexts = [level.context for level in (net.word_attention, net.sentence_attention)]
    bias = second_key.bias
    if attention == "klein":
        contexts = [paper.poincare_to_lorentz(paper.klein_to_poincare(context, c), c) for context in contexts]
        bias = paper.klein_to_poincare(bias, c)
    else:
        bias = paper.klein_to_poincare(paper.lorentz_to_klein(bias, c), c)
    betas = [torch.nn.functional.softplus(level.free_beta) for level in (net.word_attention, net.sentence_attention)]

    result, trace = net(x, LENGTHS, SENTENCES)
    first = 0
    for i, document in enumerate(documents(x)):
        vectors = []
        for k, (sentence, length) in enumerate(document):
            h = paper.both_directions(paper.gru, sentence[:length], net.words.layer).flatten(1)
            keys = paper.act(torch.tanh(h @ first_key.weight.T + first_key.bias), c)  # Eq. 6
            alpha = torch.exp(-betas[0] * paper.lorentz_distance(contexts[0], keys, c) - 0.3)  # Eq. 7; any c_w
            vector = paper.einstein_midpoint(paper.lorentz_to_klein(paper.act(h, c), c), alpha, c)  # Eq. 8
            close(trace.word_weights[first + k, :length], alpha / alpha.sum())
            vectors.append(paper.klein_to_poincare(vector, c))
        step = functools.partial(paper.mobius_gru, c=c)
        states = paper.both_directions(step, torch.stack(vectors), net.sentences.layer)
        h = paper.exp0(paper.log0(states, c).flatten(1), c)
        key = paper.mobius_sum(paper.mobius_product(second_key.weight, h, c), bias, c)  # Eq. 10
        distance = paper.lorentz_distance(contexts[1], paper.poincare_to_lorentz(key, c), c)
        alpha = torch.exp(-betas[1] * distance - 0.3)  # Eq. 11
        v = paper.einstein_midpoint(paper.poincare_to_klein(h, c), alpha, c)  # Eq. 12
        close(trace.sentence_weights[i, : len(h)], alpha / alpha.sum())
        close(result[i], paper.klein_to_poincare(v, c))
        first += len(document)


@pytest.mark.parametrize("c", [1.0, 0.6])
@pytest.mark.parametrize("attention", ["lorentz", "klein", "lorentz_tangent"])
def test_the_activation_is_exp_at_the_origin(c, attention):
    """Eq. 5: words at the distance |h| from the origin."""
    parts = geometry("hype_han", c, {"attention": attention})
    source, target = parts.part("words"), parts.part("attention")
    h = torch.randn(5, 3, dtype=F64)
    change = ChangeGeometry(source, target)
    klein = target.manifold.twin(Klein)
    close(convert(change(h), target.manifold, klein), paper.lorentz_to_klein(paper.act(h, c), c))
    close(change(h), target.manifold.expmap0(h))
    close(target.manifold.dist0(change(h)), h.norm(dim=-1))
    assert change.vectors(h) is h


@pytest.mark.parametrize("c", [1.0, 0.6])
def test_midpoints_are_the_same_in_the_three_models(c):
    """Lorentz centroid = Einstein midpoint = Möbius midpoint of the words, and of the sentences."""
    net, x = encoder("hype_han", c), points("hype_han", c)
    _, trace = net(x, LENGTHS, SENTENCES)
    for states, weights, midpoints in (
        (trace.words, trace.word_weights, trace.midpoints),
        (trace.sentences, trace.sentence_weights, trace.documents),
    ):
        for model in (Klein, PoincareBall):
            space = net.space.twin(model)
            there = space.centroid(convert(states, net.space, space), weights)
            close(convert(there, space, net.space), midpoints)
        einstein = paper.einstein_midpoint(paper.lorentz_to_klein(states, c), weights, c)
        close(paper.lorentz_to_klein(midpoints, c), einstein)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("join", ["plain", "linear"])
def test_padding_gets_nothing_and_reaches_nothing(name, join):
    net, space = encoder(name, join=join), geometry(name).part("words").manifold
    real = torch.arange(5) < LENGTHS.unsqueeze(-1)
    x = points(name)
    other = torch.where(real.unsqueeze(-1), x, space.random(6, 5, 3, std=1.0, dtype=F64)).requires_grad_()
    result, trace = net(x, LENGTHS, SENTENCES)
    same, _ = net(other, LENGTHS, SENTENCES)
    assert torch.equal(same, result)
    (grad,) = torch.autograd.grad(same.square().sum(), other)
    assert not grad[~real].any()
    assert grad[real].any(-1).all()

    assert torch.equal(trace.word_weights != 0, real)
    assert torch.equal(trace.sentence_weights != 0, torch.arange(3) < SENTENCES.unsqueeze(-1))
    for weights in (trace.word_weights, trace.sentence_weights):
        close(weights.sum(-1), torch.ones(len(weights), dtype=F64))

    longer = torch.cat([x, space.random(6, 4, 3, std=1.0, dtype=F64)], 1)
    close(net(longer, LENGTHS, SENTENCES)[0], result)
    first = 0
    for i, n in enumerate(SENTENCES.tolist()):  # each document alone
        rows = slice(first, first + n)
        first += n
        alone, own = net(x[rows, : LENGTHS[rows].max()], LENGTHS[rows], SENTENCES[i : i + 1])
        close(alone[0], result[i])
        close(own.sentence_weights[0], trace.sentence_weights[i, :n])


@pytest.mark.parametrize("name", EVERY)
def test_every_geometry_trains(name):
    """A class of documents is learned in some steps; gradients are finite and parameters stay on their manifolds."""
    torch.manual_seed(1)
    parts = geometry(name, 1.0)
    net = HierarchicalAttention(parts, 3, 4, **OPTIONS)
    head = parts.part("classifier").logits(net.d_out, 2)
    model = torch.nn.ModuleList([net, head])
    validate_points(model)
    vectors = torch.randn(24, 5, 3)
    sentences, labels = torch.tensor([1, 2, 3] * 4), torch.tensor([0, 1] * 6)
    vectors[torch.repeat_interleave(labels, sentences) == 1, 0] += 3.0
    x, lengths = parts.part("words").manifold.expmap0(0.3 * vectors), torch.randint(1, 6, (24,))
    optimizer = RiemannianAdam(model.parameters(), lr=0.03)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(net(x, lengths, sentences)[0]), labels)
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    for key, p in model.named_parameters():
        assert not torch.equal(p, before[key]), key
        if isinstance(p, ManifoldParameter):
            assert p.manifold.check_point_on_manifold(p.detach()), key


@pytest.mark.parametrize("attention", ["lorentz", "lorentz_tangent", "poincare", "klein"])
def test_saturated_float32_states(attention):
    """100 numbers near 1, the farthest that states of the words can be: 10 from the origin. On the hyperboloid the
    attention over words is in float32 as in float64. The Klein disk ends at 6.6 and the ball, where exp_0 puts them at
    20, at 13.1, so that there they are moved in, as sentences are that the Möbius GRU puts farther out."""
    parts = geometry("hype_han", 1.0, {"attention": attention})
    net = HierarchicalAttention(parts, 3, 50, **OPTIONS)
    with torch.no_grad():
        net.words.layer.bias[:, 1:] = 8.0  # update gate open, candidates at 1
        net.words.layer.weight_ih.mul_(4)
    x = torch.randn(40, 12, 3)
    lengths, sentences = torch.randint(1, 13, (40,)), torch.tensor([4] * 10)
    result, trace = net(x, lengths, sentences)
    assert trace.word_vectors.norm(dim=-1).max() > 9.5
    assert torch.isfinite(result).all()
    grads = torch.autograd.grad(result.square().sum(), list(net.parameters()), allow_unused=True)
    assert all(torch.isfinite(grad).all() for grad in grads if grad is not None)
    exact = net.double()(x.double(), lengths, sentences)[1]
    torch.testing.assert_close(trace.word_weights.double(), exact.word_weights, rtol=1e-3, atol=1e-5)
    space = trace.space
    for states in (trace.midpoints, trace.sentences, trace.documents):
        assert space.dist0(states).max() <= 1.01 * min(space.max_radius(), PoincareBall().max_radius())
    if attention in ("lorentz", "lorentz_tangent"):
        assert space.dist0(exact.midpoints).max() > 9.5
        assert space.dist(trace.midpoints.double(), exact.midpoints).max() < 1e-2


def test_lorentz_factors():
    """Eq. 9."""
    for attention in ("lorentz", "klein", "poincare"):
        trace = encoder("hype_han", 0.6, {"attention": attention})(points("hype_han"), LENGTHS, SENTENCES)[1]
        klein = convert(trace.sentences, trace.space, trace.space.twin(Klein))
        close(trace.lorentz_factors(trace.sentences), 1 / (1 - 0.6 * klein.square().sum(-1)).sqrt())
        if attention == "lorentz":
            close(trace.lorentz_factors(trace.words), 0.6**0.5 * trace.words[..., 0])
    flat = encoder("euclidean")(points("euclidean"), LENGTHS, SENTENCES)[1]
    assert (flat.lorentz_factors(flat.words) == 1).all()


def test_sizes():
    """50 in each direction, or in both together."""
    assert encoder("hype_han", d_hidden=6).d_out == 12
    assert encoder("hype_han", d_hidden=6, hidden="total").d_out == 6
    assert encoder("hype_han", d_hidden=3, hidden="total", words=ONE_WAY, sentences=ONE_WAY).d_out == 3
    with pytest.raises(ValueError, match=r"a size of 3 cannot be divided .*encoder\.words\.bidirectional=false"):
        encoder("hype_han", d_hidden=3, hidden="total")


def test_passage():
    """Klein coordinates taken for the ball's: twice as far from the origin."""
    words = points("hype_han")
    nets = [encoder("hype_han", parts={"attention": "klein"}, passage=way) for way in ("isometry", "tangent")]
    (_, trace), (_, other) = (net(words, LENGTHS, SENTENCES) for net in nets)
    ball = nets[0].to_classifier.target
    kept, doubled = (net.to_classifier(trace.documents) for net in nets)
    close(doubled, trace.documents)
    close(ball.dist0(doubled), 2 * ball.dist0(kept))
    close(other.midpoints, trace.midpoints)
    assert not torch.allclose(other.documents, trace.documents)


@pytest.mark.parametrize("name", ["euclidean", "hype_han", "lorentz"])
@pytest.mark.parametrize(
    "options",
    [
        {"gate": "sigmoid"},
        {"score": "dot"},
        {"score": "distance"},
        {"beta": "free", "score": "distance"},
        {"word_keys": "family", "sentence_keys": "family"},
        {"word_keys": "mobius", "sentence_keys": "tangent", "sentence_nonlinearity": "tanh"},
        {"words": ONE_WAY, "join": "linear"},
    ],
    ids=str,
)
def test_options_give_points_and_gradients(name, options):
    net = encoder(name, **options)
    result, _ = net(points(name), LENGTHS, SENTENCES)
    space = geometry(name).part("classifier").manifold
    assert space.check_point_on_manifold(result.detach(), atol=1e-9)
    grads = torch.autograd.grad(result.square().sum(), list(net.parameters()))
    assert all(torch.isfinite(grad).all() and grad.any() for grad in grads)


def test_contexts_start_where_they_are_told():
    for std in (0.1, 2.0):
        options = OPTIONS | {"context_std": std}
        nets = [HierarchicalAttention(geometry("hype_han"), 3, 20, **options) for _ in range(20)]
        far = [net.space.dist0(level.context) for net in nets for level in (net.word_attention, net.sentence_attention)]
        assert torch.stack(far).mean().item() == pytest.approx(std, rel=0.1)


def test_mistakes_are_named():
    x = points("hype_han")
    net = encoder("hype_han")
    with pytest.raises(ValueError, match="the documents of a batch have 5 sentences in all, and it has 6"):
        net(x, LENGTHS, torch.tensor([3, 2]))
    with pytest.raises(ValueError, match="a document has at least 1 sentence .*got 0..4"):
        net(x, LENGTHS, torch.tensor([4, 0, 2]))
    with pytest.raises(ValueError, match=r"lengths must lie in 1\.\.5, got 0\.\.5"):
        net(x, torch.tensor([4, 0, 3, 5, 2, 5]), SENTENCES)
    with pytest.raises(ValueError, match=r"encoder.hidden: unknown value 'half'; available: direction, total"):
        encoder("hype_han", hidden="half")
    with pytest.raises(ValueError, match=r"encoder.passage: unknown value 'copy'; available: isometry, tangent"):
        encoder("hype_han", passage="copy")
    with pytest.raises(
        ValueError, match=r"encoder.sentences needs an encoder of sequences, and this one is of triples"
    ):
        encoder("lorentz", sentences=functools.partial(HyboNet, d=3))
    for option, choices in (("join", "linear"), ("score", "dot"), ("gate", "sigmoid"), ("word_keys", "tangent")):
        with pytest.raises(ValueError, match=rf"unknown value 'other'; available: .*{choices}"):
            encoder("hype_han", **{option: "other"})
