"""Steps in closed form against the same update in the words of the manifold, one point at a time."""

import pytest
import torch

from hyperbolic import switch
from hyperbolic.kernels import adam, adam_native
from hyperbolic.kernels.adam import Rows
from hyperbolic.kernels.geodesic_steps import Numbers, Rule
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
CURVED = pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
CURVATURES = pytest.mark.parametrize("c", [0.3, 2.5])
LR, BETAS, EPS = 0.05, (0.8, 0.9), 1e-6
pytestmark = pytest.mark.usefixtures("each_path")


def step(name, rows, k, rule):
    if switch.native():
        assert adam_native.step(name, rows, k, rule)
    else:
        adam.step(name, rows, k, rule)


def numbers(c, rule, t, decay=0.0):
    if rule.adam:
        values = (LR / (1 - BETAS[0] ** t), BETAS[0], 1 - BETAS[0], 1 - BETAS[1], 1 / (1 - BETAS[1] ** t), EPS)
    else:
        values = (LR, BETAS[0], 1.0, 1.0, 1.0, 1.0)
    return Numbers(*(torch.tensor(v, dtype=F64) for v in (c, *values, 1 - LR * decay)))


def textbook(manifold, x, gradients, rule, decay=0.0):
    """The new points and momenta after one step for each gradient."""
    m, v, largest = torch.zeros_like(x), torch.zeros_like(x[:, :1]), torch.zeros_like(x[:, :1])
    for t, gradient in enumerate(gradients, 1):
        g = manifold.egrad2rgrad(x, gradient)
        v = BETAS[1] * v + (1 - BETAS[1]) * manifold.inner(x, g, keepdim=True)
        largest = torch.maximum(largest, v)
        moved = manifold.expmap0((1 - LR * decay) * manifold.logmap0(x))
        g, m = manifold.transp(x, moved, g), manifold.transp(x, moved, m)
        if rule.adam:
            m = BETAS[0] * m + (1 - BETAS[0]) * g
            second = (largest if rule.amsgrad else v) / (1 - BETAS[1] ** t)
            u = -LR / (1 - BETAS[0] ** t) * m / (second.sqrt() + EPS)
        else:
            m = BETAS[0] * m + g if rule.momentum else g
            u = -LR * m
        new = manifold.expmap(moved, u) if rule.exact_exp else manifold.retr(moved, u)
        x, m = new, manifold.transp(moved, new, m)
    return x, m


def start(manifold, n, d, dtype, std=0.5):
    x = manifold.random(n, d, std=std, dtype=F64)
    x[0] = manifold.origin(d, dtype=F64)
    return manifold.projx(x.to(dtype))


def rows_of(x, rule, grad=None):
    one = torch.zeros_like(x[:, :1])
    momentum = torch.zeros_like(x) if rule.momentum else None
    return Rows(x, grad, momentum, one if rule.adam else None, one.clone() if rule.amsgrad else None)


def run(manifold, rows, gradients, rule, decay=0.0):
    for t, gradient in enumerate(gradients, 1):
        step(type(manifold).__name__, rows._replace(grad=gradient), numbers(manifold.c.item(), rule, t, decay), rule)
    return rows.x, rows.momentum


RULES = [
    Rule(),
    Rule(amsgrad=True),
    Rule(decay=True),
    Rule(adam=False),
    Rule(adam=False, momentum=False),
    Rule(adam=False, decay=True),
]


@CURVED
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("c", "dtype"), [(0.3, F64), (2.5, F64), (2.5, F32)], ids=str)
def test_many_steps_are_the_textbook_update(kind, c, rule, dtype):
    manifold, decay = kind(c), 0.7 if rule.decay else 0.0
    x = start(manifold, 7, 4, dtype)
    size = 1.0 if rule.adam else 0.02  # a step of SGD at random grows with the distance from the origin
    gradients = [size * torch.randn_like(x) * 10.0 ** -(k % 3) for k in range(12)]
    expected, momentum = textbook(manifold, x.double(), [g.double() for g in gradients], rule, decay)
    actual, moved = run(manifold, rows_of(x, rule), gradients, rule, decay)
    torch.testing.assert_close(actual.double(), expected, **tolerance(dtype, "identity" if dtype is F64 else "model"))
    if rule.momentum:
        close = tolerance(dtype, "identity" if dtype is F64 else "model")
        torch.testing.assert_close(moved.double(), momentum, rtol=close["rtol"], atol=1e3 * close["atol"])
    assert manifold.check_point_on_manifold(actual)


@CURVATURES
@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_the_retraction_of_the_ball(c, decay):
    manifold, rule = PoincareBall(c), Rule(exact_exp=False, decay=decay > 0)
    x = start(manifold, 7, 4, F64)
    gradients = [torch.randn_like(x) for _ in range(25)]
    expected, momentum = textbook(manifold, x, gradients, rule, decay)
    actual, moved = run(manifold, rows_of(x.clone(), rule), gradients, rule, decay)
    torch.testing.assert_close(actual, expected, **tolerance(F64, "identity"))
    torch.testing.assert_close(moved, momentum, **tolerance(F64, "identity"))


@CURVED
def test_far_points_in_float64(kind):
    """Where squares are many orders larger than the parts orthogonal to x."""
    manifold, rule = kind(2.0), Rule()
    direction = torch.nn.functional.normalize(torch.randn(9, 4, dtype=F64), dim=-1)
    distance = 0.6 * manifold.max_radius(F64) / (2 if kind is PoincareBall else 1)
    x = manifold.expmap0(distance * direction)
    gradients = [torch.randn_like(x) for _ in range(3)]
    expected, _ = textbook(manifold, x, gradients, rule)
    actual, _ = run(manifold, rows_of(x.clone(), rule), gradients, rule)
    assert manifold.dist(actual, expected).max() < 1e-5
    assert manifold.dist(x, expected).min() > 1e-3


@CURVED
def test_a_step_over_the_edge_keeps_the_direction_of_the_momentum(kind):
    """The point stops at the stated radius; the momentum keeps its length and points outwards."""
    manifold, rule = kind(2.0), Rule(adam=False)
    for dtype in (F32, F64):
        x = start(manifold, 5, 3, dtype)[1:]
        outward = manifold.transp0(x, manifold.logmap0(x) + 0.1 * torch.randn(4, 3, dtype=dtype))
        rows = rows_of(x.clone(), rule)
        rows.momentum.copy_(-2000 * outward)
        length = manifold.norm(x, rows.momentum)
        step(type(manifold).__name__, rows._replace(grad=torch.zeros_like(x)), numbers(2.0, rule, 1), rule)
        radius = manifold.max_radius(dtype)
        torch.testing.assert_close(manifold.dist0(rows.x), torch.full((4,), radius, dtype=dtype), rtol=2e-2, atol=0)
        if not (kind is Lorentz and dtype is F32):  # there rounding the momentum is longer than the momentum
            torch.testing.assert_close(manifold.norm(rows.x, rows.momentum), BETAS[0] * length, rtol=5e-2, atol=0)
            home = manifold.logmap(rows.x, manifold.origin(4, 3, dtype=dtype))
            assert (manifold.inner(rows.x, home, rows.momentum) > 0).all()  # a step goes along -momentum


@CURVED
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_zero_gradients_move_nothing(kind, dtype):
    manifold = kind(0.3)
    x = start(manifold, 6, 3, dtype)
    actual, momentum = run(manifold, rows_of(x.clone(), Rule()), [torch.zeros_like(x)] * 3, Rule())
    torch.testing.assert_close(actual, x, rtol=1e-6, atol=0)
    assert (momentum == 0).all()


@CURVED
def test_blocks_and_chunks_change_nothing(kind, monkeypatch):
    manifold, rule = kind(2.5), Rule(amsgrad=True)
    x = start(manifold, 37, 3, F64)
    gradients = [torch.randn_like(x) for _ in range(3)]
    whole = run(manifold, rows_of(x.clone(), rule), gradients, rule)
    monkeypatch.setattr(adam, "_BLOCK", 20)
    monkeypatch.setattr(adam, "_CHUNK", 10)
    parts = run(manifold, rows_of(x.clone(), rule), gradients, rule)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, **tolerance(F64, "identity"))


@CURVED
def test_no_rows_and_one_row(kind):
    manifold = kind(2.0)
    for n in (0, 1):
        x = manifold.random(n, 3, dtype=F64)
        run(manifold, rows_of(x, Rule()), [torch.randn_like(x)], Rule())
        assert torch.isfinite(x).all()


@CURVED
def test_gradients_that_leave_no_digit_of_a_momentum(kind):
    """Huge gradients of alternating sign nearly cancel in the momentum; points have to stay in their space."""
    manifold, rule = kind(2.0), Rule(adam=False)
    for dtype in (F32, F64):
        x = start(manifold, 20, 4, dtype)
        direction = torch.randn_like(x)
        gradients = [direction * (-0.8) ** t * 1e35 for t in range(12)]
        actual, momentum = run(manifold, rows_of(x, rule), gradients, rule)
        assert torch.isfinite(actual).all()
        assert torch.isfinite(momentum).all()
        assert manifold.check_point_on_manifold(actual)
