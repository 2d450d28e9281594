"""Options and states of an optimiser, as a user or a checkpoint gives them: C++ kernels take them as they are."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hyperbolic.optim.points import manifold_of

RULES = ("adam", "adagrad", "sgd")
# What schedulers of torch leave in groups.
OF_SCHEDULERS = ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(f"optimiser: {message}")


def check_names(group: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Refuses options of a group that no optimiser of ours has."""
    names = {*defaults, "params", "param_names", "role", "name", *OF_SCHEDULERS}
    unknown = [key for key in group if key not in names]
    require(not unknown, f"a group has the unknown option {unknown[:1]}; there are {', '.join(defaults)}")


def check_options(group: dict[str, Any]) -> None:
    """Refuses options of a group that are of another kind, or out of range."""
    rule, betas, radius = group["rule"], group["betas"], group["max_radius"]
    require(rule in RULES, f"rule must be 'adam', 'adagrad' or 'sgd', got {rule!r}")
    require(isinstance(betas, (tuple, list)) and len(betas) == 2, f"betas must be two numbers, got {betas}")
    for name in ("lr", "eps", "momentum", "weight_decay"):
        require(_is_number(group[name]), f"{name} must be a number, got {group[name]!r}")
    require(group["lr"] >= 0, f"lr must not be negative, got {group['lr']}")
    require(all(_is_number(b) and 0 <= b < 1 for b in betas), f"betas must lie in [0, 1), got {betas}")
    require(group["eps"] > 0, f"eps must be positive, got {group['eps']}")
    require(0 <= group["momentum"] < 1, f"momentum must lie in [0, 1), got {group['momentum']}")
    require(radius is None or (_is_number(radius) and radius > 0), f"max_radius must be positive, got {radius}")
    require(group["weight_decay"] >= 0, f"weight_decay must not be negative, got {group['weight_decay']}")
    stacked = group["stacked"]
    require(isinstance(stacked, int) and stacked >= 0, f"stacked must be a number of axes, got {stacked!r}")
    for name in ("amsgrad", "decoupled", "exact_exp", "lazy"):
        require(isinstance(group[name], bool), f"{name} must be true or false, got {group[name]!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_state(number: int, p: Tensor, state: dict[str, Any]) -> None:
    """Refuses state to be loaded that C++ kernels would read beyond its end, or that is none."""
    square = p.shape if manifold_of(p) is None else (*p.shape[:-1], 1)  # a point has one number
    shapes = {"momentum": p.shape, "square": square, "largest_square": square}
    for key, value in state.items():
        place = f"the state {key!r} of parameter {number}, of shape {tuple(p.shape)},"
        if key == "step":
            is_count = isinstance(value, int) and 0 <= value < 2**53
            require(is_count, f"{place} must be a number of steps, got {value!r}")
            continue
        require(key in shapes, f"{place} is unknown; there are step, {', '.join(shapes)}")
        dense = isinstance(value, Tensor) and value.layout is torch.strided and value.is_floating_point()
        require(dense, f"{place} must be a dense tensor of floating-point numbers, got {_describe(value)}")
        fits = tuple(value.shape) == tuple(shapes[key])
        require(fits, f"{place} has shape {tuple(value.shape)} and needs {tuple(shapes[key])}")
        require(bool(value.isfinite().all()), f"{place} is not finite")
        require(key == "momentum" or bool((value >= 0).all()), f"{place} has a negative square")


def _describe(value: object) -> str:
    return f"{value.layout} of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
