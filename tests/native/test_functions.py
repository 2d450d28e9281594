"""The elementary functions of the C++ kernels against mpmath, on the exact input bits.

``functions.cpp`` beside this file exports them; it is no kernel, so nobody but these tests compiles it.
"""

import math
from pathlib import Path

import mpmath
import pytest
import torch

from hyperbolic import native, switch

pytestmark = pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler")

_LIBRARY = native.Library("functions")
_TRUE = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "arsinh": mpmath.asinh,
    "root": lambda z: mpmath.sqrt(1 + z**2),
    "cosh": mpmath.cosh,
    "sinh": mpmath.sinh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "sech2": lambda x: mpmath.sech(x) ** 2,
    "short_sinhc": lambda z: mpmath.sinh(mpmath.sqrt(z)) / mpmath.sqrt(z),
    "short_cosh": lambda z: mpmath.cosh(mpmath.sqrt(z)),
}
_RANGES = {"exp": (1e-6, 87), "log": (1e-30, 1e30), "sigmoid": (1e-6, 80), "tanh": (1e-9, 40)}
_RANGES |= dict.fromkeys(("short_sinhc", "short_cosh"), (1e-30, 0.25))
_SIGNED = {"exp", "arsinh", "root", "sigmoid"}


@pytest.fixture(autouse=True)
def _source_beside_this_file(monkeypatch, native_kernels):
    monkeypatch.setattr(native, "SOURCES", Path(__file__).parent)


def _call(name, x):
    y = torch.empty_like(x)
    _LIBRARY.run(name, x, y, x.numel())
    return y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", _TRUE)
def test_error(name, dtype):
    low, high = _RANGES.get(name, (1e-9, 1e12 if name in ("log1p", "arsinh", "root") else 40))
    x = torch.logspace(math.log10(low), math.log10(high), 400, dtype=torch.float64).to(dtype)
    if name in _SIGNED:
        x = torch.cat([x, -x])
    with mpmath.workprec(160):
        errors = [
            abs(mpmath.mpf(y) / _TRUE[name](mpmath.mpf(v)) - 1)
            for v, y in zip(x.tolist(), _call(name, x).tolist(), strict=True)
        ]
    assert max(errors) <= 3 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ends(dtype):
    def values(name, *numbers):
        return _call(name, torch.tensor(numbers, dtype=dtype)).tolist()

    huge = torch.finfo(dtype).max ** 0.5 / 2
    assert values("exp", 0.0) == [1.0]
    assert values("sinh", 0.0) == [0.0]
    assert values("tanh", 0.0, huge) == [0.0, 1.0]
    assert values("sech2", 0.0) == [1.0]
    assert values("log1p", 0.0) == [0.0]
    assert values("short_sinhc", 0.0) == values("short_cosh", 0.0) == [1.0]
    assert values("sigmoid", 0.0, huge) == [0.5, 1.0]
    assert all(map(math.isfinite, values("exp", huge, -huge)))
    assert values("arsinh", huge, -huge) == pytest.approx(
        [torch.tensor(huge, dtype=torch.float64).asinh().item() * s for s in (1, -1)], rel=1e-6
    )
