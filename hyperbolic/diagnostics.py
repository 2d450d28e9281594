"""Where the points of a model are, and which tensor went wrong first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.manifolds import Manifold
from hyperbolic.numerics import wide

_STATISTICS = ("dist0_mean", "dist0_max", "clamped_share", "constraint_error")
_SMALL = 1 << 16  # numbers of a set of points that are copied in less time than the operations take to start


class NonFiniteError(RuntimeError):
    """A tensor holds NaN or infinity; ``names`` lists the tensors."""

    def __init__(self, names: list[str], message: str):
        super().__init__(message)
        self.names = names

    def __reduce__(self) -> tuple[type, tuple[list[str], str]]:  # exceptions are pickled with their message alone
        return type(self), (self.names, str(self))


def point_statistics(manifold: Manifold, x: Tensor) -> dict[str, float]:
    """How far out points (..., D) are.

    Returns:
        dist0_mean, dist0_max: distance from the origin. clamped_share: share of points within 1 % of the largest
        radius the dtype can hold, where values are cut off. constraint_error: largest ``|projx(x) - x|``.
    """
    return statistics_by_name({"": (manifold, x)})[""]


@torch.no_grad()
def statistics_by_name(points: Mapping[str, tuple[Manifold, Tensor]]) -> dict[str, dict[str, float]]:
    """:func:`point_statistics` of several sets of points, by name; small ones on one manifold are looked at as one."""
    results = {name: dict.fromkeys(_STATISTICS, 0.0) for name in points}
    spaces: dict[object, list[tuple[str, Tensor]]] = {}
    for name, (manifold, x) in points.items():
        if x.numel():
            x = x.detach().as_subclass(Tensor).reshape(-1, x.shape[-1])
            key = name if x.numel() > _SMALL else (manifold, x.shape[-1], x.dtype, x.device)
            spaces.setdefault(key, []).append((name, x))
    for named in spaces.values():
        manifold, sizes = points[named[0][0]][0], [len(x) for _, x in named]
        x = torch.cat([x for _, x in named]) if len(named) > 1 else named[0][1]
        distance = wide(manifold.dist0(x))
        error = (wide(manifold.projx(x)) - wide(x)).abs().amax(-1)
        beyond = (distance >= 0.99 * manifold.max_radius(x.dtype)).double()
        parts = zip(distance.split(sizes), beyond.split(sizes), error.split(sizes), strict=True)
        numbers = torch.stack([v for d, b, e in parts for v in (d.mean(), d.max(), b.mean(), e.max())])
        for (name, _), row in zip(named, numbers.view(len(named), -1).tolist(), strict=True):
            results[name] = dict(zip(_STATISTICS, row, strict=True))
    return results


def manifold_parameters(module: nn.Module) -> dict[str, tuple[Manifold, ManifoldParameter]]:
    """By name, the parameters on manifolds of this library, flat ones included, with their manifolds."""
    return {
        name: (p.manifold, p)
        for name, p in module.named_parameters()
        if isinstance(p, ManifoldParameter) and isinstance(p.manifold, Manifold)
    }


def find_nonfinite(tensors: nn.Module | Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with a NaN or an infinity. Of a module: its parameters, then their gradients (``name.grad``)."""
    if isinstance(tensors, nn.Module):
        named = dict(tensors.named_parameters())
        tensors = named | {f"{name}.grad": p.grad for name, p in named.items() if p.grad is not None}
    numbers = ((name, t._values() if t.is_sparse else t) for name, t in tensors.items())
    return [name for name, t in numbers if not bool(torch.isfinite(t).all())]


def check_finite(tensors: nn.Module | Mapping[str, Tensor], when: str) -> None:
    """
    Raises:
        NonFiniteError: naming every tensor with a NaN or an infinity, and when it was seen.
    """
    names = find_nonfinite(tensors)
    if names:
        raise NonFiniteError(names, f"not finite {when}: {', '.join(names)}")
