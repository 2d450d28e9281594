"""Structural probes (Hewitt & Manning 2019), written against a geometry: one for each layer of states."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry, Options
from tasks.errors import one_of, whole
from tasks.probing.distances import DISTANCES, squared_distances


class StructuralProbe(nn.Module):
    """States of a layer as points whose squared distances are to be those of the words in their tree.

    In a curved space ``q = f_Q(f_P(h))`` (Chen et al., HyboNet, C.4; Chen et al. 2021 in the Poincaré ball): f_P is a
    linear layer of the states' own geometry to d dimensions, exp_0 follows where that is another space, and f_Q is a
    linear layer of the probe's. In flat space ``q = B h`` (Hewitt & Manning 2019), of log_0 of the states where these
    are curved.

    source: geometry of the states, of the size d_source. probe: geometry of the results, of the size d.
    """

    def __init__(self, source: Geometry, probe: Geometry, d_source: int, d: int):
        super().__init__()
        curved = probe.manifold.is_curved
        self.project = source.linear(d_source, d) if curved else nn.Identity()
        self.source = source.manifold
        self.enter = ChangeGeometry(source, probe)
        self.map = probe.linear(d if curved else d_source, d)

    def forward(self, states: Tensor) -> Tensor:
        """(B, W, D) -> (B, W, D')."""
        dtype = next(self.map.parameters()).dtype
        if dtype is torch.float64:  # the states are kept in float32
            states = self.source.projx(states.to(dtype))
        points: Tensor = self.map(self.enter(self.project(states)))
        return points


class LayerProbes(nn.Module):
    """A structural probe for each of some layers, which share nothing: trained together they are as each alone.

    geometry: of the probes. source: geometry of the states; d_source: their size in each layer.
    d: size of the probes. distance: see `squared_distances`. layer_options: settings of layers by family, see
    `Geometry.with_defaults`.
    """

    components = ("probe",)

    def __init__(
        self,
        geometry: Geometry,
        source: Geometry,
        d_source: Sequence[int],
        d: int,
        distance: str,
        layer_options: Mapping[str, Options],
    ):
        super().__init__()
        geometry.check_components(self.components)
        probe = geometry.with_defaults(layer_options).part("probe")
        source = source.with_defaults(layer_options)
        d = whole("task.model.d", d, 1)
        self.distance = one_of("task.model.distance", distance, DISTANCES)
        self.manifolds = [copy.deepcopy(probe.manifold) for _ in d_source]  # as a curvature may be learned
        own = [replace(probe, manifold=manifold) for manifold in self.manifolds]
        self.probes = nn.ModuleList(StructuralProbe(source, *at, d) for at in zip(own, d_source, strict=True))
        self.manifold = self.manifolds[0]  # in checkpoints

    def forward(self, states: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """States (B, W, D) of each layer -> squared distances of its words (B, W, W), and from the origin (B, W)."""
        layers = zip(self.manifolds, self.probes, states, strict=True)
        return [squared_distances(manifold, probe(x), self.distance) for manifold, probe, x in layers]
