"""Memory that is kept between calls: whatever ran before, a training may write into it; products by way of it."""

import threading

import pytest
import torch

from hyperbolic import switch
from hyperbolic.kernels import scratch
from hyperbolic.kernels.lorentz_rows import normalised_linear

C, SCALE = torch.tensor(0.7, dtype=torch.float64), torch.tensor(1.5)


@pytest.fixture
def small(monkeypatch) -> None:
    """Little scratch space, so that 40 rows need several blocks, and none is too small for it."""
    monkeypatch.setattr(scratch, "_SPACE", 512)
    monkeypatch.setattr(scratch, "_SMALL", 0)
    monkeypatch.setattr(scratch, "_local", threading.local())


@pytest.mark.parametrize("first", ["evaluation", "training"])
def test_a_layer_is_trained_after_an_evaluation(native_kernels, monkeypatch, first):
    """Under inference mode, as Lightning's test is, with the same shapes or as the very first use."""
    monkeypatch.setattr(scratch, "_local", threading.local())
    x, weight = torch.randn(9, 5), torch.randn(7, 5, requires_grad=True)
    if first == "training":
        normalised_linear(x[:4], weight, None, SCALE, C).sum().backward()
    with torch.inference_mode():
        normalised_linear(x, weight, None, SCALE, C)
    normalised_linear(x, weight, None, SCALE, C).sum().backward()
    normalised_linear(x[:3], weight, None, SCALE, C).sum().backward()
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize(("heads", "raw", "added"), [(1, False, 0), (3, False, 0), (1, True, 0), (1, True, 6), (1, False, 7)])
def test_linear_layers_of_several_blocks(native_kernels, small, heads, raw, added):
    x = torch.randn(40, 5)
    tensors = [x, torch.randn(7 * heads, 5), torch.randn(7 * heads)]
    tensors += [x + 1] if raw else []
    tensors += [torch.randn(40, added)] if added else []
    results = []
    for mode in ("plain", "fast"):
        switch.use_kernels(mode)
        leaves = [t.clone().requires_grad_() for t in tensors]
        named = dict(zip([name for name, there in (("raw", raw), ("added", added)) if there], leaves[3:], strict=True))
        y = normalised_linear(*leaves[:3], SCALE, C, heads=heads, **named)
        results.append([y, *torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum(), leaves)])
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("shape", [(40, 3, 17), (1, 1, 1), (33, 4, 16), (3, 2, 600), (0, 3, 5)])
def test_products(small, dtype, add, shape):
    n, inner, size = shape
    a, b = torch.randn(inner, n, dtype=dtype).T, torch.randn(inner, size, dtype=dtype)
    before = torch.randn(n, size, dtype=dtype) if add else torch.full((n, size), torch.nan, dtype=dtype)
    out = before.clone()
    scratch.set_product(out, a, b, add)
    torch.testing.assert_close(out, before + a @ b if add else a @ b)
