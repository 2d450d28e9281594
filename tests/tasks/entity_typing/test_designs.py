"""The networks of entity typing are the formulas of the papers."""

import torch
from torch import nn

from hyperbolic.kernels.lorentz_rows import lift
from tasks.entity_typing.hyfi import HyFiSettings
from tests.tasks.entity_typing.networks import F64, LAYERS, MODEL, TRANSFORMER, K, example, model


def distance_attention(layer: nn.Module, ball, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """``q = W_q r (+) b_q``, ``k = W_k r (+) b_k``, ``r = x (+) p``, the midpoint with softmax(-beta d(q, k))."""
    r = ball.mobius_add(x, layer.positions.weight[places])
    q, k = (ball.mobius_add(ball.mobius_matvec(m.weight, r), m.bias) for m in (layer.query, layer.key))
    weights = torch.exp(-layer.beta * ball.dist(q, k))
    return ball.centroid(x, weights / weights.sum(-1, keepdim=True))


def test_hyfi_is_the_formula_of_the_paper(batch):
    """Mention, characters and context by the ball's own operations, example by example without padding."""
    net = model(c=0.7)
    text, ball = net.text, net.manifold
    for attention in (text.mention_attention, text.context_attention):
        attention.beta.data.fill_(0.9)
    features = net.features(batch)
    for i in range(4):
        alone = example(batch, i)
        points = text.words(alone["mention"])
        points = ball.mobius_add(ball.mobius_matvec(text.mention.weight, points), text.mention.bias)
        points = ball.expmap0(torch.tanh(ball.logmap0(points)))
        mention = distance_attention(text.mention_attention, ball, points, torch.arange(1, points.shape[1] + 1))

        cell, h, states = text.spelling, ball.origin(1, 3, dtype=F64), []
        for x in text.characters(alone["characters"]).unbind(1):
            h = ball.mobius_add(
                ball.mobius_matvec(cell.weight_hh[0, 0], h), ball.mobius_matvec(cell.weight_ih[0, 0], x)
            )
            h = ball.mobius_add(h, cell.bias[0, 0])
            states.append(h)
        characters = ball.centroid(torch.stack(states, 1))

        states = text.context(text.words(alone["context"]))[0]
        assert states.shape[-1] == 6
        context = distance_attention(text.context_attention, ball, states, alone["positions"])

        m1, m2, m3 = (
            ball.mobius_matvec(w, x) for w, x in zip(text.concat.weights, (mention, context, characters), strict=True)
        )
        joined = ball.mobius_add(ball.mobius_add(ball.mobius_add(m1, m2), m3), text.concat.bias)
        torch.testing.assert_close(features[i : i + 1], joined, **MODEL)
    torch.testing.assert_close(net(batch), net.classifier(features))


def test_order_of_the_concatenation_matters_here(batch):
    """So that the test above would notice another order."""
    net = model(c=0.7)
    ball, concat = net.manifold, net.text.concat
    x = [0.5 * ball.random(4, d, dtype=F64) for d in concat.dims]
    m1, m2, m3 = (ball.mobius_matvec(w, p) for w, p in zip(concat.weights, x, strict=True))
    other = ball.mobius_add(ball.mobius_add(ball.mobius_add(m1, m3), m2), concat.bias)
    assert (concat(*x) - other).abs().max() > 1e-3


def test_hyfi_asks_its_encoder_for_both_ends_and_tanh():
    net = model()
    assert net.text.context.layer.bidirectional
    assert net.text.context.layer.nonlinearity == "tanh"
    assert net.text.spelling.nonlinearity == "identity"
    net = model(settings={"hyfi": HyFiSettings(bidirectional=False, nonlinearity=None, layers=LAYERS)})
    assert not net.text.context.layer.bidirectional
    assert net.text.context.layer.nonlinearity == "identity"
    assert net.text.context.d_out == 6


def test_hyfi_takes_any_encoder(batch):
    assert model("lorentz", TRANSFORMER, {"design": "hyfi", "s": 4})(batch).shape == (4, K)


def test_hybonet_is_the_formula_of_the_paper(batch):
    """Uniform centroid, softmax of -d_L^2(q, k)/sqrt(n), and mention and context joined as two heads are."""
    net = model("lorentz", TRANSFORMER, c=0.7)
    assert net.design == "hybonet"
    text, space = net.text, net.manifold
    features = net.features(batch)
    for i in range(4):
        alone = example(batch, i)
        mention = space.centroid(text.context.enter(text.words(alone["mention"])))
        states = text.context(text.words(alone["context"]))[0]
        layer = text.context_attention
        moved = layer.add.affine.join(states, layer.positions(alone["positions"]))
        q, k = layer.query(moved), layer.key(moved)
        q_time, k_time = q[..., 0], k[..., 0]
        product = (q[..., 1:] * k[..., 1:]).sum(-1) - q_time * k_time
        weights = torch.softmax((2 / 0.7 + 2 * product) / 8**0.5, -1)
        context = space.centroid(states, weights)
        heads = lift(torch.cat([mention[..., 1:], context[..., 1:]], -1), space.c)
        torch.testing.assert_close(features[i : i + 1], text.concat.affine(heads), **MODEL)


def test_hybonets_mention_and_context_share_words_and_positions(batch):
    net = model("lorentz", TRANSFORMER)
    assert len([n for n, _ in net.named_parameters() if ".positions." in n and "context_attention" not in n]) == 3
    entered = net.text.context.enter(net.text.words(batch["context"]))
    stack = net.text.context.stacks[0]
    torch.testing.assert_close(entered, stack.positions(stack.project(net.text.words(batch["context"]))))
