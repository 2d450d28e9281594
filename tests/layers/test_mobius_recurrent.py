"""The GRU with the input first: a step on a line by hand, the order of operands in the plane, and the rest of a layer."""

import pytest
import torch

from hyperbolic.geometry import make_geometry
from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from tests.tolerances import tolerance

F64 = torch.float64


def layer(c=2.0, d_in=3, d_hidden=4, **options) -> mobius.GRU:
    module = mobius.GRU(PoincareBall(c), d_in, d_hidden, bias_std=0.3 / c**0.5, variant="hypera", **options).double()
    assert not torch.equal(module.bias, module.bias_hh)
    return module


def test_steps_on_a_line_by_hand():
    """There Möbius sums add log_0 = artanh(sqrt(c) x) / sqrt(c); c = 4, so artanh(2x) / 2."""
    net, flat = layer(c=4.0, d_in=1, d_hidden=1), lambda x: torch.atanh(2 * x) / 2
    x = torch.tensor([[[0.2], [-0.3]]], dtype=F64)
    (ur, uz, un), (wr, wz, wn) = net.weight_ih.flatten(), net.weight_hh.flatten()
    (br, bz, bn), (vr, vz, vn) = flat(net.bias.flatten()), flat(net.bias_hh.flatten())
    h, states = torch.zeros((), dtype=F64), []
    for u in flat(x).flatten():
        r, z = torch.sigmoid(ur * u + br + wr * h + vr), torch.sigmoid(uz * u + bz + wz * h + vz)
        h = h + z * (r * (wn * h + vn) + un * u + bn - h)
        states.append(torch.tanh(2 * h) / 2)
    torch.testing.assert_close(net(x)[0].flatten(), torch.stack(states))


def add(x, y, c):
    """Ganea et al. 2018, Eq. 4."""
    xx, yy, xy = x @ x, y @ y, x @ y
    return ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy)


def at(u, c):
    return torch.tanh(c**0.5 * u.norm()) / (c**0.5 * u.norm()) * u


def back(x, c):
    return torch.atanh(c**0.5 * x.norm()) / (c**0.5 * x.norm()) * x


@pytest.mark.parametrize("c", [0.5, 3.0])
def test_a_step_in_the_plane_has_the_stated_order(c):
    net = layer(c, 2, 2, nonlinearity="tanh")
    x = net.manifold.random(1, 2, 2, std=0.4, dtype=F64)
    h = net(x)[0][0, 0]
    u = [add(at(net.weight_ih[0, g] @ back(x[0, 1], c), c), net.bias[0, g], c) for g in range(3)]
    w = [add(at(net.weight_hh[0, g] @ back(h, c), c), net.bias_hh[0, g], c) for g in range(3)]
    r, z = (torch.sigmoid(back(add(u[g], w[g], c), c)) for g in (0, 1))
    new = add(at(r * back(w[2], c), c), u[2], c)
    new = at(torch.tanh(back(new, c)), c)
    expected = add(h, at(z * back(add(-h, new, c), c), c), c)
    torch.testing.assert_close(net(x)[0][0, 1], expected)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_and_directions(bidirectional):
    net, lengths = layer(streams=2, bidirectional=bidirectional), torch.tensor([[5, 1, 3], [2, 5, 4]])
    real = torch.arange(5) < lengths.unsqueeze(-1)
    x = net.manifold.random(2, 3, 5, 3, std=0.3, dtype=F64)
    other = torch.where(real.unsqueeze(-1), x, net.manifold.random(2, 3, 5, 3, std=1.0, dtype=F64)).requires_grad_()
    states, last = net(other, lengths)
    assert states.shape == (2, 3, 5, net.d_out)
    assert net.manifold.check_point_on_manifold(states.detach(), atol=1e-9)
    assert torch.equal(last, net(x, lengths)[1])
    (grad,) = torch.autograd.grad(last.square().sum(), other, retain_graph=True)
    assert not grad[~real].any()
    last.square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad.any(), key
    for row, length in enumerate(lengths[0]):
        alone = net(torch.stack([x[0, row : row + 1, :length]] * 2))
        torch.testing.assert_close(states[0, row, :length], alone[0][0, 0])
        torch.testing.assert_close(last[0, row], alone[1][0, 0])


def test_in_the_flat_limit_it_is_the_gru_of_pytorch():
    net, peer = layer(1e-10, nonlinearity="tanh"), torch.nn.GRU(3, 4, batch_first=True, dtype=F64)
    with torch.no_grad():
        for name, ours in (("ih", net.weight_ih[0]), ("hh", net.weight_hh[0])):
            r, z, n = ours
            getattr(peer, f"weight_{name}_l0").copy_(torch.cat([r, -z, n]))  # its z keeps the old state
        for name, ours in (("ih", net.bias), ("hh", net.bias_hh)):
            ours.mul_(1e-5)
            r, z, n = ours[0]
            getattr(peer, f"bias_{name}_l0").copy_(torch.cat([r, -z, n]))
    x = torch.randn(2, 5, 3, dtype=F64)
    torch.testing.assert_close(net(x)[0], peer(x)[0], **tolerance(F64, "limit"))


@pytest.mark.long
def test_one_compilation_serves_every_size():
    cell = mobius.GRUCell(PoincareBall(2.0), 3, 4)
    compiled = torch.compile(cell, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (5, 7):
        x, h = cell.manifold.random(n, 3), cell.manifold.random(n, 4)
        torch.testing.assert_close(compiled(x, h), cell(x, h))


def test_it_is_chosen_by_an_option_of_the_geometry():
    g = make_geometry("poincare", "PoincareBall", "mobius", c=1.0, options={"GRU": {"variant": "hypera"}})
    assert g.gru(3, 4).variant == "hypera"
    with pytest.raises(ValueError, match=r"mobius.GRU.variant: unknown value 'torch'; available: paper, hypera"):
        mobius.GRU(PoincareBall(1.0), 3, 4, variant="torch")
    plain = dict(mobius.GRU(PoincareBall(1.0), 3, 4).named_parameters())
    assert set(plain) == {"weight_ih", "weight_hh", "bias"}


def test_the_margin_of_an_rnn_is_an_option_of_the_geometry():
    options = {"RNN": {"margin": 1e-2}}
    near, usual = (make_geometry("poincare", "PoincareBall", "mobius", c=1.0, options=o).rnn(3, 4) for o in (options, {}))
    with torch.no_grad():
        usual.weight_ih.mul_(50)
    near.load_state_dict(usual.state_dict())
    x = PoincareBall(1.0).random(2, 5, 3)
    longest, unclipped = (net(x)[0].norm(dim=-1).max().item() for net in (near, usual))
    assert longest == pytest.approx(0.99, abs=1e-6)
    assert unclipped > 0.999
    with pytest.raises(ValueError, match=r"mobius.RNN: margin must be 0 or more and at most 0.05, got 0.1"):
        mobius.RNN(PoincareBall(1.0), 3, 4, margin=0.1)
