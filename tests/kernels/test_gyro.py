"""Every gyrovector step and its derivative against plain Möbius operations and autograd, in float64."""

import itertools

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels import gyro
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


def plain_grads(function, arguments, cotangent):
    arguments = [a.clone().requires_grad_() for a in arguments]
    return torch.autograd.grad((function(*arguments) * cotangent).sum(), arguments)


@pytest.mark.parametrize("region", RADII)
def test_log_origin(region):
    x = points(region)
    value, saved = gyro.log_origin(x, exact_gap(x))
    close_rows(value, plain.log0(x), KIND[region])
    cotangent = torch.randn_like(x)
    g_x, g_gap = gyro.log_origin_grad(saved, cotangent)
    close_rows(g_x - 2 * g_gap * x, plain_grads(plain.log0, [x], cotangent)[0], KIND[region])


@pytest.mark.parametrize("region", RADII)
def test_exp_origin(region):
    u = vectors(region)
    point, gap, saved = gyro.exp_origin(u)
    close(point, plain.exp0(u), "identity")
    close(gap, plain.gap(plain.exp0(u)), KIND[region])
    g_point, g_gap = torch.randn_like(u), torch.randn_like(gap)

    def both(u):
        x = plain.exp0(u)
        return torch.cat([x, plain.gap(x)], -2)

    expected = plain_grads(both, [u], torch.cat([g_point, g_gap], -2))[0]
    close_rows(gyro.exp_origin_grad(saved, g_point, g_gap), expected, KIND[region])


def test_gap_keeps_its_digits_in_float32():
    """``sech^2`` of the length, where ``1 - |x|^2`` of float32 coordinates has no correct digit left."""
    u = vectors("far")
    torch.testing.assert_close(
        gyro.exp_origin(u.float())[1].double(), u.norm(dim=-2, keepdim=True).cosh() ** -2, rtol=5e-6, atol=0
    )


def affine_arguments(q, u, b):
    return q, u, exact_gap(u).to(q.dtype), b, exact_gap(b).to(q.dtype)


def affine_grads(saved, u, b, g_point, g_gap):
    """Gradients of the free variables q, u, b: gaps follow from the points."""
    g_q, g_u, g_u_gap, g_b, g_b_gap = gyro.affine_point_grad(saved, g_point, g_gap)
    return g_q, g_u - 2 * g_u_gap * u, (g_b - 2 * g_b_gap * b).sum(-1, keepdim=True)


AFFINE = [*itertools.product(("zero", "inside"), repeat=3), *itertools.permutations(("far", "inside", "tiny"))]


@pytest.mark.parametrize(("q_region", "u_region", "b_region"), AFFINE)
def test_affine_point(q_region, u_region, b_region):
    q, u, b = vectors(q_region), points(u_region), points(b_region, 1)
    kind = "model" if "far" in (q_region, u_region, b_region) else "identity"
    point, gap, saved = gyro.affine_point(*affine_arguments(q, u, b))
    expected = plain.affine(q, u, b)
    close(point, expected, kind)
    close(gap, plain.gap(expected), kind)

    def both(q, u, b):
        x = plain.affine(q, u, b)
        return torch.cat([x, plain.gap(x)], -2)

    g_point, g_gap = torch.randn_like(q), torch.randn_like(gap)
    expected_grads = plain_grads(both, [q, u, b], torch.cat([g_point, g_gap], -2))
    for actual, expected in zip(affine_grads(saved, u, b, g_point, g_gap), expected_grads, strict=True):
        close_rows(actual, expected, kind)


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


def gated_grads(saved, h, o, g_point, g_gap):
    g_h, g_h_gap, g_o, g_o_gap, g_z = gyro.gated_update_grad(saved, g_point, g_gap)
    return g_h - 2 * g_h_gap * h, g_o - 2 * g_o_gap * o, g_z


@pytest.mark.parametrize(("h_region", "o_region"), GATED)
def test_gated_update(h_region, o_region):
    h, o, z = points(h_region), points(o_region), torch.rand(*LEAD, H, B, dtype=F64)
    kind = "model" if "far" in (h_region, o_region) else "identity"
    new, gap, saved = gyro.gated_update(h, exact_gap(h), o, exact_gap(o), z)
    expected = plain.gated(h, o, z)
    close(new, expected, kind)
    close(gap, plain.gap(expected), kind)

    def both(h, o, z):
        x = plain.gated(h, o, z)
        return torch.cat([x, plain.gap(x)], -2)

    g_point, g_gap = torch.randn_like(h), torch.randn_like(gap)
    expected_grads = plain_grads(both, [h, o, z], torch.cat([g_point, g_gap], -2))
    for actual, expected in zip(gated_grads(saved, h, o, g_point, g_gap), expected_grads, strict=True):
        close_rows(actual, expected, kind)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("region", ["zero", "inside", "far"])
def test_gated_update_at_its_ends(region, dtype):
    """An update gate of 0 leaves the state as it is, one of 1 moves it to the candidate."""
    h, o = points(region), points("inside").to(dtype)
    h = plain.exp0(plain.log0(h) / (2 if dtype is F32 else 1)).to(dtype)
    gaps = exact_gap(h).to(dtype), exact_gap(o).to(dtype)
    new, gap, _ = gyro.gated_update(h, gaps[0], o, gaps[1], torch.zeros_like(h))
    torch.testing.assert_close(new, h, rtol=4 * torch.finfo(dtype).eps, atol=0)
    torch.testing.assert_close(gap, gaps[0], rtol=8 * torch.finfo(dtype).eps / gaps[0].min().item(), atol=0)
    new, gap, _ = gyro.gated_update(h, gaps[0], o, gaps[1], torch.ones_like(h))
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
        h, gap, _ = gyro.gated_update(h, gap, o, exact_gap(o).to(dtype), torch.rand(H, B).to(dtype))
        assert ((gap - exact_gap(h)).abs() <= 32 * torch.finfo(dtype).eps).all()


def test_gated_update_of_equal_points_keeps_them_with_the_gradient_of_the_limit():
    """With o = h the gates do not matter: h' = h, and h' depends on o through the gates alone."""
    h, z = points("inside"), torch.rand(*LEAD, H, B, dtype=F64)
    new, _, saved = gyro.gated_update(h, exact_gap(h), h.clone(), exact_gap(h), z)
    close(new, h, "identity")
    cotangent = torch.randn_like(h)
    g_h, g_o, g_z = gated_grads(saved, h, h, cotangent, torch.zeros(*LEAD, 1, B, dtype=F64))
    close(g_z, torch.zeros_like(z), "identity")
    close(g_o, z * cotangent, "identity")
    close(g_h, (1 - z) * cotangent, "identity")
