"""Attention to the words of the premise: Eq. 1 of Patel et al. by hand, padding, and what the classifier is given."""

import functools

import pytest
import torch

from hyperbolic.encoders.dan import DeepAveragingEncoder
from hyperbolic.encoders.pair_attention import PairAttention
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import GEOMETRIES, make_geometry

F64 = torch.float64
DAN = functools.partial(DeepAveragingEncoder, linear=False)
GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
GEOMETRY = pytest.mark.parametrize("name", GEOMETRIES)
LENGTHS = torch.tensor([[5, 2, 3], [4, 5, 1]])


def encoder(name, reader=DAN, combine="sum", norm="key", c=2.0, streams=2, d=3):
    manifold, layers = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)
    return PairAttention(geometry, d, d, reader=reader, combine=combine, norm=norm, streams=streams).double()


def test_a_case_by_hand():
    """log_0 of the ball with c = 4 is artanh(2|x|)/(2|x|) x; the words lie on the axes, the hypothesis is one word."""
    r, s, q = 0.3, 0.4, torch.tensor([0.2, 0.5], dtype=F64)
    at = lambda u: torch.tanh(2 * u.norm()) / (2 * u.norm()) * u  # noqa: E731
    premise = torch.stack([at(torch.tensor([r, 0.0], dtype=F64)), at(torch.tensor([0.0, -s], dtype=F64))])
    x = torch.stack([premise, torch.stack([at(q), torch.zeros(2, dtype=F64)])]).unsqueeze(1)
    net, lengths = encoder("poincare", c=4.0, d=2), torch.tensor([[2], [1]])
    scores = {"key": torch.tensor([0.2, -0.5], dtype=F64), "none": torch.tensor([0.2 * r, -0.5 * s], dtype=F64)}
    for norm, by_hand in scores.items():
        net.norm = norm
        weights = by_hand.exp() / by_hand.exp().sum()
        torch.testing.assert_close(net.weights(x, lengths)[0], weights)
        first, second = at(weights[0] * torch.tensor([r, 0], dtype=F64)), at(weights[1] * torch.tensor([0, -s], dtype=F64))
        xx, yy = 4 * first @ first, 4 * second @ second  # and they are orthogonal
        attended = ((1 + yy) * first + (1 - xx) * second) / (1 + xx * yy)
        torch.testing.assert_close(net(x, lengths)[1][:, 0], torch.stack([attended, at(q)]))
    net.combine = "mean"
    mean = at(0.5 * torch.atanh(2 * attended.norm()) / (2 * attended.norm()) * attended)
    torch.testing.assert_close(net(x, lengths)[1][0, 0], mean)


def test_in_flat_space_it_is_dot_product_attention():
    net = encoder("euclidean", GRU, norm="none")
    x = torch.randn(2, 3, 5, 3, dtype=F64)
    states, last = net.reader(x, LENGTHS)
    for row, length in enumerate(LENGTHS[0]):
        keys, query = states[0, row, :length], last[1, row]
        expected = torch.softmax(keys @ query, 0) @ keys
        torch.testing.assert_close(net(x, LENGTHS)[1][:, row], torch.stack([expected, query]))


@GEOMETRY
@pytest.mark.parametrize("reader", [DAN, GRU])
@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_padding_gets_nothing_and_reaches_nothing(name, reader, combine):
    net = encoder(name, reader, combine)
    space, real = net.manifold, torch.arange(5) < LENGTHS.unsqueeze(-1)
    x = space.random(2, 3, 5, 3, std=0.3, dtype=F64)
    other = torch.where(real.unsqueeze(-1), x, space.random(2, 3, 5, 3, std=1.0, dtype=F64)).requires_grad_()
    weights, (states, pair) = net.weights(x, LENGTHS), net(x, LENGTHS)
    assert torch.equal(weights != 0, real[0])
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, dtype=F64))
    assert states.shape == (2, 3, 5, space.ambient_dim(net.d_out))
    assert pair.shape == (2, 3, space.ambient_dim(net.d_out))
    assert space.check_point_on_manifold(pair.detach(), atol=1e-9)
    assert torch.equal(net.weights(other, LENGTHS), weights)
    assert torch.equal(net(other, LENGTHS)[1], pair)
    (grad,) = torch.autograd.grad(net(other, LENGTHS)[1].square().sum(), other)
    assert not grad[~real].any()
    assert grad[real].any(-1).all()
    torch.testing.assert_close(net(x[:, 2:, :3], LENGTHS[:, 2:])[1], pair[:, 2:], rtol=1e-9, atol=1e-12)


@GEOMETRY
@pytest.mark.parametrize("norm", ["key", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_words_and_hypotheses_at_the_origin_are_no_problem(name, norm, dtype):
    net = encoder(name, norm=norm).to(dtype)
    x = net.manifold.random(2, 3, 5, 3, std=0.3, dtype=dtype)
    x[0, 0], x[0, 1, 0], x[1, 2] = (net.manifold.origin(3, dtype=dtype) for _ in range(3))
    x.requires_grad_()
    weights, pair = net.weights(x, LENGTHS), net(x, LENGTHS)[1]
    torch.testing.assert_close(weights[0], torch.full((5,), 0.2, dtype=dtype))
    (grad,) = torch.autograd.grad((weights * torch.randn_like(weights)).sum() + pair.square().sum(), x)
    assert torch.isfinite(grad).all()
    assert grad.abs().max() < 1e3


def test_the_last_state_of_the_hypothesis_asks():
    net = encoder("poincare", GRU)
    x = net.manifold.random(2, 3, 5, 3, std=0.3, dtype=F64)
    states, last = net.reader(x, LENGTHS)
    torch.testing.assert_close(net(x, LENGTHS)[1][1], last[1])
    assert torch.equal(net(x, LENGTHS)[0], states)
    changed = x.clone()
    changed[1] = net.manifold.random(3, 5, 3, std=0.3, dtype=F64)
    assert not torch.allclose(net.weights(x, LENGTHS), net.weights(changed, LENGTHS))
    net(x, LENGTHS)[1].square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad.any(), key


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"encoder.combine: unknown value 'max'; available: sum, mean"):
        encoder("poincare", combine="max")
    with pytest.raises(ValueError, match=r"encoder.norm: unknown value 'both'; available: key, none"):
        encoder("poincare", norm="both")
    with pytest.raises(ValueError, match=r"2 streams, premise and hypothesis, got streams=1"):
        encoder("poincare", streams=1)
    with pytest.raises(ValueError, match=r"encoder.reader needs an encoder of sequences, and this one is of triples"):
        encoder("lorentz", functools.partial(HyboNet, d=3))
    with pytest.raises(ValueError, match=r"encoder.reader .* is of pairs"):
        encoder("lorentz", functools.partial(PairAttention, reader=DAN))
