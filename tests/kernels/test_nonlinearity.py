import pytest
import torch

from hyperbolic.kernels.nonlinearity import NONLINEARITIES, checked


@pytest.mark.parametrize("name", NONLINEARITIES)
def test_the_derivative_as_a_function_of_the_value(name):
    function, slope = NONLINEARITIES[name]
    x = torch.linspace(-4, 4, 82, dtype=torch.float64).requires_grad_()  # without 0, where relu has no derivative
    value = function(x)
    (expected,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(slope(value.detach()), expected, rtol=1e-12, atol=1e-15)


def test_the_functions_are_what_their_names_say():
    x = torch.randn(20)
    assert torch.equal(NONLINEARITIES["identity"][0](x), x)
    for name in ("tanh", "relu", "sigmoid"):
        assert torch.equal(NONLINEARITIES[name][0](x), getattr(torch, name)(x))


def test_checked():
    assert checked("tanh") == "tanh"
    with pytest.raises(ValueError, match=r"unknown nonlinearity 'gelu'; available: identity, tanh, relu, sigmoid"):
        checked("gelu")
