"""Small arguments of the operators of :mod:`hyperbolic.kernels.tangent_distance`."""

import torch

from tests.kernels.samples_mlr import curvature, draw


def squares(*size: int) -> torch.Tensor:
    """Small and large ones."""
    return (torch.rand(*size, dtype=torch.float64) * torch.logspace(-3, 1, size[-1])).requires_grad_()


SAMPLES = {
    "row_products": lambda: [(draw(2, 1, 4), draw(2, 3, 4)), (draw(2, 2, 4), draw(2, 3, 4))],
    "squared_length": lambda: [
        (squares(3, 4), curvature(), False),
        (squares(3, 4), squares(3, 1).detach().add(0.5).requires_grad_(), False),
    ],
}
