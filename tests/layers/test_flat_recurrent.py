"""Euclidean recurrences over whole sequences: the written-out steps, torch's RNN, lengths, gradients."""

import pytest
import torch
from torch import nn

from hyperbolic.layers.flat_recurrent import euclidean_gru, euclidean_rnn
from tests.tolerances import tolerance

F64 = torch.float64
IDENTITY = tolerance(F64, "identity")
LENGTHS = torch.tensor([[5, 1, 3], [2, 5, 4]])


def weights(gates: int, d: int = 2, hidden: int = 4):
    sizes = ((2, gates, hidden, d), (2, gates, hidden, hidden), (2, gates, hidden))
    return [torch.randn(size, dtype=F64, requires_grad=True) for size in sizes]


def written_out(x, lengths, w, u, b, gru: bool):
    states = torch.zeros(*x.shape[:-1], u.shape[-1], dtype=F64)
    for s in range(x.shape[0]):
        for i in range(x.shape[1]):
            h = torch.zeros(u.shape[-1], dtype=F64)
            for t in range(x.shape[2]):
                if t < lengths[s, i]:
                    side = [w[s, g] @ x[s, i, t] + b[s, g] for g in range(w.shape[1])]
                    if gru:
                        r, z = torch.sigmoid(u[s, 0] @ h + side[0]), torch.sigmoid(u[s, 1] @ h + side[1])
                        h = (1 - z) * h + z * torch.tanh(u[s, 2] @ (r * h) + side[2])
                    else:
                        h = torch.tanh(u[s, 0] @ h + side[0])
                states[s, i, t] = h
    return states


@pytest.mark.parametrize("gru", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_states_and_gradients_are_those_of_the_steps(gru, masked):
    x = torch.randn(2, 3, 5, 2, dtype=F64, requires_grad=True)
    parameters = weights(3 if gru else 1)
    kernel = euclidean_gru if gru else euclidean_rnn
    states = kernel(x, LENGTHS if masked else None, *parameters)
    expected = written_out(x, LENGTHS if masked else torch.full((2, 3), 5), *parameters, gru)
    torch.testing.assert_close(states, expected, **IDENTITY)
    weight = torch.randn_like(states)
    ours = torch.autograd.grad((weight * states).sum(), [x, *parameters])
    theirs = torch.autograd.grad((weight * expected).sum(), [x, *parameters])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **IDENTITY)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_the_rnn_is_torchs(nonlinearity):
    w, u, b = weights(1)
    x = torch.randn(2, 3, 5, 2, dtype=F64)
    states = euclidean_rnn(x, None, w, u, b, nonlinearity)
    for s in range(2):
        peer = nn.RNN(2, 4, nonlinearity=nonlinearity, batch_first=True).double()
        with torch.no_grad():
            peer.weight_ih_l0.copy_(w[s, 0])
            peer.weight_hh_l0.copy_(u[s, 0])
            peer.bias_ih_l0.copy_(b[s, 0])
            peer.bias_hh_l0.zero_()
        torch.testing.assert_close(states[s], peer(x[s])[0], **IDENTITY)


@pytest.mark.parametrize("kernel", [euclidean_rnn, euclidean_gru])
def test_an_empty_batch(kernel):
    parameters = weights(3 if kernel is euclidean_gru else 1)
    assert kernel(torch.zeros(2, 0, 5, 2, dtype=F64), LENGTHS[:, :0], *parameters).shape == (2, 0, 5, 4)
