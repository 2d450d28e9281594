"""What the networks of entity typing share: word vectors as points, masks of padding, what an attention shows."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.manifolds import Manifold
from tasks.text import WordVectors


class Attended(NamedTuple):
    """What a distance attention sees: queries and keys (B, N, D), points of `manifold`, and the weights (B, N)."""

    queries: Tensor
    keys: Tensor
    weights: Tensor
    manifold: Manifold


class WordPoints(nn.Module):
    """Frozen word vectors as points of a manifold, with dropout: rows (...) -> (..., D).

    The points are those of `WordVectors.points`; what is kept are their tangent vectors at the origin, so that only the
    words of a batch are lifted, a dropout in the tangent space costs nothing more, and a learned curvature gets the
    gradient of their places. The table is neither trained nor saved, and no buffer, which processes that train together
    would send each other at every step. It stays as it was read, often mapped into memory: only the rows of a batch are
    scaled and brought to the module's dtype.

    geometry: of the points. dropout: of the words.
    """

    def __init__(self, words: WordVectors, geometry: Geometry, dropout: float):
        super().__init__()
        self.manifold = geometry.manifold
        self.dropout = geometry.dropout(dropout)
        self.moving = self.manifold.learn_c
        self.scale = _scale(self.manifold)
        self.table, self.dtype = words.tangent, words.tangent.dtype

    def _apply(self, fn, recurse=True):
        moved = fn(self.table.new_empty(0, dtype=self.dtype))
        self.table, self.dtype = self.table.to(moved.device), moved.dtype
        return super()._apply(fn, recurse)

    def forward(self, rows: Tensor) -> Tensor:
        u = nn.functional.embedding(rows, self.table).to(self.dtype)
        u = u if self.scale == 1 else u * self.scale
        return self.dropout.lifted((u / self.manifold.c.sqrt()).to(u.dtype) if self.moving else u)

    def extra_repr(self) -> str:
        return f"{len(self.table)} words"


def _scale(manifold: Manifold) -> float:
    """What makes of a tangent vector at the origin of the unit ball one of the manifold, whose exp_0 is the same point.

    On the ball ``d(0, exp_0(u)) = 2|u|``, elsewhere |u|; a learned c is divided by later.
    """
    if not manifold.is_curved:
        return 1.0
    with torch.no_grad():
        unit = torch.ones(1, dtype=torch.float64, device=manifold.c.device)
        scale = round(2 / float(manifold.dist0(manifold.expmap0(unit))), 9)
        return scale if manifold.learn_c else scale / float(manifold.c.sqrt())


def inside(lengths: Tensor, steps: int) -> Tensor:
    """True at the positions before the true end: lengths (B,) -> (B, steps)."""
    return torch.arange(steps, device=lengths.device) < lengths.unsqueeze(-1)
