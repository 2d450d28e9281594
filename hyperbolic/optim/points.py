"""Steps of rows of points, and what follows them: projection, and the way back to a largest radius."""

from __future__ import annotations

from typing import Any

import torch
from geoopt import ManifoldParameter
from torch import Tensor

from hyperbolic.kernels.riemannian_steps import Rows, Rule, bounded, step
from hyperbolic.manifolds import Euclidean, Manifold

MOMENTS = ("momentum", "square", "largest_square")


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
    momentum, square, largest = map(state.get, MOMENTS)
    rows, at = Rows(x, grad, momentum, square, largest, index), slice(None) if index is None else index
    inside = step(rows, manifold, rule_at(number, group), group["max_radius"])
    if project:
        start, end = x[at], manifold.projx(x[at])
        if momentum is not None:
            momentum[at] = bounded(manifold.transp(start, end, momentum[at]))
        x[at] = end
    if group["max_radius"] is not None and (project or not inside):
        _pull_back(x, momentum, manifold, group["max_radius"], index)


def _pull_back(x: Tensor, momentum: Tensor | None, manifold: Manifold, radius: float, index: Tensor | None) -> None:
    """Points further than that from the origin end on the way to it, at that distance, with their momenta."""
    far = manifold.beyond(x if index is None else x[index], radius).nonzero().squeeze(-1)
    far = far if index is None else index[far]
    if len(far):
        x[far], moved = manifold.shortened(x[far], radius, None if momentum is None else momentum[far])
        if momentum is not None and moved is not None:
            momentum[far] = bounded(moved)


def rule_at(number: int, group: dict[str, Any]) -> Rule:
    """The rule of a group at a step, from 1."""
    name, lr, exact_exp = group["rule"], group["lr"], group["exact_exp"]
    keep = 1 - lr * group["weight_decay"]
    if name != "adam":
        return Rule(name, lr, beta=group["momentum"], eps=group["eps"], keep=keep, exact_exp=exact_exp)
    beta, beta2 = group["betas"]
    rate, correction = lr / (1 - beta**number), 1 / (1 - beta2**number)
    return Rule(name, rate, beta, 1 - beta, 1 - beta2, correction, group["eps"], keep, exact_exp)
