"""The centre of a node's neighbours: the one layer that graphs need of a family, written once for all of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hyperbolic.kernels.lorentz_rows import normalised_mean
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_choice, name_of, takes_points
from hyperbolic.layers.initial import glorot
from hyperbolic.layers.neighbours import Neighbours
from hyperbolic.manifolds import Lorentz, Manifold
from hyperbolic.manifolds.charts import convert
from hyperbolic.numerics import wide

CENTRES = ("centroid", "tangent")
ATTENTIONS = (None, "additive", "distance")
GATES = ("softmax", "sigmoid")


class Aggregation(nn.Module):
    """A point for each node from the points of its neighbours, itself among them.

    centre="centroid": ``sum_j w_ij x_j`` on the hyperboloid, brought back to the sheet (Law et al. 2019): the Lorentz
    centroid (Chen et al., A.1; LGCN), and through the isometry the Möbius and the Einstein midpoint; in flat space the
    weighted mean. centre="tangent": ``exp_0(sum_j w_ij log_0(x_j))`` (HGCN, Chami et al. 2019, Eq. 9).

    The weights are ``w_ij = 1/n_i`` (attention=None), or with scores s_ij their softmax over j, or
    ``sigmoid(s_ij) / n_i`` (gate="sigmoid"). attention="additive": ``s_ij = a(<v, log_0(x_i)> + <u, log_0(x_j)> + b)``
    with a the leaky rectifier of slope 0.2 (GAT, Veličković et al. 2018), or under a sigmoid gate the identity (HGCN's
    program). attention="distance": ``s_ij = max(-d^2(q_i, k_j) / temperature, lowest)`` of q = W_q x and k = W_k x
    (Chen et al., Eq. 5), where `shared` of one W for both (LGCN), or where not `project` of the points themselves
    (HAT), with the distance of :meth:`squared_distance`.

    Args:
        manifold: of the points. d: intrinsic size. heads: of additive attention in flat space, each on d / heads of
            the coordinates. temperature: None for ``sqrt(d)``. lowest: of the scores, so that no neighbour has less
            than ``exp(lowest)`` of the weight of another (LGCN's program: -1), and no gradient there; None: any.

    Raises:
        ValueError: an unknown value; heads that do not divide d, or with another attention or manifold; a temperature
            that is not positive; a centroid on a curved manifold that is no model of hyperbolic space.
    """

    linear: type[nn.Module]

    def __init__(
        self,
        manifold: Manifold,
        d: int,
        centre: str = "centroid",
        attention: str | None = None,
        gate: str = "softmax",
        project: bool = True,
        heads: int = 1,
        shared: bool = False,
        temperature: float | None = None,
        lowest: float | None = None,
    ):
        super().__init__()
        check_choice(f"{name_of(self)}.centre", centre, CENTRES)
        check_choice(f"{name_of(self)}.attention", attention, ATTENTIONS)
        check_choice(f"{name_of(self)}.gate", gate, GATES)
        if temperature is not None and not temperature > 0:
            raise ValueError(f"{name_of(self)}: temperature must be positive, got {temperature}")
        if heads < 1 or d % heads or (heads > 1 and (manifold.is_curved or attention != "additive")):
            raise ValueError(
                f"{name_of(self)}: heads={heads} must divide d={d}, and more than one is for attention=additive in "
                "flat space"
            )
        if centre == "centroid" and manifold.is_curved and not manifold.is_hyperbolic:
            raise ValueError(f"{name_of(self)}: {manifold.name} has no centroid here; take centre=tangent")
        self.manifold, self.d, self.centre, self.attention, self.gate = manifold, d, centre, attention, gate
        self.heads, self.temperature, self.lowest = heads, math.sqrt(d) if temperature is None else temperature, lowest
        if centre == "centroid" and manifold.is_curved:
            manifold.twin(Lorentz)  # now, as one that is made while operations are recorded would stay a record
        self.query = self.key = self.scores_of = None
        if attention == "distance" and project:
            self.query = self.linear(manifold, d, d)
            self.key = None if shared else self.linear(manifold, d, d)
        if attention == "additive":
            self.scores_of = nn.Parameter(glorot(torch.empty(2, d)))  # v and u
            self.offset = nn.Parameter(torch.zeros(heads))

    extra_repr = shows("d", "centre", "attention", "gate", "heads")

    @takes_points("d")
    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        """Points (M, D) -> (N, D); raises ValueError for another number of points than the M of the neighbours."""
        if x.dim() != 2 or len(x) != neighbours.n_sources:
            raise ValueError(
                f"{name_of(self)}: takes points (M, D) of the {neighbours.n_sources} sources of its neighbours, got a "
                f"tensor of shape {tuple(x.shape)}"
            )
        if self.attention is None:
            return self._centre(x, neighbours, neighbours.share)
        scores = self._distance_scores(x, neighbours) if self.attention == "distance" else self._additive(x, neighbours)
        if self.gate == "softmax":
            weights = neighbours.softmax(scores)
        elif self._takes_centroid:  # the gates over their sum, which is not 0 where all of them are
            weights = neighbours.softmax(nn.functional.logsigmoid(scores))
        else:
            weights = torch.sigmoid(scores) * neighbours.share.to(scores.dtype).view(-1, *[1] * (scores.dim() - 1))
        if self.heads == 1:
            return self._centre(x, neighbours, weights.reshape(-1))
        parts = x.unflatten(-1, (self.heads, -1)).unbind(-2)
        return torch.cat([neighbours.sum(p, w) for p, w in zip(parts, weights.unbind(-1), strict=True)], -1)

    @property
    def _takes_centroid(self) -> bool:
        return self.centre == "centroid" and self.manifold.is_curved

    def squared_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return self.manifold.dist2(x, y)

    def _distance_scores(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        q = x if self.query is None else self.query(x)
        k = q if self.key is None else self.key(x)
        scores = -self.squared_distance(q[neighbours.target], k[neighbours.source]) / self.temperature
        return scores if self.lowest is None else scores.clamp_min(self.lowest)

    def _additive(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        v = self.manifold.logmap0(x).unflatten(-1, (self.heads, -1))
        assert self.scores_of is not None  # as attention="additive" makes it
        at_target, at_source = ((v * a.view(self.heads, -1)).sum(-1) for a in self.scores_of)
        scores = at_target[neighbours.target] + at_source[neighbours.source] + self.offset
        return scores if self.gate == "sigmoid" else nn.functional.leaky_relu(scores, 0.2)

    def _centre(self, x: Tensor, neighbours: Neighbours, weights: Tensor) -> Tensor:
        if not self._takes_centroid:
            u = self.manifold.logmap0(x)
            return self.manifold.expmap0(neighbours.sum(u, weights.to(u.dtype)))
        return self.midpoint(x, neighbours, weights)

    def midpoint(self, x: Tensor, neighbours: Neighbours, weights: Tensor) -> Tensor:
        """The centroid, of weights that sum to 1, in float64 on the hyperboloid."""
        sheet = self.manifold.twin(Lorentz)
        mean = neighbours.sum(convert(wide(x), self.manifold, sheet), wide(weights))
        return convert(normalised_mean(mean, sheet.c), sheet, self.manifold).to(x.dtype)
