"""Every gyrovector step and its derivative against the papers' Möbius operations, in float64."""

import itertools

import mpmath
import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels import gyro
from hyperbolic.smooth import artanhc
from tests.kernels import plain
from tests.tolerances import tolerance

LEAD, H, B = (2, 3), 4, 5  # streams, gates; coordinates; batch
F32, F64 = torch.float32, torch.float64
# artanh of the norm of points, that is the length of their logarithm. 6 is a gap of 2e-5, near the float32 margin.
RADII = {"zero": (0.0, 0.0), "tiny": (1e-12, 1e-9), "inside": (0.1, 2.0), "far": (3.0, 6.0)}
# plain formulas in float64 keep fewer digits where gaps of 2e-5 cancel
KIND = {"zero": "identity", "tiny": "identity", "inside": "identity", "far": "model"}


def vectors(region: str, batch: int = B) -> torch.Tensor:
    low, high = RADII[region]
    direction = normalize(torch.randn(*LEAD, H, batch, dtype=F64), dim=-2)
    return (low + (high - low) * torch.rand(*LEAD, 1, batch, dtype=F64)) * direction


def points(region: str, batch: int = B) -> torch.Tensor:
    return plain.exp0(vectors(region, batch))


def exact_gap(x: torch.Tensor) -> torch.Tensor:
    return plain.gap(x.double())


def close(actual, expected, kind):
    torch.testing.assert_close(actual, expected.to(actual.dtype), **tolerance(actual.dtype, kind))


def close_rows(actual, expected, kind):
    """Errors relative to the largest entry of each vector: its other entries may cancel."""
    rtol, atol = tolerance(actual.dtype, kind).values()
    size = expected.abs().amax(-2, keepdim=True)
    assert ((actual - expected).abs() <= rtol * size + atol).all(), (actual - expected).abs().max()


def compare(function, formula, arguments, kind):
    """Points and gaps of a step with those of a formula, and gradients of all arguments."""
    arguments = [a.clone().requires_grad_() for a in arguments]
    point = formula(*arguments)
    results, expected = function(*arguments), (point, plain.gap(point))
    for a, b in zip(results, expected, strict=True):
        close(a, b, kind)
    cotangents = [torch.randn_like(a) for a in results]
    grads, expected_grads = (torch.autograd.grad(values, arguments, cotangents) for values in (results, expected))
    for a, b in zip(grads, expected_grads, strict=True):
        close_rows(a, b, kind)


@pytest.mark.parametrize("region", RADII)
def test_log_origin(region):
    x, cotangent = points(region).requires_grad_(), torch.randn(*LEAD, H, B, dtype=F64)
    value, expected = gyro.log_origin(x, exact_gap(x)), plain.log0(x)
    close_rows(value, expected, KIND[region])
    close_rows(*(torch.autograd.grad(y, x, cotangent)[0] for y in (value, expected)), KIND[region])


@pytest.mark.parametrize("region", RADII)
def test_exp_origin(region):
    compare(gyro.exp_origin, plain.exp0, [vectors(region)], KIND[region])


@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.1, 0.14142, 0.14143, 0.5, 3.0])
def test_derivatives_of_the_radial_functions(radius):
    """To the fourth, in closed form and by series, against those of mpmath."""
    square = torch.tensor([radius**2], dtype=F64, requires_grad=True)
    for function, exact in (
        (lambda s: gyro.tanhc(s)[0], lambda s: mpmath.tanh(mpmath.sqrt(s)) / mpmath.sqrt(s) if s else mpmath.mpf(1)),
        (lambda s: gyro.tanhc(s)[1], lambda s: mpmath.sech(mpmath.sqrt(s)) ** 2),
        (
            lambda s: artanhc(1 - s),
            lambda s: mpmath.atanh(mpmath.sqrt(s)) / mpmath.sqrt(s) if s else mpmath.mpf(1),
        ),
    ):
        if radius >= 1 and function(square.detach()).isnan():
            continue  # artanh
        value = function(square)
        with mpmath.workdps(60):
            at = mpmath.mpf(radius**2) or mpmath.mpf("1e-30")
            for order in range(4):
                expected = float(mpmath.re(mpmath.diff(exact, at, order)))
                torch.testing.assert_close(value.item(), expected, rtol=1e-7, atol=0)
                (value,) = torch.autograd.grad(value, square, create_graph=True)


def test_gap_keeps_its_digits_in_float32():
    """``sech^2`` of the length, where ``1 - |x|^2`` of float32 coordinates has no correct digit left."""
    u = vectors("far")
    torch.testing.assert_close(
        gyro.exp_origin(u.float())[1].double(), u.norm(dim=-2, keepdim=True).cosh() ** -2, rtol=5e-6, atol=0
    )


def affine_arguments(q, u, b):
    return q, u, exact_gap(u).to(q.dtype), b, exact_gap(b).to(q.dtype)


AFFINE = [*itertools.product(("zero", "inside"), repeat=3), *itertools.permutations(("far", "inside", "tiny"))]


@pytest.mark.parametrize(("q_region", "u_region", "b_region"), AFFINE)
def test_affine_point(q_region, u_region, b_region):
    q, u, b = vectors(q_region), points(u_region), points(b_region, 1)
    kind = "model" if "far" in (q_region, u_region, b_region) else "identity"
    compare(lambda *points: gyro.affine_point(*affine_arguments(*points)), plain.affine, [q, u, b], kind)


def test_affine_point_operand_order():
    """(W h (+) U x) (+) b, not any other order: the sum neither commutes nor associates."""
    q, u, b = vectors("inside"), points("inside"), points("inside", 1)
    point = gyro.affine_point(*affine_arguments(q, u, b))[0]
    x = plain.exp0(q)
    for other in (plain.add(plain.add(u, x), b), plain.add(x, plain.add(u, b)), plain.add(b, plain.add(x, u))):
        assert (point - other).norm(dim=-2).max() > 0.1


GATED = [
    *itertools.product(("zero", "inside"), repeat=2),
    ("far", "inside"),
    ("inside", "far"),
    ("far", "far"),
    ("tiny", "inside"),
    ("tiny", "tiny"),
]


def gated(h, o, z):
    return gyro.gated_update(h, exact_gap(h), o, exact_gap(o), z)


@pytest.mark.parametrize(("h_region", "o_region"), GATED)
def test_gated_update(h_region, o_region):
    h, o, z = points(h_region), points(o_region), torch.rand(*LEAD, H, B, dtype=F64)
    kind = "model" if "far" in (h_region, o_region) else "identity"
    compare(gated, plain.gated, [h, o, z], kind)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("region", ["zero", "inside", "far"])
def test_gated_update_at_its_ends(region, dtype):
    """An update gate of 0 leaves the state as it is, one of 1 moves it to the candidate."""
    h, o = points(region), points("inside").to(dtype)
    h = plain.exp0(plain.log0(h) / (2 if dtype is F32 else 1)).to(dtype)
    gaps = exact_gap(h).to(dtype), exact_gap(o).to(dtype)
    new, gap = gyro.gated_update(h, gaps[0], o, gaps[1], torch.zeros_like(h))
    torch.testing.assert_close(new, h, rtol=4 * torch.finfo(dtype).eps, atol=0)
    torch.testing.assert_close(gap, gaps[0], rtol=8 * torch.finfo(dtype).eps / gaps[0].min().item(), atol=0)
    new, gap = gyro.gated_update(h, gaps[0], o, gaps[1], torch.ones_like(h))
    # from a point with gap g back inside, rounding errors grow by 1/g
    room = 100 * torch.finfo(dtype).eps / exact_gap(h).min().item()
    torch.testing.assert_close(new, o, rtol=0, atol=room)
    torch.testing.assert_close(gap, gaps[1], rtol=0, atol=room)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_a_chain_of_updates_keeps_points_and_gaps_together(dtype):
    """Both are carried from step to step, and what one of them says must stay what the other says."""
    h, gap = torch.zeros(H, B, dtype=dtype), torch.ones(1, B, dtype=dtype)
    for _ in range(200):
        o = points("inside")[0, 0].to(dtype)
        h, gap = gyro.gated_update(h, gap, o, exact_gap(o).to(dtype), torch.rand(H, B).to(dtype))
        assert ((gap - exact_gap(h)).abs() <= 32 * torch.finfo(dtype).eps).all()


def test_gated_update_of_equal_points_keeps_them_with_the_gradient_of_the_limit():
    """With o = h the gates do not matter: h' = h, and h' depends on o through the gates alone."""
    h, z = points("inside"), torch.rand(*LEAD, H, B, dtype=F64)
    h, o, z = (t.requires_grad_() for t in (h, h.clone(), z))
    new, _ = gated(h, o, z)
    close(new, h, "identity")
    cotangent = torch.randn_like(h)
    g_h, g_o, g_z = torch.autograd.grad(new, (h, o, z), cotangent)
    close(g_z, torch.zeros_like(z), "identity")
    close(g_o, z * cotangent, "identity")
    close(g_h, (1 - z) * cotangent, "identity")
