"""What ``print(layer)`` says about a layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def shows(*names: str) -> Callable[[nn.Module], str]:
    """An ``extra_repr`` with these attributes: ``extra_repr = shows("d_in", "d_out")`` gives ``d_in=3, d_out=5``."""

    def extra_repr(self: nn.Module) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    return extra_repr


__all__ = ["shows"]
