"""Formulas as the papers print them, pair by pair, which operators are compared with; float64 arithmetic is advisable."""

import torch
from torch import Tensor

from hyperbolic.manifolds.poincare import mobius_add


def mlr_logits(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Ganea et al. 2018, Eq. 23, with a Möbius sum for each pair of x (..., d) and the planes p, a (K, d): (..., K)."""
    m = mobius_add(-p, x.unsqueeze(-2), c)
    norm = a.norm(dim=-1)
    argument = 2 * c**0.5 * (m * a).sum(-1) / ((1 - c * m.square().sum(-1)) * norm)
    return 2 * norm / c**0.5 * torch.asinh(argument)
