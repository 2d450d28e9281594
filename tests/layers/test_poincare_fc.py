"""The fused Poincaré FC layer against its plain version, in value and gradient."""

import pytest
import torch

from hyperbolic.layers.poincare_fc import poincare_fc
from hyperbolic.manifolds import PoincareBall
from tests.kernels import formulas

F64 = torch.float64
pytestmark = pytest.mark.usefixtures("each_path")


def arguments(c, rows, d, k, std=0.4):
    ball = PoincareBall(c)
    x = ball.random(rows, d, std=std, dtype=F64).requires_grad_()
    z = (torch.randn(k, d, dtype=F64) / (2 * d) ** 0.5).requires_grad_()
    r = (0.3 * torch.randn(k, dtype=F64)).requires_grad_()
    return x, z, r, torch.tensor(c, dtype=F64, requires_grad=True)


@pytest.mark.parametrize("c", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(7, 5, 4), (1, 3, 1), (0, 3, 2), (700, 3, 200)], ids=str)
def test_values_and_gradients(c, shape):
    inputs = arguments(c, *shape)
    ours, plain = poincare_fc(*inputs), formulas.poincare_fc(*inputs)
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-13)
    direction = torch.randn_like(ours)
    actual = torch.autograd.grad(ours, inputs, direction)
    for a, b in zip(actual, torch.autograd.grad(plain, inputs, direction), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 1, 1), (50, 16, 8), (33, 7, 65), (300, 64, 64)], ids=str)
@pytest.mark.parametrize("std", [1e-6, 0.4, 2.0])
def test_float32_is_close_to_float64(shape, std):
    x, z, r, _ = (t.detach().float().double().requires_grad_() for t in arguments(1.7, *shape, std / shape[1] ** 0.5))
    c = torch.tensor(1.7, dtype=F64, requires_grad=True)
    exact = poincare_fc(x, z, r, c)
    single = [t.detach().float().requires_grad_() for t in (x, z, r)]
    actual = poincare_fc(*single, c)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), exact, rtol=1e-5, atol=1e-6)
    direction = torch.randn_like(exact)
    ours = torch.autograd.grad(actual, (*single, c), direction.float())
    expected_grads = torch.autograd.grad(exact, (x, z, r, c), direction.float().double())
    for a, b in zip(ours, expected_grads, strict=True):
        size = b.abs().max().item() if b.numel() else 0.0
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4 * size)


def test_layouts():
    """Rows that are not contiguous, a transposed gradient, leading axes, no offsets."""
    x, z, r, c = arguments(2.0, 12, 3, 5)
    wide = x.detach().repeat_interleave(2, -1)
    strided = wide[:, ::2].unflatten(0, (3, 4)).transpose(0, 1).requires_grad_()
    plain = strided.detach().contiguous().requires_grad_()
    results = [poincare_fc(v, z, r, c) for v in (strided, plain)]
    torch.testing.assert_close(*results)
    gradient = torch.randn(5, 3, 4, dtype=F64).permute(2, 1, 0)
    for result in results:
        result.backward(gradient)
    torch.testing.assert_close(strided.grad, plain.grad)
    torch.testing.assert_close(poincare_fc(x, z, None, c), poincare_fc(x, z, torch.zeros_like(r), c))
    torch.testing.assert_close(poincare_fc(x[0], z, r, c), poincare_fc(x, z, r, c)[0])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_beyond_the_radius_gradients_are_across(dtype):
    """A result that is cut moves along the boundary only: its gradient is that of the direction."""
    _, z, r, c = (t.detach().to(dtype) for t in arguments(2.0, 4, 3, 5))
    z = (60 * z).requires_grad_()
    x = PoincareBall(2.0).random(4, 3, std=1.0, dtype=dtype)
    y = poincare_fc(x, z, r, c.double())
    (along,) = torch.autograd.grad(y.square().sum(), z)
    assert torch.isfinite(y).all()
    assert y.norm(dim=-1).min() > 0.99 / 2**0.5
    assert along.abs().max() < 1e-4
