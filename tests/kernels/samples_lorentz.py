"""Small arguments of the operators of :mod:`hyperbolic.kernels.lorentz_rows`."""

import torch

from hyperbolic.manifolds import Lorentz
from tests.kernels.samples_mlr import curvature, draw


def points(*size: int) -> torch.Tensor:
    return Lorentz(1.3).random(*size, std=0.5, dtype=torch.float64).detach().requires_grad_()


def scalar() -> torch.Tensor:
    return torch.tensor(1.7, dtype=torch.float64, requires_grad=True)


def _linear():
    x, raw, added = draw(3, 4), draw(3, 4), draw(3, 2)
    yield x, draw(6, 4), draw(6), None, None, scalar(), curvature(), 1.1, 2
    yield x, draw(3, 4), None, raw, added, scalar(), curvature(), 1.2, 1


SAMPLES = {
    "lorentz_linear": lambda: list(_linear()),
    "lorentz_lift": lambda: [(draw(3, 4), curvature(), 1), (draw(2, 3, 2), curvature(), 2)],
    "lorentz_mean": lambda: [(points(3, 4, 2).mean(-2).detach().requires_grad_(), curvature())],
}
