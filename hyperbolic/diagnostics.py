"""Where the points of a model are, and which tensor went wrong first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.manifolds import Manifold
from hyperbolic.numerics import wide


class NonFiniteError(RuntimeError):
    """A tensor holds NaN or infinity; ``names`` lists the tensors."""

    def __init__(self, names: list[str], message: str):
        super().__init__(message)
        self.names = names

    def __reduce__(self) -> tuple[type, tuple[list[str], str]]:  # exceptions are pickled with their message alone
        return type(self), (self.names, str(self))


@torch.no_grad()
def point_statistics(manifold: Manifold, x: Tensor) -> dict[str, float]:
    """How far out points (..., D) are.

    Returns:
        dist0_mean, dist0_max: distance from the origin. clamped_share: share of points within 1 % of the largest
        radius the dtype can hold, where values are cut off. constraint_error: largest ``|projx(x) - x|``.
    """
    x = x.detach().as_subclass(Tensor)
    if x.numel() == 0:
        return {"dist0_mean": 0.0, "dist0_max": 0.0, "clamped_share": 0.0, "constraint_error": 0.0}
    distance = wide(manifold.dist0(x))
    edge = 0.99 * manifold.max_radius(x.dtype)
    return {
        "dist0_mean": float(distance.mean()),
        "dist0_max": float(distance.max()),
        "clamped_share": float((distance >= edge).double().mean()),
        "constraint_error": float((wide(manifold.projx(x)) - wide(x)).abs().max()),
    }


def manifold_parameters(module: nn.Module) -> dict[str, ManifoldParameter]:
    """Parameters on curved manifolds, by name."""
    return {
        name: p
        for name, p in module.named_parameters()
        if isinstance(p, ManifoldParameter) and p.manifold.is_curved
    }


def find_nonfinite(tensors: nn.Module | Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> list[str]:
    """Names of tensors with a NaN or an infinity. Of a module: its parameters, then their gradients (``name.grad``)."""
    if isinstance(tensors, nn.Module):
        named = list(tensors.named_parameters())
        tensors = named + [(f"{name}.grad", p.grad) for name, p in named if p.grad is not None]
    elif isinstance(tensors, Mapping):
        tensors = tensors.items()
    return [name for name, tensor in tensors if not bool(torch.isfinite(tensor).all())]


def check_finite(tensors: nn.Module | Mapping[str, Tensor], when: str) -> None:
    """
    Raises:
        NonFiniteError: naming every tensor with a NaN or an infinity, and when it was seen.
    """
    names = find_nonfinite(tensors)
    if names:
        raise NonFiniteError(names, f"not finite {when}: {', '.join(names)}")
