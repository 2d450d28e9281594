"""Small arguments of the operators of :mod:`hyperbolic.kernels.pairwise`."""

import torch

from hyperbolic.manifolds import Lorentz
from tests.kernels.samples_mlr import curvature, points


def near(x: torch.Tensor) -> torch.Tensor:
    """Points of which the first is so close to that of x that the pair is computed again."""
    y = x.detach().flip(-2) + 0.1
    y[..., 0, :] = x.detach()[..., 0, :] + 1e-3
    return y.requires_grad_()


def of_ball(*size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = points(*size)
    return x, near(x), curvature()


def of_sheet(*size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = Lorentz(1.3).random(*size, std=0.5, dtype=torch.float64).requires_grad_()
    return x, near(x), curvature()


SAMPLES = {
    "poincare_pairwise": lambda: [(*of_ball(3, 4), True), (*of_ball(2, 3, 4), False)],
    "lorentz_pairwise": lambda: [(*of_sheet(3, 4), True), (*of_sheet(2, 3, 4), False)],
}
