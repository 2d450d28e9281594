"""HyboNet's network of graphs: Lorentz linear layers and Lorentz centroids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from hyperbolic.encoders.graph.convolution import check_layers
from hyperbolic.geometry import Geometry
from hyperbolic.layers.neighbours import Neighbours
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
        geometry.check_manifold("HyboNet", Lorentz, option=("Linear", "variant"))
        self.d_out, self.layers = d - 1 if counts_time else d, check_layers(layers)
        sizes = [d_in] + [self.d_out] * layers
        self.linear = nn.ModuleList(
            geometry.linear(a, b, variant=variant, dropout=dropout, **({"activation": activation} if k else {}))
            for k, (a, b) in enumerate(itertools.pairwise(sizes))
        )
        self.linear[0].drop = InputDropout(dropout)
        self.aggregation = nn.ModuleList(geometry.aggregation(self.d_out, **aggregation) for _ in range(layers))

    def forward(self, x: Tensor, neighbours: Sequence[Neighbours]) -> Tensor:
        """See :meth:`hyperbolic.encoders.graph.convolution.GraphConvolutions.forward`."""
        for linear, aggregation, at in zip(self.linear, self.aggregation, neighbours, strict=True):
            x = aggregation(linear(x), at)
        return x


class InputDropout(nn.Dropout):
    """Dropout of coordinates (N, D) that are mostly 0 and the same in every step, as those of the words of texts.

    Numbers are drawn for the others alone; the distribution is that of ``torch.nn.Dropout``.

    Args: p: share of the coordinates that become 0; the others are divided by 1 - p.
    """

    def __init__(self, p: float):
        super().__init__(p)
        self._last: Tensor | None = None  # what the places and values are of
        self._version = 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.requires_grad or x.is_inference():  # which has no version to tell changes by
            return super().forward(x)
        if x is not self._last or x._version != self._version:
            self._last, self._version, self._places = x, x._version, x.reshape(-1).nonzero().squeeze(-1)
            self._values = x.reshape(-1)[self._places]
        dropped = x.new_zeros(x.numel())
        dropped[self._places] = super().forward(self._values)
        return dropped.view(x.shape)

    def __getstate__(self) -> dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("_places", "_values")}
        return state | {"_last": None}

    _places: Tensor
    _values: Tensor


__all__ = ["HyboNet", "InputDropout"]
