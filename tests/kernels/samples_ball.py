"""Small arguments of the operators of Möbius linear layers, ordered sums and Poincaré fully connected layers."""

import torch

from hyperbolic.kernels.mobius_sum import _columns
from tests.kernels.samples_mlr import curvature, draw, points


def _sum():
    x = _columns(points(2, 3, 2).detach())
    gap = (1 - x.square().sum(-2, keepdim=True)).requires_grad_()
    yield x.clone().requires_grad_(), gap, None
    last = torch.zeros(3, 1, 2, dtype=torch.float64)
    last[1, :, 0] = last[2, :, 1] = 1
    yield x.clone().requires_grad_(), gap, last


def _affine():
    yield curvature(), None, None, points(3, 2), draw(4, 2)
    yield curvature(), points(2, 3), draw(4, 1, std=0.3), points(4, 2), points(4, 3), draw(3, 2), draw(3, 3)


def _rows(*shapes):
    """Of a size from which on float32 has passes of its own."""
    return [(*(draw(*shape, std=0.1) for shape in shapes),)]


SAMPLES = {
    "row_dot": lambda: [*_rows((2100, 8), (2100, 8)), (draw(2100, 8), None)],
    "row_scale": lambda: [(draw(2100, 1), draw(2100, 8))],
    "weighted_sum": lambda: [(draw(700, 3), draw(700, 3, 8))],
    "ball_add": lambda: [(*points, curvature()) for points in _rows((2100, 8), (2100, 8))],
    "ball_distance_square": lambda: [(*points, curvature()) for points in _rows((2100, 8), (2100, 8))],
    "mobius_affine": lambda: list(_affine()),
    "ball_sum": lambda: list(_sum()),
}
