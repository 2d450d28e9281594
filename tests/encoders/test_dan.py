"""Deep averaging: the mean in the geometry's own sum, in which the order of the words may count."""

import pytest
import torch

from hyperbolic.encoders.dan import DeepAveragingEncoder
from hyperbolic.geometry import GEOMETRIES, make_geometry

F64 = torch.float64
GYRO = ("poincare", "poincare_pp", "lorentz", "klein")
GEOMETRY = pytest.mark.parametrize("name", GEOMETRIES)
LENGTHS = torch.tensor([5, 1, 3])


def encoder(name: str, linear: bool = False, streams: int = 1, d_in: int = 3, d_hidden: int = 3, c: float = 2.0):
    manifold, layers = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)
    net = DeepAveragingEncoder(geometry, d_in, d_hidden, linear=linear, streams=streams).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.3 * torch.randn_like(p))
    return net


def test_a_step_by_hand():
    """On a line, Möbius sums add artanh; elsewhere Ganea et al. 2018, Eq. 4."""
    net = encoder("poincare", c=4.0)
    x = torch.tensor([[[0.1, 0.0, 0.0], [0.2, 0.0, 0.0], [-0.05, 0.0, 0.0]]], dtype=F64)
    along = torch.atanh(2 * x[0, :, 0])
    expected = [torch.tanh(along.sum() / 3) / 2, torch.tanh(along[:2].sum() / 2) / 2]
    for length, value in zip((3, 2), expected, strict=True):
        mean = net(x, torch.tensor([length]))[1][0]
        torch.testing.assert_close(mean, torch.tensor([value, 0, 0], dtype=F64))
    x, y = torch.tensor([0.1, 0.2, 0.0], dtype=F64), torch.tensor([0.3, -0.1, 0.2], dtype=F64)
    xx, yy, xy = 4 * x @ x, 4 * y @ y, 4 * x @ y
    total = ((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy)
    norm = total.norm()
    half = torch.tanh(torch.atanh(2 * norm) / 2) / 2 * total / norm
    torch.testing.assert_close(net(torch.stack([x, y])[None])[1][0], half)


@GEOMETRY
def test_the_order_of_words_counts_in_gyrovector_families_alone(name):
    net = encoder(name)
    x = net.manifold.random(4, 6, 3, std=0.5, dtype=F64)
    moved = net.manifold.dist(net(x)[1], net(x.flip(1))[1])
    if name in GYRO:
        assert (moved > 1e-3).all()
    else:
        assert (moved < 1e-9).all()


def test_in_flat_space_it_is_the_mean():
    net, flat = encoder("euclidean", linear=True, d_hidden=4), torch.randn(3, 5, 3, dtype=F64)
    means = torch.stack([flat[i, :length].mean(0) for i, length in enumerate(LENGTHS)])
    torch.testing.assert_close(net(flat, LENGTHS)[1], net.linear[0](means))


@GEOMETRY
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("streams", [1, 2])
def test_shapes_points_and_padding(name, linear, streams):
    net = encoder(name, linear, streams, d_hidden=4 if linear else 3)
    manifold, lead = net.manifold, (2, 3) if streams == 2 else (3,)
    x, lengths = manifold.random(*lead, 5, 3, std=0.3, dtype=F64), LENGTHS.expand(lead)
    states, last = net(x, lengths)
    assert net.d_out == (4 if linear else 3)
    assert states.shape == (*lead, 5, manifold.ambient_dim(net.d_out))
    assert last.shape == (*lead, manifold.ambient_dim(net.d_out))
    for points in (states, last):
        assert manifold.check_point_on_manifold(points.detach(), atol=1e-9)
    if not linear:
        assert torch.equal(states, x)
    real = torch.arange(5) < lengths.unsqueeze(-1)
    other = torch.where(real.unsqueeze(-1), x, manifold.random(*lead, 5, 3, std=1.0, dtype=F64))
    assert torch.equal(net(other, lengths)[1], last)
    torch.testing.assert_close(net(x)[1], net(x, torch.full(lead, 5))[1], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(net(x[..., 2:, :3, :], lengths[..., 2:])[1], last[..., 2:, :], rtol=1e-9, atol=1e-12)
    word = net(x[..., 1:2, :1, :])
    torch.testing.assert_close(word[0].squeeze(-2), word[1], rtol=1e-9, atol=1e-12)  # one word: it is the mean


@pytest.mark.parametrize("name", ["euclidean", "poincare"])
def test_streams_have_a_linear_layer_each(name):
    net = encoder(name, linear=True, streams=2)
    x = net.manifold.random(1, 3, 5, 3, std=0.3, dtype=F64).expand(2, -1, -1, -1)
    for results in net(x, LENGTHS.expand(2, 3)):
        assert not torch.allclose(results[0], results[1])
    net(x, LENGTHS.expand(2, 3))[1].square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad.any(), key


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"encoder.linear=false .* 3 and 4; make them equal or take encoder.linear=true"):
        encoder("poincare", d_hidden=4)
    net = encoder("poincare", streams=2)
    with pytest.raises(ValueError, match="2 streams"):
        net(torch.zeros(3, 5, 3, dtype=F64))
    with pytest.raises(ValueError, match="N > 0"):
        net(torch.zeros(2, 3, 0, 3, dtype=F64))
    with pytest.raises(ValueError, match=r"lie in 1..5, got 0..3"):
        net(torch.zeros(2, 1, 5, 3, dtype=F64), torch.tensor([[0], [3]]))
