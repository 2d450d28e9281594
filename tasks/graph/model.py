"""Networks of graphs: a point for each node, scores of links, logits of classes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.neighbours import with_themselves
from hyperbolic.manifolds import Euclidean, Lorentz
from hyperbolic.manifolds.charts import convert
from hyperbolic.manifolds.lorentz import lorentz_distance2
from tasks.encoders import make_encoder
from tasks.errors import UserError, finite, one_of, positive, whole
from tasks.graph.sampling import sampled_neighbours

DISTANCES = ("geodesic", "lorentz")


class GraphNetwork(nn.Module):
    """The points that an encoder makes of the nodes of one graph, all at once or of some.

    geometry: of all points; its component "encoder" is the encoder's. encoder: of graphs, called with geometry and
    d_in. n_nodes, edges, features: from the data: edges (E, 2) along which nodes take each other in, and features
    (N, F), which become points by exp_0, or None, and then each node has a learned point of d_nodes dimensions.
    fanouts: None: each step computes all nodes; for each layer, from the last one, how many neighbours of a node are
    drawn: a step computes only the nodes that it asks for, and what reaches them. Evaluation computes all nodes.
    """

    components: tuple[str, ...] = ("encoder",)
    encoder_kind = "graphs"

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., Any],
        n_nodes: int,
        edges: Tensor,
        features: Tensor | None,
        d_nodes: int,
        fanouts: list[int] | None,
    ):
        super().__init__()
        geometry.check_components(self.components)
        own = geometry.part("encoder")
        self.manifold, self.n_nodes = own.manifold, n_nodes
        self.neighbours = with_themselves(edges, n_nodes)
        self.table: nn.Module | None = None
        d_in = d_nodes if features is None else features.shape[1]
        if features is None:
            whole("task.model.d_nodes", d_nodes, 1)
            self.table = own.embedding(n_nodes, d_nodes)
        self.register_buffer("features", features, persistent=False)
        self.encoder, self.d_out = make_encoder(encoder, own.manifold, geometry=own, d_in=d_in)
        self.layers: int = self.encoder.layers
        self.fanouts = None if fanouts is None else [whole("task.model.fanouts", n, 1) for n in fanouts]
        if fanouts is not None and len(fanouts) != self.layers:
            raise UserError(
                f"task.model.fanouts={fanouts} needs a number for each of the {self.layers} layers of the encoder."
            )
        self._entered: Tensor | None = None

    features: Tensor | None

    def encode(
        self, nodes: Tensor | None = None, draws: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Points (M, D) of nodes among which are those asked for, and the place of each in them.

        nodes: whole numbers (...); None: all. draws: of their neighbours, see `sampled_neighbours`.
        Returns points, and places (...) or None where a node's place is its number.
        """
        if nodes is None or self.fanouts is None or not self.training:
            return self.encoder(self._enter(None), [self.neighbours] * self.layers), nodes
        distinct, places = torch.unique(nodes, return_inverse=True)
        reached, blocks = sampled_neighbours(self.neighbours, distinct, self.fanouts, draws)
        return self.encoder(self._enter(reached), blocks), places

    def _enter(self, nodes: Tensor | None) -> Tensor:
        """The points that the nodes come in as, (M, D)."""
        if self.table is not None:
            index = torch.arange(self.n_nodes, device=self.neighbours.target.device) if nodes is None else nodes
            return self.table(index)
        assert self.features is not None  # without a table there are some
        if nodes is not None or (self.manifold.learn_c and self.manifold.is_curved):
            return self.manifold.expmap0(self.features if nodes is None else self.features[nodes])
        if (
            self._entered is None
            or self._entered.device != self.features.device
            or self._entered.dtype != self.features.dtype
        ):
            entered: Tensor = self.manifold.expmap0(self.features)  # the same in every step
            if entered.is_inference():  # which no training may use
                return entered
            self._entered = entered
        return self._entered


class LinkModel(GraphNetwork):
    """Scores of links, minus the squared distance of their ends; ``sigmoid((r - d^2) / t)`` is the probability of a
    link (Fermi-Dirac decoder: Krioukov et al. 2010; Chen et al. 2022, Eq. 8).

    distance: geodesic, or lorentz, the squared Lorentz distance ``2 (cosh(sqrt(c) d) - 1) / c``; in flat space it is
    the same. unit_ball: flat points are shortened to length 1, as HGCN's program does. r, t: as above.
    """

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., Any],
        n_nodes: int,
        edges: Tensor,
        features: Tensor | None,
        d_nodes: int,
        fanouts: list[int] | None,
        distance: str,
        unit_ball: bool,
        r: float,
        t: float,
    ):
        super().__init__(geometry, encoder, n_nodes, edges, features, d_nodes, fanouts)
        self.distance = one_of("task.model.distance", distance, DISTANCES)
        self.unit_ball, self.r, self.t = unit_ball, finite("task.model.r", r), positive("task.model.t", t)

    def encode(
        self, nodes: Tensor | None = None, draws: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See :meth:`GraphNetwork.encode`."""
        points, places = super().encode(nodes, draws)
        if self.unit_ball and isinstance(self.manifold, Euclidean):
            points = points / torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp_min(1)
        return points, places

    def scores(self, points: Tensor, pairs: Tensor) -> Tensor:
        """``-d^2`` of points (M, D) for pairs (..., 2) of places among them."""
        x, y = points[pairs[..., 0]], points[pairs[..., 1]]
        if self.distance == "geodesic" or not self.manifold.is_curved:
            return -self.manifold.dist2(x, y)
        sheet = self.manifold.twin(Lorentz)
        return -lorentz_distance2(convert(x, self.manifold, sheet), convert(y, self.manifold, sheet))

    def logits(self, scores: Tensor) -> Tensor:
        """``(r - d^2) / t``."""
        return (scores + self.r) / self.t


class NodeModel(GraphNetwork):
    """Logits of the classes of nodes: the geometry's, of its component "classifier"; averaged over the neighbours where
    the encoder does so (GCN). layers: settings of layers by family, see `Geometry.with_defaults`."""

    components = ("encoder", "classifier")

    def __init__(
        self,
        geometry: Geometry,
        encoder: Callable[..., Any],
        n_nodes: int,
        edges: Tensor,
        features: Tensor | None,
        d_nodes: int,
        fanouts: list[int] | None,
        n_classes: int,
        layers: dict[str, dict[str, dict[str, object]]],
    ):
        geometry = geometry.with_defaults(layers)
        super().__init__(geometry, encoder, n_nodes, edges, features, d_nodes, fanouts)
        if fanouts is not None and getattr(self.encoder, "averages_logits", False):
            raise UserError(
                "task.model.fanouts is for classifiers of single nodes; add encoder.averages_logits=false, or take "
                "task.model.fanouts=null."
            )
        own = geometry.part("classifier")
        self.classifier = own.logits(self.d_out, n_classes)
        self.target = own.manifold

    def logits(self, points: Tensor) -> Tensor:
        """Logits (M, K) of points (M, D)."""
        return self.classifier(convert(points, self.manifold, self.target))
