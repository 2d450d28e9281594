"""MuRP and MuRE: the head stretched, the tail moved, and the distance between them (Balazevic et al. 2019).

The distance of a head h from a moved tail ``t (+) p`` follows from inner products of h, t and p alone, so moved tails
are never made. In the Poincaré ball, with ``g_x = 1 - c|x|^2``,

    sinh^2(sqrt(c) d/2) = c (D|h|^2 - 2A <h, t> - 2 g_t <h, p> + |t + p|^2) / (g_h g_t g_p)
    D = 1 + 2c <t, p> + c^2 |t|^2 |p|^2,    A = 1 + 2c <t, p> + c|p|^2,

and for c = 0 the bracket is ``|h - t - p|^2 = d^2``. All of it is float64, whatever the points are: the error of the
left side is about ``1e-15 / (g_h g_t g_p)``, that is 1e-10 where all three points are ``5/sqrt(c)`` from the origin.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import Geometry
from hyperbolic.kernels.relation_linear import by_relation
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.kernels.tangent_distance import row_products, squared_length, squared_length_of_product
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, Manifold, PoincareBall
from hyperbolic.numerics import BALL_EPS, dot, limit, sqnorm, wide
from hyperbolic.switch import is_traced


class Heads(NamedTuple):
    """Heads h and the points p of their relations, (B, d) in the ball, float64; their gaps and the biases (B, 1)."""

    h: Tensor
    p: Tensor
    gap_h: Tensor
    gap_p: Tensor
    bias: Tensor


class MuR(Scorer):
    """``-d(exp_0(R_r log_0(e_h)), e_t (+) p_r)^2 + b_h + b'_t`` (Balazevic et al. 2019).

    R_r is a diagonal matrix and p_r a point for each relation; ``x (+) p = exp_x(P_{0->x} log_0(p))``, in the ball the
    Möbius sum. MuRP has geometry poincare and the distance of curvature -c, MuRE has geometry euclidean. In the other
    models of hyperbolic space it is MuRP in other coordinates.

    Args:
        d: size of the entities. init_std: of the normal vectors whose ``exp_0`` in the ball the entities and the p_r
            are at the start; the diagonals start uniform in (-1, 1) and the biases at 0, as in the paper's program.

    Raises:
        ValueError: a manifold that is none of the four, init_std that is not positive.
    """

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, init_std: float):
        super().__init__(geometry, n_entities, n_relations, sparse)
        geometry.check_manifold("MuR", Euclidean, PoincareBall, Lorentz, Klein)
        if not init_std > 0:
            raise ValueError(f"MuR: init_std must be positive, got {init_std}")
        self.flat = not self.manifold.is_curved
        # at the same distances from the origin as in the ball
        std = PoincareBall.origin_scale / self.manifold.origin_scale * init_std if not self.flat else init_std

        def table(n: int) -> nn.Module:
            rows = geometry.embedding(n, d, sparse=sparse)
            rows.set_points(self.manifold.expmap0(std * torch.randn(n, d)))  # type: ignore[operator]
            return rows

        self.entity, self.translation = table(n_entities), table(n_relations)
        self.stretch = nn.Parameter(torch.empty(n_relations, d).uniform_(-1, 1))
        self.head_bias, self.tail_bias = (nn.Parameter(torch.zeros(n_entities, 1)) for _ in range(2))

    def query(self, h: Tensor, r: Tensor) -> Heads:
        stretch = table_rows(self.stretch, r, self.sparse)
        heads = self.manifold.expmap0(stretch * self.manifold.logmap0(wide(self.entity(h))))
        (h_ball, gap_h), (p, gap_p) = self._in_ball(heads), self._in_ball(self.translation(r))
        return Heads(h_ball, p, gap_h, gap_p, table_rows(self.head_bias, h, self.sparse))

    def compare(self, query: Heads, r: Tensor, t: Tensor) -> Tensor:
        tails = self._coordinates(self.entity(t))
        products, tt = row_products(torch.stack([query.h, query.p], 1), tails)
        scale, gap = self._scale_and_gap(tt, tails.dtype)
        (ht, pt), tt = (products * scale.unsqueeze(1)).unbind(1), tt * scale.square()
        stretched, along, rest = _terms(tt, pt, sqnorm(query.p), self.manifold.c)
        bracket = stretched * sqnorm(query.h) - 2 * along * ht - 2 * gap * dot(query.h, query.p) + rest
        square = bracket / (query.gap_h * gap * query.gap_p)
        c = self.manifold.c
        square = square.to(tails.dtype) if self.flat else squared_length(c * square, c, tails.dtype)
        return query.bias + table_rows(self.tail_bias, t, self.sparse).squeeze(-1) - square

    def compare_all(self, query: Heads, r: Tensor, rows: slice | Tensor) -> Tensor:
        if is_traced((r,)):
            return self.compare_each(query, r, rows)
        if isinstance(rows, slice):
            rows = torch.arange(rows.start, rows.stop, device=r.device)
        table = self._coordinates(self.entity(rows))
        tails, gap = self._in_ball(table, coordinates=True)
        tt, c = sqnorm(tails), self.manifold.c
        squares = table.new_empty(len(r), len(rows))
        for _, at in by_relation(r):  # one product for each relation
            h, p = query.h[at], query.p[at[:1]]
            stretched, along, rest = _terms(tt, tails @ p.T, sqnorm(p), c)
            right = torch.cat([stretched, along * tails, gap, rest], -1) / gap
            left = torch.cat([sqnorm(h), -2 * h, -2 * dot(h, p), torch.ones_like(h[:, :1])], -1)
            left = left / (query.gap_h[at] * query.gap_p[at])
            if self.flat:
                square = squared_length_of_product(left, right, None, table.dtype)
            else:
                square = squared_length_of_product(c * left, right, c, table.dtype)
            if len(at) == len(r):
                squares = square
            else:
                squares[at] = square
        return torch.sub(self.rows_of(self.tail_bias, rows).squeeze(-1), squares).add_(query.bias)

    def points(self) -> tuple[Manifold, Tensor]:
        device = self.stretch.device
        return self.manifold, self.entity(torch.arange(self.n_entities, device=device)).detach()

    def relation_points(self) -> tuple[Manifold, Tensor]:
        """The points p_r."""
        return self.manifold, self.translation(torch.arange(self.n_relations, device=self.stretch.device)).detach()

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        """The entities and the points of the relations, by coordinates that are free (of the hyperboloid the space
        parts), and the diagonals of the relations."""
        stretch = table_rows(self.stretch, r, self.sparse)
        head, translation, tail = map(self._coordinates, (self.entity(h), self.translation(r), self.entity(t)))
        return [head, stretch, translation, tail]

    def _coordinates(self, x: Tensor) -> Tensor:
        """What the ball's coordinates are a multiple of."""
        return x[..., 1:] if isinstance(self.manifold, Lorentz) else x

    def _in_ball(self, x: Tensor, coordinates: bool = False) -> tuple[Tensor, Tensor]:
        """The same points in the ball, (..., d) float64, and their gaps (..., 1)."""
        v = x if coordinates else self._coordinates(x)
        scale, gap = self._scale_and_gap(sqnorm(v), v.dtype)
        return scale * wide(v), gap

    def _scale_and_gap(self, square: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """For coordinates v with this ``|v|^2``: the point of the ball is ``scale v``, and its gap; 1 in flat space."""
        square = self.manifold.c * square
        if isinstance(self.manifold, Lorentz):
            scale = 1 / (1 + (1 + square).sqrt())
            return scale, 2 * scale
        gap = (1 - square).clamp_min(limit(BALL_EPS, dtype) / 4)
        if isinstance(self.manifold, Klein):
            root = gap.sqrt()
            return 1 / (1 + root), 2 * root / (1 + root)
        return torch.ones_like(gap), gap


def _terms(tt: Tensor, pt: Tensor, pp: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """D, A and ``|t + p|^2`` of the formula above, from ``|t|^2``, ``<p, t>`` and ``|p|^2``."""
    common = 1 + 2 * c * pt
    return common + c * tt * (c * pp), common + c * pp, tt + 2 * pt + pp


__all__ = ["MuR"]
