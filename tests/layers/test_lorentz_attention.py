"""HyboNet's multi-head attention: heads by hand, masks, causality, decoding step by step."""

import itertools

import pytest
import torch

from hyperbolic.layers import lorentz
from hyperbolic.layers.multihead import AttentionCache
from hyperbolic.manifolds import Lorentz
from tests.tolerances import tolerance

F64 = torch.float64
CLOSE = tolerance(F64, "identity")


def layer(c: float = 2.5, d: int = 6, n_heads: int = 3, **options) -> lorentz.MultiHeadAttention:
    module = lorentz.MultiHeadAttention(Lorentz(c), d, n_heads, **options).double()
    with torch.no_grad():
        for linear in (module.query, module.key, module.value):
            linear.weight.normal_(std=0.5)
    return module


def points(c: float, *size: int) -> torch.Tensor:
    return Lorentz(c).random(*size, std=0.7, dtype=F64)


@pytest.mark.parametrize("c", [0.3, 1.0, 2.5])
def test_heads_by_hand(c):
    """Each head a Lorentz linear layer of its own, Eq. 5 with the manifold's centroid, space parts side by side."""
    attention, x, memory = layer(c), points(c, 2, 4, 6), points(c, 2, 5, 6)
    space, results = attention.manifold, attention(x, memory, return_weights=True)
    joined = []
    for head in range(3):
        parts = []
        for source, linear in ((x, attention.query), (memory, attention.key), (memory, attention.value)):
            single = lorentz.Linear(space, 6, 2).double()
            with torch.no_grad():
                single.weight.copy_(linear.weight.unflatten(0, (3, 3))[head])
                single.log_scale.copy_(linear.log_scale)
            parts.append(single(source))
        q, k, v = parts
        square = -2 / c - 2 * (q[..., 1:] @ k[..., 1:].mT - q[..., :1] @ k[..., :1].mT)
        weights = torch.softmax(-square / attention.temperature, -1)
        torch.testing.assert_close(results[1][:, head], weights, **CLOSE)
        joined.append(space.centroid(v.unsqueeze(1).expand(2, 4, 5, 3), weights)[..., 1:])
    expected = torch.cat(joined, -1)
    torch.testing.assert_close(results[0][..., 1:], expected, **CLOSE)
    time = (1 / c + expected.square().sum(-1)).sqrt()
    torch.testing.assert_close(results[0][..., 0], time, **CLOSE)


@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("length", [7, 70])
def test_cached_decoding_equals_full_decoding(n_heads, length):
    attention, memory = layer(n_heads=n_heads), points(2.5, 2, 4, 6)
    x = points(2.5, 2, length, 6)
    own, cross = AttentionCache(), AttentionCache(static=True)
    steps = [0, *range(length - 5, length + 1)]
    pieces, crossed = [], []
    for start, stop in itertools.pairwise(steps):
        pieces.append(attention(x[:, start:stop], causal=True, cache=own))
        crossed.append(attention(x[:, start:stop], memory, cache=cross))
    torch.testing.assert_close(torch.cat(pieces, 1), attention(x, causal=True), **CLOSE)
    torch.testing.assert_close(torch.cat(crossed, 1), attention(x, memory), **CLOSE)


@pytest.mark.parametrize("length", [6, 70])
def test_masks_and_causality(length):
    attention, x = layer(), points(2.5, 2, length, 6)
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, 4:] = False
    out, weights = attention(x, mask=mask, return_weights=True)
    torch.testing.assert_close(out[:1, :4], attention(x[:1, :4]), **CLOSE)
    torch.testing.assert_close(out[1:], attention(x[1:]), **CLOSE)
    assert not weights[0, ..., 4:].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    causal = attention(x, causal=True)
    for stop in (1, 3, length):
        torch.testing.assert_close(causal[:, :stop], attention(x[:, :stop], causal=True), **CLOSE)
    both = attention(x, mask=mask, causal=True)
    torch.testing.assert_close(both[:, :4], causal[:, :4], **CLOSE)
    triangle = attention(x, causal=True, return_weights=True)[1]
    assert not triangle.triu(1).any()


def test_padding_gets_no_gradient():
    attention, x = layer(), points(2.5, 2, 5, 6).requires_grad_()
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    out = attention(x, mask=mask)
    (grad,) = torch.autograd.grad(out[0, :2].sum() + out[1].sum(), x)
    assert not grad[0, 2:].any()
    assert torch.isfinite(grad).all()


def test_temperatures_and_dropout():
    for name, value in (("learned", 12**0.5), ("model", 12**0.5), ("head", 2.0)):
        attention = lorentz.MultiHeadAttention(Lorentz(1.0), 12, 3, temperature=name)
        assert attention.temperature.item() == pytest.approx(value)
        assert ("log_temperature" in dict(attention.named_parameters())) == (name == "learned")
    attention, x = layer(), points(2.5, 2, 5, 6)
    (grad,) = torch.autograd.grad(attention(x).sum(), attention.log_temperature)
    assert grad != 0
    with torch.no_grad():
        attention.log_temperature.fill_(-3.0)  # no step of an optimiser takes it to 0 or below
    assert attention.temperature.item() == pytest.approx(0.0497871, rel=1e-5)
    assert torch.isfinite(attention(x)).all()
    for options in ({"dropout": 0.5}, {"input_dropout": 0.5}):
        attention = layer(**options)
        first = attention(x)
        assert attention.manifold.check_point_on_manifold(first, atol=1e-8)
        assert not torch.equal(first, attention(x))
        attention.eval()
        torch.testing.assert_close(attention(x), attention(x))


def test_one_head_and_batches_of_one():
    attention = layer(n_heads=1)
    assert attention(points(2.5, 1, 1, 6)).shape == (1, 1, 7)
    assert attention(points(2.5, 0, 4, 6)).shape == (0, 4, 7)
    assert layer()(points(2.5, 0, 4, 6)).shape == (0, 4, 7)


def test_positions_of_the_distance_attention():
    """``r_i`` is a Lorentz linear layer with the position's vector as its bias; values are the inputs."""
    space = Lorentz(2.5)
    attention = lorentz.Attention(space, 3, n_positions=4).double()
    with torch.no_grad():
        attention.beta.fill_(0.7)
        attention.positions.weight.normal_()
    x, positions = points(2.5, 2, 4, 3), torch.tensor([[3, 1, 0, 2], [0, 0, 2, 3]])
    moved = attention.add.affine.join(x, attention.positions.weight[positions])
    scores = torch.softmax(-0.7 * space.dist(attention.query(moved), attention.key(moved)), -1)
    result, weights = attention(x, positions)
    torch.testing.assert_close(weights, scores)
    torch.testing.assert_close(result, space.centroid(x, weights))
    plain = lorentz.Attention(space, 3).double()
    assert plain(x)[1].shape == (2, 4)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="7 cannot be divided among 2 heads"):
        lorentz.MultiHeadAttention(Lorentz(1.0), 7, 2)
    with pytest.raises(ValueError, match="temperature: unknown value .*; available: learned, head, model"):
        lorentz.MultiHeadAttention(Lorentz(1.0), 6, 2, temperature="none")
    attention, x = layer(), points(2.5, 2, 4, 6)
    with pytest.raises(ValueError, match="hides every position"):
        attention(x, mask=torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask must have the shape"):
        attention(x, mask=torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="empty sequence"):
        attention(x, x[:, :0])
    with pytest.raises(ValueError, match=r"MultiHeadAttention.*7 coordinates"):
        attention(x[..., :5])


def test_many_keys_have_a_forward_mode_derivative():
    layer = lorentz.MultiHeadAttention(Lorentz(0.7), 4, 2).double()
    x = layer.manifold.random(1, 70, 4, dtype=torch.float64).detach()
    direction = torch.randn_like(x)
    _, along = torch.func.jvp(layer, (x,), (direction,))
    free = x.clone().requires_grad_()
    weights = torch.randn_like(along)
    (grad,) = torch.autograd.grad(layer(free), free, weights)
    torch.testing.assert_close((along * weights).sum(), (grad * direction).sum())
