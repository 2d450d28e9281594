"""The gyrovector steps where results are held inside the boundary margin of their dtype."""

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.kernels import gyro
from hyperbolic.numerics import BALL_EPS
from tests.kernels import plain
from tests.kernels.test_gyro import affine_arguments, close_rows, exact_gap, gated
from tests.tolerances import tolerance

H, B = 4, 6
F32, F64 = torch.float32, torch.float64
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


def directions(number: int = B) -> torch.Tensor:
    return normalize(torch.randn(H, number, dtype=F64), dim=-2)


def with_gap(gap: float, number: int = B) -> torch.Tensor:
    return (1 - gap) ** 0.5 * directions(number)


def least_gap(dtype: torch.dtype) -> float:
    return 1 - plain.bound(dtype) ** 2


@DTYPES
@pytest.mark.parametrize("length", [8.0, 16.0, 80.0, 1e4, 1e18])
def test_exp_origin_never_leaves_the_margin(length, dtype):
    u = (length * directions()).to(dtype).requires_grad_()
    point, gap = gyro.exp_origin(u)
    expected = plain.exp0(u.double(), plain.bound(dtype))
    torch.testing.assert_close(point.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=0)
    if length > 15:
        torch.testing.assert_close(gap, torch.full_like(gap, least_gap(dtype)))
    assert (gap >= gyro.constants(u).least_gap).all()
    # on the margin a change of length no longer moves the point, a change of direction does
    cotangent = torch.randn(H, B, dtype=F64).to(dtype)
    actual = torch.autograd.grad(point, u, cotangent)[0].double()
    argument = u.detach().double().requires_grad_()
    (expected_grads,) = torch.autograd.grad((plain.exp0(argument, plain.bound(dtype)) * cotangent).sum(), argument)
    assert ((actual - expected_grads).norm(dim=-2) <= 1e-4 * expected_grads.norm(dim=-2) + 2 * least_gap(dtype)).all()


@DTYPES
def test_the_logarithm_of_a_clamped_exponential_passes_the_gradient_on(dtype):
    """``log_0(exp_0(u))`` stops growing at the margin, but its gradient stays that of u: a cell that saturates can
    still learn its way back."""
    u = (30 * directions()).to(dtype).requires_grad_()
    value = gyro.log_origin(*gyro.exp_origin(u))
    longest = torch.tensor(plain.bound(dtype), dtype=F64).atanh()
    torch.testing.assert_close(value.double().norm(dim=-2), longest.expand(B), rtol=1e-3, atol=0)
    along = (u / u.norm(dim=-2, keepdim=True)).detach()
    torch.testing.assert_close(torch.autograd.grad(value, u, along)[0], along, **tolerance(dtype, "model"))


def ahead_of(h: torch.Tensor, gap: float) -> torch.Tensor:
    """Points about in the direction of h: the others lie behind the origin, as seen from h."""
    return (1 - gap) ** 0.5 * normalize(normalize(h, dim=-2) + 0.3 * directions(), dim=-2)


@pytest.mark.parametrize("o_gap", [1e-6, 1e-7, 0.2])
def test_gated_update_at_the_margin(o_gap):
    """float32 states with gaps under the margin's 8e-6 are pulled back; against float64 with the same margin."""
    bound, h = plain.bound(F32), with_gap(0.3)
    o, z = ahead_of(h, o_gap), 0.9 + 0.1 * torch.rand(H, B, dtype=F64)
    narrow = [t.float().requires_grad_() for t in (h, o, z)]
    new, gap = gyro.gated_update(narrow[0], exact_gap(h).float(), narrow[1], exact_gap(o).float(), narrow[2])
    expected = plain.gated(h, o, z, bound)
    torch.testing.assert_close(gap.double(), exact_gap(expected), rtol=1e-4, atol=0)
    torch.testing.assert_close(new.double(), expected, rtol=0, atol=2e-6)
    assert (new.double().norm(dim=-2) <= bound + 4e-7).all()
    pulled = gap <= 1.001 * least_gap(F32)
    assert pulled.any() == (o_gap < 1e-5)
    free = [t.clone().requires_grad_() for t in (h, o, z)]
    cotangent = torch.randn(H, B, dtype=F64)
    expected_grads = torch.autograd.grad((plain.gated(*free, bound) * cotangent).sum(), free)
    gaps = [(1 - (t.double() ** 2).sum(-2, keepdim=True)).float() for t in narrow[:2]]
    new, _ = gyro.gated_update(narrow[0], gaps[0], narrow[1], gaps[1], narrow[2])
    actual = torch.autograd.grad(new, narrow, cotangent.float())
    assert all(torch.isfinite(grad).all() for grad in actual)
    if o_gap > 1e-5:
        for a, b in zip(actual, expected_grads, strict=True):
            close_rows(a, b.float(), "model")


def test_gated_update_gradient_at_the_margin(monkeypatch):
    """Of the gradient at a point that was pulled back, only the part orthogonal to the point survives. In float64,
    with a margin wider than the rounding errors of plain formulas."""
    bound = 0.99
    h, z = with_gap(0.3), 0.99 + 0.01 * torch.rand(H, B, dtype=F64)
    o = torch.where(torch.arange(B) % 2 == 0, ahead_of(h, 1e-2), ahead_of(h, 0.1))
    usual = gyro.constants(h)
    wide = usual._replace(bound=bound, least_gap=1 - bound**2)
    monkeypatch.setattr(gyro, "constants", lambda x: wide)
    leaves = [t.clone().requires_grad_() for t in (h, o, z)]
    new, gap = gated(*leaves)
    cotangent, g_gap = torch.randn_like(h), torch.randn_like(gap)
    actual = torch.autograd.grad((new, gap), leaves, (cotangent, g_gap))
    pulled = gap <= wide.least_gap
    assert pulled.any()
    assert not pulled.all()
    free = [t.clone().requires_grad_() for t in (h, o, z)]
    expected = plain.gated(*free, bound)
    torch.testing.assert_close(new, expected.detach(), **tolerance(F64, "model"))
    loss = (expected * cotangent).sum() + (plain.gap(expected) * g_gap).sum()
    for a, b in zip(actual, torch.autograd.grad(loss, free), strict=True):
        close_rows(a, b, "model")


@DTYPES
def test_affine_point_with_everything_at_the_margin(dtype):
    """Also with opposite points, where the denominators of the sums are smallest: finite, and gaps positive."""
    edge = with_gap(least_gap(dtype))
    for q_sign, u_sign in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        u, b = (u_sign * edge).to(dtype).requires_grad_(), edge[:, :1].to(dtype).requires_grad_()
        q = (q_sign * 40 * edge).to(dtype).requires_grad_()
        point, gap = gyro.affine_point(*affine_arguments(q, u, b))
        assert torch.isfinite(point).all()
        assert (gap > 0).all()
        assert (point.norm(dim=-2) <= 1 + 1e-3).all()
        cotangents = (torch.randn_like(q), torch.randn_like(gap) / gap.detach().clamp_min(1e-6))
        for grad in torch.autograd.grad((point, gap), (q, u, b), cotangents):
            assert torch.isfinite(grad).all()


def test_constants_refuse_half_precision():
    with pytest.raises(TypeError, match="float32 or float64"):
        gyro.constants(torch.zeros(2, dtype=torch.bfloat16))
    assert gyro.constants(torch.zeros(2)).bound == 1 - BALL_EPS[F32]
