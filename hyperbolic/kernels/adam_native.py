"""Steps of Riemannian Adam and SGD in one C++ pass over the table: :mod:`hyperbolic.kernels.adam` on a CPU."""

from __future__ import annotations

import ctypes
import functools
import math

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.geodesic_steps import Numbers, Rule

_MODELS = {"Lorentz": "Lorentz", "PoincareBall": "Poincare", "Klein": "Klein"}
_POINTER, _SIZE, _FLAG, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_double
_ARGUMENTS = (*[_POINTER] * 6, _SIZE, _SIZE, _POINTER, _FLAG, _FLAG, _FLAG, _NUMBER, _NUMBER)


@functools.cache
def _function(name: str, dtype: torch.dtype) -> ctypes._CFuncPtr | None:
    return native.function("adam", f"step_{_MODELS[name]}{native.SUFFIX[dtype]}", *_ARGUMENTS)


def step(name: str, rows, k: Numbers, rule: Rule, index: Tensor | None = None, max_radius: float | None = None) -> bool:
    """One step of all rows, or of those of the index, in place; False where it has to be done otherwise.

    Args:
        name: "Lorentz", "PoincareBall" or "Klein". rows: see :class:`hyperbolic.kernels.adam.Rows`.
        index: (K,) different rows of the table; ``rows.grad`` is (K, D) then.
        max_radius: points of the hyperboloid that end further from the origin are moved back along the geodesic from
            there, with their momenta.
    """
    if not native.usable(*rows) or (index is not None and (index.device.type != "cpu" or not index.is_contiguous())):
        return False
    run = _function(name, rows.x.dtype)
    if run is None:
        return False
    numbers = [float(value) for value in k]
    time = space = math.inf
    if max_radius is not None:
        if name != "Lorentz":
            return False
        root = math.sqrt(numbers[0])
        time, space = math.cosh(root * max_radius) / root, math.sinh(root * max_radius) / root
    n, size = rows.grad.shape
    run(
        *(native.address(t) for t in rows),
        native.address(index),
        n,
        size,
        (_NUMBER * len(numbers))(*numbers),
        rule.adam,
        rule.decay,
        rule.exact_exp,
        time,
        space,
        torch.get_num_threads(),
    )
    return True
