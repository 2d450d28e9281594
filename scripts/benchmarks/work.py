"""Pieces of work that rows share: forward and backward passes, training steps, points to start from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from hyperbolic.optim import RiemannianAdam, parameter_groups
from scripts.benchmarks.measure import Variant
from scripts.benchmarks.row import Setting

Module = TypeVar("Module", bound=nn.Module)


@dataclass
class Pass:
    """Computes `forward`, and from `gradient` (None: of a loss) the gradients of `leaves`."""

    forward: Callable[[], Tensor]
    leaves: Iterable[Tensor]
    gradient: Tensor | None = None

    def __post_init__(self) -> None:
        self.leaves = list(self.leaves)

    def clear(self) -> None:
        """Drops the gradients of the last time."""
        for leaf in self.leaves:
            leaf.grad = None

    def __call__(self) -> Tensor:
        self.clear()
        result = self.forward()
        result.backward(self.gradient)
        return result


def passes(
    name: str, forward: Callable[[], Tensor], leaves: Iterable[Tensor], gradient: Tensor, compared: bool = True
) -> Variant:
    """Forward and backward pass. compared: its value is the result of `forward`."""
    return Variant(name, Pass(forward, leaves, gradient), (lambda: forward().detach()) if compared else None)


def training_step(
    name: str, model: nn.Module, loss: Callable[[nn.Module], Tensor], lr: float, max_grad_norm: float, plain: bool
) -> Variant:
    """Loss, gradients, clipping and optimiser: PyTorch's fused Adam if `plain`, else Riemannian Adam."""
    optimiser: torch.optim.Optimizer
    if plain:
        optimiser = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    else:
        optimiser = RiemannianAdam(parameter_groups(model), lr=lr, max_grad_norm=max_grad_norm)

    def run() -> None:
        optimiser.zero_grad()
        loss(model).backward()
        if plain:
            nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimiser.step()

    return Variant(name, run)


def gradients(run: Callable[[], object], *leaves: Tensor) -> Tensor:
    """The gradients of `leaves` after `run`, joined, each divided by its largest entry's size."""
    run()
    parts = [leaf.grad.detach().as_subclass(Tensor) for leaf in leaves]
    return torch.cat([(part / part.abs().max()).flatten() for part in parts])


def place(model: Module, setting: Setting, compiled: bool = False) -> Module:
    """The model where the setting wants it, as a whole through ``torch.compile`` if `compiled`."""
    model = model.to(**setting.placed)
    if compiled:
        model.compile()
    return model


def vectors(*size: int, setting: Setting, std: float = 1.0) -> Tensor:
    """Normal vectors of expected length `std`."""
    return torch.randn(*size, **setting.placed) * (std / size[-1] ** 0.5)


def leaf(x: Tensor) -> Tensor:
    """x as an input with a gradient."""
    return x.detach().clone().requires_grad_()
