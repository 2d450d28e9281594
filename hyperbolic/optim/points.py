"""Steps of rows of points: in closed form where there is a kernel, else with the methods of the manifold."""

from __future__ import annotations

from typing import Any

import torch
from geoopt import ManifoldParameter
from torch import Tensor

from hyperbolic.kernels import adam, adam_native
from hyperbolic.kernels.geodesic_steps import Numbers, Rule
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, Manifold, PoincareBall
from hyperbolic.numerics import WIDE, wide

_CLOSED = (Lorentz, PoincareBall, Klein)


def manifold_of(p: Tensor) -> Manifold | None:
    """The curved manifold a parameter lives on."""
    if isinstance(p, ManifoldParameter) and isinstance(p.manifold, Manifold) and not isinstance(p.manifold, Euclidean):
        return p.manifold
    return None


def space_of(manifold: Manifold) -> tuple[type[Manifold] | int, ...]:
    """What two manifolds share when a point of one is a point of the other: the model and the curvature's tensor."""
    own = [id(t) for t in (*manifold.parameters(), *manifold.buffers())]
    return (type(manifold), *(own or [id(manifold)]))


def new_state(p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """Moments at the start: ``momentum`` like p, one ``square`` (and ``largest_square``) for each point."""
    state = {}
    if group["rule"] == "adam" or (group["rule"] == "sgd" and group["momentum"] > 0):
        state["momentum"] = torch.zeros_like(p, memory_format=torch.contiguous_format).as_subclass(Tensor)
    if group["rule"] != "sgd":
        state["square"] = p.new_zeros(*p.shape[:-1], 1).as_subclass(Tensor)
        if group["amsgrad"] and group["rule"] == "adam":
            state["largest_square"] = torch.zeros_like(state["square"])
    return state


def step_rows(
    x: Tensor,
    grad: Tensor,
    state: dict[str, Tensor],
    number: int,
    group: dict[str, Any],
    manifold: Manifold,
    project: bool,
    index: Tensor | None = None,
) -> None:
    """One step of the points x (N, D), in place.

    Args:
        state: rows of the moments, see :func:`new_state`. number: of the step, from 1.
        project: end with a projection of the points, and move the momenta along.
        index: (K,) different rows that the gradient (K, D) is of; the others stay.
    """
    radius, sheet = group["max_radius"], type(manifold) is Lorentz
    done, closed = False, type(manifold) in _CLOSED and (group["exact_exp"] or type(manifold) is PoincareBall)
    closed = closed and group["rule"] != "adagrad"
    if closed:
        rows = adam.Rows(x, grad, state.get("momentum"), state.get("square"), state.get("largest_square"))
        rule = Rule(
            adam=group["rule"] == "adam",
            momentum=rows.momentum is not None,
            amsgrad=rows.largest is not None,
            decay=group["weight_decay"] > 0,
            exact_exp=group["exact_exp"],
        )
        (c, numbers), kind = _numbers(number, group, manifold), type(manifold).__name__
        if index is None or not (project or (radius and not sheet)):  # of a whole table the rest is done below
            done = adam_native.step(kind, rows, (c, *numbers), rule, index, radius if sheet else None)
    if index is not None:
        return None if done else _step_some(x, grad, state, number, group, manifold, project, index)
    if closed and not done:
        values = torch.tensor(numbers, dtype=WIDE).to(x.device, non_blocking=True).unbind(0)
        adam.step(kind, rows, Numbers(c.to(x.device), *values), rule)
    elif not done:
        _step_by_methods(x, grad, state, number, group, manifold)
    if project:
        projected = manifold.projx(x)
        if "momentum" in state:
            state["momentum"].copy_(_bounded(manifold.transp(x, projected, state["momentum"])))
        x.copy_(projected)
    if radius is not None and not (done and sheet and not project):
        _pull_back(x, state.get("momentum"), manifold, radius)


def _step_some(
    x: Tensor,
    grad: Tensor,
    state: dict[str, Tensor],
    number: int,
    group: dict[str, Any],
    manifold: Manifold,
    project: bool,
    index: Tensor,
) -> None:
    """:func:`step_rows` of the rows of an index: they are copied from the tables, moved, and written back."""
    tables = {"x": x, **state}
    rows = {name: table.index_select(0, index) for name, table in tables.items()}
    moved = rows.pop("x")
    step_rows(moved, grad, rows, number, group, manifold, project)
    for name, row in {"x": moved, **rows}.items():
        tables[name].index_copy_(0, index, row)


def _pull_back(x: Tensor, momentum: Tensor | None, manifold: Manifold, max_radius: float) -> None:
    """Points further than max_radius from the origin end on the way to it, at that distance, with their momenta."""
    far = manifold.beyond(x, max_radius).nonzero().squeeze(-1)
    if len(far):
        x[far], moved = manifold.shortened(x[far], max_radius, None if momentum is None else momentum[far])
        if momentum is not None and moved is not None:
            momentum[far] = _bounded(moved)


def _numbers(number: int, group: dict[str, Any], manifold: Manifold) -> tuple[Tensor, list[float]]:
    """c, and the other fields of :class:`Numbers`."""
    if group["rule"] == "adam":
        (beta, beta2), corrections = group["betas"], [1 - beta**number for beta in group["betas"]]
        values = [group["lr"] / corrections[0], beta, 1 - beta, 1 - beta2, 1 / corrections[1], group["eps"]]
    else:
        values = [group["lr"], group["momentum"], 1.0, 1.0, 1.0, 1.0]
    return manifold.c.detach(), [*values, 1 - group["lr"] * group["weight_decay"]]


def _step_by_methods(
    x: Tensor, grad: Tensor, state: dict[str, Any], number: int, group: dict[str, Any], manifold: Manifold
) -> None:
    """The same step for any manifold and retraction, with the methods of the manifold."""
    start, lr, m = x, group["lr"], state.get("momentum")
    g = _bounded(manifold.egrad2rgrad(x, grad))
    if group["weight_decay"]:
        moved = manifold.expmap0((1 - lr * group["weight_decay"]) * manifold.logmap0(x))
        g = _bounded(manifold.transp(x, moved, g))
        m = m if m is None else _bounded(manifold.transp(x, moved, m))
        x = moved
    if group["rule"] != "sgd":
        (beta1, beta2), v = group["betas"], state["square"]
        square = manifold.inner(x, wide(g), keepdim=True).clamp_min_(0)
        longest = torch.finfo(x.dtype).max ** 0.5 / 8  # a longer gradient has a square that overflows
        far = square > longest**2
        shrink = torch.where(far, longest * torch.where(far, square, 1).rsqrt(), 1)
        g, square = (g * shrink).to(x.dtype), (square * shrink.square()).to(x.dtype)
    if group["rule"] == "adagrad":
        u = g * (-lr / v.add_(square).sqrt().add_(group["eps"]))
    elif group["rule"] == "adam":
        m = beta1 * m + (1 - beta1) * g
        v.lerp_(square, 1 - beta2)
        if "largest_square" in state:
            v = torch.maximum(state["largest_square"], v, out=state["largest_square"])
        denominator = (v / (1 - beta2**number)).sqrt_().add_(group["eps"])
        u = m * (-lr / (1 - beta1**number) / denominator)
    else:
        m = m if m is None else _bounded(group["momentum"] * m + g)
        u = -lr * (g if m is None else m)
    new = manifold.expmap(x, u) if group["exact_exp"] else manifold.retr(x, u)
    if m is not None:
        state["momentum"].copy_(_bounded(manifold.transp(x, new, m)))
    start.copy_(new)


def _bounded(x: Tensor) -> Tensor:
    """x with infinities, from overflow of finite gradients at far points, made the largest finite numbers."""
    return x.clamp(-torch.finfo(x.dtype).max, torch.finfo(x.dtype).max)
