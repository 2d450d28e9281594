"""Small arguments of the operator of :mod:`hyperbolic.kernels.distance_softmax`."""

import torch


def uniform(*size: int) -> torch.Tensor:
    return (torch.rand(*size, dtype=torch.float64) + 0.1).requires_grad_()


def power(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


NONE = torch.empty(0, dtype=torch.long)
SAMPLES = {
    "distance_softmax": lambda: [
        (uniform(3, 4), uniform(5, 4), uniform(3), torch.tensor([2, 0, 2]), torch.tensor([1, 4, 0]), power(2.0)),
        (uniform(3, 4), uniform(5, 4), uniform(3), NONE, NONE, power(1.3)),
    ],
}
