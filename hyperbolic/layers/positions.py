"""Learned positions of a sequence, written once for all families."""

from __future__ import annotations

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_range, check_sequence, name_of
from hyperbolic.layers.points import PointLayer
from hyperbolic.manifolds import Manifold


def check_positions(layer: nn.Module, positions: Tensor, x: Tensor, n_positions: int) -> None:
    """Refuse positions that are not of these points.

    Args: positions (..., N) of points x (..., N, D), leading axes of x may be missing; rows of a table of n_positions.
    Raises:
        ValueError: positions of another shape or dtype, or outside of the table (the last on a GPU: a device-side
            assertion).
    """
    if positions.is_floating_point() or positions.dtype is torch.bool:
        raise ValueError(f"{name_of(layer)}: positions must be whole numbers (int64), got {positions.dtype}")
    if positions.dim() == 0 or positions.shape != x.shape[:-1][-positions.dim() :]:
        raise ValueError(
            f"{name_of(layer)}: positions must have the shape {tuple(x.shape[-2:-1])} or {tuple(x.shape[:-1])} of the "
            f"points, got {tuple(positions.shape)}"
        )
    rule = f"positions must lie in 0..{n_positions - 1} (n_positions={n_positions})"
    check_range(layer, positions, 0, n_positions - 1, rule)


class PositionEncoding(PointLayer):
    """``dropout(add(x_t, p_t))`` with a learned table p; at the start its rows are (``exp_0`` of) N(0, 0.02^2).

    Subclasses name the dropout of their family in ``drop``, implement ``make`` and ``add``, and guard ``forward``.

    Args:
        manifold: space of the points. d: intrinsic size. n_positions: rows of the table, the longest sequence.
        dropout: of the result.

    Raises:
        ValueError: n_positions below 1.
    """

    parameter_role = "embeddings"
    drop: type[nn.Module]

    def __init__(self, manifold: Manifold, d: int, n_positions: int, dropout: float = 0.0):
        super().__init__()
        self.manifold, self.d, self.n_positions = manifold, d, n_positions
        if n_positions < 1:
            raise ValueError(f"{name_of(self)}: n_positions must be at least 1, got {n_positions}")
        self.table = self.make(0.02 * torch.randn(n_positions, d))
        self.dropout = self.drop(manifold, dropout)

    extra_repr = shows("d", "n_positions")

    def make(self, start: Tensor) -> nn.Parameter:
        """The parameter that starts at these tangent vectors (n_positions, d)."""
        return nn.Parameter(start)

    def add(self, x: Tensor, p: Tensor) -> Tensor:
        """The family's sum of points x (..., T, D) and their positions p, (T, D) or (..., T, D)."""
        raise NotImplementedError

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """
        Args: x (..., T, D); positions (T,) or (..., T) rows of the table, 0..T-1 when left out.
        Returns: (..., T, D).
        Raises:
            ValueError: an empty sequence; a sequence or position beyond the table; positions of another shape.
        """
        result: Tensor = self.dropout(self.add(x, self.rows(x, positions)))
        return result

    def rows(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """The rows of the table for these points, (T, d) or (..., T, d)."""
        check_sequence(self, x)
        if positions is None:
            if x.shape[-2] > self.n_positions:
                raise ValueError(
                    f"{name_of(self)}: takes sequences (..., T, D) of at most n_positions={self.n_positions} "
                    f"positions, got a tensor of shape {tuple(x.shape)}"
                )
            rows = self.table[: x.shape[-2]]
        else:
            check_positions(self, positions, x, self.n_positions)
            rows = nn.functional.embedding(positions, self.table)
        return self.inside(rows) if isinstance(self.table, ManifoldParameter) else rows  # points, or vectors
