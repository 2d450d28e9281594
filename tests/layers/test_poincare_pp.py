"""The HNN++ family against the formulas of Shimizu, Mukuta & Harada 2021, worked out by mpmath or in plain steps."""

import inspect
import math

import mpmath
import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.kernels.mlr import mlr_logits_reference
from hyperbolic.layers import euclidean, mobius, poincare_pp
from hyperbolic.layers.distance_heads import weighted_centroids
from hyperbolic.layers.multihead import AttentionCache
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall

F64 = torch.float64
CURVATURES = (0.3, 1.0, 2.5)
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def filled(layer: nn.Module, std: float = 0.5) -> nn.Module:
    """The layer in float64 with parameters that are not at their start."""
    layer.double()
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if isinstance(p, ManifoldParameter):
                p.copy_(p.manifold.expmap0(0.3 * torch.randn_like(p)))
            elif not name.endswith("free_c"):
                p.normal_(std=std)
    return layer


def exact(values) -> list:
    return [mpmath.mpf(v) for v in values]


def exact_mlr(x: list, z: list, r, c):
    """HNN++: ``2|z|/sqrt(c) asinh(lambda <sqrt(c) x, z/|z|> cosh(2 sqrt(c) r) - (lambda - 1) sinh(2 sqrt(c) r))``."""
    x, z, root, r = exact(x), exact(z), mpmath.sqrt(mpmath.mpf(c)), mpmath.mpf(r)
    norm = mpmath.sqrt(sum(v * v for v in z))
    factor = 2 / (1 - root**2 * sum(v * v for v in x))
    along = factor * root * sum(a * b for a, b in zip(x, z, strict=True)) / norm
    return 2 * norm / root * mpmath.asinh(along * mpmath.cosh(2 * root * r) - (factor - 1) * mpmath.sinh(2 * root * r))


def exact_linear(x: list, z: list, r: list, c) -> list:
    root = mpmath.sqrt(mpmath.mpf(c))
    w = [mpmath.sinh(root * exact_mlr(x, z_k, r_k, c)) / root for z_k, r_k in zip(z, r, strict=True)]
    return [v / (1 + mpmath.sqrt(1 + root**2 * sum(u * u for u in w))) for v in w]


def test_values_worked_by_hand():
    """c = 1, x = (1/2, 0): lambda = 8/3; z = (3/4, 0), r = 0: v = 3/2 asinh(4/3) = 3/2 log 3, w = sinh(v)."""
    ball = PoincareBall(1.0)
    layer, logits = poincare_pp.Linear(ball, 2, 1).double(), poincare_pp.Logits(ball, 2, 1).double()
    with torch.no_grad():
        for module in (layer, logits):
            module.z.copy_(torch.tensor([[0.75, 0.0]]))
    x = torch.tensor([0.5, 0.0], dtype=F64)
    v = 1.5 * math.log(3)
    w = (3**1.5 - 3**-1.5) / 2
    assert logits(x).item() == pytest.approx(v, rel=1e-14)
    assert layer(x).item() == pytest.approx(w / (1 + math.sqrt(1 + w * w)), rel=1e-14)
    with torch.no_grad():  # r = log(3)/2: cosh(2r) = 5/3, sinh(2r) = 4/3; asinh(4/3 5/3 - 5/3 4/3) = 0
        logits.r.fill_(math.log(3) / 2)
    assert logits(x).item() == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("radius", [1e-6, 0.5, 3.0, 10.0])
def test_linear_and_logits_against_mpmath(c, dtype, radius):
    ball = PoincareBall(c)
    direction = torch.nn.functional.normalize(torch.randn(4, 3, dtype=F64), dim=-1)
    x = ball.expmap0(radius / 2 * direction / c**0.5).to(dtype)
    layer, logits = filled(poincare_pp.Linear(ball, 3, 2), 0.3).to(dtype), poincare_pp.Logits(ball, 3, 2).to(dtype)
    with torch.no_grad():
        if radius == 1e-6:
            layer.r.zero_()
        logits.z.copy_(layer.z)
        logits.r.copy_(layer.r)
    rel = 2e-5 if dtype is torch.float32 else 1e-11
    with mpmath.workdps(40):
        for i in range(4):
            exact_v = [
                exact_mlr(x[i].tolist(), z, r, c) for z, r in zip(layer.z.tolist(), layer.r.tolist(), strict=True)
            ]
            exact_y = exact_linear(x[i].tolist(), layer.z.tolist(), layer.r.tolist(), c)
            for found, expected in ((logits(x[i]), exact_v), (layer(x[i]), exact_y)):
                expected = torch.tensor([float(v) for v in expected], dtype=dtype)
                torch.testing.assert_close(found, expected, rtol=rel, atol=rel * expected.abs().max().item())


@pytest.mark.parametrize("c", CURVATURES)
def test_the_mlr_is_ganeas_with_normals_from_the_origin(c):
    ball = PoincareBall(c)
    logits = filled(poincare_pp.Logits(ball, 3, 5))
    x = ball.random(6, 3, std=0.6, dtype=F64)
    p = ball.expmap0(logits.r.unsqueeze(-1) * torch.nn.functional.normalize(logits.z, dim=-1))
    torch.testing.assert_close(logits(x), mlr_logits_reference(x, p, logits.z, ball.c), rtol=1e-9, atol=1e-11)
    found = logits.cross_entropy(x, torch.tensor([0, 1, 2, 3, 4, 0]))
    expected = nn.functional.cross_entropy(logits(x), torch.tensor([0, 1, 2, 3, 4, 0]))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("c", CURVATURES)
def test_coordinates_of_the_result_are_signed_distances(c):
    ball = PoincareBall(c)
    layer = filled(poincare_pp.Linear(ball, 3, 4), 0.3)
    x = ball.random(6, 3, std=0.6, dtype=F64)
    y = layer(x)
    conformal = 2 / (1 - c * y.square().sum(-1, keepdim=True))
    logits = poincare_pp.Logits(ball, 3, 4).double()
    logits.load_state_dict(layer.state_dict())
    torch.testing.assert_close(torch.asinh(c**0.5 * conformal * y) / c**0.5, logits(x), rtol=1e-9, atol=1e-11)


def test_flat_limit():
    """FC is ``2 (Z x - |z| r)`` and the MLR ``4 (<z, x> - |z| r)`` for c to 0."""
    ball, x = PoincareBall(1e-12), torch.randn(6, 3, dtype=F64)
    layer = filled(poincare_pp.Linear(ball, 3, 4))
    flat = 2 * (x @ layer.z.T - layer.z.norm(dim=-1) * layer.r)
    torch.testing.assert_close(layer(x), flat, rtol=1e-6, atol=1e-9)
    logits = poincare_pp.Logits(ball, 3, 4).double()
    logits.load_state_dict(layer.state_dict())
    torch.testing.assert_close(logits(x), 2 * flat, rtol=1e-6, atol=1e-9)
    plain = poincare_pp.Linear(ball, 3, 4, bias=False).double()
    torch.testing.assert_close(plain(x), 2 * x @ plain.z.T, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_results_beyond_the_radius_are_cut(dtype):
    ball = PoincareBall(2.0)
    layer = poincare_pp.Linear(ball, 2, 3, bias=False).to(dtype)
    x = torch.tensor([0.3, 0.0], dtype=dtype, requires_grad=True)
    for size in (25.0, 1e3, 1e30):
        with torch.no_grad():
            layer.z.copy_(torch.tensor([[size, 0], [0.9 * size, 0], [-0.5 * size, 0]]))
        y = layer(x)
        assert ball.check_point_on_manifold(y.detach())
        assert ball.dist0(y).item() == pytest.approx(ball.max_radius(dtype), rel=0.03)
        assert y[0] > 0
        assert y[0] >= y[1] > 0 >= y[2]
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.isfinite(gradient).all()
    with torch.no_grad():  # sqrt(c) v = (20, 19): the direction of (sinh 20, sinh 19)
        layer.z.copy_(torch.tensor([[20.0, 0], [19, 0], [0, 0]]) / (2 * torch.asinh(c_lambda(0.3, 2.0))))
    y = layer(x)
    assert (y[1] / y[0]).item() == pytest.approx(math.exp(-1), rel=1e-4)


def c_lambda(x: float, c: float) -> torch.Tensor:
    return torch.tensor(2 * c**0.5 * x / (1 - c * x * x))


@pytest.mark.parametrize("c", [0.4, 2.0])
def test_gradients(c):
    ball = PoincareBall(c, learn_c=True)
    layer, logits = filled(poincare_pp.Linear(ball, 3, 4), 0.3), filled(poincare_pp.Logits(ball, 3, 4))
    u = 0.4 * torch.randn(5, 3, dtype=F64)
    for module in (layer, logits):

        def run(u, *_, module=module):
            return module(ball.expmap0(u))

        assert torch.autograd.gradcheck(run, (u.requires_grad_(), module.z, module.r, ball.free_c))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_gradients_at_zero(dtype):
    ball = PoincareBall(2.0)
    layer, logits = poincare_pp.Linear(ball, 3, 4).to(dtype), poincare_pp.Logits(ball, 3, 4).to(dtype)
    jacobian = torch.autograd.functional.jacobian(layer, torch.zeros(3, dtype=dtype))
    torch.testing.assert_close(jacobian, 2 * layer.z.detach())
    jacobian = torch.autograd.functional.jacobian(logits, torch.zeros(3, dtype=dtype))
    torch.testing.assert_close(jacobian, 4 * logits.z.detach())
    x = ball.random(6, 3, dtype=dtype).requires_grad_()
    for module in (layer, logits):
        with torch.no_grad():
            module.z.zero_()
        out = module(x)
        assert not out.any()
        out.sum().backward()
        for gradient in (x.grad, module.z.grad, module.r.grad):
            assert torch.isfinite(gradient).all()
        with torch.no_grad():
            module.r.fill_(1e5)
        module.zero_grad()
        module(x).sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_start():
    """z has the variance 1 / (2 n m), r is 0."""
    layer = poincare_pp.Linear(PoincareBall(1.0), 100, 200)
    assert layer.z.std().item() == pytest.approx((2 * 100 * 200) ** -0.5, rel=0.03)
    assert not layer.r.any()
    assert poincare_pp.Linear(PoincareBall(1.0), 3, 2, bias=False).r is None


def exact_scale(n: int, n_i: int) -> float:
    return float(mpmath.beta(n / 2, 0.5) / mpmath.beta(n_i / 2, 0.5))


@pytest.mark.parametrize("c", CURVATURES)
def test_beta_concatenation_and_split(c):
    ball, dims = PoincareBall(c), (2, 3, 1)
    parts = [ball.random(4, d, std=0.4, dtype=F64) for d in dims]
    joined = poincare_pp.beta_concat(parts, ball)
    scaled = [exact_scale(6, d) * ball.logmap0(p) for d, p in zip(dims, parts, strict=True)]
    torch.testing.assert_close(joined, ball.expmap0(torch.cat(scaled, -1)), **CLOSE)
    for found, part in zip(poincare_pp.beta_split(joined, dims, ball), parts, strict=True):
        torch.testing.assert_close(found, part, **CLOSE)
    far = [
        ball.expmap0(0.7 * torch.nn.functional.normalize(torch.randn(d, dtype=F64), dim=-1)) for d in (300, 200, 100)
    ]
    assert ball.logmap0(poincare_pp.beta_concat(far, ball)).norm().item() == pytest.approx(0.7, rel=0.01)
    assert poincare_pp.beta_concat([parts[0]], ball) == pytest.approx(parts[0])


@pytest.mark.parametrize("c", CURVATURES)
def test_concat(c):
    ball = PoincareBall(c)
    layer = filled(poincare_pp.Concat(ball, (2, 3), 4, n_features=2), 0.3)
    x, y = ball.random(5, 2, std=0.4, dtype=F64), ball.random(5, 3, std=0.4, dtype=F64)
    features = torch.rand(5, 2, dtype=F64)
    joined = [exact_scale(5, 2) * ball.logmap0(x), exact_scale(5, 3) * ball.logmap0(y)]
    expected = layer.affine(ball.expmap0(torch.cat(joined, -1)))
    for j in range(2):
        expected = ball.mobius_add(expected, ball.mobius_scalar(features[:, j : j + 1], layer.feature_bias[j]))
    torch.testing.assert_close(layer(x, y, features=features), expected, **CLOSE)
    with pytest.raises(ValueError, match=r"poincare_pp\.Concat.*n_features=2"):
        layer(x, y)


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
    everything, seen = torch.ones(1, 1, dtype=F64), torch.ones(4, 4, dtype=F64).tril()
    for other, options, allowed in (
        (None, {}, everything),
        (None, {"causal": True}, seen),
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
    found = weighted_centroids(space, x, weights)
    expected = torch.stack([space.centroid(x, weights[:, :, t]) for t in range(7)], 2)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_centroids_far_out(kind, dtype):
    """Equal points are their centroid; differences of large numbers cost accuracy there, but nothing is lost."""
    space = kind(2.0)
    for radius, close in ((min(10.0, 2**0.5 * space.max_radius(dtype) - 0.5), 1e-4), (100.0, math.inf)):
        point = space.expmap0(torch.full((1, 4), radius / (2**0.5 * (4 if kind is PoincareBall else 2)), dtype=dtype))
        x = point.expand(5, -1).clone().requires_grad_()
        found = weighted_centroids(space, x, torch.rand(7, 5, dtype=dtype))
        assert space.check_point_on_manifold(found.detach())
        assert space.dist(found, point).max() <= close
        found.sum().backward()
        assert torch.isfinite(x.grad).all()


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


def test_blocks():
    ball = PoincareBall(2.0)
    o, x = ball.random(4, 2, std=0.4, dtype=F64), ball.random(4, 3, std=0.4, dtype=F64)
    residual = filled(poincare_pp.Residual(ball, 2, 3, "tanh"))
    expected = ball.mobius_add(x, residual.affine(ball.expmap0(torch.tanh(ball.logmap0(o)))))
    assert isinstance(residual.affine, poincare_pp.Linear)
    torch.testing.assert_close(residual(o, x), expected, **CLOSE)
    block = filled(poincare_pp.FeedForward(ball, 3, 5))
    hidden = ball.expmap0(torch.relu(ball.logmap0(block.expand(x))))
    torch.testing.assert_close(block(x), ball.mobius_add(x, block.join.affine(hidden)), **CLOSE)
    assert isinstance(block.expand, poincare_pp.Linear)
    assert isinstance(poincare_pp.Attention(ball, 3).query, poincare_pp.Linear)
    assert isinstance(poincare_pp.ContextAttention(ball, 3).key, poincare_pp.Linear)


def test_signatures_and_bad_input():
    for name in mobius.__all__:
        ours, other = (
            [option for option in inspect.signature(getattr(f, name)).parameters if option != "variant"]
            for f in (poincare_pp, mobius)
        )
        shared = [p for p in other if p not in ("bias_std", "point_std")]
        assert ours[: len(shared)] == shared, name
    assert sorted(poincare_pp.__all__) == sorted(euclidean.__all__)
    with pytest.raises(ValueError, match=r"poincare_pp\.Linear.*3 coordinates.*\(4, 5\)"):
        poincare_pp.Linear(PoincareBall(1.0), 3, 2)(torch.zeros(4, 5))
    layer = poincare_pp.MultiHeadAttention(PoincareBall(1.0), 4, 2)
    with pytest.raises(ValueError, match=r"poincare_pp\.MultiHeadAttention.*hides every position"):
        layer(torch.zeros(1, 3, 4), mask=torch.zeros(1, 3, dtype=torch.bool))
