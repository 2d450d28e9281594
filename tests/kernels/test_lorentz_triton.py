"""HyboNet's linear layer in Triton: in its interpreter against float64, as code for two kinds of GPU, and on a GPU."""

import pytest
import torch

from hyperbolic.kernels.lorentz_rows import cuda, normalised_linear
from hyperbolic.kernels.lorentz_rows.passes import Linear
from tests.kernels.lorentz_interpreted import draw
from tests.kernels.test_recurrent_triton import printed


def test_in_the_interpreter_as_exact_as_the_plain_formula():
    """And with few launches: the products and the bias's sum of ``nn.Linear``, a kernel in each direction, two for the
    gradient of the scale."""
    results = printed("lorentz_interpreted.py", TRITON_INTERPRET="1")
    names = [name for name in results.pop("launches") if name not in ("t", "unbind")]
    assert len(names) + 2 <= 8, names
    assert len(results) == 8
    for name, errors in results.items():
        for actual, usual in zip(errors["actual"], errors["plain"], strict=True):
            assert actual <= 2 * usual + 5e-7, (name, errors)


@pytest.mark.parametrize(("capability", "shared"), [pytest.param(80, 163 << 10, marks=pytest.mark.long), (90, 227 << 10)])
def test_built_for_gpus(capability, shared, tmp_path):
    """Both passes, of the smallest and the largest points, without a GPU."""
    built = printed("cubins.py", "lorentz", str(capability), TRITON_CACHE_DIR=str(tmp_path))
    assert len(built) == 4
    for size, on_chip in built.values():
        assert size > 0
        assert 2 * on_chip <= shared  # two programs


def test_which_arguments_it_is_for(monkeypatch):
    monkeypatch.setattr(cuda, "available", lambda device: True)
    x, weight, bias, _, _, scale, c = draw(4, 3, 5)
    assert cuda.fits(x, weight, bias, None, None, scale, c, 1.1, 1)
    assert cuda.fits(x, weight, bias, None, None, scale, c, 1.1, 2)
    assert not cuda.fits(x, weight, bias, None, None, scale, c, 1.1, 4), "heads that do not divide the rows"
    assert not cuda.fits(x, weight, bias, x, None, scale, c, 1.1, 1), "times of other points"
    assert not cuda.fits(x.double(), weight.double(), bias.double(), None, None, scale, c, 1.1, 1)
    assert not cuda.fits(x, weight, bias, None, None, scale, c.float(), 1.1, 1)
    assert not cuda.fits(x[:0], weight, bias, None, None, scale, c, 1.1, 1)
    assert not cuda.fits(x, torch.empty(cuda.SPACE + 2, 3), None, None, None, scale, c, 1.1, 1)
    monkeypatch.setattr(cuda, "available", lambda device: False)
    assert not cuda.fits(x, weight, bias, None, None, scale, c, 1.1, 1)


def test_a_program_holds_whole_rows():
    for size in (2, 17, 65, 513, 514, 2049, cuda.SPACE + 1):
        rows, columns = cuda.tile(size)
        assert size - 1 <= columns < max(17, 2 * (size - 1))
        assert rows == max(1, 2048 // columns)


def test_tensors_on_a_cpu_do_not_reach_it(monkeypatch):
    monkeypatch.setattr(cuda, "_launch", None)
    x, weight, bias, _, _, scale, c = draw(4, 3, 5)
    assert normalised_linear(x, weight, bias, scale, c).shape == (4, 6)


@pytest.mark.gpu
@pytest.mark.parametrize(("d", "heads", "added"), [(512, 1, "points"), (64, 8, None), (2048, 1, None), (3, 1, "vectors")])
def test_on_a_gpu(d, heads, added):
    inputs = draw(300, 129, d, heads, added)
    results = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        free = [
            t if t is None else t.to(device, t.dtype if t.dtype is torch.float64 else dtype).requires_grad_()
            for t in inputs
        ]
        if device == "cuda":
            assert cuda.fits(*free, 1.1, heads)
        y = Linear.run(*free, 1.1, heads)
        torch.manual_seed(1)
        grad = torch.randn(y.shape, dtype=torch.float64).to(y)
        leaves = [t for t in free if t is not None]
        results.append([t.cpu().double() for t in (y, *torch.autograd.grad(y, leaves, grad))])
    for actual, exact in zip(*results, strict=True):
        torch.testing.assert_close(actual, exact, rtol=0, atol=1e-5 * exact.abs().max().item())
