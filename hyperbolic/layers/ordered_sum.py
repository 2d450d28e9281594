"""The sum of N points from the left, in each family's addition: what the families' layers share."""

from __future__ import annotations

from torch import Tensor, nn

from hyperbolic.layers.guard import check_mask, check_sequence, check_weights, takes_points
from hyperbolic.manifolds import Manifold


class OrderedSum(nn.Module):
    """``((w_1 x_1 + w_2 x_2) + w_3 x_3) + ...`` with the family's sum of points and multiple of a point.

    In the gyrovector families the result depends on the order of the points, unlike the centroid and a flat sum. It is
    the combination in the deep averaging network and the attention of Patel et al., Attention Networks in Hyperbolic
    Space (HyperA).
    """

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = manifold

    def total(self, x: Tensor, weights: Tensor | None, mask: Tensor | None) -> Tensor:
        """The sum; arguments as checked in :meth:`forward`."""
        raise NotImplementedError

    @takes_points(None)
    def forward(self, x: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """
        Args:
            x: (..., N, D). weights: (..., N), of any sign; 1 when left out.
            mask: (..., N), boolean, true for points that count.
        Returns: (..., D); the origin where no point counts.
        Raises:
            ValueError: no points; weights or a mask of another shape; a mask that is not boolean.
        """
        check_sequence(self, x)
        if weights is not None:
            check_weights(self, weights, x.shape[:-1])
        if mask is not None:
            check_mask(self, mask, x.shape[:-1], hidden_rows=True)
        return self.total(x, weights, mask)
