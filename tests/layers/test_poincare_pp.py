"""The HNN++ family against the formulas of Shimizu, Mukuta & Harada 2021, worked out by mpmath or in plain steps."""

import inspect
import math

import mpmath
import pytest
import torch
from torch import nn

from hyperbolic.layers import euclidean, mobius, poincare_pp
from hyperbolic.manifolds import PoincareBall
from tests.kernels.formulas import mlr_logits as mlr_formula
from tests.layers.filled import filled
from tests.layers.poincare_pp_formulas import CLOSE, CURVATURES, F64, exact_scale


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
            for results, expected in ((logits(x[i]), exact_v), (layer(x[i]), exact_y)):
                expected = torch.tensor([float(v) for v in expected], dtype=dtype)
                torch.testing.assert_close(results, expected, rtol=rel, atol=rel * expected.abs().max().item())


@pytest.mark.parametrize("c", CURVATURES)
def test_the_mlr_is_ganeas_with_normals_from_the_origin(c):
    ball = PoincareBall(c)
    logits = filled(poincare_pp.Logits(ball, 3, 5))
    x = ball.random(6, 3, std=0.6, dtype=F64)
    p = ball.expmap0(logits.r.unsqueeze(-1) * torch.nn.functional.normalize(logits.z, dim=-1))
    torch.testing.assert_close(logits(x), mlr_formula(x, p, logits.z, ball.c), rtol=1e-9, atol=1e-11)
    results = logits.cross_entropy(x, torch.tensor([0, 1, 2, 3, 4, 0]))
    expected = nn.functional.cross_entropy(logits(x), torch.tensor([0, 1, 2, 3, 4, 0]))
    torch.testing.assert_close(results, expected)


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


@pytest.mark.parametrize("c", CURVATURES)
def test_beta_concatenation(c):
    ball, dims = PoincareBall(c), (2, 3, 1)
    parts = [ball.random(4, d, std=0.4, dtype=F64) for d in dims]
    joined = poincare_pp.beta_concat(parts, ball)
    scaled = [exact_scale(6, d) * ball.logmap0(p) for d, p in zip(dims, parts, strict=True)]
    torch.testing.assert_close(joined, ball.expmap0(torch.cat(scaled, -1)), **CLOSE)
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


def test_joined_points_have_leading_axes_that_broadcast():
    ball = PoincareBall(2.0)
    x, y = ball.random(2, 1, 3, std=0.4, dtype=F64), ball.random(4, 5, std=0.4, dtype=F64)
    joined = poincare_pp.beta_concat([x, y], ball)
    expected = poincare_pp.beta_concat([x.expand(2, 4, 3), y.expand(2, 4, 5)], ball)
    assert torch.equal(joined, expected)


def test_signatures_and_bad_input():
    for name in mobius.__all__:
        ours, other = (
            [option for option in inspect.signature(getattr(f, name)).parameters if option != "variant"]
            for f in (poincare_pp, mobius)
        )
        own = ("bias_std", "point_std", "gain", "weight_dropout", "tangent_bias", "margin")  # the Möbius family's
        shared = [p for p in other if p not in own]
        assert ours[: len(shared)] == shared, name
    assert sorted(poincare_pp.__all__) == sorted(euclidean.__all__)
    with pytest.raises(ValueError, match=r"poincare_pp\.Linear.*3 coordinates.*\(4, 5\)"):
        poincare_pp.Linear(PoincareBall(1.0), 3, 2)(torch.zeros(4, 5))
    layer = poincare_pp.MultiHeadAttention(PoincareBall(1.0), 4, 2)
    with pytest.raises(ValueError, match=r"poincare_pp\.MultiHeadAttention.*hides every position"):
        layer(torch.zeros(1, 3, 4), mask=torch.zeros(1, 3, dtype=torch.bool))


def test_logits_start_with_the_variance_of_the_docstring():
    torch.manual_seed(0)
    layer = poincare_pp.Logits(PoincareBall(1.0), 50, 40)
    assert layer.z.std().item() == pytest.approx((2 * 50 * 40) ** -0.5, rel=0.1)
    assert not layer.r.any()
