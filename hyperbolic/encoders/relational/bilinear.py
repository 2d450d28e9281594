"""Models whose score is an inner product of a query with the tail: DistMult, ComplEx, TuckER."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.batch_norm import normalise
from hyperbolic.encoders.relational.scorer import Scorer, Table
from hyperbolic.geometry import Geometry
from hyperbolic.kernels.relation_linear import relation_linear
from hyperbolic.kernels.table_products import table_products
from hyperbolic.manifolds import Euclidean, Manifold
from hyperbolic.smooth import safe_sqrt


class Bilinear(Scorer):
    """``<q(h, r), e_t>``: what such models share. A subclass says how the query (B, d) is made.

    Args:
        geometry: euclidean. d: size of the entities, in real numbers. d_relation: of the rows of the relations.

    Raises:
        ValueError: a curved geometry, or sizes below 1.
    """

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, d_relation: int):
        super().__init__(geometry, n_entities, n_relations, sparse)
        geometry.check_manifold(type(self).__name__, Euclidean)
        for name, value in (("d", d), ("d_relation", d_relation)):
            if value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be at least 1, got {value}")
        self.d = d
        self.entity = Table(n_entities, d, sparse=sparse)
        self.relation = Table(n_relations, d_relation, sparse=sparse)

    def start_normal(self, std: float) -> None:
        """Rows from N(0, std^2).

        Raises:
            ValueError: std that is not positive.
        """
        if not std > 0:
            raise ValueError(f"{type(self).__name__}: init_std must be positive, got {std}")
        for table in (self.entity, self.relation):
            nn.init.normal_(table.weight, std=std)

    def start_xavier(self) -> None:
        """Rows from N(0, 2 / (n + d)), the Glorot normal of the whole table."""
        for table in (self.entity, self.relation):
            nn.init.xavier_normal_(table.weight)

    def compare(self, query: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return table_products(query, self.entity.weight, t, sparse=self.sparse)

    def compare_all(self, query: Tensor, r: Tensor, rows: slice | Tensor) -> Tensor:
        return query @ self.rows_of(self.entity.weight, rows).T

    def points(self) -> tuple[Manifold, Tensor]:
        return self.manifold, self.entity.weight.detach()

    def relation_points(self) -> tuple[Manifold, Tensor]:
        return self.manifold, self.relation.weight.detach()

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        return [self.entity(h), self.relation(r), self.entity(t)]


class DistMult(Bilinear):
    """``sum_j h_j r_j t_j`` (Yang et al. 2015, section 3.1: a diagonal matrix for each relation)

    The score is the same for (h, r, t) and (t, r, h).

    Args:
        init_std: standard deviation of all rows at the start (Lacroix et al. 2018 and Chami et al. 2020, in their
            programs: 1e-3).
    """

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, init_std: float):
        super().__init__(geometry, n_entities, n_relations, sparse, d, d_relation=d)
        self.start_normal(init_std)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        result: Tensor = self.entity(h) * self.relation(r)
        return result

    def head_query(self, t: Tensor, r: Tensor) -> Tensor:
        return self.query(t, r)


class ComplEx(Bilinear):
    """``Re(sum_j h_j r_j conj(t_j))`` of complex rows (Trouillon et al. 2016, section 3)

    A row holds d/2 real parts, then d/2 imaginary parts.

    Args:
        d: real numbers of a row; even.
        init_std: standard deviation of all numbers at the start (Lacroix et al. 2018 and Chami et al. 2020, in their
            programs: 1e-3).

    Raises:
        ValueError: d is odd.
    """

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, init_std: float):
        super().__init__(geometry, n_entities, n_relations, sparse, even(self, d), d_relation=d)
        self.start_normal(init_std)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return complex_product(self.entity(h), self.relation(r))

    def head_query(self, t: Tensor, r: Tensor) -> Tensor:
        """``conj(r) t``, as ``Re(h r conj(t)) = Re(h conj(conj(r) t))``."""
        return complex_product(self.entity(t), conjugate(self.relation(r)))

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        """Moduli (B, d/2), which the N3 regulariser takes (Lacroix et al. 2018, and their program)."""
        return [moduli(row) for row in super().factors(h, r, t)]


class TuckER(Bilinear):
    """``W x_1 h x_2 r x_3 t``: a core tensor shared by all relations (Balazevic et al. 2019b, section 4)

    As in their program, the query is ``drop(norm(M_r^T drop(norm(h))))`` with ``M_r = drop(sum_k r_k W_k)``, the norms
    being batch norms and each drop a dropout of its own; h is normalised where it is a head, not where it is a tail.
    Core (d_relation, d, d) from U(-1, 1), rows Glorot normal. There, row 0 of both tables is never trained as a head or
    relation; here it is.

    Without dropout of M_r, products go relation by relation; with it each example has its own (d, d) matrix.
    In training, a batch of one is normalised with the running statistics: see `batch_norm.normalise`.

    Args:
        d, d_relation: sizes of entities and relations.
        input_dropout: of h; hidden_dropout1: of M_r; hidden_dropout2: of the query; each 0 to 1.
    """

    def __init__(
        self,
        geometry: Geometry,
        n_entities: int,
        n_relations: int,
        sparse: bool,
        d: int,
        d_relation: int,
        input_dropout: float,
        hidden_dropout1: float,
        hidden_dropout2: float,
    ):
        super().__init__(geometry, n_entities, n_relations, sparse, d, d_relation)
        self.start_xavier()
        self.core = nn.Parameter(torch.empty(d_relation, d, d).uniform_(-1, 1))
        self.head_norm, self.query_norm = nn.BatchNorm1d(d), nn.BatchNorm1d(d)
        self.head_drop = nn.Dropout(input_dropout)
        self.matrix_drop = nn.Dropout(hidden_dropout1)
        self.query_drop = nn.Dropout(hidden_dropout2)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        x = self.head_drop(normalise(self.head_norm, self.entity(h)))
        values, place = torch.unique(r, return_inverse=True)
        matrices = (self.relation(values) @ self.core.flatten(1)).view(-1, self.d, self.d)
        if self.training and self.matrix_drop.p > 0:
            x = torch.bmm(x.unsqueeze(1), self.matrix_drop(matrices[place])).squeeze(1)
        else:
            x = relation_linear(x, matrices.mT, place)
        result: Tensor = self.query_drop(normalise(self.query_norm, x))
        return result


def even(scorer: nn.Module, d: int) -> int:
    """d, for a model of complex rows.

    Raises:
        ValueError: d is odd.
    """
    if d % 2:
        raise ValueError(f"{type(scorer).__name__}: d counts real numbers, two for each complex one; d={d} is odd")
    return d


def complex_product(x: Tensor, y: Tensor) -> Tensor:
    """Product of complex rows (..., d): d/2 real parts, then d/2 imaginary parts."""
    (a, b), (c, d) = x.chunk(2, -1), y.chunk(2, -1)
    return torch.cat([a * c - b * d, a * d + b * c], -1)


def conjugate(x: Tensor) -> Tensor:
    """Complex rows (..., d) with their imaginary parts negated."""
    real, imaginary = x.chunk(2, -1)
    return torch.cat([real, -imaginary], -1)


def moduli(x: Tensor) -> Tensor:
    """Absolute values (..., d/2) of complex rows (..., d); the gradient at 0 is 0.

    Raises:
        ValueError: d is odd.
    """
    if x.shape[-1] % 2:
        raise ValueError(f"complex rows have an even number of coordinates, got {tuple(x.shape)}")
    real, imaginary = x.chunk(2, -1)
    return safe_sqrt(real.square() + imaginary.square())


__all__ = ["Bilinear", "ComplEx", "DistMult", "TuckER", "complex_product", "conjugate", "even", "moduli"]
