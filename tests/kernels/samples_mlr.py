"""Small arguments of the operators of :mod:`hyperbolic.kernels.mlr`."""

import torch

from hyperbolic.manifolds import PoincareBall


def draw(*size: int, std: float = 1.0) -> torch.Tensor:
    return (std * torch.randn(*size, dtype=torch.float64)).requires_grad_()


def points(*size: int) -> torch.Tensor:
    return PoincareBall(1.3).random(*size, std=0.5, dtype=torch.float64).requires_grad_()


def curvature() -> torch.Tensor:
    return torch.tensor(1.3, dtype=torch.float64, requires_grad=True)


SAMPLES = {
    "mlr_lift_hyperplanes": lambda: [(points(3, 4), draw(3, 4), curvature())],
    "mlr_logits": lambda: [(draw(3, 4), draw(5, 4), (draw(5).detach().abs() + 0.5).requires_grad_())],
}
