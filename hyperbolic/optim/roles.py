"""Parameters sorted by what they are: tables of points, other points, Euclidean tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from hyperbolic.manifolds import Manifold
from hyperbolic.optim.points import manifold_of

ROLES = ("embeddings", "biases", "matrices", "vectors")
CURVATURES = "curvatures"  # the role of learned curvatures, which have no options of their own


def parameter_role(module: nn.Module, parameter: Tensor) -> str:
    """ "embeddings" for tables of points, "biases" for all other points, "curvatures" for learned ones, those of a
    manifold and `free_c` of any module, and "matrices" for all other Euclidean tensors."""
    if isinstance(module, Manifold) or parameter is getattr(module, "free_c", None):
        return CURVATURES
    if manifold_of(parameter) is None:
        return "matrices"
    return getattr(module, "parameter_role", "biases")


def parameter_groups(
    module: nn.Module,
    embeddings: Mapping[str, Any] | None = None,
    biases: Mapping[str, Any] | None = None,
    matrices: Mapping[str, Any] | None = None,
    vectors: Mapping[str, Any] | None = None,
    apart: bool = False,
) -> list[dict[str, Any]]:
    """Optimiser groups by role, each with options of its own (Ganea et al. 2018 use three learning rates).

    Args:
        embeddings: options of tables of points; biases: of all other points (biases, points of hyperplanes);
        matrices: of Euclidean tensors; vectors: what differs from these for those among them with fewer than two axes,
        as biases and scales. What is left out takes the optimiser's defaults.
        apart: parameters that stack several tensors, as ``stacked_axes`` of their module says (gates, cells, classes),
        are in groups of their own with the option "stacked", so that clip="tensor" takes each of these by its own norm.
    Returns: non-empty groups in the order of ``ROLES``, with the key "role". Points of a module that has a number
        ``max_radius`` are in a group of their own, with that option. Learned curvatures come last, of the role
        "curvatures": with the options of vectors, but without decay, as their free number is 0 where c is log 2.
    """
    vectors = {**(matrices or {}), **vectors} if vectors else None
    options = {"embeddings": embeddings, "biases": biases, "matrices": matrices, "vectors": vectors}
    options[CURVATURES] = {**(vectors or matrices or {}), "weight_decay": 0.0}
    groups: dict[tuple[str, float | None, int], list[Tensor]] = {(role, None, 0): [] for role in options}
    visited: set[int] = set()
    for owner in module.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in visited:
                visited.add(id(parameter))
                radius = None if manifold_of(parameter) is None else getattr(owner, "max_radius", None)
                role = parameter_role(owner, parameter)
                role = "vectors" if vectors and role == "matrices" and parameter.dim() < 2 else role
                axes = getattr(owner, "stacked_axes", {}).get(name, 0) if apart else 0
                groups.setdefault((role, radius, axes), []).append(parameter)
    result = []
    for role, radius, axes in sorted(groups, key=lambda key: [*options].index(key[0])):
        own = {"max_radius": radius, "stacked": axes or None}
        more = {name: value for name, value in own.items() if value is not None}
        if params := groups[role, radius, axes]:
            result.append({"params": params, "role": role, **(options[role] or {}), **more})
    return result
