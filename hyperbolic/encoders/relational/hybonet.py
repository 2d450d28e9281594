"""HyboNet's model of knowledge graphs: a Lorentz linear layer for each relation, and squared Lorentz distances."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperbolic.encoders.relational.scorer import Scorer, leaves_autocast
from hyperbolic.geometry import Geometry
from hyperbolic.kernels import relation_scores
from hyperbolic.kernels.lorentz_rows import dual, normalise
from hyperbolic.kernels.relation_linear import relation_linear
from hyperbolic.kernels.table_products import table_products
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.layers.guard import check_index
from hyperbolic.layers.lorentz import Embedding
from hyperbolic.layers.lorentz_linear import VARIANTS
from hyperbolic.manifolds import Lorentz, Manifold
from hyperbolic.manifolds.lorentz import lorentz_products
from hyperbolic.switch import is_followed

_VARIANT = VARIANTS["kg"]


class HyboNet(Scorer):
    """``margin + 2 <f_r(e_h), e_t>_L + b_h + b'_t`` (Chen et al. 2022, section 4.1, and their program)

    With ``d_L^2(x, y) = -2/c - 2 <x, y>_L``, the squared Lorentz distance, that is ``-d_L^2 + delta + b_h + b'_t`` with
    ``delta = margin - 2/c`` (the paper calls delta itself the margin). ``f_r`` is the Lorentz linear layer (Eq. 9) with
    a matrix W_r and a bias b_r for each relation: ``y = W_r x``, ``t = (lambda sigmoid(y_0) + 1.1) / sqrt(c)``, and the
    space part ``y_s + b_r`` scaled to the length ``sqrt(t^2 - 1/c)``; lambda is fixed and the bias does not count in
    the time.

    Args:
        geometry: lorentz. d: size of the entities. counts_time: d counts the time coordinate, as the program does; the
            space then has d - 1 dimensions. scale: lambda, in units of 1/sqrt(c). margin: see above. max_norm: longest
            space part of an entity, in units of 1/sqrt(c) of the start, kept by the optimiser (`parameter_groups`);
            None: no limit.

    Raises:
        ValueError: another geometry, a d that leaves no dimension, scale, margin or max_norm that is not positive.
    """

    def __init__(
        self,
        geometry: Geometry,
        n_entities: int,
        n_relations: int,
        sparse: bool,
        d: int,
        counts_time: bool,
        scale: float,
        margin: float,
        max_norm: float | None,
    ):
        geometry.check_manifold("HyboNet", Lorentz, option=("Embedding", "start"))
        super().__init__(geometry, n_entities, n_relations, sparse)
        size = d if counts_time else d + 1
        if size < 2:
            raise ValueError(f"HyboNet: d={d} leaves no dimension of space beside the time; take a larger one")
        for name, value in (("scale", scale), ("margin", margin), ("max_norm", max_norm)):
            if value is not None and not value > 0:
                raise ValueError(f"HyboNet: {name} must be positive, got {value}")
        self.d, self.scale, self.margin = size - 1, scale, margin
        entity = geometry.embedding(n_entities, self.d, sparse=sparse, start="unit")
        assert isinstance(entity, Embedding)
        self.entity = entity
        if max_norm is not None:
            self.entity.max_radius = math.asinh(max_norm) / math.sqrt(self.manifold.number())
        bound = _VARIANT.start(size, size)
        self.matrix = nn.Parameter(torch.empty(n_relations, size, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(n_relations, size - 1))
        self.head_bias, self.tail_bias = (nn.Parameter(torch.zeros(n_entities, 1)) for _ in range(2))

    @leaves_autocast
    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """As for all scorers; in one kernel on a CPU, in few on a GPU, unless c is trained or gradients are sparse."""
        tables = relation_scores.Tables(
            self.entity.weight, self.matrix, self.bias, self.head_bias, self.tail_bias
        )
        apart = self.sparse or self.manifold.learn_c or is_followed(h, self.entity.weight)
        if apart or not relation_scores.usable(tables, h, r, t):
            result: Tensor = super().forward(h, r, t)
            return result
        if not h.is_cpu:
            check_index(self, r, len(self.matrix))
            for index in (h, t):
                check_index(self.entity, index, self.n_entities)
        try:
            return relation_scores.scores(tables, h, r, t, self.margin, self.scale, self.manifold.start_c)
        except IndexError:
            for index in (h, t):
                check_index(self.entity, index, self.n_entities)
            raise

    def query(self, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """The points f_r(e_h) (B, D), and margin + b_h (B, 1)."""
        y = relation_linear(self.entity(h), self.matrix, r, self.sparse)
        y = y + F.pad(table_rows(self.bias, r, self.sparse), (1, 0))
        c = self.manifold.c
        x = normalise(y, y.new_tensor(self.scale), c)
        return x, self.margin + table_rows(self.head_bias, h, self.sparse)

    def compare(self, query: Any, r: Tensor, t: Tensor) -> Tensor:
        x, shift = query
        x = dual(x, x.new_tensor(2.0))
        check_index(self.entity, t, self.n_entities)
        if self.manifold.learn_c:  # the points used move with the curvature
            products = torch.bmm(self.entity(t), x.unsqueeze(-1)).squeeze(-1)
            shift = shift + products
            products = table_rows(self.tail_bias, t, self.sparse).squeeze(-1)
        else:
            products = table_products(x, self.entity.weight, t, self.tail_bias, self.sparse)
        result: Tensor = shift + products
        return result

    def compare_all(self, query: Any, r: Tensor, rows: slice | Tensor) -> Tensor:
        x, shift = query
        table = self.rows_of(self.entity.weight, rows)
        if self.manifold.learn_c:
            table = self.manifold.projx(table)
        result: Tensor = lorentz_products(2 * x, table, self.rows_of(self.tail_bias, rows).squeeze(-1)) + shift
        return result

    def points(self) -> tuple[Manifold, Tensor]:
        return self.manifold, self.manifold.projx(self.entity.weight.detach())

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        """Space parts of the entities, and the biases of the relations; the matrices are left alone."""
        return [self.entity(h)[:, 1:], table_rows(self.bias, r, self.sparse), self.entity(t)[:, 1:]]
