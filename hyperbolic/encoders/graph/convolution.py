"""Graph convolutions against any geometry: a linear layer, then the centre of each node's neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.neighbours import Neighbours


class GraphConvolutions(nn.Module):
    """``x_i <- fn(Aggregation_{j in N(i)}(dropout(Linear(x_j))))``, once for each layer.

    In flat space GCN (Kipf & Welling 2017) with ``D^-1 (A + I)``, and with additive attention GAT (Veličković et al.
    2018); HGCN (Chami et al. 2019) with centre=tangent; LGCN (Zhang et al. 2021) and HAT (Zhang et al. 2021) with
    attention by distances. `Aggregation` says what the settings mean.

    Args:
        geometry: of the points. d_in: intrinsic size of the nodes' features. d: of the results, and of all between.
        layers: how many. activation: fn, a name in ``NONLINEARITIES``. dropout: after each linear layer.
        aggregation: settings of :class:`hyperbolic.layers.aggregation.Aggregation`.
        averages_logits: a classifier's logits are averaged over the neighbours too, as GCN's are.
        layer_defaults: settings of layers by family, see :meth:`Geometry.with_defaults`.
        weight_dropout: of the entries of the linear layers' weights; where the family's linear layer has no such
            option, of the points behind it, of which the larger of both rates holds.

    Raises:
        ValueError: less than one layer; weight_dropout outside [0, 1); a layer or an option that a family lacks.
    """

    kind = "graphs"

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d: int,
        layers: int,
        activation: str,
        dropout: float,
        aggregation: dict[str, Any],
        averages_logits: bool,
        layer_defaults: dict[str, dict[str, dict[str, Any]]],
        weight_dropout: float = 0.0,  # runs from before this setting have it in layer_defaults, for one family
    ):
        super().__init__()
        if not 0 <= weight_dropout < 1:
            raise ValueError(f"encoder.weight_dropout must be at least 0 and below 1, got {weight_dropout}")
        geometry, family = geometry.with_defaults(layer_defaults), geometry.family
        if "weight_dropout" not in family.options("Linear"):
            dropout = max(dropout, weight_dropout)
        elif weight_dropout:
            geometry = geometry.with_defaults({family.name: {"Linear": {"weight_dropout": weight_dropout}}})
        self.d_out, self.layers, self.averages_logits = d, check_layers(layers), averages_logits
        sizes = [d_in] + [d] * layers
        self.linear = nn.ModuleList(geometry.linear(a, b) for a, b in itertools.pairwise(sizes))
        self.aggregation = nn.ModuleList(geometry.aggregation(d, **aggregation) for _ in range(layers))
        self.dropout, self.activation = geometry.dropout(dropout), geometry.activation(activation)

    def forward(self, x: Tensor, neighbours: Sequence[Neighbours]) -> Tensor:
        """Points (M, D) of the nodes, and for each layer whom each node takes in -> points (N, D_out)."""
        for linear, aggregation, at in zip(self.linear, self.aggregation, neighbours, strict=True):
            x = self.activation(aggregation(self.dropout(linear(x)), at))
        return x


class SimplifiedGraphConvolutions(nn.Module):
    """``Linear(Aggregation(... Aggregation(x)))``: SGC (Wu et al. 2019), averages of the features and one linear layer,
    with nothing between. The averages are taken behind the linear layer; in flat space that is the same.

    Args: as in :class:`GraphConvolutions`; layers: how often is averaged.
    """

    kind = "graphs"

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d: int,
        layers: int,
        dropout: float,
        averages_logits: bool,
    ):
        super().__init__()
        self.d_out, self.layers, self.averages_logits = d, check_layers(layers), averages_logits
        self.linear, self.aggregation = geometry.linear(d_in, d), geometry.aggregation(d)
        self.dropout = geometry.dropout(dropout)

    def forward(self, x: Tensor, neighbours: Sequence[Neighbours]) -> Tensor:
        """See :meth:`GraphConvolutions.forward`."""
        x = self.dropout(self.linear(x))
        for at in neighbours:
            x = self.aggregation(x, at)
        return x


class SampleAndAggregate(nn.Module):
    """``x_i <- fn(dropout(Concat(x_i, Aggregation_{j in N(i)}(x_j))))``: GraphSAGE with means (Hamilton et al. 2017).

    Args: as in :class:`GraphConvolutions`.
    """

    kind = "graphs"

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d: int,
        layers: int,
        activation: str,
        dropout: float,
        averages_logits: bool,
    ):
        super().__init__()
        self.d_out, self.layers, self.averages_logits = d, check_layers(layers), averages_logits
        sizes = [d_in] + [d] * (layers - 1)
        self.aggregation = nn.ModuleList(geometry.aggregation(size) for size in sizes)
        self.join = nn.ModuleList(geometry.concat([size, size], d) for size in sizes)
        self.dropout, self.activation = geometry.dropout(dropout), geometry.activation(activation)

    def forward(self, x: Tensor, neighbours: Sequence[Neighbours]) -> Tensor:
        """See :meth:`GraphConvolutions.forward`."""
        for aggregation, join, at in zip(self.aggregation, self.join, neighbours, strict=True):
            x = self.activation(self.dropout(join(x[: at.n_targets], aggregation(x, at))))
        return x


def check_layers(layers: int) -> int:
    """The number of layers, where there is one.

    Raises:
        ValueError: less than one layer.
    """
    if layers < 1:
        raise ValueError(f"encoder.layers must be at least 1, and it is {layers}")
    return layers


__all__ = ["GraphConvolutions", "SampleAndAggregate", "SimplifiedGraphConvolutions", "check_layers"]
