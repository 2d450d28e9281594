"""Distances of all pairs of two sets of points, as one matrix product.

``sinh^2(sqrt(c) d/2)`` of every pair is an inner product of a vector of the one point with a vector of the other, taken
in float64. Where its terms cancel (points close to each other, measured by their distance from the origin), the pair is
computed again from the difference of its points, as the manifolds do. The relative error of distances is at most about
2e-7 for float32 points, and 1e-12 for float64 points; memory is that of a few float64 matrices of pairs. With
``refine=False``, for attention, close pairs keep what the product gives: an error of ``sinh^2(sqrt(c) d/2)`` of about
1e-16 times the terms, at half the time and without waiting for a GPU.
"""

from __future__ import annotations

from torch import Tensor

from hyperbolic.kernels.pairwise import passes
from hyperbolic.numerics import wide_curvature


def poincare_pairwise(x: Tensor, y: Tensor, c: Tensor, refine: bool = True) -> Tensor:
    """Distances in the Poincaré ball: x (..., T, d), y (..., N, d) -> (..., T, N).

    ``sinh^2(sqrt(c) d/2) = c |x - y|^2 / (g_x g_y)``, ``g = 1 - c|x|^2``. At equal points value and gradient are 0.
    """
    distances: Tensor = passes.Poincare.run(x, y, wide_curvature(c).to(x.device), refine)
    return distances


def lorentz_pairwise(x: Tensor, y: Tensor, c: Tensor, refine: bool = True) -> Tensor:
    """Distances on the hyperboloid: x (..., T, d+1), y (..., N, d+1) -> (..., T, N), time coordinate first.

    ``sinh^2(sqrt(c) d/2) = (c (t_x t_y - <s_x, s_y>) - 1) / 2``, where the times t are recomputed from the space parts
    s; there is no gradient for the time coordinates given. At equal points value and gradient are 0.
    """
    distances: Tensor = passes.Lorentz.run(x, y, wide_curvature(c).to(x.device), refine)
    return distances


__all__ = ["lorentz_pairwise", "poincare_pairwise"]
