"""Steps of Riemannian Adam, Adagrad and SGD on the rows of a table of points: :func:`plain.step` has the formula.

On a CPU one pass in C++, in closed form: each half of a step is a few sums over a row (``<x, h>`` and ``|h|^2`` of the
Euclidean gradient h, then ``<x, m>`` and ``|m|^2``), a few coefficients in float64, and combinations of rows:
``m <- beta m + p x + q h``, then ``x' = a x + b m`` and ``m' = a_m x + b_m m``.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from hyperbolic import native, switch
from hyperbolic.kernels.riemannian_steps import plain
from hyperbolic.kernels.riemannian_steps.plain import Rows, Rule, bound
from hyperbolic.manifolds import Klein, Lorentz, Manifold, PoincareBall
from hyperbolic.numerics import SHEET_RADIUS
from hyperbolic.operator import check_devices

__all__ = ["Rows", "Rule", "bound", "plain", "step"]

_SYMBOLS: dict[type[Manifold], str] = {Lorentz: "step_Lorentz", PoincareBall: "step_Poincare", Klein: "step_Klein"}
_LIBRARY = native.Library("riemannian_steps")


def step(rows: Rows, manifold: Manifold, rule: Rule, max_radius: float | None = None) -> bool:
    """One step of all rows, or of some, in place: :func:`hyperbolic.kernels.riemannian_steps.plain.step`.

    Args: max_radius: points of the hyperboloid that end further from the origin may be moved back along the geodesic
        from there, with their momenta.
    Returns: whether points are inside of it, so that they need not be looked at again.

    Raises:
        ValueError: a gradient or a state does not have the shape that it has for these points.
    """
    if _is_for_cpp(rows, manifold, rule):
        _step_in_cpp(rows, manifold, rule, max_radius)
        return type(manifold) is Lorentz
    if type(manifold) in _SYMBOLS and switch.is_traced([rows.x]):
        torch.ops.hyperbolic.riemannian_step(*rows, manifold.c, manifold.name, list(rule[:8]), rule.exact_exp)
    else:
        plain.step(rows, manifold, rule)
    return False


@torch.library.custom_op(
    "hyperbolic::riemannian_step",
    mutates_args=("x", "momentum", "square", "largest"),
    schema="(Tensor(a!) x, Tensor grad, Tensor(b!)? momentum, Tensor(c!)? square, Tensor(d!)? largest, Tensor? some, "
    "Tensor c, str model, float[] rule, bool exact_exp) -> ()",
)
def _step(*arguments: Any) -> None:
    """:func:`step` as ``torch.compile`` and other tracers see it."""
    *rows, c, model, rule, exact_exp = arguments
    manifold = next(kind for kind in _SYMBOLS if kind.name == model)()
    manifold.fixed_c = c
    step(Rows(*rows), manifold, Rule._make((*rule, exact_exp)))


@_step.register_fake
def _(*arguments: Any) -> None:
    check_devices("riemannian_step", arguments[:6])


def _is_for_cpp(rows: Rows, manifold: Manifold, rule: Rule) -> bool:
    if type(manifold) not in _SYMBOLS or not (rule.exact_exp or type(manifold) is PoincareBall):
        return False
    some = rows.some
    takes_some = some is None or (some.dtype is torch.int64 and native.takes_index(some) and some.is_contiguous())
    return takes_some and rows.x.shape[-1] > 0 and _LIBRARY.usable(*rows[:5])


def _step_in_cpp(rows: Rows, manifold: Manifold, rule: Rule, max_radius: float | None) -> None:
    c, time, space = float(manifold.c), math.inf, math.inf
    root = math.sqrt(c)
    if max_radius is not None and type(manifold) is Lorentz and root * max_radius < SHEET_RADIUS[torch.float64]:
        time, space = math.cosh(root * max_radius) / root, math.sinh(root * max_radius) / root
    rows.require_shapes()
    if rows.some is not None and rows.some.numel():
        native.checked_index(rows.some, rows.x.shape[0], "step", "rows")
    flags = (rule.keep != 1, rule.exact_exp)
    _LIBRARY.run(_SYMBOLS[type(manifold)], *rows, *rows.grad.shape, (c, *rule[:8]), *flags, time, space)
