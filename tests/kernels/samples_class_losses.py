"""Small arguments of the operators of :mod:`hyperbolic.kernels.class_losses`."""

import torch

from tests.kernels.samples_mlr import draw

LISTS = torch.tensor([[0, 4], [2, -1], [-1, -1]])
MATRIX = torch.tensor([[0.0, 1.0, 0.3, 0.0, 1.0]] * 3, dtype=torch.float64)
GROUPS = torch.tensor([0, 1, 1, 0, 1])


def scaled() -> tuple:
    return draw(3, 4), draw(5, 4), (draw(5).detach().abs() + 0.5).requires_grad_(), None


def linear() -> tuple:
    return draw(3, 4), draw(5, 4), None, draw(5)


def shares(*size: int) -> torch.Tensor:
    return torch.rand(*size, dtype=torch.float64)


SAMPLES = {
    "streamed_bce": lambda: [
        (*scaled(), LISTS, None, None),
        (*linear(), MATRIX, shares(3, 2), GROUPS),
        (*scaled(), MATRIX > 0.5, shares(3, 1), None),
    ],
    "streamed_cross_entropy": lambda: [
        (*scaled(), torch.tensor([4, 0, 2]), torch.tensor([True, False, True]), 0.1),
        (*linear(), torch.tensor([4, 0, 2]), torch.tensor([True, True, True]), 0.0),
    ],
}
