"""Where values and gradients stop being numbers: every function at every pair of radii from 0 to the stated one."""

from __future__ import annotations

import torch
from torch import Tensor

from scripts.exactness.cases import FUNCTIONS
from scripts.exactness.libraries import LIBRARIES, MANIFOLDS, functions

INNER = (0.0, 1e-30, 1e-12, 1e-6, 1e-2, 1.0, 3.0, 6.0)


def count(space: str, dtype: torch.dtype, library: str, c: float = 1.0) -> tuple[int, int] | None:
    """(values or gradients that are NaN or infinite, all of them), one for each function and pair of points.

    None where the library does not have the space. Points and vectors come from our maps.
    """
    calls = {name: call for name, call in functions(library, space, c, dtype).items() if name in FUNCTIONS[space]}
    if not calls:
        return None
    bad = total = 0
    for arguments in places(space, dtype, c):
        for name, call in calls.items():
            inputs = [arguments[letter].clone().requires_grad_() for letter in FUNCTIONS[space][name].letters]
            value = call(*inputs)
            slopes = torch.autograd.grad(value.sum(), inputs, allow_unused=True, materialize_grads=True)
            total += 1
            bad += not all(bool(part.isfinite().all()) for part in (value, *slopes))
    return bad, total


def places(space: str, dtype: torch.dtype, c: float) -> list[dict[str, Tensor]]:
    """Arguments by letter for all pairs of radii, up to the stated radius of the model."""
    manifold = MANIFOLDS[space](c)
    radii = [*(r for r in INNER if r < manifold.max_radius(dtype)), manifold.max_radius(dtype)]
    directions = torch.nn.functional.normalize(torch.tensor([[1.0, -2.0, 0.5], [0.9, -2.0, 0.7]], dtype=dtype))
    half = 2 if space == "PoincareBall" else 1
    arguments = []
    for i, r_x in enumerate(radii):
        for j, r_y in enumerate(radii):
            x = manifold.expmap0(directions[0] * r_x / half)
            y = manifold.expmap0(directions[(i + j) % 2] * (-1) ** j * r_y / half)
            step = directions[1] * min(1.0, r_y) / half
            u = manifold.transp0(x, step).detach()
            arguments.append(
                {
                    "x": x,
                    "y": y,
                    "k": x,
                    "p": y,
                    "n": -x,
                    "u": u,
                    "v": u,
                    "g": u,
                    "a": step,
                    "r": torch.tensor([-0.5], dtype=dtype),
                    "M": torch.tensor([[1.0, 0.5, -0.25], [0.5, 1.0, 2.0]], dtype=dtype),
                    "P": torch.stack([x, y, x]),
                    "w": torch.tensor([1.0, 2.0, 0.5], dtype=dtype),
                }
            )
    return arguments


def table() -> list[tuple[str, str, float, dict[str, tuple[int, int] | None]]]:
    """(space, dtype, stated radius, library -> count)."""
    rows = []
    for space in MANIFOLDS:
        for dtype in (torch.float32, torch.float64):
            counts = {library: count(space, dtype, library) for library in LIBRARIES}
            rows.append((space, str(dtype).removeprefix("torch."), MANIFOLDS[space](1.0).max_radius(dtype), counts))
    return rows
