"""What the tests of the Lorentz family share: HyboNet's normalisation written out, points, layers away from their start."""

import torch
from torch import nn

from hyperbolic.manifolds import Lorentz
from tests.tolerances import tolerance

F64 = torch.float64
CURVATURES = (0.3, 1.0, 2.5)
CLOSE = tolerance(F64, "identity")


def spread(layer: nn.Module) -> nn.Module:
    """The layer in float64 with parameters that are far from their special starts."""
    with torch.no_grad():
        for p in layer.parameters():
            if not hasattr(p, "manifold"):
                p.normal_(std=0.4)
    return layer.double()


def points(c: float, *size: int, dtype=F64) -> torch.Tensor:
    return Lorentz(c).random(*size, std=0.7, dtype=dtype)


def with_time(space: torch.Tensor, c: float) -> torch.Tensor:
    return torch.cat([(1 / c + space.square().sum(-1, keepdim=True)).sqrt(), space], -1)


def normalised(time_logit: torch.Tensor, space: torch.Tensor, scale: torch.Tensor, c: float) -> torch.Tensor:
    """Eq. 9 in steps: the time coordinate, then the space part with the length that fits."""
    time = (scale * torch.sigmoid(time_logit) + 1.1) / c**0.5
    length = (time.square() - 1 / c).sqrt()
    return torch.cat([time.unsqueeze(-1), length.unsqueeze(-1) * nn.functional.normalize(space, dim=-1)], -1)
