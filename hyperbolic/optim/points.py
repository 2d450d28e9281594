"""Steps of rows of points, and what follows them: projection, and the way back to a largest radius."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

import geoopt
import torch
from geoopt import ManifoldParameter
from torch import Tensor

from hyperbolic.kernels.riemannian_steps import Rows, Rule, bound, step
from hyperbolic.kernels.riemannian_steps.cuda import Job
from hyperbolic.manifolds import Euclidean, Manifold
from hyperbolic.optim.gradients import Gradient

MOMENTS = ("momentum", "square", "largest_square")
SMALL = 1 << 16  # tensors of points up to this size are updated together


def manifold_of(p: Tensor) -> Manifold | None:
    """The curved manifold a parameter lives on."""
    if isinstance(p, ManifoldParameter) and _is_curved(type(p.manifold)):
        return cast(Manifold, p.manifold)
    return None


@cache
def _is_curved(kind: type) -> bool:
    """Of a class of manifolds; remembered, as every step asks for each of its tensors several times."""
    return issubclass(kind, Manifold) and not issubclass(kind, Euclidean)


def check_manifold(p: Tensor) -> None:
    """Raises ValueError for a point on a manifold that is none of this library's, as geoopt's own, which the steps
    here do not know and would take for flat."""
    if isinstance(p, ManifoldParameter) and not isinstance(p.manifold, Manifold | geoopt.Euclidean):
        raise ValueError(
            f"optimiser: a ManifoldParameter of shape {tuple(p.shape)} lies on {type(p.manifold).__name__} of geoopt; "
            "take a manifold of hyperbolic.manifolds, or an optimiser of geoopt for it"
        )


def space_of(manifold: Manifold) -> tuple[type[Manifold] | int, ...]:
    """What two manifolds share when a point of one is a point of the other: the model and the curvature's tensor."""
    own = [id(t) for t in (*manifold.parameters(), *manifold.buffers())]
    return (type(manifold), *(own or [id(manifold)]))


def rows_of(t: Tensor) -> Tensor:
    """Points (..., D) as (N, D)."""
    return t if t.dim() == 2 else t.reshape(-1, t.shape[-1])


def project(tables: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    """Tensors of points, or rows (K,) of them, onto their manifolds as they are now, in place: those of one space and
    width together, so that a GPU launches as many kernels for many as for one; on a CPU large ones by themselves."""
    spaces: dict[object, list[tuple[Tensor, Tensor | None]]] = {}
    for p, index in tables:
        manifold = manifold_of(p)
        assert manifold is not None
        alone = p.numel() > SMALL and p.device.type == "cpu"
        key = id(p) if alone else (space_of(manifold), p.shape[-1], p.dtype, p.device)
        spaces.setdefault(key, []).append((p, index))
    for some in spaces.values():
        manifold = manifold_of(some[0][0])
        assert manifold is not None
        points = [p.detach().as_subclass(Tensor) for p, _ in some]
        parts = [rows_of(t if index is None else t[index]) for t, (_, index) in zip(points, some, strict=True)]
        new = manifold.projx(torch.cat(parts)).split([len(part) for part in parts])
        if whole := [k for k, (_, index) in enumerate(some) if index is None]:
            torch._foreach_copy_([points[k] for k in whole], [new[k].view_as(points[k]) for k in whole])
        for table, part, (_, index) in zip(points, new, some, strict=True):
            if index is not None:
                table.index_copy_(0, index, part)


def new_state(p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """Moments at the start: ``momentum`` like p, a ``square`` (and ``largest_square``) for a point or flat number."""
    state = {}
    if group["rule"] == "adam" or (group["rule"] == "sgd" and group["momentum"] > 0):
        state["momentum"] = torch.zeros_like(p, memory_format=torch.contiguous_format).as_subclass(Tensor)
    if group["rule"] != "sgd":
        flat = p if manifold_of(p) is None else p[..., :1]
        state["square"] = torch.zeros_like(flat, memory_format=torch.contiguous_format).as_subclass(Tensor)
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
    rows = Rows(x, grad, momentum, square, largest, index)
    inside = step(rows, manifold, rule_at(number, group), group["max_radius"])
    if project:
        at = slice(None) if index is None else index
        start, end = x[at], manifold.projx(x[at])
        if momentum is not None:
            momentum[at] = bound(manifold.transp(start, end, momentum[at]))
        x[at] = end
    if group["max_radius"] is not None and (project or not inside):
        _pull_back(x, momentum, manifold, group["max_radius"], index)


def _pull_back(x: Tensor, momentum: Tensor | None, manifold: Manifold, radius: float, index: Tensor | None) -> None:
    """Points further than that from the origin end on the way to it, at that distance, with their momenta."""
    far = manifold.beyond(x if index is None else x[index], radius).nonzero().squeeze(-1)
    far = far if index is None else index[far]
    if len(far):
        x[far], moved = manifold.shorten(x[far], radius, None if momentum is None else momentum[far])
        if momentum is not None and moved is not None:
            momentum[far] = bound(moved)


def jobs_of(
    grads: Mapping[Tensor, Gradient], states: Mapping[Tensor, dict[str, Any]], groups: list[dict[str, Any]], clip: str
) -> list[Job]:
    """Steps for the kernels on a GPU, of the tensors with a gradient. Args: clip: which of them have one norm."""
    jobs: list[Job] = []
    for number, group in enumerate(groups):
        for p in group["params"]:
            if p in grads:
                part = {"global": 0, "group": number, "tensor": len(jobs)}[clip]
                jobs.append(_job(p, grads[p], states[p], group, part))
    return jobs


def _job(p: Tensor, gradient: Gradient, state: dict[str, Any], group: dict[str, Any], part: int) -> Job:
    """Args: part: which of the tensors that have one norm it belongs to."""
    x, (momentum, square, largest) = p.detach().as_subclass(Tensor), map(state.get, MOMENTS)
    manifold, rule, pull = manifold_of(p), rule_at(state["step"], group), 0.0
    rows = Rows(x, gradient.values.contiguous(), momentum, square, largest)
    if manifold is not None:  # what is not contiguous is not for these kernels
        rows = Rows._make(t.view(-1, t.shape[-1]) if t is not None and t.is_contiguous() else t for t in rows)
    rows = rows._replace(some=gradient.rows)
    if manifold is None and not group["decoupled"]:
        rule, pull = rule._replace(keep=1.0), group["weight_decay"]
    return Job(rows, manifold, rule, group["max_radius"], pull, part)


def rule_at(number: int, group: dict[str, Any]) -> Rule:
    """The rule of a group at a step, from 1."""
    name, lr, exact_exp = group["rule"], group["lr"], group["exact_exp"]
    keep = 1 - lr * group["weight_decay"]
    if name != "adam":
        return Rule(lr, group["momentum"], eps=group["eps"], keep=keep, exact_exp=exact_exp)
    beta, beta2 = group["betas"]
    rate, correction = lr / (1 - beta**number), 1 / (1 - beta2**number)
    return Rule(rate, beta, 1 - beta, beta2, 1 - beta2, correction, group["eps"], keep, exact_exp)
