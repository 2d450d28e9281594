"""A geometry is a manifold plus the family of layers a paper defined on it; models are written once against it.

:class:`Geometry` makes layers. A model names its components and asks ``geometry.part("classifier")`` for the geometry
of each, so that one component can be switched (``parts={"classifier": euclidean}``); :class:`ChangeGeometry` stands
wherever two geometries meet.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from hyperbolic.autocast import leaves_autocast
from hyperbolic.layers.family import FAMILIES, LayerFamily, register_family
from hyperbolic.layers.guard import check_choice
from hyperbolic.manifolds import MANIFOLDS, Manifold, register_manifold
from hyperbolic.manifolds.charts import convert, origin_vectors, same_space

# name: (manifold, family). configs/geometry holds one file for each, and may hold more.
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
Options = Mapping[str, Mapping[str, Any]]  # of layers, by class: {"Linear": {"variant": "mt"}}


@dataclass(frozen=True)
class Geometry:
    """A manifold and the layers on it.

    Args:
        name: what configurations call it.
        manifold: shared by every layer and parameter made here.
        family: of the layers.
        parts: geometry of single components, by component name; the others have this geometry.
        options: settings of the layers made here, by class name (``{"Linear": {"variant": "mt"}}``); what a model
            passes itself comes first.

    Layer methods (``linear(d_in, d_out)``, ``gru(d_in, d_hidden)``, ``logits(d, n_classes)``, ...) take what the class
    of that name takes after its manifold. Sizes are intrinsic.
    """

    name: str
    manifold: Manifold
    family: LayerFamily
    parts: Mapping[str, Geometry] = field(default_factory=dict)
    options: Options = field(default_factory=dict)
    built_layers: set[str] = field(default_factory=set, compare=False, repr=False)  # class names, so far

    def part(self, component: str) -> Geometry:
        """Geometry of one component of a model."""
        return self.parts.get(component) or replace(self, parts={})

    def with_defaults(self, settings: Mapping[str, Options]) -> Geometry:
        """This geometry and its parts with other defaults of layers, each with those for its own family.

        Args:
            settings: ``{family: {class of layers: {option: value}}}``. ``options`` come before them, and what a model
                passes itself comes before both.

        Raises:
            ValueError: a family that does not exist, or a layer or an option that the family does not have.
        """
        for family, layers in settings.items():
            check_choice("defaults of layers", family, FAMILIES)
            for layer, options in layers.items():
                FAMILIES[family].check_options(layer, options, "defaults of layers")

        def changed(geometry: Geometry) -> Geometry:
            options = {layer: dict(values) for layer, values in geometry.options.items()}
            for layer, defaults in settings.get(geometry.family.name, {}).items():
                options[layer] = {**defaults, **options.get(layer, {})}
            return replace(geometry, options=options)

        return replace(changed(self), parts={component: changed(part) for component, part in self.parts.items()})

    def check_components(self, components: Iterable[str]) -> None:
        """
        Raises:
            ValueError: when ``parts`` names a component the model does not have.
        """
        names = list(components)
        for part in self.parts:
            if part not in names:
                raise ValueError(
                    f"geometry.parts.{part}: this model has no component {part!r}; its components are "
                    f"{', '.join(names)}. Parts are named by geometry.parts or by the "
                    f"geometry itself ({self.name}, which may be for another encoder)"
                )

    def check_manifold(self, model: str, *kinds: Any, option: tuple[str, str] | None = None) -> None:
        """
        Args: model: its name. kinds: the manifolds that its formulas are for. option: a layer that it makes, and one of
            its options, which not all families have.
        Raises:
            ValueError: when this geometry is on another manifold or its layer lacks the option; it names the geometries
                that fit.
        """

        def fits(manifold: type[Manifold], family: LayerFamily) -> bool:
            return issubclass(manifold, kinds) and (option is None or option[1] in family.options(option[0]))

        if not fits(type(self.manifold), self.family):
            fitting = [name for name, (kind, family) in GEOMETRIES.items() if fits(MANIFOLDS[kind], FAMILIES[family])]
            names = ", ".join(name for name, kind in MANIFOLDS.items() if issubclass(kind, kinds))
            raise ValueError(
                f"{model} is defined on {names}, not with geometry={self.name}; "
                f"choose geometry={' or '.join(fitting)}, or another model, as by encoder=..."
            )

    def check_options(self) -> None:
        """To be called when a model is built.

        Raises:
            ValueError: when ``options`` are for a class of layers that the model does not make from this geometry.
        """
        for layer in self.options:
            if layer not in self.built_layers:
                raise ValueError(
                    f"geometry.options.{layer}: this model makes no {layer} of the geometry {self.name}; it makes "
                    f"{', '.join(sorted(self.built_layers)) or 'none of its layers'}"
                )

    def _make(self, layer: str, *sizes: Any, **options: Any) -> nn.Module:
        """
        Raises:
            ValueError: when the family has no such layer, or the layer has no such option.
        """
        if layer not in self.family.layers:
            fitting = [name for name, (_, family) in GEOMETRIES.items() if layer in FAMILIES[family].layers]
            raise ValueError(
                f"geometry {self.name}: the layer family {self.family.name} has no {layer}; geometries that have it: "
                f"{', '.join(fitting) or 'none'}"
            )
        self.built_layers.add(layer)
        options = {**self.options.get(layer, {}), **options}
        self.family.check_options(layer, options, f"geometry {self.name}")
        return self.family.layers[layer](self.manifold, *sizes, **options)

    # Each makes a layer of the family, whose class says the formula and its paper. Sizes d are dimensions of the space,
    # D coordinates of its points. The options are of the class; they come before those of `options`, and these before
    # those of `with_defaults`. Raises ValueError where the family has no such layer, or the layer no such option.

    def linear(self, d_in: int, d_out: int, **options: Any) -> nn.Module:
        """Points (..., D_in) -> (..., D_out): a matrix and a bias of the family, as ``W (x) x (+) b``. d_in, d_out:
        dimensions."""
        return self._make("Linear", d_in, d_out, **options)

    def embedding(self, n: int, d: int, **options: Any) -> nn.Module:
        """Index (...) of n points -> (..., D): a table of trained points of dimension d."""
        return self._make("Embedding", n, d, **options)

    def activation(self, fn: str) -> nn.Module:
        """Points (..., D) -> (..., D): a function of coordinates, as "relu" or "tanh", or "identity"."""
        return self._make("Activation", fn)

    def dropout(self, p: float, **options: Any) -> nn.Module:
        """Points (..., D) -> (..., D): in training coordinates are dropped with probability p in [0, 1]."""
        return self._make("Dropout", p, **options)

    def rnn(self, d_in: int, d_hidden: int, **options: Any) -> nn.Module:
        """Sequences (B, T, D_in) and lengths (B,) -> states (B, T, D_hidden) and the last ones (B, D_hidden); with the
        option streams=S, of S cells, (S, B, T, D_in) and (S, B)."""
        return self._make("RNN", d_in, d_hidden, **options)

    def gru(self, d_in: int, d_hidden: int, **options: Any) -> nn.Module:
        """As :meth:`rnn`, with the gates of a gated recurrent unit."""
        return self._make("GRU", d_in, d_hidden, **options)

    def concat(self, dims: Sequence[int], d_out: int, **options: Any) -> nn.Module:
        """One point of each of the dimensions ``dims`` -> one point (..., D_out)."""
        return self._make("Concat", dims, d_out, **options)

    def attention(self, d: int, **options: Any) -> nn.Module:
        """Points (..., N, D) -> their weighted centroid (..., D) and the weights (..., N), by distances of queries and
        keys."""
        return self._make("Attention", d, **options)

    def context_attention(self, d: int, **options: Any) -> nn.Module:
        """As :meth:`attention`, with the weights of a learned context that keys are compared with."""
        return self._make("ContextAttention", d, **options)

    def multi_head_attention(self, d: int, n_heads: int, **options: Any) -> nn.Module:
        """Queries (B, T, D), keys and values (B, N, D) -> (B, T, D); d is a multiple of n_heads."""
        return self._make("MultiHeadAttention", d, n_heads, **options)

    def residual(self, d_in: int, d_out: int, **options: Any) -> nn.Module:
        """``o`` (..., D_in), a block's inner result, and its input x (..., D_out) -> (..., D_out)."""
        return self._make("Residual", d_in, d_out, **options)

    def feed_forward(self, d: int, d_hidden: int, **options: Any) -> nn.Module:
        """Points (..., D) -> (..., D): two linear layers with d_hidden between them, and a residual."""
        return self._make("FeedForward", d, d_hidden, **options)

    def position_encoding(self, d: int, n_positions: int, **options: Any) -> nn.Module:
        """Points (..., T, D) -> (..., T, D), moved by those of their places; T is at most n_positions."""
        return self._make("PositionEncoding", d, n_positions, **options)

    def norm(self, d: int) -> nn.Module:
        """Points (..., D) -> (..., D): the family's normalisation; the identity where its papers have none."""
        return self._make("Norm", d)

    def centroid(self) -> nn.Module:
        """Points (..., N, D), weights (..., N) and a mask (..., N) -> their weighted centroid (..., D)."""
        return self._make("Centroid")

    def aggregation(self, d: int, **options: Any) -> nn.Module:
        """Points (M, D) of nodes and their neighbours -> (N, D), centroids of the neighbourhoods."""
        return self._make("Aggregation", d, **options)

    def ordered_sum(self) -> nn.Module:
        """Points (..., N, D) -> (..., D): their sum in the family's addition, in this order."""
        return self._make("OrderedSum")

    def logits(self, d: int, n_classes: int, **options: Any) -> nn.Module:
        """Points (..., D) -> (..., n_classes): a score of each class, and losses over classes."""
        return self._make("Logits", d, n_classes, **options)


def register_geometry(name: str, manifold: str, layers: str) -> None:
    """Give a pair of a registered manifold and a registered family a name, which ``parts`` may then use.

    Raises:
        ValueError: an unknown name, a family that is not defined on the manifold, or a name that another pair has.
    """
    _pair(name, manifold, layers)
    if GEOMETRIES.setdefault(name, (manifold, layers)) != (manifold, layers):
        raise ValueError(f"another geometry is registered as {name!r}; choose another name")


def make_geometry(
    name: str,
    manifold: str,
    layers: str,
    c: float | None = None,
    learn_c: bool = False,
    parts: Mapping[str, str | Mapping[str, str]] | None = None,
    options: Options | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Geometry:
    """Builds a geometry from plain values.

    Args:
        name: how it is called. manifold: a key of ``MANIFOLDS``. layers: a key of ``FAMILIES``.
        c: positive curvature parameter (sectional curvature -c); not used where nothing is curved.
        learn_c: train c, one scalar for all parts.
        parts: component name to geometry: a key of ``GEOMETRIES``, or its ``{name, manifold, layers}``. A part on the
            same manifold shares it; a part on another curved manifold shares c with it, also while c is learned.
        options: settings of the family's layers by class name; parts of another geometry have their defaults.
        settings: keywords of the manifold's constructor besides c and learn_c.

    Raises:
        ValueError: unknown name, a family that is not defined on the manifold, c that is not positive, learn_c where
            nothing is curved, or a setting that the manifold or the layer does not have.
    """
    family = _pair(name, manifold, layers)
    spaces = {manifold: _space(name, MANIFOLDS[manifold], c, learn_c, settings or {})}

    def part(component: str, value: str | Mapping[str, str]) -> Geometry:
        where = f"geometry.parts.{component}"
        if isinstance(value, str):
            check_choice(where, value, GEOMETRIES)
            kind, layers = GEOMETRIES[value]
            value = {"name": value, "manifold": kind, "layers": layers}
        elif set(value) != {"name", "manifold", "layers"}:
            raise ValueError(f"{where}: needs a name, a manifold and layers, got {', '.join(value) or 'nothing'}")
        family, kind = _pair(**value), value["manifold"]
        if kind not in spaces:
            curved = next((space for space in spaces.values() if space.is_curved), None)
            if curved is not None and MANIFOLDS[kind].is_curved:
                spaces[kind] = curved.twin(MANIFOLDS[kind])
            else:
                spaces[kind] = _space(name, MANIFOLDS[kind], c, learn_c, {})
        return Geometry(value["name"], spaces[kind], family)

    components = {component: part(component, value) for component, value in (parts or {}).items()}
    if learn_c and not any(space.is_curved for space in spaces.values()):
        raise ValueError(f"geometry {name}: geometry.learn_c=true, but no part of it is curved")
    for layer, values in (options or {}).items():
        family.check_options(layer, values, f"geometry.options of {name}")
    return Geometry(name, spaces[manifold], family, components, options or {})


def _pair(name: str, manifold: str, layers: str) -> LayerFamily:
    """The family of a geometry, once it is clear that it exists and is defined on the manifold."""
    check_choice(f"geometry.manifold of {name}", manifold, MANIFOLDS)
    check_choice(f"geometry.layers of {name}", layers, FAMILIES)
    family = FAMILIES[layers]
    if not family.fits(MANIFOLDS[manifold]):
        raise ValueError(
            f"geometry {name}: the layer family {layers} is defined on {family.manifold_names}, not on {manifold}"
        )
    return family


def _space(name: str, kind: type[Manifold], c: float | None, learn_c: bool, settings: Mapping[str, Any]) -> Manifold:
    names = [p for p in inspect.signature(kind).parameters if p not in ("c", "learn_c")]
    for setting in settings:
        if setting not in names:
            raise ValueError(
                f"geometry {name}: geometry.settings.{setting}: the manifold {kind.name} has no setting {setting!r}; "
                f"it has {', '.join(names) or 'none'}"
            )
    if not kind.is_curved:
        return kind(**settings)
    if c is None:
        raise ValueError(f"geometry {name}: geometry.c is needed by a curved manifold; give a positive number")
    return kind(c=c, learn_c=learn_c, **settings)


class ChangeGeometry(nn.Module):
    """Moves points from one geometry to another; the identity when both have the same manifold.

    The exact isometry between two models of the same space (same c); otherwise ``exp_0(log_0(x))``, as Ganea et al.
    2018 and Lopez & Strube 2020 connect hyperbolic and Euclidean layers.

    Args:
        isometry: false: ``exp_0(log_0(x))`` between two models of the same space, too. From the Klein disk to the ball
            it keeps the coordinates and so doubles the distance from the origin.
    """

    def __init__(self, source: Geometry, target: Geometry, isometry: bool = True):
        super().__init__()
        self.source, self.target, self.isometry = source.manifold, target.manifold, isometry

    def forward(self, x: Tensor) -> Tensor:
        return x if self.source is self.target else self._move(x)

    @leaves_autocast
    def _move(self, x: Tensor) -> Tensor:
        return convert(x, self.source, self.target) if self.isometry else self.target.expmap0(self.source.logmap0(x))

    def vectors(self, x: Tensor) -> Tensor:
        """``log_0`` (..., d) of :meth:`forward`; where that is exp_0 of a vector, the vector itself."""
        if self.source is self.target or (self.isometry and same_space(self.source, self.target)):
            return self.target.logmap0(self(x))
        return origin_vectors(x, self.source, self.target) if self.isometry else self.source.logmap0(x)

    def extra_repr(self) -> str:
        return f"{self.source.name} -> {self.target.name}"


__all__ = [
    "FAMILIES",
    "GEOMETRIES",
    "MANIFOLDS",
    "ChangeGeometry",
    "Geometry",
    "LayerFamily",
    "make_geometry",
    "register_family",
    "register_geometry",
    "register_manifold",
]
