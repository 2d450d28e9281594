"""The C++ passes of the Möbius linear kernel against the PyTorch operations they stand for."""

import pytest
import torch

from hyperbolic import native, switch
from hyperbolic.kernels import scratch
from hyperbolic.kernels.mobius_linear import mobius_affine
from hyperbolic.kernels.mobius_linear.passes import MobiusAffine
from tests.kernels.test_mobius import Case, error, points

pytestmark = [
    pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("native_kernels"),
]


def both(case: Case, cotangent: torch.Tensor):
    results = []
    for mode in ("plain", "fast"):
        switch.use_kernels(mode)
        results.append(case.run(mobius_affine, cotangent=cotangent))
    return results


def check(case: Case, skip_c: bool = False) -> None:
    cotangent = torch.randn(len(case.xs[0]), case.weights[0].shape[0])
    (plain, expected_grads), (out, grads) = both(case, cotangent)
    torch.testing.assert_close(out, plain, rtol=1e-5, atol=1e-6)
    for number, (a, b) in enumerate(zip(grads, expected_grads, strict=True)):
        assert torch.isfinite(a).all()
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert (skip_c and number == 0) or error(a, b.double()) <= 1e-5, number


@pytest.mark.parametrize("d_out", [1, 2, 5])
def test_terms_far_out_that_nearly_cancel(d_out):
    """Their weights are so large that rounding would be worth more than the margin: such rows are the formula's."""
    case = Case(0.7, (6, 6), d_out, 4.0, bias=1.0, scaled=1, n=200)
    case.xs[1] = case.xs[0]
    case.weights[0] = 0.3 * torch.randn(d_out, 6)
    case.weights[1] = -1.05 * case.weights[0]
    (plain, expected), (out, grads) = both(case, torch.randn(200, d_out))
    torch.testing.assert_close(out, plain, rtol=0, atol=2e-4)
    for a, b in zip(grads, expected, strict=True):
        assert error(a, b.double()) <= 1e-3
    case.weights[0], case.weights[1] = 3 * case.weights[0], 3 * case.weights[1]
    (plain, _), (out, _) = both(case, torch.randn(200, d_out))
    torch.testing.assert_close(out, plain, rtol=0, atol=2e-2)  # rounding of the matrix products, times the weights
    case.weights[0] *= 10  # what matrix products round is all that is left
    case.weights[1] *= 10
    out, grads = case.run(mobius_affine)
    assert (0.7**0.5 * out.double().norm(dim=-1)).max() <= 1 - 3e-6
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("n", [0, 1, 33, 100])
@pytest.mark.parametrize(("dims", "d_out"), [((1,), 1), ((7,), 3), ((64,), 64), ((3, 20), 65), ((5, 6, 70), 31)])
@pytest.mark.parametrize(("bias", "scaled"), [(None, 0), (0.7, 0), (0.7, 2)])
def test_shapes(n, dims, d_out, bias, scaled):
    check(Case(2.0, dims, d_out, 1.5, 0.7, bias, scaled, n=n))


@pytest.mark.parametrize(("radius", "scale"), [(0.0, 1.0), (1e-8, 1.0), (1e-3, 1.0), (6.0, 0.5), (12.0, 0.4)])
@pytest.mark.parametrize("scaled", [0, 1])
def test_near_and_far(radius, scale, scaled):
    check(Case(0.7, (6, 5), 4, radius, scale, 0.9, scaled), skip_c=radius < 1e-4)


def test_threads(two_threads):
    """More rows than one thread gets, in several blocks of the scratch space; always with the same result."""
    case = Case(1.3, (40, 9), 64, 1.5, 0.7, 0.6, 1, n=10000)
    check(case)
    switch.use_kernels("fast")
    runs = [case.run(mobius_affine) for _ in range(2)]
    for a, b in zip([runs[0][0], *runs[0][1]], [runs[1][0], *runs[1][1]], strict=True):
        assert torch.equal(a, b)


def test_strided_arguments():
    case = Case(2.0, (6,), 5, 1.5, bias=0.5, scaled=1)
    x, factors = torch.randn(12, 24)[::2].T * 0.1, torch.rand(24, 2)[:, 1:]
    case.xs, case.factors = [x], factors
    assert MobiusAffine.fits(case.c, case.points, factors, x, *case.weights)
    check(case)


def test_what_it_does_not_take(monkeypatch):
    case = Case(2.0, (6,), 5, 1.5, bias=0.5)
    case.points = points(9, 5, 2.0, 0.2)
    assert not MobiusAffine.fits(case.c, case.points, None, *case.xs, *case.weights)
    check(case)
    assert MobiusAffine.fits(case.c, case.points[:7], None, *case.xs, *case.weights)
    monkeypatch.setattr(native, "library", lambda name: None)
    assert not MobiusAffine.fits(case.c, None, None, *case.xs, *case.weights)


def test_scratch_views_are_kept_for_some_shapes(monkeypatch):
    monkeypatch.setattr(scratch, "_local", type("Local", (), {})())
    x = torch.zeros(3, 4)
    first = scratch.row_blocks(x, x.dtype)
    assert scratch.row_blocks(x, x.dtype) is first
    assert scratch.row_blocks(x, torch.float64)[0][1].dtype is torch.float64
    assert scratch.row_blocks(x, x.dtype, 2)[0][1].shape == (2, 3, 4)
    for n in range(scratch._SHAPES):
        scratch.row_blocks(torch.zeros(n, 4), x.dtype)
    assert len(scratch._local.blocks) <= scratch._SHAPES
