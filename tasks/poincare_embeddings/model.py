"""A point for every node, and the softmax over distances."""

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.kernels.distance_softmax import cosh_products, distance_softmax
from hyperbolic.layers.initial import norm_of_bound
from hyperbolic.manifolds import Euclidean, HyperbolicManifold, Lorentz, Manifold
from hyperbolic.manifolds.charts import convert
from tasks.edges import Edges, levels_below_tops
from tasks.errors import UserError, one_of, positive, whole
from tasks.poincare_embeddings.pairs import Ancestors

STARTS = ("uniform", "tree")
IS_A = 1000.0  # weight of the difference of norms in is-a scores
LEAST_TEMPERATURE = 0.02  # exp(-d / T) of a pair is 0 from d = 745 T on, and the loss is not finite: here from 15 on


class NodeEmbeddings(nn.Module):
    """Points of N nodes, close together where one is above the other (Nickel & Kiela 2017, Eq. 6)::

        loss = -log( exp(-d(u, v) / T) / (exp(-d(u, v) / T) + sum_{v'} exp(-d(u, v') / T)) )

    for a node u, one above it, v, and wrong ones v'. On the hyperboloid it is the model of Nickel & Kiela 2018.

    geometry: of the only component, `points`. edges: the hierarchy. d: dimension. start: "uniform": coordinates from
    U(-init_bound, init_bound); "tree": besides, every node lies a step of the length start_step in a random direction
    from the first node above it, so that branches are together before they are learnt. temperature: T, at least
    LEAST_TEMPERATURE. sparse: gradients of the rows that a batch uses.
    """

    components = ("points",)

    def __init__(
        self,
        geometry: Geometry,
        edges: Edges,
        d: int,
        start: str,
        start_step: float,
        init_bound: float,
        temperature: float,
        sparse: bool,
    ):
        super().__init__()
        geometry.check_components(self.components)
        whole("task.model.d", d, 1)
        one_of("task.model.start", start, STARTS)
        for name, value in (("init_bound", init_bound), ("temperature", temperature), ("start_step", start_step)):
            positive(f"task.model.{name}", value)
        if temperature < LEAST_TEMPERATURE:
            raise UserError(f"task.model.temperature must be at least {LEAST_TEMPERATURE}, and it is {temperature}.")
        space = geometry.part("points")
        # distances are by coordinates on the hyperboloid
        space.check_manifold("The model of Poincaré embeddings", Euclidean, HyperbolicManifold)
        names = edges.names
        self.manifold, self.names, self.d, self.temperature = space.manifold, names, d, temperature
        self.table = space.embedding(len(names), d, init_norm=norm_of_bound(d, init_bound), sparse=sparse)
        if start == "tree":
            self._branch_out(edges, start_step)

    @torch.no_grad()
    def _branch_out(self, edges: Edges, step: float) -> None:
        """Move the points, those next to the top first, to a step from the first node above each."""
        points = self.points.double()
        for nodes, parents in levels_below_tops(edges.child, edges.parent, len(edges.names)):
            at = points[torch.from_numpy(parents)]
            away = self.manifold.transp0(at, torch.randn(len(nodes), self.d, dtype=torch.float64))
            away = away * step / self.manifold.norm(at, away, keepdim=True)
            points[torch.from_numpy(nodes)] = self.manifold.expmap(at, away)
        table = next(parameter for parameter in self.table.parameters() if parameter.dim() == 2)  # no learned curvature
        if isinstance(table, ManifoldParameter):  # of another model of the space, in the Klein family
            assert isinstance(table.manifold, Manifold)
            table.copy_(convert(points, self.manifold, table.manifold))
        else:
            table.copy_(self.manifold.logmap0(points))

    @property
    def points(self) -> Tensor:
        """(N, D)."""
        return self.table(torch.arange(len(self.names), device=next(self.parameters()).device))

    def forward(self, children: Tensor, parents: Tensor, negatives: Tensor, excluded: tuple[Tensor, Tensor]) -> Tensor:
        """The mean loss of pairs children, parents (B,), against the nodes `negatives` (P,) but for the `excluded`
        pairs, see `pairs.excluded_pairs`."""
        n = len(children)
        x, y, z = self._coordinates(self.table(torch.cat([children, parents, negatives]))).split([n, n, len(negatives)])
        if self.manifold.is_curved:
            return distance_softmax(x, y, z, self.manifold.c, excluded, self.temperature)
        near, others = self.manifold.dist(x, y), torch.cdist(x, z)
        return softmax_of_distances(near, others, excluded, self.temperature)

    def order(self, nodes: Tensor, points: Tensor) -> Tensor:
        """What rises with the distances of `nodes` (B,) from all points, which `all_coordinates` gave: (B, N)."""
        if self.manifold.is_curved:
            return cosh_products(points[nodes], points, self.manifold.c)
        return torch.cdist(points[nodes], points)

    def is_a(self, nodes: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """Distances (B,) of `nodes` and `above` (B,), and scores that rise with the belief that the one is below the
        other: ``-(1 + a (|v| - |u|)) d(u, v)``, a = 1000, of points u of the nodes and v in the ball of curvature -1
        (Nickel & Kiela 2017, section 4.3), in flat space of the points themselves."""
        u, v = self.points[torch.stack([nodes, above])].double()
        distances = self.manifold.dist(u, v)
        if self.manifold.is_curved:
            root = self.manifold.c.double().sqrt()
            lengths = [torch.tanh(root * self.manifold.dist0(x) / 2) for x in (u, v)]
        else:
            lengths = [torch.linalg.vector_norm(x, dim=-1) for x in (u, v)]
        return distances, -(1 + IS_A * (lengths[1] - lengths[0])) * distances

    @torch.no_grad()
    def share_farther_out(self, ancestors: Ancestors) -> float:
        """The share of pairs of a node and one above it in which the latter is farther from the origin."""
        lengths = self.manifold.dist0(self.points.double())
        nodes, above = ancestors.to(lengths.device).pairs(torch.arange(len(lengths), device=lengths.device))
        return float((lengths[above] > lengths[nodes]).double().mean())

    def all_coordinates(self) -> Tensor:
        """Coordinates of all points for `order`, float64."""
        return self._coordinates(self.points)

    def _coordinates(self, points: Tensor) -> Tensor:
        """float64: space coordinates of the same points on the hyperboloid; in the flat space, the points."""
        points = points.double()
        if not self.manifold.is_curved:
            return points
        return convert(points, self.manifold, self.manifold.twin(Lorentz))[..., 1:]


def softmax_of_distances(near: Tensor, others: Tensor, excluded: tuple[Tensor, Tensor], temperature: float) -> Tensor:
    """The loss of :func:`hyperbolic.kernels.distance_softmax.distance_softmax` from the distances ``d(x_i, y_i)`` (B,)
    and ``d(x_i, z_j)`` (B, P) of any space."""
    score = (-others / temperature).index_put(excluded, others.new_full((), -torch.inf))
    return (torch.cat([-near.unsqueeze(1) / temperature, score], 1).logsumexp(1) + near / temperature).mean()
