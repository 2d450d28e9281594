"""Steps against the same update in the words of the manifold, in C++ and by plain operations."""

import pytest
import torch

from hyperbolic.kernels.riemannian_steps import Rows, Rule, plain, step
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
CURVED = pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
CURVATURES = pytest.mark.parametrize("c", [0.3, 2.5])
LR, BETAS, EPS = 0.05, (0.8, 0.9), 1e-6
pytestmark = pytest.mark.usefixtures("each_path")


def rule_at(rule, t):
    """The rule at step t: its rate is given as a learning rate."""
    if rule.retain == 1:
        return rule
    rate, correction = rule.rate / (1 - BETAS[0] ** t), 1 / (1 - BETAS[1] ** t)
    return rule._replace(rate=rate, correction=correction)


def textbook(manifold, x, gradients, rule, amsgrad=False, momentum=True):
    """The new points and momenta after one step for each gradient."""
    m, v, largest = torch.zeros_like(x), torch.zeros_like(x[:, :1]), torch.zeros_like(x[:, :1])
    for t, gradient in enumerate(gradients, 1):
        g = manifold.egrad2rgrad(x, gradient)
        v = BETAS[1] * v + (1 - BETAS[1]) * manifold.inner(x, g, keepdim=True)
        largest = torch.maximum(largest, v)
        moved = manifold.expmap0(rule.keep * manifold.logmap0(x))
        g, m = manifold.transp(x, moved, g), manifold.transp(x, moved, m)
        if rule.retain != 1:
            m = BETAS[0] * m + (1 - BETAS[0]) * g
            second = (largest if amsgrad else v) / (1 - BETAS[1] ** t)
            u = -LR / (1 - BETAS[0] ** t) * m / (second.sqrt() + EPS)
        else:
            m = BETAS[0] * m + g if momentum else g
            u = -LR * m
        new = manifold.expmap(moved, u) if rule.exact_exp else manifold.retr(moved, u)
        x, m = new, manifold.transp(moved, new, m)
    return x, m


def start(manifold, n, d, dtype, std=0.5):
    x = manifold.random(n, d, std=std, dtype=F64)
    x[0] = manifold.origin(d, dtype=F64)
    return manifold.projx(x.to(dtype))


def rows_of(x, rule, grad=None, amsgrad=False, momentum=True):
    adam = rule.retain != 1
    own = [torch.zeros_like(x[:, :1]) if needed else None for needed in (adam, adam and amsgrad)]
    return Rows(x, grad, torch.zeros_like(x) if momentum else None, *own)


def run(manifold, rows, gradients, rule):
    for t, gradient in enumerate(gradients, 1):
        step(rows._replace(grad=gradient), manifold, rule_at(rule, t))
    return rows.x, rows.momentum


ADAM = Rule(LR, BETAS[0], 1 - BETAS[0], BETAS[1], 1 - BETAS[1], eps=EPS)
SGD = Rule(LR, BETAS[0])
KEEP = 1 - 0.7 * LR
# rule, AMSGrad, momentum
RULES = [
    (ADAM, False, True),
    (ADAM, True, True),
    (ADAM._replace(keep=KEEP), False, True),
    (SGD, False, True),
    (SGD, False, False),
    (SGD._replace(keep=KEEP), False, True),
]


@CURVED
@pytest.mark.parametrize(("rule", "amsgrad", "momentum"), RULES, ids=str)
@pytest.mark.parametrize(("c", "dtype"), [(0.3, F64), (2.5, F64), (2.5, F32)], ids=str)
def test_many_steps_are_the_textbook_update(kind, c, rule, amsgrad, momentum, dtype):
    manifold = kind(c)
    x = start(manifold, 7, 4, dtype)
    size = 1.0 if rule.retain != 1 else 0.02  # a step of SGD at random grows with the distance from the origin
    gradients = [size * torch.randn_like(x) * 10.0 ** -(k % 3) for k in range(12)]
    wide = [g.double() for g in gradients]
    expected, expected_m = textbook(manifold, x.double(), wide, rule, amsgrad, momentum)
    actual, moved = run(manifold, rows_of(x, rule, None, amsgrad, momentum), gradients, rule)
    torch.testing.assert_close(actual.double(), expected, **tolerance(dtype, "identity" if dtype is F64 else "model"))
    if momentum:
        close = tolerance(dtype, "identity" if dtype is F64 else "model")
        torch.testing.assert_close(moved.double(), expected_m, rtol=close["rtol"], atol=1e3 * close["atol"])
    assert manifold.check_point_on_manifold(actual)


@CURVATURES
@pytest.mark.parametrize("keep", [1.0, KEEP])
def test_the_retraction_of_the_ball(c, keep):
    manifold, rule = PoincareBall(c), ADAM._replace(exact_exp=False, keep=keep)
    x = start(manifold, 7, 4, F64)
    gradients = [torch.randn_like(x) for _ in range(25)]
    expected, momentum = textbook(manifold, x, gradients, rule)
    actual, moved = run(manifold, rows_of(x.clone(), rule), gradients, rule)
    torch.testing.assert_close(actual, expected, **tolerance(F64, "identity"))
    torch.testing.assert_close(moved, momentum, **tolerance(F64, "identity"))


@CURVED
def test_far_points_in_float64(kind):
    """Where squares are many orders larger than the parts orthogonal to x."""
    manifold, rule = kind(2.0), ADAM
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
    manifold, rule = kind(2.0), SGD
    for dtype in (F32, F64):
        x = start(manifold, 5, 3, dtype)[1:]
        outward = manifold.transp0(x, manifold.logmap0(x) + 0.1 * torch.randn(4, 3, dtype=dtype))
        rows = rows_of(x.clone(), rule)
        rows.momentum.copy_(-2000 * outward)
        length = manifold.norm(x, rows.momentum)
        step(rows._replace(grad=torch.zeros_like(x)), manifold, rule)
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
    actual, momentum = run(manifold, rows_of(x.clone(), ADAM), [torch.zeros_like(x)] * 3, ADAM)
    torch.testing.assert_close(actual, x, rtol=1e-6, atol=0)
    assert (momentum == 0).all()


@CURVED
def test_no_rows_and_one_row(kind):
    manifold = kind(2.0)
    for n in (0, 1):
        x = manifold.random(n, 3, dtype=F64)
        run(manifold, rows_of(x, ADAM), [torch.randn_like(x)], ADAM)
        assert torch.isfinite(x).all()


@CURVED
def test_gradients_that_leave_no_digit_of_a_momentum(kind):
    """Huge gradients of alternating sign nearly cancel in the momentum; points have to stay in their space."""
    manifold, rule = kind(2.0), SGD
    for dtype in (F32, F64):
        x = start(manifold, 20, 4, dtype)
        direction = torch.randn_like(x)
        gradients = [direction * (-0.8) ** t * 1e35 for t in range(12)]
        actual, momentum = run(manifold, rows_of(x, rule), gradients, rule)
        assert torch.isfinite(actual).all()
        assert torch.isfinite(momentum).all()
        assert manifold.check_point_on_manifold(actual)


@CURVED
@pytest.mark.parametrize("exact_exp", [True, False])
def test_gradients_near_the_largest_number(kind, exact_exp):
    for momentum in (False, True):
        for size in (1e35, 5e37):
            x = start(kind(1.0), 100, 2, F32)
            rule = Rule(3.7, 0.9 if momentum else 0.0, exact_exp=exact_exp)
            ends = run(kind(1.0), rows_of(x, rule, momentum=momentum), [size * torch.randn_like(x)], rule)
            assert all(end.isfinite().all() for end in ends if end is not None)


@CURVED
def test_the_operator_and_one_compiled_graph(kind):
    """Tables are written in place in a compiled graph too."""
    manifold = kind(0.7)
    x = start(manifold, 5, 3, F32)
    rows = rows_of(x, ADAM, torch.randn_like(x), amsgrad=True)
    numbers = (manifold.c, manifold.name, list(ADAM[:8]), True)
    torch.library.opcheck(torch.ops.hyperbolic.riemannian_step.default, (*rows, *numbers))
    ends = [Rows(*(t if t is None else t.clone() for t in rows)) for _ in range(2)]
    compiled = torch.compile(lambda *tensors: step(Rows(*tensors), manifold, ADAM), fullgraph=True, backend="aot_eager")
    compiled(*ends[0])
    step(ends[1], manifold, ADAM)
    assert not torch.equal(ends[0].x, rows.x)
    for a, b in zip(ends[0][:5], ends[1][:5], strict=True):
        torch.testing.assert_close(a, b)


def test_blocks_change_nothing(monkeypatch):
    manifold = Lorentz(0.7)
    x = start(manifold, 11, 3, F64)
    gradients = [torch.randn_like(x) for _ in range(2)]
    ends = []
    for block in (1 << 16, 20):
        monkeypatch.setattr(plain, "_BLOCK", block)
        ends.append(run(manifold, rows_of(x.clone(), ADAM), gradients, ADAM))
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, **tolerance(F64, "identity"))
