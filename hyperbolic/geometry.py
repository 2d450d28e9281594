"""A geometry is a manifold plus the family of layers a paper defined on it; models are written once against it.

:class:`Geometry` makes layers. A model names its components and asks ``geometry.part("classifier")`` for the geometry
of each, so that one component can be switched (``parts={"classifier": euclidean}``); :class:`ChangeGeometry` stands
wherever two geometries meet.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from hyperbolic.layers import euclidean, hatt, klein, lorentz, mobius, poincare_pp, tangent
from hyperbolic.layers.guard import FAMILY_MANIFOLDS
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, Manifold, PoincareBall
from hyperbolic.manifolds.base import HyperbolicManifold
from hyperbolic.manifolds.charts import convert

MANIFOLDS: dict[str, type[Manifold]] = {
    "Euclidean": Euclidean,
    "PoincareBall": PoincareBall,
    "Lorentz": Lorentz,
    "Klein": Klein,
}
FAMILIES: dict[str, ModuleType] = {
    "euclidean": euclidean,
    "hatt": hatt,
    "mobius": mobius,
    "poincare_pp": poincare_pp,
    "lorentz": lorentz,
    "klein": klein,
    "tangent": tangent,
}
# name: (manifold, family). configs/geometry holds one file for each.
GEOMETRIES: dict[str, tuple[str, str]] = {
    "euclidean": ("Euclidean", "euclidean"),
    "hatt": ("Euclidean", "hatt"),
    "poincare": ("PoincareBall", "mobius"),
    "poincare_pp": ("PoincareBall", "poincare_pp"),
    "lorentz": ("Lorentz", "lorentz"),
    "klein": ("Klein", "klein"),
    "poincare_tangent": ("PoincareBall", "tangent"),
    "lorentz_tangent": ("Lorentz", "tangent"),
    "klein_tangent": ("Klein", "tangent"),
}


@dataclass(frozen=True)
class Geometry:
    """A manifold and the layers on it.

    Args:
        name: what configurations call it.
        manifold: shared by every layer and parameter made here.
        layers: a module of :mod:`hyperbolic.layers`.
        parts: geometry of single components, by component name; the others have this geometry.
        options: settings of the layers made here, by class name (``{"Linear": {"variant": "mt"}}``); what a model
            passes itself comes first.

    Layer methods (``linear(d_in, d_out)``, ``gru(d_in, d_hidden)``, ``logits(d, n_classes)``, ...) take what the class
    of that name takes after its manifold. Sizes are intrinsic.
    """

    name: str
    manifold: Manifold
    layers: ModuleType
    parts: Mapping[str, Geometry] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set, compare=False, repr=False)  # classes of the layers made so far

    def part(self, component: str) -> Geometry:
        """Geometry of one component of a model."""
        own = Geometry(self.name, self.manifold, self.layers, options=self.options, made=self.made)
        return self.parts.get(component, own)

    def with_defaults(self, settings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Geometry:
        """This geometry and its parts with other defaults of layers, each with those for its own family.

        Args:
            settings: ``{family: {class of layers: {option: value}}}``. ``options`` come before them, and what a model
                passes itself comes before both.

        Raises:
            ValueError: a family that does not exist, or a layer or an option that the family does not have.
        """
        for family, classes in settings.items():
            layers = FAMILIES[_known(family, FAMILIES, "defaults of layers")]
            for layer, options in classes.items():
                _known(layer, dict.fromkeys(layers.__all__), f"defaults of layers, family {family}")
                for option in options:
                    _known(option, dict.fromkeys(_options(layers, layer)), f"defaults of layers, {family}.{layer}")

        def changed(geometry: Geometry) -> Geometry:
            options = {layer: dict(values) for layer, values in geometry.options.items()}
            for layer, defaults in settings.get(geometry.layers.__name__.rpartition(".")[2], {}).items():
                options[layer] = {**defaults, **options.get(layer, {})}
            return replace(geometry, options=options)

        return replace(changed(self), parts={component: changed(part) for component, part in self.parts.items()})

    def preferring(self, settings: Mapping[str, Mapping[str, Any]]) -> Geometry:
        """This geometry and those of its parts with settings of layers that a model's paper has, by class as
        ``options``. A family that has no such layer or option goes without; ``options`` come before them.
        Replaced by :meth:`with_defaults`, which names the families.

        Raises:
            ValueError: a layer or an option that no family has.
        """
        for layer, chosen in settings.items():
            known = {option for family in FAMILIES.values() for option in _options(family, layer)}
            if not known:
                raise ValueError(f"settings of layers: no layer family has a {layer}")
            for option in chosen:
                if option not in known:
                    raise ValueError(f"settings of layers: no {layer} of any family has an option {option!r}")
        parts = {component: part._with(settings) for component, part in self.parts.items()}
        return replace(self._with(settings), parts=parts)

    def _with(self, settings: Mapping[str, Mapping[str, Any]]) -> Geometry:
        options = {layer: dict(chosen) for layer, chosen in self.options.items()}
        for layer, chosen in settings.items():
            known = _options(self.layers, layer)
            wished = {option: value for option, value in chosen.items() if option in known}
            options[layer] = {**wished, **options.get(layer, {})}
        return replace(self, options=options)

    def check_components(self, components: Iterable[str]) -> None:
        """
        Raises:
            ValueError: when ``parts`` names a component the model does not have.
        """
        known = list(components)
        unknown = [part for part in self.parts if part not in known]
        if unknown:
            raise ValueError(
                f"geometry.parts.{unknown[0]}: this model has no component {unknown[0]!r}; its components are "
                f"{', '.join(known)}"
            )

    def check_options(self) -> None:
        """To be called when a model is built.

        Raises:
            ValueError: when ``options`` are for a class of layers that the model does not make from this geometry.
        """
        unused = [layer for layer in self.options if layer not in self.made]
        if unused:
            raise ValueError(
                f"geometry.options.{unused[0]}: this model makes no {unused[0]} of the geometry {self.name}; it makes "
                f"{', '.join(sorted(self.made)) or 'none of its layers'}"
            )

    def _make(self, layer: str, *sizes: Any, **options: Any) -> nn.Module:
        """
        Raises:
            ValueError: when the family has no such layer, or the layer has no such option.
        """
        family = self.layers.__name__.rpartition(".")[2]
        cls = getattr(self.layers, layer, None)
        if cls is None:
            having = [name for name, (_, other) in GEOMETRIES.items() if layer in FAMILIES[other].__all__]
            raise ValueError(
                f"geometry {self.name}: the layer family {family} has no {layer}; geometries that have it: "
                f"{', '.join(having) or 'none'}"
            )
        self.made.add(layer)
        options = {**self.options.get(layer, {}), **options}
        _check_options(self, layer, options)
        return cls(self.manifold, *sizes, **options)

    def linear(self, d_in: int, d_out: int, **options: Any) -> nn.Module:
        return self._make("Linear", d_in, d_out, **options)

    def embedding(self, n: int, d: int, **options: Any) -> nn.Module:
        return self._make("Embedding", n, d, **options)

    def activation(self, fn: str) -> nn.Module:
        return self._make("Activation", fn)

    def dropout(self, p: float, **options: Any) -> nn.Module:
        return self._make("Dropout", p, **options)

    def rnn(self, d_in: int, d_hidden: int, **options: Any) -> nn.Module:
        return self._make("RNN", d_in, d_hidden, **options)

    def gru(self, d_in: int, d_hidden: int, **options: Any) -> nn.Module:
        return self._make("GRU", d_in, d_hidden, **options)

    def concat(self, dims: Sequence[int], d_out: int, **options: Any) -> nn.Module:
        return self._make("Concat", dims, d_out, **options)

    def attention(self, d: int, **options: Any) -> nn.Module:
        return self._make("Attention", d, **options)

    def context_attention(self, d: int, **options: Any) -> nn.Module:
        return self._make("ContextAttention", d, **options)

    def multi_head_attention(self, d: int, n_heads: int, **options: Any) -> nn.Module:
        return self._make("MultiHeadAttention", d, n_heads, **options)

    def residual(self, d_in: int, d_out: int, **options: Any) -> nn.Module:
        return self._make("Residual", d_in, d_out, **options)

    def feed_forward(self, d: int, d_hidden: int, **options: Any) -> nn.Module:
        return self._make("FeedForward", d, d_hidden, **options)

    def position_encoding(self, d: int, n_positions: int, **options: Any) -> nn.Module:
        return self._make("PositionEncoding", d, n_positions, **options)

    def norm(self, d: int) -> nn.Module:
        return self._make("Norm", d)

    def centroid(self) -> nn.Module:
        return self._make("Centroid")

    def ordered_sum(self) -> nn.Module:
        return self._make("OrderedSum")

    def logits(self, d: int, n_classes: int, **options: Any) -> nn.Module:
        return self._make("Logits", d, n_classes, **options)


def make_geometry(
    name: str,
    manifold: str,
    layers: str,
    c: float | None = None,
    learn_c: bool = False,
    parts: Mapping[str, str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Geometry:
    """Builds a geometry from plain values.

    Args:
        name: how it is called. manifold: a key of ``MANIFOLDS``. layers: a key of ``FAMILIES``.
        c: positive curvature parameter (sectional curvature -c); None for Euclidean.
        learn_c: train c, one scalar for all parts.
        parts: component name to geometry name (a key of ``GEOMETRIES``). A part on the same manifold shares it;
            a part on another curved manifold shares c with it, also while c is learned.
        options: settings of the family's layers by class name; parts of another geometry have their defaults.

    Raises:
        ValueError: unknown name, a family that is not defined on the manifold, c that is not positive, learn_c where
            nothing is curved, or a setting that the layer does not have.
    """
    _known(manifold, MANIFOLDS, f"geometry.manifold of {name}")
    _known(layers, FAMILIES, f"geometry.layers of {name}")
    if manifold not in FAMILY_MANIFOLDS[layers]:
        raise ValueError(
            f"geometry {name}: the layer family {layers} is defined on {', '.join(FAMILY_MANIFOLDS[layers])}, "
            f"not on {manifold}"
        )
    made: dict[str, Manifold] = {}

    def space(kind: str) -> Manifold:
        if kind not in made:
            curved = next((m for m in made.values() if isinstance(m, HyperbolicManifold)), None)
            if kind == "Euclidean":
                made[kind] = Euclidean()
            elif curved is not None:
                made[kind] = curved.twin(MANIFOLDS[kind])
            else:
                made[kind] = MANIFOLDS[kind](c=_curvature(c, name), learn_c=learn_c)
        return made[kind]

    components = {}
    for component, part in (parts or {}).items():
        part_manifold, part_layers = GEOMETRIES[_known(part, GEOMETRIES, f"geometry.parts.{component}")]
        components[component] = Geometry(part, space(part_manifold), FAMILIES[part_layers])
    geometry = Geometry(name, space(manifold), FAMILIES[layers], components, options or {})
    if learn_c and set(made) == {"Euclidean"}:
        raise ValueError(f"geometry {name}: geometry.learn_c=true, but no part of it is curved")
    for layer, settings in geometry.options.items():
        _known(layer, dict.fromkeys(geometry.layers.__all__), f"geometry.options of {name}")
        _check_options(geometry, layer, settings)
    return geometry


def _known(value: str, table: Mapping[str, Any], where: str) -> str:
    if value not in table:
        raise ValueError(f"{where}: unknown value {value!r}; available: {', '.join(table)}")
    return value


def _options(family: ModuleType, layer: str) -> list[str]:
    """What the family's layer takes after its manifold; nothing where there is no such layer."""
    cls = getattr(family, layer, None)
    return [] if cls is None else list(inspect.signature(cls).parameters)[1:]


def _check_options(geometry: Geometry, layer: str, options: Mapping[str, Any]) -> None:
    allowed = _options(geometry.layers, layer)
    family = geometry.layers.__name__.rpartition(".")[2]
    for option in options:
        if option not in allowed:
            raise ValueError(
                f"geometry {geometry.name}: {family}.{layer} has no option {option!r}; it takes {', '.join(allowed)}"
            )


def _curvature(c: float | None, name: str) -> float:
    if c is None:
        raise ValueError(f"geometry {name}: geometry.c is needed by a curved manifold; give a positive number")
    return c


class ChangeGeometry(nn.Module):
    """Moves points from one geometry to another; the identity when both have the same manifold.

    The exact isometry between two models of the same space (same c); otherwise ``exp_0(log_0(x))``, as Ganea et al.
    2018 and Lopez & Strube 2020 connect hyperbolic and Euclidean layers.
    """

    def __init__(self, source: Geometry, target: Geometry):
        super().__init__()
        self.source, self.target = source.manifold, target.manifold

    def forward(self, x: Tensor) -> Tensor:
        return x if self.source is self.target else convert(x, self.source, self.target)

    def extra_repr(self) -> str:
        return f"{self.source.name} -> {self.target.name}"
