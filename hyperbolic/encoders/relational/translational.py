"""Models whose score is a margin less a distance of a moved head from the tail: TransE (moved by a vector), RotatE
(by a rotation of each complex coordinate)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.bilinear import complex_product, conjugate, even, moduli
from hyperbolic.encoders.relational.scorer import Scorer, Table
from hyperbolic.geometry import Geometry
from hyperbolic.manifolds import Euclidean, Manifold
from hyperbolic.numerics import WIDE, sqnorm, wide
from hyperbolic.operator import Operator, operator
from hyperbolic.smooth import safe_sqrt
from hyperbolic.switch import is_followed
from hyperbolic.typing import Context

_EPSILON = 2.0  # of the range of the start, in the program of Sun et al. 2019
_BLOCK = 1 << 16, 1 << 23  # pairs of a query and an entity at once: for each thread of a CPU, and on a GPU
_COLUMNS = 1 << 10  # entities of a block
_TINY = 1e-20  # moduli below it count as this for the gradient, which so is 0 at 0


class Translational(Scorer):
    """``margin - distance(q(h, r), e_t)``: what such models share.

    All rows start from U(-b, b), ``b = (margin + 2) / k`` with k coordinates, as in the program of Sun et al. 2019.

    Args:
        geometry: euclidean. d: size of the entities, in real numbers. k: coordinates, real or complex, and size of the
            rows of the relations. margin: see above.

    Raises:
        ValueError: a curved geometry, d below 1, or a negative margin.
    """

    def __init__(
        self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, k: int, margin: float
    ):
        super().__init__(geometry, n_entities, n_relations, sparse)
        geometry.check_manifold(type(self).__name__, Euclidean)
        if d < 1:
            raise ValueError(f"{type(self).__name__}: d must be at least 1, got {d}")
        if not margin >= 0:
            raise ValueError(f"{type(self).__name__}: margin must not be negative, got {margin}")
        self.d, self.margin = d, margin
        self.bound = (margin + _EPSILON) / k
        self.entity = Table(n_entities, d, sparse=sparse)
        self.relation = Table(n_relations, k, sparse=sparse)
        for table in (self.entity, self.relation):
            nn.init.uniform_(table.weight, -self.bound, self.bound)

    def points(self) -> tuple[Manifold, Tensor]:
        return self.manifold, self.entity.weight.detach()


class TransE(Translational):
    """``margin - |h + r - t|_p`` (Bordes et al. 2013, section 2; the margin as in Sun et al. 2019)

    Bordes et al. also scale the entities to length 1 before each batch. That is not done here, nor by Sun et al.

    Args:
        p: 1 or 2, the norm.

    Raises:
        ValueError: another p.
    """

    def __init__(
        self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, margin: float, p: int
    ):
        super().__init__(geometry, n_entities, n_relations, sparse, d, d, margin)
        if p not in (1, 2):
            raise ValueError(f"TransE: p must be 1 or 2, got {p}")
        self.p = p

    def relation_points(self) -> tuple[Manifold, Tensor]:
        return self.manifold, self.relation.weight.detach()

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        result: Tensor = self.entity(h) + self.relation(r)
        return result

    def head_query(self, t: Tensor, r: Tensor) -> Tensor:
        result: Tensor = self.entity(t) - self.relation(r)
        return result

    def compare(self, query: Tensor, r: Tensor, t: Tensor) -> Tensor:
        difference = query.unsqueeze(1) - self.entity(t)
        length = difference.abs().sum(-1) if self.p == 1 else torch.linalg.vector_norm(difference, dim=-1)
        result: Tensor = self.margin - length
        return result

    def compare_all(self, query: Tensor, r: Tensor, rows: slice | Tensor) -> Tensor:
        table = self.rows_of(self.entity.weight, rows)
        return self.margin - (torch.cdist(query, table, p=1.0) if self.p == 1 else _distances(query, table))

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        return [self.entity(h), self.relation(r), self.entity(t)]


class RotatE(Translational):
    """``margin - sum_j |h_j r_j - t_j|``, ``r_j = exp(i theta_j)`` (Sun et al. 2019, section 3)

    A row of an entity holds d/2 real parts, then d/2 imaginary parts. Relations are kept as ``x_j = b theta_j / pi``
    with b the range of the start, as in the paper's program, so that phases start from U(-pi, pi) and a step of an
    optimiser turns by ``pi / b`` times its length.

    Args:
        d: real numbers of an entity; even. There are d/2 complex coordinates and phases.

    Raises:
        ValueError: d is odd.
    """

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, sparse: bool, d: int, margin: float):
        super().__init__(geometry, n_entities, n_relations, sparse, even(self, d), max(d // 2, 1), margin)

    def rotation(self, r: Tensor) -> Tensor:
        """``exp(i theta)`` of the relations: (B, d), real parts, then imaginary parts."""
        phase = self.relation(r) * (math.pi / self.bound)
        return torch.cat([phase.cos(), phase.sin()], -1)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return complex_product(self.entity(h), self.rotation(r))

    def head_query(self, t: Tensor, r: Tensor) -> Tensor:
        """The tail turned back: ``|h r - t| = |h - conj(r) t|``."""
        return complex_product(self.entity(t), conjugate(self.rotation(r)))

    def compare(self, query: Tensor, r: Tensor, t: Tensor) -> Tensor:
        difference = query.unsqueeze(1) - self.entity(t)
        result: Tensor = self.margin - ModulusSums.run(difference)
        return result

    def compare_all(self, query: Tensor, r: Tensor, rows: slice | Tensor) -> Tensor:
        table = self.rows_of(self.entity.weight, rows)
        result: Tensor = self.margin - ModulusDistances.run(query, table)
        return result

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        """Moduli (B, d/2) of the entities; those of the relations are 1."""
        return [moduli(self.entity(h)), moduli(self.entity(t))]


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """``|x - y|`` of all pairs: (B, d), (N, d) -> (B, N), one product. In float64, as its terms cancel."""
    one = x.new_ones(1, dtype=WIDE)
    left = torch.cat([wide(x), sqnorm(x), one.expand(len(x), 1)], -1)
    right = torch.cat([-2 * wide(y), one.expand(len(y), 1), sqnorm(y)], -1)
    if left.requires_grad or right.requires_grad or is_followed(left, right):
        return safe_sqrt((left @ right.T).clamp_min(0)).to(x.dtype)
    out = x.new_empty(len(x), len(y))
    width = max(1, (_BLOCK[x.is_cuda] << 1) // max(len(x), 1))
    for part, place in zip(right.split(width), out.split(width, 1), strict=True):  # float64 matrices that fit the cache
        place.copy_((left @ part.T).clamp_min_(0).sqrt_())
    return out


@operator("modulus_sums(Tensor z) -> Tensor")
class ModulusSums(Operator):
    """``sum_j |z_j|`` of complex rows: (..., d) -> (...); the gradient at ``z_j = 0`` is 0."""

    @staticmethod
    def plain(z: Tensor) -> Tensor:
        return moduli(z).sum(-1)

    @staticmethod
    def fits(z: Tensor) -> bool:
        return z.shape[-1] % 2 == 0 and z.is_floating_point()

    @staticmethod
    def forward(ctx: Context, z: Tensor) -> Tensor:
        a, b = z.chunk(2, -1)
        modulus = (a * a).addcmul_(b, b).sqrt_()
        ctx.save_for_backward(z, modulus)
        return modulus.sum(-1)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor]:
        z, modulus = ctx.saved_tensors
        weight = (grad.unsqueeze(-1) / modulus).masked_fill_(modulus == 0, 0)
        return ((z.unflatten(-1, (2, -1)) * weight.unsqueeze(-2)).flatten(-2),)


@operator("modulus_distances(Tensor x, Tensor y) -> Tensor")
class ModulusDistances(Operator):
    """``sum_j |x_j - y_j|`` of all pairs of complex rows: (B, d), (N, d) -> (B, N).

    The passes go coordinate after coordinate on blocks of pairs that stay in the cache: nothing of the size (B, N, d)
    is made, also not for the gradient.
    """

    anywhere = True

    @staticmethod
    def plain(x: Tensor, y: Tensor) -> Tensor:
        return moduli(x.unsqueeze(1) - y).sum(-1)

    @staticmethod
    def fits(x: Tensor, y: Tensor) -> bool:
        return x.dim() == y.dim() == 2 and x.shape[1] == y.shape[1] and x.shape[1] % 2 == 0 and x.dtype is y.dtype

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        x, y = x.detach().as_subclass(Tensor), y.detach().as_subclass(Tensor)
        out = x.new_empty(len(x), len(y))
        for rows, columns, a, b, total in _blocks(x, y):
            total.zero_()
            for p, q, u, v in _coordinates(x, y, rows, columns):
                torch.sub(p, q, out=a)
                torch.sub(u, v, out=b)
                total.add_(a.mul_(a).addcmul_(b, b).sqrt_())
            out[rows, columns] = total
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = (t.as_subclass(Tensor) for t in ctx.saved_tensors)
        grad_x, grad_y = torch.zeros_like(x.T), torch.zeros_like(y.T)
        half, ones = len(grad_x) // 2, x.new_ones(max(len(x), len(y)))
        for rows, columns, a, b, weight in _blocks(x, y):
            part = grad[rows, columns].contiguous()
            for j, (p, q, u, v) in enumerate(_coordinates(x, y, rows, columns)):
                torch.sub(p, q, out=a)
                torch.sub(u, v, out=b)
                torch.mul(a, a, out=weight)
                weight.addcmul_(b, b).sqrt_().clamp_min_(_TINY)
                torch.div(part, weight, out=weight)
                for place, difference in ((j, a), (half + j, b)):
                    difference.mul_(weight)
                    grad_x[place, rows] += difference @ ones[columns]
                    grad_y[place, columns] -= ones[rows] @ difference
        return grad_x.T, grad_y.T


def _blocks(x: Tensor, y: Tensor) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor]]:
    """Rows of x and y (slices), and three matrices to work in, of the size of the pairs of them."""
    most = _BLOCK[1] if x.is_cuda else _BLOCK[0] * torch.get_num_threads()
    width = min(len(y), _COLUMNS if not x.is_cuda else most)
    height = min(len(x), max(1, most // max(width, 1)))
    spaces = [x.new_empty(height * width) for _ in range(3)]
    for first in range(0, len(y), max(width, 1)):
        columns = slice(first, min(first + width, len(y)))
        for start in range(0, len(x), max(height, 1)):
            rows = slice(start, min(start + height, len(x)))
            size = rows.stop - rows.start, columns.stop - columns.start
            a, b, c = (space[: size[0] * size[1]].view(size) for space in spaces)
            yield rows, columns, a, b, c


def _coordinates(x: Tensor, y: Tensor, rows: slice, columns: slice) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For each complex coordinate, its real parts of x (n, 1) and of y (m,), then its imaginary parts of both."""
    half = x.shape[1] // 2
    left, right = x[rows].T.contiguous().unsqueeze(-1), y[columns].T.contiguous()
    for j in range(half):
        yield left[j], right[j], left[half + j], right[half + j]


__all__ = ["RotatE", "TransE"]
