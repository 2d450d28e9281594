"""Norms of gradients, by which they are clipped."""

import pytest
import torch

from hyperbolic.optim.gradients import Gradient, clip


@pytest.mark.parametrize("size", [1e-10, 1.0, 1e25])
@pytest.mark.parametrize("shape", [(3,), (1024,), (41, 1000), (7, 3, 97)])
@pytest.mark.parametrize("kind", ["global", "tensor"])
def test_long_gradients_end_at_the_norm_and_short_ones_stay(kind, shape, size):
    torch.manual_seed(0)
    values = [(torch.randn(shape) + 1).mul_(size), torch.randn(5) * size]
    values[0] = values[0].transpose(0, -1)  # not contiguous
    norms = [torch.linalg.vector_norm(v.double()).item() for v in values]
    if kind == "global":
        norms = [sum(norm**2 for norm in norms) ** 0.5] * 2
    actual = clip({torch.empty(i): Gradient(v) for i, v in enumerate(values)}, norms[1] / 2, kind)
    for gradient, value, norm in zip(actual.values(), values, norms, strict=True):
        torch.testing.assert_close(gradient.values, value * min(norms[1] / 2 / norm, 1), rtol=1e-6, atol=0)
    longer = 1.001 * max(norms)
    for gradient, value in zip(clip(actual | {}, longer, kind).values(), actual.values(), strict=True):
        assert torch.equal(gradient.values, value.values)


def test_a_gradient_that_is_not_finite_gives_no_finite_one():
    values = torch.ones(2000)
    values[7] = torch.nan
    (actual,) = clip({torch.empty(0): Gradient(values)}, 1.0, "global").values()
    assert actual.values.isnan().all()
