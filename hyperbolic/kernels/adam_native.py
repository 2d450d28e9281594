"""Steps of Riemannian Adam and SGD in one C++ pass over the table: :mod:`hyperbolic.kernels.adam` on a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.adam import Rows
from hyperbolic.kernels.geodesic_steps import Rule

_SYMBOLS = {"Lorentz": "step_Lorentz", "PoincareBall": "step_Poincare", "Klein": "step_Klein"}
_LIBRARY = native.Library("adam")


def step(
    name: str,
    rows: Rows,
    k: Iterable[Tensor | float],
    rule: Rule,
    index: Tensor | None = None,
    max_radius: float | None = None,
) -> bool:
    """One step of all rows, or of those of the index, in place; False where it has to be done otherwise.

    Args:
        name: "Lorentz", "PoincareBall" or "Klein". rows: see :class:`hyperbolic.kernels.adam.Rows`.
        k: the fields of :class:`~hyperbolic.kernels.geodesic_steps.Numbers`, as tensors or numbers.
        index: (K,) different rows of the table; ``rows.grad`` is (K, D) then.
        max_radius: points of the hyperboloid that end further from the origin are moved back along the geodesic from
            there, with their momenta.

    Raises:
        ValueError: a gradient or a state does not have the shape that it has for these points.
    """
    if not _LIBRARY.usable(*rows):
        return False
    if index is not None and not (index.is_cpu and index.dtype is torch.int64 and index.is_contiguous()):
        return False
    numbers = [float(value) for value in k]
    time = space = math.inf
    if max_radius is not None:
        if name != "Lorentz":
            return False
        root = math.sqrt(numbers[0])
        time, space = math.cosh(root * max_radius) / root, math.sinh(root * max_radius) / root
    (n, size), points = rows.grad.shape, len(rows.x)
    shapes = ((points, size), (n if index is not None else points, size), (points, size), (points, 1), (points, 1))
    tables = (*map(native.shaped, rows, shapes), native.shaped(index, (n,)))
    flags = (rule.adam, rule.decay, rule.exact_exp)
    _LIBRARY.run(_SYMBOLS[name], *tables, n, size, numbers, *flags, time, space)
    return True
