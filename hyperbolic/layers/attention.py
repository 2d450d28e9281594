"""Distance attention (Lopez & Strube 2020, Eq. 9-12), written once for all families; and the centroid as a layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyperbolic.manifolds import Manifold


class Centroid(nn.Module):
    """Weighted centre of N points: the manifold's ``centroid`` (Möbius midpoint, Lorentz centroid, Einstein midpoint,
    or the mean in flat space) as a module without parameters."""

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = manifold

    def forward(self, x: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """
        Args: x (..., N, D); weights (..., N), equal when left out; mask (..., N), true for points that count.
        Returns: (..., D).
        Raises:
            ValueError: a mask that hides every point of a row.
        """
        if mask is not None:
            _check_mask("centroid", mask)
            weights = mask.to(x.dtype) if weights is None else weights * mask
        return self.manifold.centroid(x, weights)


def _check_mask(layer: str, mask: Tensor) -> None:
    if not mask.is_cuda and not bool(mask.any(-1).all()):  # on a GPU the check would wait for the device
        raise ValueError(f"{layer}: the mask hides every position of at least one row")


class DistanceAttention(nn.Module):
    """``w_i = softmax_i(-beta d(q_i, k_i))`` with ``q = W_q r + b_q``, ``k = W_k r + b_k``, ``r_i = x_i + p_i``.

    Query and key belong to the same position, so the weights are one number a position; values are the inputs
    before the position is added. ``beta`` is a trained scalar from U(-0.01, 0.01), its sign free (official code).

    Args:
        manifold: space of the points. d: intrinsic size.
        linear: builds a linear layer (manifold, d, d). embedding: builds a table (manifold, n, d).
        add: how a position is added to a point, in this family.
        n_positions: size of the table of positions; 0 for none.
    """

    def __init__(
        self,
        manifold: Manifold,
        d: int,
        linear: Callable[..., nn.Module],
        embedding: Callable[..., nn.Module],
        add: Callable[[Tensor, Tensor], Tensor],
        n_positions: int = 0,
    ):
        super().__init__()
        self.manifold = manifold
        self.query, self.key = linear(manifold, d, d), linear(manifold, d, d)
        self.positions = embedding(manifold, n_positions, d) if n_positions else None
        self.beta = nn.Parameter(torch.empty(()).uniform_(-0.01, 0.01))
        self.add = add

    def forward(self, x: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args:
            x: (..., N, D) points. positions: (..., N) indices into the table.
            mask: (..., N), true where a point counts.
        Returns:
            the weighted centroid (..., D) and the weights (..., N).
        Raises:
            ValueError: positions without a table or the reverse; a mask that hides every position of a row.
        """
        if (positions is None) != (self.positions is None):
            raise ValueError("positions are given exactly when the layer was built with n_positions > 0")
        moved = x if positions is None else self.add(x, self.positions(positions))
        score = -self.beta * self.manifold.dist(self.query(moved), self.key(moved))
        if mask is not None:
            _check_mask("attention", mask)
            score = score.masked_fill(~mask, -torch.inf)
        weights = torch.softmax(score, -1)
        return self.manifold.centroid(x, weights), weights
