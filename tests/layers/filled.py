"""A layer whose parameters are not at their start."""

import torch
from geoopt import ManifoldParameter
from torch import nn


def filled(layer: nn.Module, std: float = 0.5) -> nn.Module:
    """The layer in float64 with random parameters, also where they start at zero; a learnt curvature stays."""
    layer.double()
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if isinstance(p, ManifoldParameter):
                p.copy_(p.manifold.expmap0(0.3 * torch.randn_like(p.manifold.logmap0(p))))
            elif not name.endswith("free_c"):
                p.normal_(std=std)
    return layer
