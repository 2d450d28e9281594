"""Layer families: the layers that a paper defined on some manifolds, under the names that all families share."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from hyperbolic.manifolds import MANIFOLDS, Manifold


@dataclass(frozen=True)
class LayerFamily:
    """Layers by their name, and the manifolds that they are defined on.

    Args:
        name: what configurations call it. manifolds: classes, also those derived from them; None: every curved one.
        layers: class by name (``Linear``, ``GRU``, ``Logits``, ...); the manifold is the first argument of each.
    """

    name: str
    manifolds: tuple[type[Manifold], ...] | None
    layers: Mapping[str, type[nn.Module]]

    def fits(self, manifold: type[Manifold]) -> bool:
        """Whether the family is defined on a manifold."""
        return manifold.is_curved if self.manifolds is None else issubclass(manifold, self.manifolds)

    @property
    def manifold_names(self) -> str:
        """The manifolds that it is defined on, for messages."""
        return ", ".join(name for name, manifold in MANIFOLDS.items() if self.fits(manifold))

    def options(self, layer: str) -> list[str]:
        """What a layer takes by name, which has a default; empty where there is no such layer."""
        parameters = inspect.signature(self.layers[layer]).parameters.values() if layer in self.layers else ()
        return [p.name for p in parameters if p.default is not p.empty]

    def check_options(self, layer: str, options: Mapping[str, Any], where: str) -> None:
        """
        Raises:
            ValueError: when the family has no such layer, or the layer has no such option; ``where`` opens the message.
        """
        if layer not in self.layers:
            raise ValueError(f"{where}: the layer family {self.name} has no {layer}; it has {', '.join(self.layers)}")
        names = self.options(layer)
        for option in options:
            if option not in names:
                raise ValueError(
                    f"{where}: {self.name}.{layer} has no option {option!r}; it takes {', '.join(names) or 'none'}"
                )


FAMILIES: dict[str, LayerFamily] = {}  # by name; the first that has a layer gives the layer its name in messages


def register_family(family: LayerFamily) -> None:
    """Make a family known by its name.

    Raises:
        ValueError: when another family has the name.
    """
    if FAMILIES.setdefault(family.name, family) != family:
        raise ValueError(f"another layer family is registered as {family.name!r}; choose another name")


def families_of(layer: type[nn.Module]) -> list[LayerFamily]:
    """The families that a class of layers belongs to; some share layers."""
    return [family for family in FAMILIES.values() if layer in family.layers.values()]
