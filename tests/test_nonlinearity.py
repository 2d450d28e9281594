import pytest
import torch

from hyperbolic.nonlinearity import NONLINEARITIES, check_nonlinearity


def test_the_functions_are_what_their_names_say():
    x = torch.randn(20)
    assert torch.equal(NONLINEARITIES["identity"](x), x)
    for name in ("tanh", "relu", "sigmoid"):
        assert torch.equal(NONLINEARITIES[name](x), getattr(torch, name)(x))


def test_checked():
    assert check_nonlinearity("tanh") == "tanh"
    with pytest.raises(ValueError, match=r"unknown nonlinearity 'gelu'; available: identity, tanh, relu, sigmoid"):
        check_nonlinearity("gelu")
