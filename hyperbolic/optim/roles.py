"""Parameters sorted by what they are: tables of points, other points, Euclidean tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from hyperbolic.optim.points import manifold_of

ROLES = ("embeddings", "biases", "matrices", "vectors")


def parameter_role(module: nn.Module, parameter: Tensor) -> str:
    """ "embeddings" for tables of points, "biases" for all other points, "matrices" for Euclidean tensors."""
    if manifold_of(parameter) is None:
        return "matrices"
    return getattr(module, "parameter_role", "biases")


def parameter_groups(
    module: nn.Module,
    embeddings: Mapping[str, Any] | None = None,
    biases: Mapping[str, Any] | None = None,
    matrices: Mapping[str, Any] | None = None,
    vectors: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Optimiser groups by role, each with options of its own (Ganea et al. 2018 use three learning rates).

    Args:
        embeddings: options of tables of points; biases: of all other points (biases, points of hyperplanes);
        matrices: of Euclidean tensors; vectors: of those among them with fewer than two axes, as biases and scales,
        which are with the others where this is left out or empty. What is left out takes the optimiser's defaults.
    Returns: non-empty groups in the order of ``ROLES``, with the key "role". Points of a module that has a number
        ``max_radius`` are in a group of their own, with that option.
    """
    options = {"embeddings": embeddings, "biases": biases, "matrices": matrices, "vectors": vectors}
    groups: dict[tuple[str, float | None], list[Tensor]] = {(role, None): [] for role in ROLES}
    visited: set[int] = set()
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in visited:
                visited.add(id(parameter))
                radius = None if manifold_of(parameter) is None else getattr(owner, "max_radius", None)
                role = parameter_role(owner, parameter)
                role = "vectors" if vectors and role == "matrices" and parameter.dim() < 2 else role
                groups.setdefault((role, radius), []).append(parameter)
    return [
        {"params": params, "role": role, **(options[role] or {}), **({} if radius is None else {"max_radius": radius})}
        for role, radius in sorted(groups, key=lambda key: ROLES.index(key[0]))
        if (params := groups[role, radius])
    ]
