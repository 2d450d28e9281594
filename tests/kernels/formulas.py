"""Formulas as the papers print them, pair by pair, which operators are compared with; float64 arithmetic is advisable."""

import torch
from torch import Tensor

from hyperbolic.manifolds.poincare import expmap0, logmap0, mobius_add


def mlr_logits(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Ganea et al. 2018, Eq. 23, with a Möbius sum for each pair of x (..., d) and the planes p, a (K, d): (..., K)."""
    m = mobius_add(-p, x.unsqueeze(-2), c)
    norm = a.norm(dim=-1)
    argument = 2 * c**0.5 * (m * a).sum(-1) / ((1 - c * m.square().sum(-1)) * norm)
    return 2 * norm / c**0.5 * torch.asinh(argument)


def mobius_sum(x: Tensor, c: Tensor, weights: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """``((w_1 (x) x_1 (+) w_2 (x) x_2) (+) ...)``, every operation by itself; see ``kernels/mobius_sum``."""
    points = x if weights is None else expmap0(weights.unsqueeze(-1) * logmap0(x, c), c)
    total = torch.zeros_like(x[..., 0, :])
    for t in range(x.shape[-2]):
        new = mobius_add(total, points[..., t, :], c)
        total = new if mask is None else torch.where(mask[..., t, None], new, total)
    return total


def poincare_fc(x: Tensor, z: Tensor, r: Tensor, c: Tensor) -> Tensor:
    """HNN++ (Shimizu et al. 2021), the FC layer of points inside the stated radius; see ``layers/poincare_fc.py``."""
    root, norm = c.sqrt(), z.norm(dim=-1)
    factor = 2 / (1 - c * x.square().sum(-1, keepdim=True))
    shift = 2 * root * r
    argument = factor * root * (x @ (z / norm.unsqueeze(-1)).T) * shift.cosh() - (factor - 1) * shift.sinh()
    w = torch.sinh(2 * norm * torch.asinh(argument)) / root
    return w / (1 + (1 + c * w.square().sum(-1, keepdim=True)).sqrt())
