"""The Möbius linear kernel in float32 against every operation by itself in float64."""

import itertools

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels import scratch
from hyperbolic.kernels.mobius_linear import mobius_affine, passes, plain
from hyperbolic.layers.mobius import Concat, Linear
from hyperbolic.manifolds import PoincareBall
from hyperbolic.numerics import BALL_EPS

F32, F64 = torch.float32, torch.float64
CURVATURES = pytest.mark.parametrize("c", [0.3, 2.0])
N = 24
pytestmark = pytest.mark.usefixtures("each_path")


def points(n: int, d: int, c: float, radius: float) -> torch.Tensor:
    """float32 points at a distance of radius/sqrt(c) from the origin."""
    u = normalize(torch.randn(n, d, dtype=F64), dim=-1) * radius / (2 * c**0.5)
    return PoincareBall(c).expmap0(u).to(F32)


def orthogonal(d_out: int, d_in: int, scale: float) -> torch.Tensor:
    size = max(d_out, d_in)
    return (scale * torch.linalg.qr(torch.randn(size, size))[0][:d_out, :d_in]).contiguous()


def mobius_affine_reference(xs, weights, c, points=None, factors=None):
    return plain.affine(c, points, factors, *xs, *weights)


class Case:
    """Arguments of the kernel, all with a gradient."""

    def __init__(self, c, dims, d_out, radius, scale=1.0, bias=None, scaled=0, n=N):
        self.c = torch.tensor(c, dtype=F64)
        self.xs = [points(n, d, c, radius) for d in dims]
        self.weights = [orthogonal(d_out, d, scale) for d in dims]
        self.points = None if bias is None else points(1 + scaled, d_out, c, bias)
        self.factors = torch.rand(n, scaled) * 0.8 - 0.4 if scaled else None

    def run(self, function, dtype=F32, cotangent=None):
        """Result and gradients of c, points, factors, xs and weights."""

        def free(t, dtype=dtype):
            return None if t is None else t.detach().to(dtype).requires_grad_()

        c, rest = free(self.c, F64), [free(self.points), free(self.factors)]
        xs, weights = [free(x) for x in self.xs], [free(w) for w in self.weights]
        out = function(xs, weights, c, *rest)
        cotangent = torch.ones_like(out) if cotangent is None else cotangent.to(dtype)
        leaves = [t for t in [c, *rest, *xs, *weights] if t is not None]
        return out.detach(), torch.autograd.grad((out * cotangent).sum(), leaves)


def error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    return ((actual.double() - exact).norm() / exact.norm().clamp_min(1e-300)).item()


def check(case: Case, value=1e-6, gradient=1e-5, skip_c=False) -> None:
    cotangent = torch.randn(N, case.weights[0].shape[0])
    out, grads = case.run(mobius_affine, cotangent=cotangent)
    exact, expected_grads = case.run(mobius_affine_reference, F64, cotangent)
    assert out.dtype == F32
    row = (out.double() - exact).norm(dim=-1) / exact.norm(dim=-1).clamp_min(1e-300)
    assert row.max() <= value
    for number, (a, b) in enumerate(zip(grads, expected_grads, strict=True)):
        assert torch.isfinite(a).all()
        assert (skip_c and number == 0) or error(a, b) <= gradient, (number, error(a, b))


@CURVATURES
@pytest.mark.parametrize(
    ("radius", "scale"), [(1e-8, 1.0), (0.5, 1.0), (3.0, 1.0), (8.0, 0.7), (12.0, 0.5), (12.0, 0.9)]
)
@pytest.mark.parametrize("bias", [None, 0.0, 0.7, 2.0])
def test_linear_to_the_stated_radius(c, radius, scale, bias):
    """Values within 1e-6 and gradients within 1e-5 of exact, on the float32 bits of the arguments."""
    check(Case(c, (6,), 5, radius, scale, bias), skip_c=radius < 1e-6)


@CURVATURES
@pytest.mark.parametrize(("radius", "scale"), [(1e-8, 1.0), (0.5, 1.0), (3.0, 0.8), (8.0, 0.4), (12.0, 0.25)])
@pytest.mark.parametrize(("n_x", "scaled"), [(1, 1), (2, 0), (2, 1), (2, 2), (3, 1)])
def test_sums_of_several_layers(c, radius, scale, n_x, scaled):
    check(Case(c, (6, 3, 4)[:n_x], 5, radius, scale, 0.8, scaled), skip_c=radius < 1e-6)


@pytest.mark.parametrize(("d_in", "d_out"), [(1, 1), (1, 4), (4, 1), (3, 300)])
def test_sizes(d_in, d_out):
    check(Case(2.0, (d_in,), d_out, 2.0, bias=0.5), value=1e-5 if d_out == 1 else 1e-6)  # one coordinate may cancel


@pytest.mark.parametrize("space", [8, 40, 100])
def test_blocks_of_rows_do_not_show(monkeypatch, space):
    """The scratch space holds some rows, one row, or not even one."""
    case = Case(2.0, (6, 3), 5, 2.0, bias=0.5, scaled=1)
    out, grads = case.run(mobius_affine)
    monkeypatch.setattr(scratch, "_SPACE", space)
    monkeypatch.setattr(scratch, "_local", type("Local", (), {})())
    again, others = case.run(mobius_affine)
    for a, b in zip([out, *grads], [again, *others], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=5e-7)


def test_order_of_the_sum():
    """((m_1 (+) m_2) (+) b_1) (+) f (x) b_2 and no other order."""
    case = Case(2.0, (3, 3), 3, 2.0, bias=1.0, scaled=1)
    out, _ = case.run(mobius_affine)
    case.xs.reverse()
    case.weights.reverse()
    assert (case.run(mobius_affine)[0] - out).norm(dim=-1).max() > 0.05


@CURVATURES
def test_zero_input_has_the_matrix_as_its_jacobian(c):
    w, c = torch.randn(3, 4), torch.tensor(c, dtype=F64)
    jacobian = torch.autograd.functional.jacobian(lambda x: mobius_affine([x], [w], c)[0], torch.zeros(1, 4))
    torch.testing.assert_close(jacobian[:, 0], w)
    bias = torch.zeros(1, 3)
    jacobian = torch.autograd.functional.jacobian(lambda x: mobius_affine([x], [w], c, bias)[0], torch.zeros(1, 4))
    torch.testing.assert_close(jacobian[:, 0], w)
    jacobian = torch.autograd.functional.jacobian(lambda b: mobius_affine([torch.zeros(1, 4)], [w], c, b)[0], bias)
    torch.testing.assert_close(jacobian[:, 0], torch.eye(3))


@pytest.mark.parametrize("what", ["x", "weight", "bias", "both", "all"])
def test_zeros_anywhere(what):
    case = Case(2.0, (3,), 4, 1.0, bias=0.5, scaled=1)
    with torch.no_grad():
        if what in ("x", "both", "all"):
            case.xs[0].zero_()
        if what in ("weight", "all"):
            case.weights[0].zero_()
        if what in ("bias", "both", "all"):
            case.points.zero_()
    check(case, skip_c=True)


@pytest.mark.parametrize("scale", [3.0, 100.0, 1e15])
def test_results_stay_inside_the_margin(scale):
    """Also where the exact result would round to the boundary; the gradient there is finite."""
    for bias, scaled in ((None, 0), (0.0, 0), (12.0, 1)):
        case = Case(2.0, (3,), 4, 12.0, scale, bias, scaled)
        out, grads = case.run(mobius_affine)
        assert (2.0**0.5 * out.double().norm(dim=-1)).max() <= 1 - BALL_EPS[F32] + 3e-7
        assert all(torch.isfinite(g).all() for g in grads)


def test_opposite_points_at_the_boundary():
    """``W (x) x = -b``: the smallest denominators there are."""
    case = Case(2.0, (3,), 3, 12.0, bias=12.0)
    case.weights = [torch.eye(3)]
    case.points = -case.xs[0][:1].clone()
    out, grads = case.run(mobius_affine)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(g).all() for g in grads)
    assert (out[0].norm() * 2**0.5) < 0.5


def test_the_gradient_at_the_margin_is_that_of_the_pulled_back_point():
    """With a wide margin, so that float64 can tell."""
    case = Case(2.0, (3,), 4, 6.0, 1.2, bias=0.5)
    bound, cotangent = 0.98, torch.randn(N, 4)

    def reference(xs, weights, c, points, factors):
        y = mobius_affine_reference(xs, weights, c, points, factors)
        norm = c.sqrt() * y.norm(dim=-1, keepdim=True)
        return torch.where(norm > bound, bound / norm, 1) * y

    exact, expected_grads = case.run(reference, F64, cotangent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BALL_EPS, F32, 1 - bound)
        patch.setattr(passes, "_BOUND", bound)
        out, grads = case.run(mobius_affine, cotangent=cotangent)
    assert error(out, exact) <= 1e-6
    for a, b in zip(grads, expected_grads, strict=True):
        assert error(a, b) <= 1e-4


def test_float64_is_the_plain_path():
    case = Case(2.0, (3, 2), 4, 2.0, bias=0.5, scaled=1)
    for a, b in zip(*(case.run(f, F64) for f in (mobius_affine, mobius_affine_reference)), strict=True):
        assert all(map(torch.equal, a, b))


def test_shapes_and_layouts():
    ball = PoincareBall(2.0)
    layer = Linear(ball, 3, 4, bias_std=0.3)
    x = ball.random(5, 2, 3, std=0.3)
    assert layer(x).shape == (5, 2, 4)
    torch.testing.assert_close(layer(x.transpose(0, 1)), layer(x).transpose(0, 1))
    assert layer(x[0, 0]).shape == (4,)
    assert layer(x[:0]).shape == (0, 2, 4)
    layer(x[:0]).sum().backward()
    assert not layer.weight.grad.any()
    free = x.clone().requires_grad_()
    layer(free).sum().backward()  # an expanded gradient
    assert torch.isfinite(free.grad).all()


def test_only_the_gradients_that_are_needed():
    case = Case(2.0, (3, 2), 4, 2.0, bias=0.5, scaled=1)
    _, expected_grads = case.run(mobius_affine)
    arguments = [case.c, case.points, case.factors, *case.xs, *case.weights]
    for i, expected in enumerate(expected_grads):
        one = [t.clone().requires_grad_(i == j) for j, t in enumerate(arguments)]
        out = mobius_affine(one[3:5], one[5:], *one[:3])
        torch.testing.assert_close(torch.autograd.grad(out.sum(), one[i])[0], expected)
    assert not mobius_affine(case.xs, case.weights, case.c).requires_grad


def test_gradients_are_differentiable():
    ball = PoincareBall(2.0)
    layer = Linear(ball, 3, 4)
    x = ball.random(5, 3, std=0.3).requires_grad_()
    (first,) = torch.autograd.grad(layer(x).square().sum(), x)
    (again,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    torch.testing.assert_close(first, again)
    (second,) = torch.autograd.grad(again.sum(), x)
    twin = Linear(ball, 3, 4).double()
    twin.load_state_dict(layer.state_dict())
    wide = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(twin(wide).square().sum(), wide, create_graph=True)
    torch.testing.assert_close(second.double(), torch.autograd.grad(expected.sum(), wide)[0], rtol=1e-3, atol=1e-4)


def test_concat_is_the_sum_of_its_parts():
    ball = PoincareBall(0.5)
    for bias, n_features in itertools.product((True, False), (0, 2)):
        layer = Concat(ball, (3, 2), 4, bias, n_features, bias_std=0.4)
        x, y, f = ball.random(6, 3, std=0.5), ball.random(6, 2, std=0.5), torch.rand(6, n_features)
        out = ball.mobius_add(*(ball.mobius_matvec(w, v) for w, v in zip(layer.weights, (x, y), strict=True)))
        if bias:
            out = ball.mobius_add(out, layer.bias)
        if n_features:
            with torch.no_grad():
                layer.feature_bias.copy_(ball.random(2, 4, std=0.4))
            for j in range(2):
                out = ball.mobius_add(out, ball.mobius_scalar(f[:, j : j + 1], layer.feature_bias[j]))
        torch.testing.assert_close(layer(x, y, features=f if n_features else None), out, rtol=1e-5, atol=1e-6)


def test_concat_refuses_a_wrong_number_of_features():
    ball = PoincareBall(0.5)
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="takes 2 features .* got none"):
        Concat(ball, (3, 3), 4, n_features=2)(x, x)
    with pytest.raises(ValueError, match=r"takes 0 features .* shape \(2, 1\)"):
        Concat(ball, (3, 3), 4)(x, x, features=torch.ones(2, 1))
