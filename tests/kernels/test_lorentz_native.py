"""The C++ passes of the Lorentz kernels against the PyTorch operations they stand for."""

import pytest
import torch

from hyperbolic import switch
from hyperbolic.kernels import lorentz_rows as kernel
from hyperbolic.kernels.lorentz_rows.passes import Linear
from hyperbolic.manifolds import Lorentz

pytestmark = [
    pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("kernels_restored"),
]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
CLOSE = {torch.float32: {"rtol": 2e-5, "atol": 5e-6}, torch.float64: {"rtol": 1e-11, "atol": 1e-13}}


def check(function, *inputs: torch.Tensor, scale: float = 1.0) -> None:
    """Values and gradients of both paths; the gradients of scalars relative to `scale`, the size of what they sum."""
    results, cotangent = [], None
    for mode in ("plain", "fast"):
        switch.use_kernels(mode)
        leaves = [t.detach().clone().requires_grad_() for t in inputs]
        out = function(*leaves)
        cotangent = torch.randn_like(out) if cotangent is None else cotangent
        grads = torch.autograd.grad(out, leaves, cotangent, allow_unused=True, materialize_grads=True)
        results.append((out.detach(), *grads))
    for plain, actual in zip(*results, strict=True):
        assert torch.isfinite(actual).all()
        assert actual.dtype is plain.dtype
        size = scale if plain.dim() == 0 else max(1.0, plain.abs().max().item() if plain.numel() else 1.0)
        torch.testing.assert_close(actual / size, plain / size, **CLOSE[inputs[0].dtype])


def functions(heads: int):
    """Each kernel on z (..., heads * D) with the scale and curvature that it takes."""
    return {
        "normalise": lambda z, s, c: kernel.normalised_linear(
            z.flatten(0, -2), torch.eye(z.shape[-1], dtype=z.dtype), None, s, c, 1.2, heads
        ),
        "lift": lambda z, s, c: kernel.lift(z, c) * s,
        "lift, heads": lambda z, s, c: kernel.lift(z.unflatten(-1, (heads, -1)).transpose(0, -3), c, 2) * s,
        "mean": lambda z, s, c: kernel.normalised_mean(kernel.lift(z, c) * (1 + s.sigmoid()), c),
    }


def scalars(dtype):
    return torch.tensor(1.7, dtype=dtype), torch.tensor(0.6, dtype=torch.float64)


@DTYPES
@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (3, 2, 5, 8), (33, 2), (40, 126), (70, 34), (7, 65, 64)])
@pytest.mark.parametrize("name", functions(2))
def test_shapes(name, shape, dtype):
    heads = 1 if shape[-1] == 2 else 2
    check(functions(heads)[name], torch.randn(shape, dtype=dtype), *scalars(dtype), scale=1e3)


@DTYPES
@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-4, 1e3])
@pytest.mark.parametrize("name", functions(1))
def test_near_and_far(name, size, dtype):
    z = torch.randn(40, 17, dtype=dtype) * size
    z[:, 0] = torch.randn(40)
    if name != "mean" or size < 1:  # whose error grows with the square of the distance
        check(functions(1)[name], z, *scalars(dtype), scale=1e3 * max(size, 1))


@DTYPES
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "heads", "d_in", "size"), [(1, 1, 2, 2), (40, 1, 65, 17), (33, 3, 20, 5)])
def test_linear(n, heads, d_in, size, bias, dtype):
    def function(x, w, s, c, *b):
        return kernel.normalised_linear(x, w, b[0] if b else None, s, c, 1.1, heads)

    shapes = [(n, d_in), (heads * size, d_in)]
    biases = [torch.randn(heads * size, dtype=dtype)] if bias else []
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    check(function, *inputs, *scalars(dtype), *biases, scale=1e3)


@DTYPES
@pytest.mark.parametrize("in_time", [True, False])
@pytest.mark.parametrize("n", [1, 40])
def test_linear_with_raw_times_and_a_residual(n, in_time, dtype):
    """A residual with an entry for the time, and one of space parts alone; with and without x apart."""
    shapes = [(n, 6), (9, 6), (9,), (n, 9 if in_time else 8), (n, 6)]
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    for apart in (True, False):

        def function(x, w, b, added, raw, s, c, apart=apart):
            return kernel.normalised_linear(x, w, b, s, c, 1.1, raw=raw if apart else None, added=added)

        check(function, *inputs, *scalars(dtype), scale=1e3)

    def heads(x, w, b, raw, s, c):
        return kernel.normalised_linear(x, w, b, s, c, 1.1, 3, raw=raw)

    check(heads, *inputs[:3], inputs[4], *scalars(dtype), scale=1e3)


def test_threads(two_threads):
    """Several blocks of the scratch space; always with the same result."""
    x, w, b = torch.randn(9000, 30), torch.randn(128, 30), torch.randn(128)

    def function(x, w, b, s, c):
        return kernel.normalised_linear(x, w, b, s, c)

    check(function, x, w, b, *scalars(torch.float32), scale=1e5)
    for name in functions(1):
        check(functions(1)[name], torch.randn(3000, 20), *scalars(torch.float32), scale=1e5)
    switch.use_kernels("fast")
    runs = []
    for _ in range(2):
        leaves = [t.clone().requires_grad_() for t in (x, w, b, *scalars(torch.float32))]
        out = function(*leaves)
        runs.append([out, *torch.autograd.grad(out.sum(), leaves)])
    assert all(map(torch.equal, *runs))


def test_only_the_gradients_that_are_needed():
    switch.use_kernels("fast")
    arguments = [torch.randn(6, 5), torch.randn(8, 5), torch.randn(8), *scalars(torch.float32)]
    leaves = [t.clone().requires_grad_() for t in arguments]
    expected_grads = torch.autograd.grad(kernel.normalised_linear(*leaves).sum(), leaves)
    for i, expected in enumerate(expected_grads):
        one = [t.clone().requires_grad_(i == j) for j, t in enumerate(arguments)]
        out = kernel.normalised_linear(*one)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), one[i])[0], expected)
    assert not kernel.normalised_linear(*arguments).requires_grad


def test_what_is_added_has_no_heads():
    """The layer joins them before; C++ gave a result where the formula has an error."""
    arguments = (torch.randn(7, 3), torch.randn(6, 3), None, None, torch.randn(7, 1), torch.ones(()), torch.ones(()), 1.1)
    for heads, fits in ((1, True), (3, False)):
        assert Linear.fits(*arguments, heads) is fits


@DTYPES
def test_a_mean_with_an_infinite_time_is_no_point(dtype):
    mean = torch.tensor([[torch.inf, 1.0, 2.0], [2.0, 0.5, 0.5]], dtype=dtype)
    point = kernel.normalised_mean(mean, torch.tensor(1.3, dtype=dtype))
    assert point.isnan().any(-1).tolist() == [True, False], "it was the origin"


@DTYPES
def test_means_of_heads_keep_their_layout(dtype):
    switch.use_kernels("fast")
    heads = Lorentz(2.0).random(2, 5, 3, 7, dtype=dtype).transpose(1, 2)  # (B, H, T, D) over (B, T, H, D)
    c = torch.tensor(2.0, dtype=torch.float64)
    out = kernel.normalised_mean(heads, c)
    assert out.stride() == heads.stride()
    assert torch.equal(out, kernel.normalised_mean(heads.contiguous(), c))
