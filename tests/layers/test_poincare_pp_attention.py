"""The attention and the centroids of the HNN++ family against the formulas of Shimizu, Mukuta & Harada 2021."""

import math

import pytest
import torch

from hyperbolic.layers import poincare_pp
from hyperbolic.layers.distance_heads import weighted_centroids
from hyperbolic.layers.multihead import AttentionCache
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from scripts.exactness.arithmetic import STEP, dot, exact, mp, relative_error, scale, weighted_sum
from tests.layers.filled import filled
from tests.layers.poincare_pp_formulas import CLOSE, CURVATURES, F64, exact_scale


def distance(x, y, c):
    square = c * (x - y).square().sum(-1)
    return torch.acosh(1 + 2 * square / ((1 - c * x.square().sum(-1)) * (1 - c * y.square().sum(-1)))) / c**0.5


def midpoint(x, w, c):
    """``1/2 (x) (sum w lambda x / sum w (lambda - 1))`` (Ungar 2008; HNN++, Poincaré weighted centroid)."""
    factor = 2 / (1 - c * x.square().sum(-1))
    m = ((w * factor).unsqueeze(-1) * x).sum(-2) / (w * (factor - 1)).sum(-1, keepdim=True)
    return m / (1 + (1 - c * m.square().sum(-1, keepdim=True)).sqrt())


def by_hand(layer, x, memory, c, allowed, gate, tau):
    """The attention with a loop over heads, queries and plain formulas."""
    ball, h = layer.manifold, layer.n_heads
    size = layer.d // h

    def heads(point):
        u = ball.logmap0(point) * exact_scale(size, layer.d)
        return [ball.expmap0(u[..., i * size : (i + 1) * size]) for i in range(h)]

    q, k, v = heads(layer.query(x)), heads(layer.key(memory)), heads(layer.value(memory))
    outputs, weights = [], []
    for i in range(h):
        score = -tau[i] * distance(q[i].unsqueeze(-2), k[i].unsqueeze(-3), c)
        w = torch.exp(score) if gate == "softmax" else 1 / (1 + torch.exp(-score + layer.gamma[i]))
        w = w * allowed
        w = w / w.sum(-1, keepdim=True)
        weights.append(w)
        outputs.append(torch.stack([midpoint(v[i], w[:, t], c) for t in range(x.shape[1])], 1))
    joined = torch.cat([exact_scale(layer.d, size) * ball.logmap0(o) for o in outputs], -1)
    return ball.expmap0(joined), torch.stack(weights, 1)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("gate", ["softmax", "sigmoid"])
def test_attention_is_its_formula(c, gate):
    ball = PoincareBall(c)
    layer = filled(poincare_pp.MultiHeadAttention(ball, 6, 2, gate=gate), 0.3)
    x, memory = ball.random(3, 4, 6, std=0.4, dtype=F64), ball.random(3, 5, 6, std=0.4, dtype=F64)
    tau = torch.log1p(torch.exp(layer.free_tau)).flatten()
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    everything, visible = torch.ones(1, 1, dtype=F64), torch.ones(4, 4, dtype=F64).tril()
    for other, options, allowed in (
        (None, {}, everything),
        (None, {"causal": True}, visible),
        (memory, {"mask": mask}, mask.double().unsqueeze(1)),
    ):
        source = x if other is None else other
        expected, expected_weights = by_hand(layer, x, source, c, allowed, gate, tau)
        result, weights = layer(x, other, return_weights=True, **options)
        torch.testing.assert_close(weights, expected_weights, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(result, expected, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(layer(x, other, **options), result, **CLOSE)


def test_decoding_step_by_step():
    ball = PoincareBall(2.0)
    layer = filled(poincare_pp.MultiHeadAttention(ball, 4, 2), 0.3)
    x = ball.random(3, 5, 4, std=0.4, dtype=F64)
    cache = AttentionCache()
    steps = [layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x, causal=True), **CLOSE)


def test_temperature_and_dropout():
    ball = PoincareBall(1.0)
    layer = poincare_pp.MultiHeadAttention(ball, 8, 2, dropout=0.9, learn_tau=False)
    torch.testing.assert_close(layer.tau, torch.full((2, 1, 1), 0.5))
    assert not layer.free_tau.requires_grad
    torch.testing.assert_close(poincare_pp.MultiHeadAttention(ball, 8, 2, tau=3.0).tau, torch.full((2, 1, 1), 3.0))
    x = ball.random(16, 3, 8)
    for _ in range(5):  # most rows lose all of their weights
        result = layer(x)
        assert torch.isfinite(result).all()
        assert ball.check_point_on_manifold(result.detach())
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    for option, value in (("gate", "relu"), ("tau", 0.0)):
        with pytest.raises(ValueError, match=r"poincare_pp\.MultiHeadAttention"):
            poincare_pp.MultiHeadAttention(ball, 8, 2, **{option: value})
    with pytest.raises(ValueError, match="3 heads"):
        poincare_pp.MultiHeadAttention(ball, 8, 3)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("std", [1e-3, 1.0])
def test_centroids_of_many_rows(kind, std):
    space = kind(2.0)
    x = space.random(2, 3, 5, 4, std=std, dtype=F64)
    weights = torch.rand(2, 3, 7, 5, dtype=F64)
    results = weighted_centroids(space, x, weights)
    expected = torch.stack([space.centroid(x, weights[:, :, t]) for t in range(7)], 2)
    torch.testing.assert_close(results, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_centroids_far_out(kind, dtype):
    """Equal points are their centroid; differences of large numbers cost accuracy there, but nothing is lost."""
    space = kind(2.0)
    for radius, close in ((min(10.0, 2**0.5 * space.max_radius(dtype) - 0.5), 1e-4), (100.0, math.inf)):
        point = space.expmap0(torch.full((1, 4), radius / (2**0.5 * (4 if kind is PoincareBall else 2)), dtype=dtype))
        x = point.expand(5, -1).clone().requires_grad_()
        results = weighted_centroids(space, x, torch.rand(7, 5, dtype=dtype))
        assert space.check_point_on_manifold(results.detach())
        assert space.dist(results, point).max() <= close
        results.sum().backward()
        assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("radius", [1.0, 6.0, 12.0, 24.0])
@pytest.mark.parametrize("width", [1e-3, 0.1, 3.0])
def test_centroids_far_out_against_exact_ones(radius, width):
    """Neighbours far from the origin, whose T^2 and |S|^2 agree in all digits of float64: values and gradients by the
    weights, the latter by central differences of the exact centroids."""
    c, size = 0.7, 4
    space = Lorentz(c)
    middle = torch.nn.functional.normalize(torch.ones(3, dtype=F64), dim=-1)
    tangents = radius / c**0.5 * (middle + width / radius * torch.rand(size, 3, dtype=F64)) / (1 + width / radius)
    x, weights = space.expmap0(tangents), torch.rand(1, size, dtype=F64, requires_grad=True)
    cotangent = torch.randn(3, dtype=F64)

    def exact_centroid(w):
        rows = exact(x[:, 1:])
        times = [mp.sqrt(1 / mp.mpf(c) + dot(row, row)) for row in rows]
        time, total = dot(w, times), weighted_sum(rows, w)
        return scale(1 / mp.sqrt(mp.mpf(c) * (time**2 - dot(total, total))), total)

    def moved(w, i, step):
        return dot(exact_centroid([v + step * (k == i) for k, v in enumerate(w)]), exact(cotangent))

    result = weighted_centroids(space, x, weights)[0, 1:]
    (grad,) = torch.autograd.grad(result @ cotangent, weights)
    w = exact(weights[0])
    slopes = [(moved(w, i, STEP) - moved(w, i, -STEP)) / (2 * STEP) for i in range(size)]
    assert relative_error(result, exact_centroid(w)) < 1e-11
    largest = max(abs(slope) for slope in slopes)
    assert all(abs(mp.mpf(g) - s) < 1e-9 * largest for g, s in zip(grad[0].tolist(), slopes, strict=True))


def test_gradients_of_attention():
    ball = PoincareBall(1.5, learn_c=True)
    layer = filled(poincare_pp.MultiHeadAttention(ball, 4, 2, gate="sigmoid"), 0.4)
    u = 0.4 * torch.randn(1, 3, 4, dtype=F64)

    def run(u, *_):
        return ball.logmap0(layer(ball.expmap0(u)))

    parameters = (layer.key.z, layer.free_tau, layer.gamma, ball.free_c)
    assert torch.autograd.gradcheck(run, (u.requires_grad_(), *parameters))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_attention_at_the_origin_and_at_the_edge(dtype):
    ball = PoincareBall(2.0)
    layer = poincare_pp.MultiHeadAttention(ball, 4, 2).to(dtype)
    for far in (0.0, 50.0):
        x = ball.expmap0(far * torch.randn(2, 5, 4, dtype=dtype)).requires_grad_()
        out = layer(x, causal=True)
        assert ball.check_point_on_manifold(out.detach())
        out.sum().backward()
        assert all(torch.isfinite(t).all() for t in (x.grad, *(p.grad for p in layer.parameters())))
