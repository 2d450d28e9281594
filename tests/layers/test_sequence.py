"""What the recurrent layers share: reversing, padding, directions and the errors about lengths."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import euclidean, lorentz
from hyperbolic.layers.sequence import check_lengths, reverse_sequences
from hyperbolic.manifolds import Euclidean, Lorentz

F64 = torch.float64


def geometry(name: str, c: float = 2.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if name == "euclidean" else c)


def test_reversing_leaves_padding_at_the_end():
    x = torch.arange(12.0).view(1, 2, 6, 1)
    lengths = torch.tensor([[4, 1]])
    expected = torch.tensor([[3.0, 2, 1, 0, 4, 5], [6, 7, 8, 9, 10, 11]])
    assert torch.equal(reverse_sequences(x, lengths).view(2, 6), expected)
    assert torch.equal(reverse_sequences(reverse_sequences(x, lengths), lengths), x)
    assert torch.equal(reverse_sequences(x, None), x.flip(2))
    assert torch.equal(reverse_sequences(x, torch.full((1, 2), 6)), x.flip(2))


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("cell", ["rnn", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_what_stands_in_the_padding_reaches_nothing(name, cell, bidirectional):
    g = geometry(name)
    layer = getattr(g, cell)(3, 4, bidirectional=bidirectional, streams=2).double()
    lengths = torch.tensor([[2, 5, 3], [5, 1, 4]])
    real = torch.arange(5) < lengths.unsqueeze(-1)
    x = g.manifold.random(2, 3, 5, 3, std=0.3, dtype=F64)
    other = torch.where(real.unsqueeze(-1), x, g.manifold.random(2, 3, 5, 3, std=1.0, dtype=F64)).requires_grad_()
    states, last = layer(x, lengths)
    same_states, same_last = layer(other, lengths)
    assert torch.equal(last, same_last)
    assert torch.equal(states[real], same_states[real])
    (grad,) = torch.autograd.grad(same_last.square().sum() + same_states[real].square().sum(), other)
    assert not grad[~real].any()
    assert grad[real].any(-1).all()


@pytest.mark.parametrize("name", GEOMETRIES)
def test_directions_of_a_bidirectional_layer(name):
    """The last state joins the forward one at the end with the backward one at position 0."""
    g = geometry(name)
    layer = g.gru(3, 4, bidirectional=True).double()
    x, lengths = g.manifold.random(3, 5, 3, std=0.3, dtype=F64), torch.tensor([5, 2, 1])
    states, last = layer(x, lengths)
    inner, to = getattr(layer, "inner", layer), g.manifold
    half = [g.gru(3, 4).double() for _ in range(2)]

    def join(f, b):
        if inner is layer:
            return layer.join[0](f, b)
        if name == "klein":
            return layer.to_disk(inner.join[0](layer.to_ball(f), layer.to_ball(b)))
        return to.expmap0(inner.join[0](to.logmap0(f), to.logmap0(b)))

    for number, one in enumerate(half):
        target = getattr(one, "inner", one)
        with torch.no_grad():
            for key in ("weight_ih", "weight_hh", "bias"):
                getattr(target, key).copy_(getattr(inner, key)[number : number + 1])
    for i, length in enumerate(lengths):
        ahead, ahead_last = half[0](x[i : i + 1, :length])
        back, back_last = half[1](x[i : i + 1, :length].flip(1))
        torch.testing.assert_close(states[i, :length], join(ahead, back.flip(1))[0], rtol=1e-8, atol=1e-11)
        torch.testing.assert_close(last[i], join(ahead_last, back_last)[0], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_directions_side_by_side(name, cell):
    """join="plain" has no parameters: log_0 of a state is that of both directions, one after the other."""
    g = geometry(name)
    layer = getattr(g, cell)(3, 4, bidirectional=True, streams=2, join="plain").double()
    assert not any("join" in key for key, _ in layer.named_parameters())
    x, lengths = g.manifold.random(2, 3, 5, 3, std=0.3, dtype=F64), torch.tensor([[5, 2, 1], [3, 5, 4]])
    states, last = layer(x, lengths)
    inner, log0 = getattr(layer, "inner", layer), g.manifold.logmap0
    half = [getattr(g, cell)(3, 4, streams=2).double() for _ in range(2)]
    for number, one in enumerate(half):
        with torch.no_grad():
            for key in ("weight_ih", "weight_hh", "bias"):
                getattr(getattr(one, "inner", one), key).copy_(getattr(inner, key)[2 * number : 2 * number + 2])
    for stream in range(2):
        for i, length in enumerate(lengths[stream]):
            sequence = x[:, i : i + 1, :length]
            ahead, back = half[0](sequence)[0][stream, 0], half[1](sequence.flip(2))[0][stream, 0].flip(0)
            expected = torch.cat([log0(ahead), log0(back)], -1)
            torch.testing.assert_close(log0(states[stream, i, :length]), expected, rtol=1e-8, atol=1e-11)
            ends = torch.cat([log0(ahead[-1]), log0(back[0])], -1)
            torch.testing.assert_close(log0(last[stream, i]), ends, rtol=1e-8, atol=1e-11)
    with pytest.raises(ValueError, match="join: unknown value 'sum'; available: linear, plain"):
        getattr(g, cell)(3, 4, bidirectional=True, join="sum")


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("cell", ["rnn", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_empty_sequences_are_named_and_empty_batches_are_not_mistakes(name, cell, bidirectional):
    g = geometry(name)
    layer = getattr(g, cell)(2, 3, bidirectional=bidirectional)
    empty = g.manifold.origin(4, 0, 2)
    for lengths in (None, torch.zeros(4, dtype=torch.long)):
        with pytest.raises(ValueError, match=rf"\w+\.{cell.upper()}: .* T > 0, got the shape \(4, 0, [23]\)"):
            layer(empty, lengths)
    d = g.manifold.ambient_dim(layer.d_out)
    for lengths in (None, torch.zeros(0, dtype=torch.long)):
        states, last = layer(g.manifold.origin(0, 5, 2), lengths)
        assert states.shape == (0, 5, d)
        assert last.shape == (0, d)
    with pytest.raises(ValueError, match=r"\w+\.\w+: .* T > 0, got the shape \(2, 4, 0, [23]\)"):
        getattr(g, cell)(2, 3, bidirectional=bidirectional, streams=2)(g.manifold.origin(2, 4, 0, 2))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_mistakes_are_named(name):
    g = geometry(name)
    x = g.manifold.origin(3, 4, 2)
    layer = g.rnn(2, 2)
    for lengths, message in (
        (torch.tensor([1, 2]), r"shape \(3,\) of the batch, got \(2,\)"),
        (torch.tensor([[1, 2, 3]]), r"shape \(3,\) of the batch, got \(1, 3\)"),
        (torch.tensor([1, 0, 4]), r"lie in 1..4, got 0..4: drop empty sequences first"),
        (torch.tensor([1, 5, 4]), r"lie in 1..4, got 1..5"),
        (torch.tensor([-1, 2, 4]), r"lie in 1..4, got -1..4"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(x, lengths)
    with pytest.raises(ValueError, match="3 streams, got inputs of shape"):
        g.gru(2, 2, streams=3)(g.manifold.origin(2, 3, 4, 2))
    with pytest.raises(ValueError, match=r"\w+\.RNN: lengths must have"):
        layer(x, torch.tensor([1, 2]))
    for wrong in (torch.tensor([1.0, 2.5, 4]), torch.tensor([True, True, True])):
        with pytest.raises(ValueError, match=r"\w+\.RNN: lengths must be whole numbers \(int64\), got torch"):
            layer(x, wrong)
    with pytest.raises(ValueError, match=r"\w+\.RNN: lengths must be a tensor, got \[1, 2, 4\]"):
        layer(x, [1, 2, 4])
    with pytest.raises(TypeError, match=r"\w+\.RNN: takes a tensor, got PackedSequence: give padded points"):
        layer(torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2, 1]), batch_first=True))
    with pytest.raises(ValueError, match=r"\w+\.RNN: lengths must lie"):
        layer(x, torch.tensor([1, 5, 4]))
    with pytest.raises(ValueError, match=r"\w+\.RNN: takes sequences .*, got the shape"):
        layer(x[0])
    with pytest.raises(ValueError, match="unknown nonlinearity 'softsign'"):
        g.gru(2, 2, nonlinearity="softsign")
    with pytest.raises(ValueError, match="unknown nonlinearity 'softsign'"):
        g.activation("softsign")
    check_lengths(None, x)
    check_lengths(torch.zeros(0, dtype=torch.long), x[:0])


def test_gradients_go_back_through_a_reversal():
    x = torch.randn(2, 3, 5, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([[5, 1, 3], [2, 4, 5]])
    assert torch.autograd.gradcheck(lambda x: reverse_sequences(x, lengths), x)
    assert torch.autograd.gradgradcheck(lambda x: reverse_sequences(x, lengths).square(), x)


@pytest.mark.parametrize("layer", [euclidean.GRU, lorentz.GRU])
def test_both_directions_go_with_torch_func(layer):
    manifold = Euclidean() if layer is euclidean.GRU else Lorentz()
    gru = layer(manifold, 3, 4, bidirectional=True)
    x, lengths = manifold.random(2, 5, 3), torch.tensor([3, 5])
    (loss, grad) = torch.func.vjp(lambda x: gru(x, lengths)[1].square().sum(), x)
    own = x.clone().requires_grad_()
    gru(own, lengths)[1].square().sum().backward()
    torch.testing.assert_close(grad(torch.ones_like(loss))[0], own.grad)
