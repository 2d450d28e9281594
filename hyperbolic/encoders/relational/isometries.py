"""RotE/RotH, RefE/RefH and AttE/AttH: heads are rotated or reflected, and moved (Chami et al. 2020, section 4).

Entities are vectors, in hyperbolic space tangent vectors at the origin. Rotations and reflections are made of blocks of
two coordinates, with ``(a, b) = v / |v|`` of a trained pair v:

    Rot(v) = [[a, -b], [b, a]],    Ref(v) = [[a, b], [b, -a]].
"""

from __future__ import annotations

import abc
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import Geometry
from hyperbolic.kernels.relation_linear import by_relation
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.kernels.tangent_distance import (
    row_products,
    squared_length_of_product,
    tangent_distance2,
    tangent_distance2_of_all,
)
from hyperbolic.manifolds import Euclidean, Manifold, PoincareBall
from hyperbolic.manifolds.poincare import pull_inside
from hyperbolic.numerics import BALL_EPS, WIDE, sqnorm, wide
from hyperbolic.smooth import cosh_sqrt, inverse_softplus, tanhc
from hyperbolic.switch import is_traced

_SHORTEST = 1e-30  # |v|^2 of a pair, so that 0/0 does not happen
_LONGEST = 14.0  # sqrt(c)|u|, half the largest distance of float64 points from the origin
_LEAST_GAP = 2 * BALL_EPS[WIDE]
_FEW = 2048  # relations, up to which all are worked out, whichever a batch has


class Heads(NamedTuple):
    """Moved heads (B, d), float64, with ``gap = 1 - c|x|^2`` (B, 1), 1 in flat space; the curvature c of each, (B, 1)
    or a scalar; the biases (B, 1)."""

    x: Tensor
    gap: Tensor
    c: Tensor
    bias: Tensor


Point = tuple[Tensor, Tensor]  # x (B, d) and its gap (B, 1), exact also near the boundary


class Relations(NamedTuple):
    """The relations of B questions: what follows from a relation alone is worked out once for each of them, and then
    spread over the questions.

    ``used`` (R,) are numbers of rows of the tables, None for all; ``at`` (B,) says which of them a question has;
    ``sparse``: gradients of the rows used only; c (R, 1) or a scalar, float64.
    """

    used: Tensor | None
    at: Tensor
    sparse: bool
    c: Tensor

    def rows(self, table: Tensor) -> Tensor:
        """The relations' rows of a table, (R, d), float64."""
        return wide(table if self.used is None else table_rows(table, self.used, self.sparse))

    def spread(self, values: Tensor) -> Tensor:
        """Of values (R, k) that of each question, (B, k); a scalar is for all."""
        return values if values.dim() < 2 else table_rows(values, self.at)

    def points(self, u: Tensor) -> Point:
        """``exp_0(u)`` for each question, for tangent vectors u (R, d)."""
        x, gap = _point(u, self.c)
        return self.spread(x), self.spread(gap)


class Isometry(Scorer):
    """``-d_c(x_r(e_h), exp_0^c(e_t))^2 + b_h + b'_t``, in flat space ``-|x_r(e_h) - e_t|^2 + b_h + b'_t`` (Chami et al.
    2020, section 4); a subclass says what x_r is.

    Args:
        geometry: poincare for the models on H, euclidean for those on E. d: even. init_std: of the normal entities,
            translations and contexts at the start; pairs start uniform in (-1, 1), biases at 0, as in the paper's
            program. learn_c_per_relation: a curvature c_r for each relation, ``softplus`` of a free number, that starts
            at geometry.c (the program starts at softplus(1) = 1.31); False: the geometry's. Nothing in flat space.

    Raises:
        ValueError: another geometry, an odd d, init_std that is not positive, geometry.learn_c with
            learn_c_per_relation.
    """

    def __init__(
        self,
        geometry: Geometry,
        n_entities: int,
        n_relations: int,
        sparse: bool,
        d: int,
        init_std: float,
        learn_c_per_relation: bool,
    ):
        super().__init__(geometry, n_entities, n_relations, sparse)
        name, self.flat = type(self).__name__, not self.manifold.is_curved
        geometry.check_manifold(name, Euclidean, PoincareBall)
        if d < 2 or d % 2:
            raise ValueError(f"{name}: d must be even, as pairs of coordinates are turned, got d={d}")
        if not init_std > 0:
            raise ValueError(f"{name}: init_std must be positive, got {init_std}")
        self.d, self.init_std = d, init_std
        self.entity = self.normal(n_entities, d)
        self.head_bias, self.tail_bias = (nn.Parameter(torch.zeros(n_entities, 1)) for _ in range(2))
        self.free_c = None
        if learn_c_per_relation and not self.flat:
            if self.manifold.learn_c:
                raise ValueError(
                    f"{name}: geometry.learn_c=true trains one curvature, learn_c_per_relation=true one for each "
                    "relation; switch one of them off"
                )
            start = inverse_softplus(self.manifold.number())
            self.free_c = nn.Parameter(torch.full((n_relations, 1), start))
        self.make_relations()

    translation: nn.Parameter

    @abc.abstractmethod
    def make_relations(self) -> None:
        """Makes the parameters of the relations, ``translation`` among them."""

    def normal(self, *size: int) -> nn.Parameter:
        """A table of this size, normal with the deviation init_std at the start."""
        return nn.Parameter(self.init_std * torch.randn(*size))

    def pairs(self) -> nn.Parameter:
        """Pairs v of all relations, (n_relations, d)."""
        return nn.Parameter(torch.empty(self.n_relations, self.d).uniform_(-1, 1))

    def rows(self, index: Tensor, table: Tensor) -> Tensor:
        """Rows (B, k) of a table (n, k) by numbers (B,)."""
        return table_rows(table, index, self.sparse)

    def relations(self, r: Tensor) -> Relations:
        """The relations r (B,) of questions, with the curvature of each."""
        some = self.sparse or self.n_relations > _FEW
        used, at = torch.unique(r, return_inverse=True) if some else (None, r)
        relations = Relations(used, at, self.sparse, self.manifold.c)
        return relations if self.free_c is None else relations._replace(c=F.softplus(relations.rows(self.free_c)))

    @abc.abstractmethod
    def move(self, e: Tensor, r: Relations, c: Tensor) -> Point:
        """x_r of the vectors e (B, d) of the heads, float64, for the curvatures c of their relations."""

    def translate(self, e: Tensor, r: Relations, c: Tensor) -> Point:
        """``exp_0(e) (+) exp_0(p_r)``, in flat space ``e + p_r``."""
        p = r.rows(self.translation)
        return _flat(e + r.spread(p)) if self.flat else _mobius_sum(_point(e, c), r.points(p), c)

    def query(self, h: Tensor, r: Tensor) -> Heads:
        relations = self.relations(r)
        c = relations.spread(relations.c)
        return Heads(*self.move(wide(self.rows(h, self.entity)), relations, c), c, self.rows(h, self.head_bias))

    def compare(self, query: Heads, r: Tensor, t: Tensor) -> Tensor:
        tails = self.rows(t, self.entity)
        if self.flat:
            products, squares = row_products(query.x.unsqueeze(1), tails)
            square = (sqnorm(query.x) - 2 * products.squeeze(1) + squares).to(tails.dtype)
        else:
            square = tangent_distance2(query.x, query.gap, tails, query.c)
        return query.bias + self.rows(t, self.tail_bias).squeeze(-1) - square

    def compare_all(self, query: Heads, r: Tensor, rows: slice | Tensor) -> Tensor:
        if self.free_c is not None and is_traced((r,)):
            return self.compare_each(query, r, rows)
        x, gap, c, bias = query
        tails = self.rows_of(self.entity, rows)
        if self.flat:
            one, other = torch.ones_like(gap), tails.new_ones(len(tails), 1, dtype=x.dtype)
            left, right = torch.cat([-2 * x, sqnorm(x), one], -1), torch.cat([wide(tails), other, sqnorm(tails)], -1)
            squares = squared_length_of_product(left, right, None, tails.dtype)
        elif self.free_c is None:
            squares = tangent_distance2_of_all(x, gap, tails, c)
        else:
            squares = tails.new_empty(len(r), len(tails))
            for _, at in by_relation(r):
                squares[at] = tangent_distance2_of_all(x[at], gap[at], tails, c[at[0], 0])
        return torch.sub(self.rows_of(self.tail_bias, rows).squeeze(-1), squares).add_(bias)

    def points(self) -> tuple[Manifold, Tensor]:
        """``exp_0`` of the entities with the geometry's curvature, whatever the relations have."""
        return self.manifold, self.manifold.expmap0(self.entity.detach())

    def relation_points(self) -> tuple[Manifold, Tensor]:
        """``exp_0(p_r)``, with which heads are moved last, with the geometry's curvature."""
        return self.manifold, self.manifold.expmap0(self.translation.detach()[:, -self.d :])

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        """The vectors of the entities and the translations of the relations, as in the paper's program."""
        return [self.rows(h, self.entity), self.rows(r, self.translation), self.rows(t, self.entity)]


class Rotation(Isometry):
    """RotE: ``x_r(e) = Rot(v_r) e + p_r``. RotH: ``Rot(v_r)(exp_0(e) (+) exp_0(q_r)) (+) exp_0(p_r)``.

    The paper moves heads after the rotation only; its program moves them also before, by q_r, and so does this.
    The rows of ``translation`` are (q_r, p_r), in flat space p_r.
    """

    def make_relations(self) -> None:
        self.translation = self.normal(self.n_relations, self.d if self.flat else 2 * self.d)
        self.rotation = self.pairs()

    def move(self, e: Tensor, r: Relations, c: Tensor) -> Point:
        v, p = r.spread(_unit(r.rows(self.rotation))), r.rows(self.translation)
        if self.flat:
            return _flat(rotate(e, v) + r.spread(p))
        before, after = (r.points(part) for part in p.chunk(2, -1))
        x, gap = _mobius_sum(_point(e, c), before, c)
        return _mobius_sum((rotate(x, v), gap), after, c)


class Reflection(Isometry):
    """RefE: ``x_r(e) = Ref(v_r) e + p_r``. RefH: ``exp_0(Ref(v_r) e) (+) exp_0(p_r)``."""

    def make_relations(self) -> None:
        self.translation = self.normal(self.n_relations, self.d)
        self.reflection = self.pairs()

    def move(self, e: Tensor, r: Relations, c: Tensor) -> Point:
        return self.translate(reflect(e, r.spread(_unit(r.rows(self.reflection)))), r, c)


class Attention(Isometry):
    """AttE: ``x_r(e) = w Ref(v_r) e + (1 - w) Rot(u_r) e + p_r``. AttH: ``exp_0(w Ref(v_r) e + ...) (+) exp_0(p_r)``.

    ``(w, 1 - w) = softmax(<a_r, Ref(v_r) e>/sqrt(d), <a_r, Rot(u_r) e>/sqrt(d))`` with a context vector a_r for each
    relation: the mean is taken of tangent vectors at the origin (the scale as in the paper's program).
    """

    def make_relations(self) -> None:
        self.translation = self.normal(self.n_relations, self.d)
        self.context = self.normal(self.n_relations, self.d)
        self.rotation, self.reflection = self.pairs(), self.pairs()

    def move(self, e: Tensor, r: Relations, c: Tensor) -> Point:
        v, u = (r.spread(_unit(r.rows(pairs))) for pairs in (self.reflection, self.rotation))
        both = torch.stack([reflect(e, v), rotate(e, u)], 1)
        context = r.spread(r.rows(self.context)).unsqueeze(-1)
        weights = torch.softmax(both @ context / math.sqrt(self.d), 1)
        return self.translate((weights * both).sum(1), r, c)


def _flat(x: Tensor) -> Point:
    return x, torch.ones_like(x[:, :1])


def _point(u: Tensor, c: Tensor) -> Point:
    """``exp_0(u)``; longer vectors than float64 points can be count as vectors of that length."""
    square = c * sqnorm(u)
    shorter = _LONGEST * square.clamp_min(_LONGEST**2).rsqrt()
    square = square * shorter.square()
    return (tanhc(square) * shorter) * u, cosh_sqrt(square).pow(-2)


def _mobius_sum(x: Point, y: Point, c: Tensor) -> Point:
    """The Möbius sum, see :func:`hyperbolic.manifolds.poincare.mobius_add`, and its gap."""
    (p, gap_x), (q, gap_y) = x, y
    total = p + q
    square = c * sqnorm(total)
    denominator = square + gap_x * gap_y
    gap = gap_x * gap_y / denominator
    moved = (gap_x / denominator) * total + (square / denominator) * p
    return pull_inside(moved, gap, WIDE), gap.clamp_min(_LEAST_GAP)


def rotate(x: Tensor, v: Tensor) -> Tensor:
    """``Rot(v) x``, block by block, for x (..., d) and pairs v (..., d) of length 1, float64: the product of complex
    numbers, a pair each."""
    return torch.view_as_real(_complex(v) * _complex(x)).flatten(-2)


def reflect(x: Tensor, v: Tensor) -> Tensor:
    """``Ref(v) x``, block by block, for x (..., d) and pairs v (..., d) of length 1, float64: the product with the
    conjugate of x."""
    return torch.view_as_real(_complex(v) * _complex(x).conj()).flatten(-2)


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))


def _unit(v: Tensor) -> Tensor:
    """Pairs v (R, d), each divided by its length."""
    pairs = v.unflatten(-1, (-1, 2))
    unit: Tensor = pairs * sqnorm(pairs).clamp_min(_SHORTEST).rsqrt()
    return unit.flatten(-2)


__all__ = ["Attention", "Isometry", "Reflection", "Rotation", "reflect", "rotate"]
