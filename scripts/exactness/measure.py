"""Errors of every library at the golden cases: values of all, gradients of ours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from scripts.exactness.arithmetic import dot, exact, mp, norm, parse, relative_error
from scripts.exactness.cases import FUNCTIONS, Case
from scripts.exactness.libraries import LIBRARIES, functions

TARGETS = {"float32": 1e-6, "float64": 1e-13}
GRADIENT_TARGET = 1e-5
ROUNDINGS = 16  # of the factors and sums of a matrix product
PRODUCTS = ("mlr_logits", "mlr_logits_beside")
WEIGHTS = (8, -5, 3, 7, -6, 4)


@dataclass
class Cell:
    """Errors and condition of a function in a dtype and a regime; errors are the largest over its cases."""

    errors: dict[str, float] = field(default_factory=dict)  # by library
    gradient: float = 0.0
    condition: float = 0.0
    limited: bool = False  # over the target, but no more than the rounding of a matrix product does
    over: bool = False

    def note(self, library: str, error: float) -> None:
        self.errors[library] = worse(self.errors.get(library, 0.0), error)


def worse(a: float, b: float) -> float:
    """The larger error, NaN being the largest."""
    return a if math.isnan(a) or (not math.isnan(b) and a >= b) else b


def weights(size: int) -> list:
    """The fixed numbers, exact in every dtype, with which the entries of a result are weighed for its gradient."""
    return [mp.mpf(entry) / 8 for entry in WEIGHTS[:size]]


def measure(golden: Iterable[tuple[Case, dict]]) -> dict[tuple[str, str, str, str], Cell]:
    """(model, function, dtype, regime) -> cell."""
    cells: dict[tuple[str, str, str, str], Cell] = {}
    for case, values in golden:
        for library in LIBRARIES:
            calls = functions(library, case.space, case.c, getattr(torch, case.dtype))
            for function, record in values.items():
                cell = cells.setdefault((case.space, function, case.dtype, case.regime), Cell())
                if function in calls:
                    error = value_error(calls[function], case, function, record)
                    cell.note(library, error)
                    if library == "ours":
                        judge(cell, error, TARGETS[case.dtype], case, function)
        for function, record in values.items():
            if len(record) > 1:
                cell = cells[case.space, function, case.dtype, case.regime]
                cell.condition = max(cell.condition, record[1])
                error = gradient_error(case, function, record)
                cell.gradient = worse(cell.gradient, error)
                judge(cell, error, GRADIENT_TARGET, case, function)
    return cells


def judge(cell: Cell, error: float, target: float, case: Case, function: str) -> None:
    """Marks the cell where the error is over the target. A logit spoilt by its product has a spoilt gradient too."""
    if error <= target:
        return
    allowed = product_rounding(case, function) if function in PRODUCTS else 0.0
    if error <= allowed or (target == GRADIENT_TARGET and TARGETS[case.dtype] < allowed and math.isfinite(error)):
        cell.limited = True
    else:
        cell.over = True


def tensors(case: Case, function: str) -> list[Tensor]:
    return [torch.tensor(value, dtype=getattr(torch, case.dtype)) for value in case.floats(function)]


def value_error(call, case: Case, function: str, record: list) -> float:
    return relative_error(call(*tensors(case, function)), parse(record[0]))


def gradient_error(case: Case, function: str, record: list) -> float:
    """The largest relative error among the gradients of ``<weights, value>`` by the arguments and by c.

    That by c counts relative to ``|weights||value|/c`` where it is smaller than that: what c does to a value can
    cancel to nothing, and then moves no digit of it.
    """
    scalar = case.space == "scalar"
    c = torch.tensor(case.c, dtype=torch.float64, requires_grad=not scalar)
    arguments = [value.requires_grad_() for value in tensors(case, function)]
    value = functions("ours", case.space, c, arguments[0].dtype)[function](*arguments)
    w = torch.tensor([float(entry) for entry in weights(value.numel())], dtype=torch.float64)
    inputs = arguments if scalar else [*arguments, c]
    total = (value.double().flatten() * w).sum()
    slopes = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    size = norm(parse(record[0])) * norm(weights(value.numel()))
    errors = []
    for slope, line, letter in zip(slopes, record[2:], [*FUNCTIONS[case.space][function].letters, "c"], strict=False):
        expected = parse(line)
        error = relative_error(slope, expected)
        if letter == "c" and norm(expected) < size / case.c:
            error *= float((norm(expected) or 1) / (size / case.c))
        errors.append(error)
    return max(errors, key=lambda e: math.inf if math.isnan(e) else e)


def product_rounding(case: Case, function: str) -> float:
    """Relative error of a logit ``2|a| arsinh(<X, W>)`` when the product is rounded like a sum in the dtype."""
    x, p, a = exact(case.floats(function))
    chart = case.space_at(case.c)
    point = chart.lift(p)
    normal = chart._transport(chart.origin(len(a)), point, chart.at_origin(a))
    terms = [chart.root * s * t / chart._length(normal) for s, t in zip(chart.lift(x), normal, strict=True)]
    s = dot([-1, *[1] * len(a)], terms)
    magnified = mp.fsum(map(abs, terms)) / (mp.sqrt(1 + s * s) * abs(mp.asinh(s)))
    return float(ROUNDINGS * torch.finfo(getattr(torch, case.dtype)).eps / 2 * magnified)
