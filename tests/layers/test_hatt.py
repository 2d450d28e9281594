"""Hyperbolic attention (Gulcehre et al. 2019): the formulas by hand, its limits, and the Euclidean rest."""

import inspect
import math

import pytest
import torch

from hyperbolic.layers import euclidean, hatt
from hyperbolic.layers.multihead import AttentionCache
from hyperbolic.manifolds import Euclidean
from tests.layers.filled import filled

F64 = torch.float64
FLAT = Euclidean()
CLOSE = {"rtol": 1e-8, "atol": 1e-11}


def test_values_worked_by_hand():
    """One head of one coordinate, where the hyperboloid is a line: d(q, k) = |q - k|, queries and keys -1, 0 and 2.

    The midpoint of points at u_i on the line is at artanh(sum w_i sinh(u_i) / sum w_i cosh(u_i)).
    """
    layer = hatt.MultiHeadAttention(FLAT, 1, 1, coordinates="exp").double()
    with torch.no_grad():
        layer.free_tau.fill_(math.log(math.expm1(0.5)))
        for linear, weight in ((layer.query, 1.0), (layer.key, 1.0), (layer.value, 0.5)):
            linear.weight.fill_(weight)
            linear.bias.zero_()
    result, weights = layer(torch.tensor([[[-1.0], [0.0], [2.0]]], dtype=F64), return_weights=True)
    for i, q in enumerate((-1.0, 0.0, 2.0)):
        alpha = [math.exp(-0.5 * abs(q - k)) for k in (-1.0, 0.0, 2.0)]
        ours = weights[0, 0, i].tolist()
        assert ours == pytest.approx([a / sum(alpha) for a in alpha], rel=1e-7)
        sinh = sum(a * math.sinh(0.5 * u) for a, u in zip(alpha, (-1.0, 0.0, 2.0), strict=True))
        cosh = sum(a * math.cosh(0.5 * u) for a, u in zip(alpha, (-1.0, 0.0, 2.0), strict=True))
        assert result[0, i, 0].item() == pytest.approx(math.atanh(sinh / cosh), rel=1e-7)


def on_the_hyperboloid(u: torch.Tensor, c: float, polar: bool) -> torch.Tensor:
    """Unit hyperboloid: the time coordinate first, ``(cosh(r), sinh(r) e)``."""
    if polar:
        r, e = c**0.5 * u[..., -1:], u[..., :-1] / u[..., :-1].norm(dim=-1, keepdim=True)
    else:
        r = c**0.5 * u.norm(dim=-1, keepdim=True)
        e = c**0.5 * u / r
    return torch.cat([torch.cosh(r), torch.sinh(r) * e], -1)


def by_hand(layer, x, memory, c, allowed):
    """Loops over heads and queries; weights by acosh, the Einstein midpoint in Klein coordinates."""
    polar, heads = layer.coordinates == "polar", layer.n_heads

    def points(linear, z):
        flat = z @ linear.weight.T + linear.bias
        return [on_the_hyperboloid(u, c, polar) for u in flat.chunk(heads, -1)]

    out, weights = [], []
    q, k, v = points(layer.query, x), points(layer.key, memory), points(layer.value, memory)
    for i in range(heads):
        inner = (q[i][..., 1:] @ k[i][..., 1:].mT) - q[i][..., :1] * k[i][..., :1].mT
        score = -math.log1p(math.exp(layer.free_tau[i].item())) * torch.acosh(-inner) / c**0.5
        f = torch.exp(score) if layer.gamma is None else torch.sigmoid(score - layer.gamma[i])
        f = f * allowed
        weights.append(f / f.sum(-1, keepdim=True))
        klein, gamma = v[i][..., 1:] / v[i][..., :1], v[i][..., 0]  # the Lorentz factor is the time coordinate
        factor = f * gamma.unsqueeze(-2)
        midpoint = factor @ klein / factor.sum(-1, keepdim=True)
        length = midpoint.norm(dim=-1, keepdim=True)
        out.append(torch.atanh(length) / length * midpoint / c**0.5)
    return torch.cat(out, -1), torch.stack(weights, 1)


@pytest.mark.parametrize("c", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("coordinates", ["polar", "exp"])
@pytest.mark.parametrize("gate", ["softmax", "sigmoid"])
def test_attention_is_its_formula(c, coordinates, gate):
    layer = filled(hatt.MultiHeadAttention(FLAT, 6, 2, c=c, coordinates=coordinates, gate=gate))
    x, memory = torch.randn(3, 4, 6, dtype=F64), torch.randn(3, 5, 6, dtype=F64)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    for other, options, allowed in (
        (None, {}, torch.ones(1, 1, dtype=F64)),
        (None, {"causal": True}, torch.ones(4, 4, dtype=F64).tril()),
        (memory, {"mask": mask}, mask.double().unsqueeze(1)),
    ):
        expected, expected_weights = by_hand(layer, x, x if other is None else other, c, allowed)
        result, weights = layer(x, other, return_weights=True, **options)
        torch.testing.assert_close(weights, expected_weights, **CLOSE)
        torch.testing.assert_close(result, expected, **CLOSE)
        torch.testing.assert_close(layer(x, other, **options), result, **CLOSE)


def test_start():
    layer = hatt.MultiHeadAttention(FLAT, 4, 2, beta=0.7, learn_beta=False)
    torch.testing.assert_close(layer.tau, torch.full((2, 1, 1), 0.7))
    assert not layer.free_tau.requires_grad


def test_flat_limit():
    """For c to 0: softmax of the negative Euclidean distances, and the mean of the values."""
    layer = filled(hatt.MultiHeadAttention(FLAT, 3, 1, c=1e-10, coordinates="exp"))
    x = torch.randn(2, 4, 3, dtype=F64)
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    weights = torch.softmax(-layer.tau * torch.cdist(q, k), -1)
    torch.testing.assert_close(layer(x), weights @ v, rtol=1e-5, atol=1e-6)


def test_decoding_step_by_step():
    layer = filled(hatt.MultiHeadAttention(FLAT, 4, 2))
    x, cache = torch.randn(3, 5, 4, dtype=F64), AttentionCache()
    steps = [layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x, causal=True), **CLOSE)
    assert cache.keys.shape == (3, 2, 5, 3)


@pytest.mark.parametrize("coordinates", ["polar", "exp"])
def test_gradients(coordinates):
    layer = filled(hatt.MultiHeadAttention(FLAT, 4, 2, c=1.5, learn_c=True, coordinates=coordinates, gate="sigmoid"))
    parameters = (layer.key.weight, layer.value.weight, layer.free_tau, layer.gamma, layer.space.free_c)
    x = torch.randn(1, 3, 4, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (x, *parameters))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("coordinates", ["polar", "exp"])
def test_padding_of_zeros_and_long_vectors(dtype, coordinates):
    """Zero rows, as padding has them, give no direction; vectors far too long end at the stated radius."""
    layer = hatt.MultiHeadAttention(FLAT, 4, 2, c=2.0, coordinates=coordinates).to(dtype)
    for scale in (0.0, 1.0, 1e4):
        x = scale * torch.randn(2, 5, 4, dtype=dtype)
        x[0, 3:] = 0
        out = layer(x.requires_grad_(), causal=True)
        assert torch.isfinite(out).all()
        assert out.dtype == dtype
        layer.zero_grad()
        out.sum().backward()
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
        if scale == 0:
            assert not out.any()


def test_negative_radii_are_the_opposite_points():
    layer = filled(hatt.MultiHeadAttention(FLAT, 2, 1))
    x = torch.randn(1, 3, 2, dtype=F64)
    points = layer.divide(layer.value(x))
    with torch.no_grad():
        layer.value.weight[-1].neg_()
        layer.value.bias[-1].neg_()
    torch.testing.assert_close(layer.divide(layer.value(x)), points * torch.tensor([1.0, -1, -1], dtype=F64), **CLOSE)


def test_everything_else_is_euclidean():
    assert sorted(hatt.__all__) == sorted(euclidean.__all__)
    for name in hatt.__all__:
        same = getattr(hatt, name) is getattr(euclidean, name)
        assert same == (name != "MultiHeadAttention")
    flat = list(inspect.signature(euclidean.MultiHeadAttention).parameters)
    assert list(inspect.signature(hatt.MultiHeadAttention).parameters)[: len(flat)] == flat


def test_bad_input_is_named():
    for options in ({"coordinates": "cartesian"}, {"gate": "relu"}, {"beta": -1.0}):
        with pytest.raises(ValueError, match=r"hatt\.MultiHeadAttention"):
            hatt.MultiHeadAttention(FLAT, 4, 2, **options)
    with pytest.raises(ValueError, match="c must be a positive number"):
        hatt.MultiHeadAttention(FLAT, 4, 2, c=0.0)
    with pytest.raises(ValueError, match=r"hatt\.MultiHeadAttention.*3 heads"):
        hatt.MultiHeadAttention(FLAT, 4, 3)
    layer = hatt.MultiHeadAttention(FLAT, 4, 2)
    with pytest.raises(ValueError, match=r"hatt\.MultiHeadAttention.*\(1, 3, 5\)"):
        layer(torch.zeros(1, 3, 5))
    with pytest.raises(ValueError, match=r"hatt\.MultiHeadAttention.*hides every position"):
        layer(torch.zeros(1, 3, 4), mask=torch.zeros(1, 3, dtype=torch.bool))
