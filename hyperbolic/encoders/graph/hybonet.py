"""HyboNet's network of graphs: Lorentz linear layers and Lorentz centroids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from hyperbolic.encoders.graph.convolution import check_layers
from hyperbolic.geometry import Geometry
from hyperbolic.kernels.neighbours import Neighbours
from hyperbolic.manifolds import Lorentz


class HyboNet(nn.Module):
    """``x_i <- Aggregation_{j in N(i)}(Linear(x_j))`` with dropout and activation inside of the linear layers, the
    first without activation (Chen et al. 2022, A.1, and its program).

    Args:
        geometry: of the points, on the hyperboloid. d_in: intrinsic size of the nodes' features.
        d: size of the results, and of all between. counts_time: d counts the time coordinate.
        layers: how many. activation, dropout: of the linear layers' inputs. variant: of the linear layers.
        aggregation: settings of :class:`hyperbolic.layers.aggregation.Aggregation`; the paper's text has attention, its
            scripts have none.

    Raises:
        ValueError: another manifold, less than one layer.
    """

    kind = "graphs"
    averages_logits = False

    def __init__(
        self,
        geometry: Geometry,
        d_in: int,
        d: int,
        counts_time: bool,
        layers: int,
        activation: str,
        dropout: float,
        variant: str,
        aggregation: dict[str, Any],
    ):
        super().__init__()
        geometry.check_manifold("HyboNet", Lorentz)
        self.d_out = d - 1 if counts_time else d
        sizes = [d_in] + [self.d_out] * check_layers(layers)
        self.linear = nn.ModuleList(
            geometry.linear(a, b, activation="identity" if k == 0 else activation, dropout=dropout, variant=variant)
            for k, (a, b) in enumerate(itertools.pairwise(sizes))
        )
        self.aggregation = nn.ModuleList(geometry.aggregation(self.d_out, **aggregation) for _ in range(layers))

    def forward(self, x: Tensor, neighbours: Sequence[Neighbours]) -> Tensor:
        """See :meth:`hyperbolic.encoders.graph.convolution.GraphConvolutions.forward`."""
        for linear, aggregation, at in zip(self.linear, self.aggregation, neighbours, strict=True):
            x = aggregation(linear(x), at)
        return x
