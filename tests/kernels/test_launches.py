"""What a step launches on a GPU, forward and backward, counted without one (see ``launches.py``), against PyTorch's layers.

Counts are those of the second step, of a fixed size; the pieces of a library call are not known and count as one.
``test_riemannian_steps_triton.py`` counts those of an optimiser's step.
"""

import importlib.util
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from hyperbolic import fusion, switch
from hyperbolic.kernels.recurrent import cuda
from hyperbolic.kernels.recurrent.passes import Gru
from hyperbolic.layers import lorentz, mobius
from hyperbolic.layers.lorentz_attention import lorentz_attention
from hyperbolic.manifolds import Lorentz, PoincareBall
from tests.kernels.launches import count

BALL, SHEET = PoincareBall(1.0), Lorentz(1.0)
D = 64

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton, in which the kernels are written"
)


@pytest.fixture(autouse=True)
def compiled(kernels_restored) -> Iterator[None]:
    switch.use_kernels("fast")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own
        yield
    assert not fusion.Fusion.broken


def launches(call: Callable[[Tensor], Tensor], module: nn.Module, x: Tensor) -> list[str]:
    """Of the call and of the gradients of x and of the parameters."""
    x = x.detach().requires_grad_()
    return launches_of(lambda: call(x), x, *module.parameters())


def launches_of(call: Callable[[], Tensor], *leaves: Tensor) -> list[str]:
    grad = torch.randn(call().shape)
    return count(lambda: torch.autograd.grad(call(), leaves, grad))


def linear() -> list[str]:
    layer = nn.Linear(D, D)
    return launches(layer, layer, torch.randn(128, D))


@pytest.mark.long
def test_linear_layers_launch_few_times_as_many_kernels_as_pytorchs():
    ball, sheet = mobius.Linear(BALL, D, D), lorentz.Linear(SHEET, D, D)
    plain = linear()
    assert len(plain) == 4  # three products and the sum of the bias
    for actual in (launches(ball, ball, BALL.random(128, D)), launches(sheet, sheet, SHEET.random(128, D))):
        assert len(actual) <= 3 * len(plain), actual


class _OnGpu(torch.autograd.Function):
    """The recurrent passes for a GPU."""

    forward, backward = staticmethod(cuda.forward), staticmethod(cuda.backward)


def test_a_gru_of_many_steps(monkeypatch):
    """Products of the inputs and for the gradients of inputs and of both weights, two loops, a sum, and where gradients start."""
    layer = mobius.GRU(BALL, D, 50)
    monkeypatch.setattr(Gru, "run", staticmethod(_OnGpu.apply))
    monkeypatch.setattr(cuda, "_launch", lambda name, grid, tensors, constants: tensors[0].new_zeros(1))  # in its place
    actual = launches(lambda x: layer(x)[0], layer, BALL.random(8, 25, D))
    assert actual.count("aten::new_zeros") == 2
    assert len(actual) <= 8, actual


@pytest.mark.slow
def test_lorentz_attention_alone():
    """Beside PyTorch's: five to scale the queries and turn their sign, three to normalise the means, one for gradients."""
    temperature = torch.tensor(4.0, dtype=torch.float64)
    plain, points = torch.randn(3, 2, 4, 80, 17).unbind(), SHEET.random(3, 2, 4, 80, 16).unbind()
    for x in (*plain, *points):
        x.requires_grad_()
    expected = launches_of(lambda: scaled_dot_product_attention(*plain), *plain)
    actual = launches_of(lambda: lorentz_attention(*points, temperature, SHEET.c), *points)
    assert len(actual) <= len(expected) + 9, (expected, actual)


@pytest.mark.slow
def test_a_layer_of_lorentz_attention():
    plain, heads = nn.MultiheadAttention(D, 4, batch_first=True), lorentz.MultiHeadAttention(SHEET, D, 4)
    expected = launches(lambda x: plain(x, x, x, need_weights=False)[0], plain, torch.randn(4, 80, D))
    actual = launches(heads, heads, SHEET.random(4, 80, D))
    assert len(actual) <= 2.5 * len(expected), actual


@pytest.mark.slow
def test_cross_entropy_over_classes():
    """Three products; one kernel for each lift and one for its gradient; two for the loss and two for its gradient; one
    for the targets, which the kernel of the loss checks."""
    logits, target = mobius.Logits(BALL, D, 10_000), torch.randint(10_000, (128,))
    actual = launches(lambda x: logits.cross_entropy(x, target), logits, BALL.random(128, D))
    assert len(actual) <= 12, actual
