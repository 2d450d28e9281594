"""Structural probes (Hewitt & Manning 2019), written against a geometry: one for each layer of states."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hyperbolic.geometry import ChangeGeometry, Geometry, Options
from hyperbolic.kernels.pairwise import lorentz_pairwise
from hyperbolic.manifolds import Lorentz, Manifold
from hyperbolic.manifolds.charts import convert
from tasks.errors import one_of, whole

DISTANCES = ("geodesic", "lorentz")


def squared_distances(manifold: Manifold, x: Tensor, distance: str) -> tuple[Tensor, Tensor]:
    """Squared distances of all pairs of points x (..., W, D), (..., W, W), and those from the origin, (..., W).

    distance: "geodesic", ``d^2``; or "lorentz", the squared Lorentz distance ``-2/c - 2 <x, y>_L = 2 (cosh(sqrt(c) d) -
    1) / c`` (Law et al. 2019), on the hyperboloid in whatever model the points are. In flat space both are |x - y|^2.
    """
    if not manifold.is_curved:
        squares = x.square().sum(-1)
        products = x @ x.transpose(-2, -1)
        return _hollow(squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * products), squares
    sheet = manifold.twin(Lorentz)
    x = convert(x, manifold, sheet)
    if distance == "geodesic":
        return lorentz_pairwise(x, x, sheet.c).square(), sheet.dist0(x).square()
    c = sheet.c.to(x.dtype)
    time, space = x[..., :1], x[..., 1:]
    products = space @ space.transpose(-2, -1) - time @ time.transpose(-2, -1)
    to_origin = 2 * space.square().sum(-1) / (1 + c.sqrt() * time.squeeze(-1))  # = 2 (sqrt(c) t - 1) / c
    return _hollow(-2 / c - 2 * products), to_origin


def _hollow(squares: Tensor) -> Tensor:
    """Squares of distances from products: at least 0, and 0 on the diagonal."""
    diagonal = torch.eye(squares.shape[-1], dtype=torch.bool, device=squares.device)
    return squares.clamp_min(0).masked_fill(diagonal, 0)


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
        if states.dtype != dtype:  # with trainer.precision=64-true
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
        self.manifold = probe.manifold
        self.probes = nn.ModuleList(StructuralProbe(source, probe, d_in, d) for d_in in d_source)

    def forward(self, states: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """States (B, W, D) of each layer -> squared distances of its words (B, W, W), and from the origin (B, W)."""
        points = (probe(x) for probe, x in zip(self.probes, states, strict=True))
        return [squared_distances(self.manifold, x, self.distance) for x in points]
