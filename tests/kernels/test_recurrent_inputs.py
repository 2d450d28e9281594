"""The hoisted input side against ``exp_0(U log_0(x))`` written with the ball's functions."""

import pytest
import torch

from hyperbolic.kernels.recurrent import mobius_gru, mobius_rnn
from hyperbolic.kernels.recurrent.plain import input_side
from hyperbolic.layers.sequence import reverse_sequences
from hyperbolic.manifolds.poincare import expmap0, logmap0

F64 = torch.float64


def plain(x, weight, c):
    """Points (T, S, G, H, B) and their gaps."""
    if len(weight) > len(x):
        x = torch.cat([x, x.flip(2)])
    u = expmap0(torch.einsum("sghd,sbtd->tsgbh", weight, logmap0(x, c)), c) * c.sqrt()
    return u.transpose(-1, -2), 1 - u.square().sum(-1).unsqueeze(-2)


def arguments(streams=2, cells=2, batch=3, steps=4, size=5, c=1.7):
    x = 0.15 * torch.randn(streams, batch, steps, size, dtype=F64)
    weight = torch.randn(cells, 3, 4, size, dtype=F64)
    return [t.requires_grad_() for t in (x, weight, torch.tensor(c, dtype=F64))]


def assert_same(inputs, reference):
    results, expected = input_side(*inputs), plain(*reference)
    cotangents = [torch.randn_like(t) for t in results]
    for a, b in zip(results, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    actual = torch.autograd.grad(results, inputs, cotangents)
    expected_grads = torch.autograd.grad(expected, reference, cotangents)
    for a, b in zip(actual, expected_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cells", [2, 4])
@pytest.mark.parametrize("c", [0.1, 1.7])
@pytest.mark.parametrize(("batch", "steps"), [(3, 4), (1, 1), (0, 2)])
def test_equals_the_plain_version(cells, c, batch, steps):
    inputs = arguments(cells=cells, c=c, batch=batch, steps=steps)
    assert_same(inputs, inputs)


def test_inputs_in_another_layout():
    x, weight, c = arguments(streams=1)
    other = x.detach().transpose(1, 3).contiguous().transpose(1, 3).requires_grad_()
    assert not other.is_contiguous()
    assert_same([other, weight, c], [other, weight, c])


@pytest.mark.usefixtures("each_path")
@pytest.mark.parametrize(("kernel", "gates"), [(mobius_rnn, 1), (mobius_gru, 3)])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_twice_the_cells_run_in_both_directions(kernel, gates, with_lengths):
    """The same states as those of the reversed sequences, in order of position, padding included."""
    x = 0.15 * torch.randn(2, 3, 5, 3, dtype=F64)
    lengths = torch.tensor([[5, 1, 3], [2, 5, 4]]) if with_lengths else None
    weights = [torch.randn(4, gates, 4, d, dtype=F64) for d in (3, 4)]
    bias, c = 0.1 * torch.randn(4, gates, 4, dtype=F64), torch.tensor(1.3, dtype=F64)
    both = kernel(x, lengths, *weights, bias, c)
    ahead = kernel(x, lengths, *(w[:2] for w in weights), bias[:2], c)
    back = kernel(reverse_sequences(x, lengths), lengths, *(w[2:] for w in weights), bias[2:], c)
    real = torch.ones(2, 3, 5, dtype=torch.bool)
    if with_lengths:
        real = torch.arange(5) < lengths.unsqueeze(-1)
    torch.testing.assert_close(both[:2], ahead, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(both[2:][real], reverse_sequences(back, lengths)[real], rtol=1e-12, atol=1e-14)
    assert torch.equal(both[2:][~real], both[2:, :, :1].expand(-1, -1, 5, -1)[~real])
