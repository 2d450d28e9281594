"""Steps in C++ against the same steps on PyTorch operations."""

import math
import re
from pathlib import Path

import pytest
import torch

from hyperbolic import numerics, switch
from hyperbolic.kernels import riemannian_steps
from hyperbolic.kernels.riemannian_steps import Rows, Rule, plain
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from tests.kernels.test_riemannian_steps import ADAM, CURVED, F32, F64, KEEP, LR, RULES, SGD, rows_of, rule_at, start
from tests.tolerances import tolerance

pytestmark = [
    pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("native_kernels"),
]


MOVE = Rule(1.0, 1.0)  # a step of -m


@pytest.fixture(autouse=True)
def in_cpp(monkeypatch):
    """No step is done by plain operations."""
    monkeypatch.setattr(riemannian_steps, "plain", None)


EVERY_RULE = [*RULES, (ADAM._replace(keep=KEEP), True, True)]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("manifold", [PoincareBall(1.0), PoincareBall(0.3), Klein(2.0), Lorentz(1.0)])
def test_long_steps_back_through_the_origin_stay_inside(manifold, dtype):
    """Their weights are far larger than what they end at, so that rounding is worth more than the margin is wide."""
    radius = manifold.max_radius(dtype) / manifold.origin_scale
    directions = torch.nn.functional.normalize(torch.randn(200, 5, dtype=dtype), dim=-1)
    x = manifold.expmap0(torch.linspace(0.3, 0.9, 200, dtype=dtype)[:, None] * radius * directions)
    inward = manifold.logmap(x, manifold.expmap0(1e-3 * torch.randn(200, 5, dtype=dtype)))
    for length in (1.0, 1.5, 2.0, 2.5):
        y = x.clone()
        riemannian_steps.step(Rows(y, torch.zeros_like(y), -length * inward), manifold, MOVE)
        assert manifold.check_point_on_manifold(y, atol=1e-4, rtol=1e-4)
        assert (manifold.dist0(y) <= manifold.max_radius(dtype) * (1 + 1e-5)).all()  # a rounding at the margin


@pytest.mark.every_case
@pytest.mark.parametrize("dtype", [F32, F64])
@CURVED
def test_what_is_no_number_stays_none_in_its_row(kind, dtype):
    manifold = kind(1.3)
    x, square = manifold.random(4, 5, std=0.5, dtype=dtype), torch.ones(4, 1, dtype=dtype)
    gradient, m, largest = torch.ones_like(x), torch.zeros_like(x), torch.ones_like(square)
    gradient[1, 2], square[2] = torch.nan, torch.nan
    for _ in range(2):  # the second with a momentum that is none
        riemannian_steps.step(Rows(x, gradient, m, square, largest), manifold, ADAM)
        assert x.isnan().any(-1).tolist() == [False, True, True, False]
        assert largest.isnan().flatten().tolist() == [False, True, True, False]
    x = manifold.random(4, 5, std=0.5, dtype=dtype)
    riemannian_steps.step(Rows(x, gradient), manifold, Rule(LR))
    assert x.isnan().any(-1).tolist() == [False, True, False, False]
    assert kind is not Lorentz or x[1].isnan().all(), "the time coordinate, too"


@pytest.mark.parametrize(("dtype", "name"), [(F32, "float"), (F64, "double")])
def test_the_limits_of_points_are_those_of_the_formulas(dtype, name):
    header = Path(riemannian_steps.__file__).with_name("geodesic_steps.h").read_text()
    (limits,) = re.findall(rf"struct Limits<{name}> {{(.*?)}};", header, re.DOTALL)
    numbers = dict(re.findall(r"(\w+) = ([\d.e-]+)[,;]", limits))
    assert float(numbers["ball_eps"]) == numerics.BALL_EPS[dtype]
    assert float(numbers["sheet_radius"]) == numerics.SHEET_RADIUS[dtype]


def test_rows_without_a_coordinate_are_not_for_cpp():
    rows = Rows(torch.empty(3, 0), torch.empty(3, 0))
    assert not riemannian_steps._is_for_cpp(rows, Lorentz(1.0), MOVE)


def both(manifold, rule, amsgrad, momentum, n, d, dtype, index=None, threads=1):
    """Tables after four steps: of the C++ kernel, and of PyTorch's operations."""
    x = start(manifold, max(n, 1), d, dtype)[:n]
    size = 1.0 if rule.retain != 1 else 0.02 * min(1.0, (18 / d) ** 3)  # no further out: errors grow as exp(2 distance)
    gradients = [size * torch.randn_like(x if index is None else x[index]) * 10.0 ** (1 - k) for k in range(4)]
    ends = []
    for step in (riemannian_steps.step, plain.step):
        rows = rows_of(x.clone(), rule, None, amsgrad, momentum)
        torch.set_num_threads(threads)
        for t, gradient in enumerate(gradients, 1):
            step(rows._replace(grad=gradient, some=index), manifold, rule_at(rule, t))
        torch.set_num_threads(1)
        ends.append([r for r in rows if r is not None])
    return zip(*ends, strict=True)


@CURVED
@pytest.mark.parametrize(
    ("rule", "n", "d", "threads"),
    [
        *((rule, *size) for rule in EVERY_RULE for size in ((0, 3, 1), (1, 1, 1), (65, 17, 2))),
        *((EVERY_RULE[-1], *size) for size in ((40, 7, 1), (12, 15, 1), (9, 40, 1))),  # other blocks of columns
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_cpp_equals_pytorch(kind, rule, n, d, threads, dtype):
    for fast, slow in both(kind(2.5), *rule, n, d, dtype, threads=threads):
        torch.testing.assert_close(fast, slow, **tolerance(dtype, "model" if dtype is F32 else "identity"))


@CURVED
def test_the_rows_of_an_index_move_and_no_others(kind):
    for fast, slow in both(kind(2.5), ADAM, True, True, 40, 5, F64, torch.tensor([4, 0, 39, 17, 8])):
        torch.testing.assert_close(fast, slow, **tolerance(F64, "identity"))


@CURVED
@pytest.mark.parametrize("longest", [0.01, 1.5, 5.0])
@pytest.mark.parametrize("keep", [1.0, KEEP])
def test_steps_of_all_lengths_in_one_block(kind, longest, keep):
    """What few steps need is left out of the blocks that do not need it."""
    manifold, rule, n, d = kind(2.5), SGD._replace(rate=longest, keep=keep), 64, 6
    x = start(manifold, n, d, F64, std=0.05)
    lengths = torch.logspace(-6, 0, 32, dtype=F64).repeat(2)
    lengths[:32] *= 0.01  # a block of short ones, and one of all lengths
    gradient = torch.nn.functional.normalize(torch.randn_like(x), dim=-1) * lengths[:, None]
    ends = [rows_of(x.clone(), rule)._replace(grad=gradient) for _ in range(2)]
    riemannian_steps.step(ends[0], manifold, rule)
    plain.step(ends[1], manifold, rule)
    assert (ends[0].x != x).any(-1).all()
    for fast, slow in zip(ends[0][:3:2], ends[1][:3:2], strict=True):
        torch.testing.assert_close(fast, slow, **tolerance(F64, "identity"))


def test_a_huge_momentum_among_short_steps_is_cut():
    """It is kept inside the dtype; the other rows of its block move as without it."""
    manifold, rule = Lorentz(1.0), MOVE._replace(rate=1e-38)
    x = start(manifold, 8, 5, F32, std=2.0)
    m = manifold.proju(x.double(), torch.randn_like(x).double()).float()
    alone = Rows(x[2:].clone(), torch.zeros_like(x[2:]), m[2:].clone())
    riemannian_steps.step(alone, manifold, rule)
    m[1] *= 9e36 / m[1].double().norm()
    together = Rows(x, torch.zeros_like(x), m)
    riemannian_steps.step(together, manifold, rule)
    assert together.x.isfinite().all()
    assert together.momentum[1, 1:].double().norm().item() == pytest.approx(1e36, rel=1e-5)
    torch.testing.assert_close(together.x[2:], alone.x)
    torch.testing.assert_close(together.momentum[2:], alone.momentum)


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("radius", [10.0, 15.0])
@pytest.mark.parametrize(("beyond", "velocity"), [(0.0, 1e-8), (1e-6, 1e-6), (1e-3, 1e-6), (1e-3, 1e-4)])
def test_points_a_little_beyond_the_largest_radius_keep_the_sign_of_their_momenta(radius, beyond, velocity, dtype):
    """A step inward that is shorter than what they are too far out ends at the radius, its momentum still inward."""
    e = torch.nn.functional.normalize(torch.randn(40, 8, dtype=F64), dim=-1)
    space = (math.sinh(radius + beyond) * e).to(dtype)
    x = torch.cat([(1 + space.double().square().sum(-1, keepdim=True)).sqrt().to(dtype), space], -1)
    sinh, cosh = torch.full((40, 1), math.sinh(radius + beyond), dtype=F64), math.cosh(radius + beyond)
    m = (torch.cat([sinh, cosh * e], -1) * velocity).to(dtype)
    assert riemannian_steps.step(Rows(x, torch.zeros_like(x), m), Lorentz(1.0), MOVE, radius)
    assert ((m[:, 1:].double() * e).sum(-1) > 0).all()


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize(("d", "std"), [(4, 0.3), (40, 0.08)])
def test_a_largest_radius_on_the_hyperboloid(d, std, dtype):
    """As the manifold's own way back, with the momenta; the next step starts from there in the same way."""
    manifold, radius = Lorentz(2.5), 0.6
    x = start(manifold, 20, d, dtype, std=std)
    rows, other = rows_of(x.clone(), ADAM), rows_of(x.clone(), ADAM)
    for t in range(1, 4):
        gradient, rule = torch.randn_like(x), rule_at(ADAM, t)
        assert riemannian_steps.step(rows._replace(grad=gradient), manifold, rule, radius)
        plain.step(other._replace(grad=gradient), manifold, rule)
        far = manifold.beyond(other.x, radius)
        assert 0 < far.sum() < 20
        other.x[far], other.momentum[far] = manifold.shorten(other.x[far], radius, other.momentum[far])
    assert not manifold.beyond(rows.x, radius).any()
    for fast, slow in zip(rows, other, strict=True):
        if fast is not None:
            torch.testing.assert_close(fast, slow, **tolerance(dtype, "model" if dtype is F32 else "identity"))


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("velocity", [0.45, -0.45, 0.0])
@pytest.mark.parametrize(("begin", "radius"), [(12.0, 5.0), (12.0, 11.0), (6.0, 2.0)])
@pytest.mark.parametrize("d", [3, 40])
def test_points_that_start_beyond_the_largest_radius(begin, radius, velocity, d, dtype):
    """Radial velocities stay what they are, inwards too; so do those across."""
    e = torch.nn.functional.normalize(torch.ones(1, d, dtype=F64), dim=-1)
    across = torch.zeros_like(e)
    across[0, :2] = torch.tensor([0.3, -0.3])

    def point(r):
        return torch.cat([torch.tensor([[math.cosh(r)]]), math.sinh(r) * e], -1)

    def tangent(r):
        return torch.cat([torch.tensor([[math.sinh(r) * velocity]]), math.cosh(r) * velocity * e + across], -1)

    x, m = point(begin).to(dtype), tangent(begin).to(dtype)
    assert riemannian_steps.step(Rows(x, torch.zeros_like(x), m), Lorentz(1.0), MOVE._replace(rate=1e-3), radius)
    near = {"rtol": 1e-3, "atol": 1e-3}  # the direction to the origin turns by the step across
    torch.testing.assert_close(x.double(), point(radius), **near)
    torch.testing.assert_close(m.double(), tangent(radius), rtol=1e-3, atol=2e-3 * math.cosh(radius))


def test_tables_it_is_not_for():
    wide, ball = torch.zeros(3, 8), PoincareBall()

    def takes(rows, manifold=ball, rule=ADAM):
        return riemannian_steps._is_for_cpp(rows, manifold, rule)

    rows = rows_of(torch.zeros(3, 4), ADAM, torch.zeros(3, 4))
    assert takes(rows)
    assert not takes(rows._replace(x=wide[:, :4]))
    assert not takes(rows._replace(some=torch.arange(6)[::2]))
    assert not takes(rows, Klein(), ADAM._replace(exact_exp=False))
    assert takes(rows, rule=ADAM._replace(exact_exp=False))
    switch.use_kernels("plain")
    assert not takes(rows)
