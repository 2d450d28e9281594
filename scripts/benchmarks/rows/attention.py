"""Lorentz attention of many heads (HyboNet, Eq. 5 and 6) beside the dot-product attention of PyTorch."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from hyperbolic.layers.lorentz_attention import lorentz_attention
from hyperbolic.manifolds import Lorentz
from scripts.benchmarks import peers
from scripts.benchmarks.measure import Case
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, vectors


def attention(setting: Setting, batch: int, heads: int, length: int, coordinates: int) -> Case:
    """Queries, keys and values to centroids, with all three gradients."""
    sheet = Lorentz().to(setting.device)
    size = (batch, heads, length, coordinates - 1)
    points = [leaf(sheet.expmap0(vectors(*size, setting=setting))) for _ in range(3)]
    plain = [leaf(torch.randn(*size[:-1], coordinates, **setting.placed)) for _ in range(3)]
    gradient = torch.randn(*size[:-1], coordinates, **setting.placed)
    root = coordinates**0.5
    temperature = torch.tensor(root, dtype=torch.float64, device=setting.device)

    return Case(
        passes("SDPA", lambda: scaled_dot_product_attention(*plain), plain, gradient, compared=False),
        passes("ours", lambda: lorentz_attention(*points, temperature, sheet.c), points, gradient),
        [passes("HyboNet", lambda: peers.hybonet_attention(*points, root), points, gradient)],
    )


ROWS = [
    Row(
        f"lorentz-attention-{length}",
        f"Lorentz attention, {batch} x 8 x {length} x 64",
        attention,
        {"batch": batch, "heads": 8, "length": length, "coordinates": 64},
        {"batch": 2, "heads": 2, "length": 5, "coordinates": 4},
        gates=[Gate(gate)],
        aim=aim,
        kernels=("lorentz", "lorentz_mean"),
    )
    for batch, length, gate, aim in ((16, 64, 1.5, "1.1"), (2, 512, 1.25, "1.05"))
]
