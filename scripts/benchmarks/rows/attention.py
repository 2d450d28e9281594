"""Lorentz attention of many heads (HyboNet, Eq. 5 and 6) beside the dot-product attention of PyTorch."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from hyperbolic.kernels.lorentz import lorentz_attention
from hyperbolic.manifolds import Lorentz
from scripts.benchmarks import peers
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import forward_backward, leaf, vectors


def attention(setting: Setting, batch: int, heads: int, length: int, coordinates: int) -> Case:
    """Queries, keys and values to centroids, with all three gradients."""
    sheet = Lorentz().to(setting.device)
    size = (batch, heads, length, coordinates - 1)
    points = [leaf(sheet.expmap0(vectors(*size, setting=setting))) for _ in range(3)]
    plain = [leaf(torch.randn(*size[:-1], coordinates, **setting.placed)) for _ in range(3)]
    gradient = torch.randn(*size[:-1], coordinates, **setting.placed)
    root = coordinates**0.5
    temperature = torch.tensor(root, dtype=torch.float64, device=setting.device)

    def ours():
        return lorentz_attention(*points, temperature, sheet.c)

    def hybonet():
        return peers.hybonet_attention(*points, root)

    return Case(
        Variant("SDPA", forward_backward(lambda: scaled_dot_product_attention(*plain), plain, gradient)),
        Variant("ours", forward_backward(ours, points, gradient), lambda: ours().detach()),
        [Variant("HyboNet", forward_backward(hybonet, points, gradient), lambda: hybonet().detach())],
    )


_TINY = {"batch": 2, "heads": 2, "length": 5, "coordinates": 4}

ROWS = [
    Row(
        "lorentz-attention-64",
        "Lorentz attention, 16 x 8 x 64 x 64",
        attention,
        {"batch": 16, "heads": 8, "length": 64, "coordinates": 64},
        _TINY,
        gates=[Gate(1.5)],
        aim="1.1",
    ),
    Row(
        "lorentz-attention-512",
        "Lorentz attention, 2 x 8 x 512 x 64",
        attention,
        {"batch": 2, "heads": 8, "length": 512, "coordinates": 64},
        _TINY,
        gates=[Gate(1.25)],
        aim="1.05",
    ),
]
