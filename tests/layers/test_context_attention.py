"""Attention to a learned context against the formulas of Hype-HAN (Zhang & Gao) and HAN (Yang et al. 2016)."""

import math

import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.layers import euclidean, klein, lorentz, mobius, poincare_pp, tangent
from hyperbolic.layers.attention import ContextAttention
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam
from tests.layers.filled import filled as random_parameters
from tests.layers.hype_han_formulas import (
    act,
    einstein_midpoint,
    lorentz_distance,
    lorentz_to_klein,
    mobius_product,
    mobius_sum,
    poincare_to_klein,
    poincare_to_lorentz,
)

F64 = torch.float64
CURVATURES = (0.3, 1.0, 2.5)
FAMILIES = [
    (mobius, PoincareBall),
    (poincare_pp, PoincareBall),
    (klein, Klein),
]


class OnManifold(ContextAttention):
    """Tangent keys, and a context that is a point."""

    linear = tangent.Linear


def filled(layer: nn.Module, beta: float = 0.8) -> nn.Module:
    """The layer in float64 with random parameters and this beta."""
    if (free := getattr(random_parameters(layer, 0.6), "free_beta", None)) is not None:
        free.data.fill_(math.log(math.expm1(beta)))
    return layer


@pytest.mark.parametrize("c", CURVATURES)
def test_words_equations_6_to_8(c):
    h = 0.7 * torch.randn(2, 4, 3, dtype=F64)
    layer = filled(lorentz.ContextAttention(Lorentz(c), 3, nonlinearity="tanh", keys="tangent"))
    keys = act(torch.tanh(h @ layer.key.weight.T + layer.key.bias), c)
    alpha = torch.exp(-0.8 * lorentz_distance(layer.context, keys, c) - 0.37)  # any offset: it cancels
    x = act(h, c)
    midpoint = einstein_midpoint(lorentz_to_klein(x, c), alpha, c)
    result, weights = layer(x)
    torch.testing.assert_close(weights, alpha / alpha.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(lorentz_to_klein(result, c), midpoint, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(layer.scores(x).softmax(-1), weights)

    disk = klein.ContextAttention(Klein(c), 3, nonlinearity="tanh", keys="tangent").double()
    with torch.no_grad():
        disk.key.load_state_dict(layer.key.state_dict())
        disk.free_beta.copy_(layer.free_beta)
        disk.context.copy_(lorentz_to_klein(layer.context, c))
    torch.testing.assert_close(disk(disk.manifold.expmap0(h))[0], midpoint, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("c", CURVATURES)
def test_sentences_equations_10_to_12(c):
    ball = PoincareBall(c)
    layer = filled(mobius.ContextAttention(ball, 3))
    x = ball.random(2, 4, 3, std=0.4, dtype=F64)
    keys = mobius_sum(mobius_product(layer.key.weight, x, c), layer.key.bias, c)

    alpha = torch.exp(-0.8 * lorentz_distance(poincare_to_lorentz(layer.context, c), poincare_to_lorentz(keys, c), c))
    expected = einstein_midpoint(poincare_to_klein(x, c), alpha, c)
    result, weights = layer(x)
    torch.testing.assert_close(weights, alpha / alpha.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(poincare_to_klein(result, c), expected, rtol=1e-9, atol=1e-12)


def test_flat_twins():
    """Yang et al. 2016, Eq. 5-7, and the flat limit of the distance."""
    h = torch.randn(2, 4, 3, dtype=F64)
    han = filled(euclidean.ContextAttention(Euclidean(), 3))
    assert not any(name in ("free_beta", "offset") for name, _ in han.named_parameters())
    u = torch.tanh(h @ han.key.weight.T + han.key.bias)
    alpha = torch.exp(u @ han.context) / torch.exp(u @ han.context).sum(-1, keepdim=True)
    torch.testing.assert_close(han(h)[1], alpha)
    torch.testing.assert_close(han(h)[0], (alpha.unsqueeze(-1) * h).sum(-2))

    flat = filled(euclidean.ContextAttention(Euclidean(), 3, score="distance", nonlinearity="identity"))
    keys = h @ flat.key.weight.T + flat.key.bias
    torch.testing.assert_close(flat(h)[1], torch.softmax(-0.8 * (keys - flat.context).norm(dim=-1), -1))
    curved = mobius.ContextAttention(PoincareBall(1e-12), 3).double()
    with torch.no_grad():
        for p, q in zip(curved.parameters(), flat.parameters(), strict=True):
            p.copy_(q)
        curved.free_beta.fill_(math.log(math.expm1(0.4)))  # distances of the ball are twice the flat ones
    for a, b in zip(curved(h), flat(h), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_dot_score_on_a_curved_space():
    ball = PoincareBall(2.0)
    layer = filled(mobius.ContextAttention(ball, 3, score="dot"))
    x = ball.random(5, 3, std=0.4, dtype=F64)
    score = (ball.logmap0(layer.key(x)) * ball.logmap0(layer.context)).sum(-1)
    torch.testing.assert_close(layer(x)[1], torch.softmax(score, -1))
    assert layer.free_beta is None


@pytest.mark.parametrize("offset", [-2.0, 0.5, 30.0])
def test_sigmoid_gate(offset):
    ball = PoincareBall(2.0)
    layer = filled(mobius.ContextAttention(ball, 3, gate="sigmoid"))
    x = ball.random(2, 4, 3, std=0.6, dtype=F64)
    with torch.no_grad():
        layer.offset.fill_(offset)
    distance = ball.dist(layer.context, layer.key(x))
    gate = 1 / (1 + torch.exp(0.8 * distance + offset))
    result, weights = layer(x)
    torch.testing.assert_close(weights, gate / gate.sum(-1, keepdim=True))
    torch.testing.assert_close(result, ball.centroid(x, gate), rtol=1e-9, atol=1e-12)
    weights[..., 0].sum().backward()
    assert layer.offset.grad.abs() > 0
    if offset == 30.0:  # the tail of the sigmoid is the exponential
        torch.testing.assert_close(weights, torch.softmax(-0.8 * distance, -1))


def test_saturated_gates_stay_finite():
    ball = PoincareBall(2.0)
    x = ball.expmap0(torch.tensor([[5.0, 0.0], [-5.0, 0.0], [0.0, 5.0]]))
    for gate in ("softmax", "sigmoid"):
        layer = mobius.ContextAttention(ball, 2, gate=gate)
        with torch.no_grad():
            layer.free_beta.fill_(1e4)
        result, weights = layer(x)
        result.sum().backward()
        assert torch.isfinite(result).all()
        assert weights.sum().item() == pytest.approx(1, abs=1e-6)
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


def test_curved_and_tangent_context():
    sheet = Lorentz(2.0)
    on = OnManifold(sheet, 3).double()
    free = tangent.ContextAttention(sheet, 3).double()
    assert isinstance(on.context, ManifoldParameter)
    assert sheet.check_point_on_manifold(on.context.detach())
    assert not any(isinstance(p, ManifoldParameter) for p in free.parameters())
    filled(on)
    with torch.no_grad():
        free.load_state_dict({**on.state_dict(), "context": sheet.logmap0(on.context)})
    x = sheet.random(2, 4, 3, dtype=F64)
    for a, b in zip(on(x), free(x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    dot_on, dot_free = (kind(sheet, 3, score="dot").double() for kind in (OnManifold, tangent.ContextAttention))
    with torch.no_grad():
        dot_on.load_state_dict({k: v for k, v in on.state_dict().items() if k != "free_beta"})
        dot_free.load_state_dict({k: v for k, v in free.state_dict().items() if k != "free_beta"})
    torch.testing.assert_close(dot_on(x)[1], dot_free(x)[1], rtol=1e-9, atol=1e-12)


def test_start():
    lengths = []
    for _ in range(50):
        layer = mobius.ContextAttention(PoincareBall(2.0), 40)
        lengths.append(layer.manifold.logmap0(layer.context).norm().item())
    assert sum(lengths) / 50 == pytest.approx(0.1, abs=0.01)
    assert layer.beta.item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("family", "manifold"), FAMILIES, ids=lambda v: getattr(v, "__name__", ""))
def test_masked_points_do_not_count(family, manifold):
    space = manifold(2.0)
    layer = filled(family.ContextAttention(space, 3, gate="sigmoid"))
    x = space.random(3, 5, 3, std=0.3, dtype=F64)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    result, weights = layer(x, mask=mask)
    assert torch.equal(weights != 0, mask)
    assert space.check_point_on_manifold(result.detach())
    for i in range(3):
        alone, alone_weights = layer(x[i, mask[i]])
        torch.testing.assert_close(result[i], alone, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(weights[i, mask[i]], alone_weights)


def test_bad_input_is_named():
    layer = mobius.ContextAttention(PoincareBall(2.0), 3)
    with pytest.raises(ValueError, match=r"mobius\.ContextAttention.*hides every position"):
        layer(torch.zeros(2, 4, 3), mask=torch.tensor([[True] * 4, [False] * 4]))
    with pytest.raises(ValueError, match=r"mobius\.ContextAttention.*\(2, 0, 3\)"):
        layer(torch.zeros(2, 0, 3))
    with pytest.raises(ValueError, match=r"mobius\.ContextAttention.*\(3,\)"):
        layer(torch.zeros(3))
    with pytest.raises(ValueError, match=r"mobius\.ContextAttention.*\(2, 4, 5\)"):
        layer(torch.zeros(2, 4, 5))
    for option in ("score", "gate"):
        with pytest.raises(ValueError, match=f"{option}: unknown value 'cosine'"):
            mobius.ContextAttention(PoincareBall(2.0), 3, **{option: "cosine"})
    with pytest.raises(ValueError, match="softplus"):
        mobius.ContextAttention(PoincareBall(2.0), 3, nonlinearity="softplus")
    assert layer(torch.zeros(0, 4, 3))[0].shape == (0, 3)


@pytest.mark.parametrize("gate", ["softmax", "sigmoid"])
@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_gradients(kind, gate):
    space = kind(1.7, learn_c=True)
    layer = filled(OnManifold(space, 3, gate=gate, nonlinearity="tanh"))
    v = 0.5 * torch.randn(4, 3, dtype=F64)
    parameters = [layer.free_beta, layer.key.inner.weight, space.free_c] + (
        [layer.offset] if layer.offset is not None else []
    )

    def result(v, *_):
        centroid, weights = layer(space.expmap0(v))
        return space.logmap0(centroid), weights

    assert torch.autograd.gradcheck(result, (v.requires_grad_(), *parameters))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_key_at_the_context_and_points_at_the_origin(dtype):
    ball = PoincareBall(2.0)
    layer = mobius.ContextAttention(ball, 3).to(dtype)
    with torch.no_grad():
        layer.context.zero_()
    x = torch.zeros(4, 3, dtype=dtype, requires_grad=True)
    centroid, weights = layer(x)
    (centroid.sum() + weights[0]).backward()
    torch.testing.assert_close(weights, torch.full((4,), 0.25, dtype=dtype))
    torch.testing.assert_close(x.grad, torch.full((4, 3), 0.25, dtype=dtype))
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_the_context_is_learned(kind):
    """From a random start the layer learns to look at the one point of four that carries the label."""
    space = kind(1.0)
    layer = OnManifold(space, 2)
    torch.manual_seed(1)
    label = 0.8 * torch.randn(64, 2)
    x = torch.stack([torch.tensor([1.5, -1.5]) + 0.3 * torch.randn(64, 2) for _ in range(4)], 1)
    x[:, 2] = label
    points = space.expmap0(x)
    start = layer.context.detach().clone()
    optimizer = RiemannianAdam(layer.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -layer(points)[1][:, 2].log().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.7
    assert not torch.equal(layer.context, start)
    assert space.check_point_on_manifold(layer.context.detach())
