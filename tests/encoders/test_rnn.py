"""The recurrent encoder: a layer of the geometry, with the encoder's interface."""

import copy

import pytest
import torch

from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import FAMILIES, GEOMETRIES, make_geometry


def geometry(name: str, c: float = 2.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if name == "euclidean" else c)


def encoder(name: str, cell: str, bidirectional: bool = False, streams: int = 1, nonlinearity=None, d_in=3, d_hidden=4):
    return RecurrentEncoder(
        geometry(name),
        d_in,
        d_hidden,
        cell=cell,
        nonlinearity=nonlinearity,
        bidirectional=bidirectional,
        streams=streams,
    ).double()


GEOMETRY = pytest.mark.parametrize("name", GEOMETRIES)
CELL = pytest.mark.parametrize("cell", ["rnn", "gru"])


@GEOMETRY
@CELL
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("streams", [1, 2])
def test_shapes_points_and_the_layer_behind(name, cell, bidirectional, streams):
    net = encoder(name, cell, bidirectional, streams)
    manifold = net.layer.manifold
    assert isinstance(net.layer, FAMILIES[GEOMETRIES[name][1]].layers[cell.upper()])
    assert net.d_out == (8 if bidirectional else 4)
    lead = (2, 3) if streams == 2 else (3,)
    x = manifold.random(*lead, 5, 3, std=0.3, dtype=torch.float64)
    lengths = torch.tensor([5, 1, 3]).expand(lead)
    states, last = net(x, lengths)
    assert states.shape == (*lead, 5, manifold.ambient_dim(net.d_out))
    assert last.shape == (*lead, manifold.ambient_dim(net.d_out))
    for points in (states, last):
        assert manifold.check_point_on_manifold(points.detach(), atol=1e-9)
    for inputs, expected in zip(net.layer(x, lengths), (states, last), strict=True):
        assert torch.equal(inputs, expected)
    whole, whole_last = net(x)
    assert torch.equal(whole, net(x, torch.full(lead, 5))[0])
    assert torch.equal(whole_last[..., 0, :], last[..., 0, :])


@GEOMETRY
@CELL
def test_last_is_the_state_at_the_true_end(name, cell):
    net = encoder(name, cell)
    x, lengths = net.layer.manifold.random(3, 5, 3, std=0.3, dtype=torch.float64), torch.tensor([5, 1, 3])
    states, last = net(x, lengths)
    for i, length in enumerate(lengths):
        torch.testing.assert_close(last[i], states[i, length - 1], rtol=1e-12, atol=1e-14)


@GEOMETRY
@CELL
@pytest.mark.parametrize("bidirectional", [False, True])
def test_streams_are_separate_encoders(name, cell, bidirectional):
    """Two sentences side by side: each with its own cell, as two calls of two encoders would give."""
    both = encoder(name, cell, bidirectional, streams=2)
    inner = getattr(both.layer, "inner", both.layer)
    x = both.layer.manifold.random(2, 3, 5, 3, std=0.3, dtype=torch.float64)
    lengths = torch.tensor([[5, 1, 3], [2, 5, 4]])
    states, last = both(x, lengths)
    for s in range(2):
        one = encoder(name, cell, bidirectional)
        target = getattr(one.layer, "inner", one.layer)
        with torch.no_grad():
            for key in ("weight_ih", "weight_hh", "bias"):
                getattr(target, key).copy_(getattr(inner, key)[s::2])  # cells: forward of all streams, then backward
            if bidirectional:
                target.join[0].load_state_dict(copy.deepcopy(inner.join[s].state_dict()))
        for inputs, expected in zip(one(x[s], lengths[s]), (states[s], last[s]), strict=True):
            torch.testing.assert_close(inputs, expected, rtol=1e-10, atol=1e-12)


@CELL
@pytest.mark.parametrize(
    ("name", "default"), [("euclidean", "tanh"), ("poincare", "identity"), ("klein_tangent", "tanh")]
)
def test_the_nonlinearity_left_out_is_the_familys_own(name, default, cell):
    net, named = encoder(name, cell), encoder(name, cell, nonlinearity=default)
    other = encoder(name, cell, nonlinearity="relu")
    for twin in (named, other):
        twin.load_state_dict(net.state_dict())
    x = net.layer.manifold.random(3, 5, 3, std=0.3, dtype=torch.float64)
    assert torch.equal(net(x)[0], named(x)[0])
    assert not torch.allclose(net(x)[0], other(x)[0])


@GEOMETRY
def test_every_parameter_gets_a_gradient(name):
    net = encoder(name, "gru", bidirectional=True, streams=2)
    x = net.layer.manifold.random(2, 3, 5, 3, std=0.3, dtype=torch.float64)
    net(x, torch.tensor([[5, 1, 3], [2, 5, 4]]))[1].square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad is not None, key
        assert p.grad.any(), key


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"encoder.cell: unknown value 'lstm'; available: rnn, gru"):
        encoder("poincare", "lstm")
    with pytest.raises(ValueError, match="unknown nonlinearity 'swish'"):
        encoder("poincare", "gru", nonlinearity="swish")
    with pytest.raises(ValueError, match="2 streams"):
        encoder("poincare", "gru", streams=2)(torch.zeros(3, 4, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="1..4"):
        encoder("poincare", "rnn")(torch.zeros(2, 4, 3, dtype=torch.float64), torch.tensor([0, 4]))
