"""Linear layers: Möbius (Ganea et al. 2018, Eq. 26) and Lorentz (HyboNet, Eq. 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.layers import lorentz, mobius
from hyperbolic.manifolds import Lorentz, PoincareBall
from scripts.benchmarks import peers
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, vectors


def mobius_linear(setting: Setting, batch: int, d: int) -> Case:
    """Forward and backward pass of a square layer, with the gradient of its input."""
    ball = PoincareBall().to(setting.device)
    x = leaf(ball.expmap0(vectors(batch, d, setting=setting, std=0.5)))
    gradient = torch.randn(batch, d, **setting.placed)
    floor = nn.Linear(d, d).to(**setting.placed)
    layer = mobius.Linear(PoincareBall(), d, d, bias_std=0.01).to(**setting.placed)
    theirs = [leaf(layer.weight), leaf(layer.bias)]
    return Case(
        passes("nn.Linear", lambda: floor(x), [x, *floor.parameters()], gradient, compared=False),
        passes("ours", lambda: layer(x), [x, *layer.parameters()], gradient),
        [
            passes("geoopt", lambda: peers.geoopt_linear(x, *theirs), [x, *theirs], gradient),
            *_hypll(x, d, gradient),
        ],
    )


def _hypll(x: Tensor, d: int, gradient: Tensor) -> list[Variant]:
    """HypLL's linear layer, which is that of HNN++ (Shimizu et al. 2021): the same work, another function."""
    lib = peers.hypll()
    if lib is None:
        return []
    layer = lib.nn.HLinear(d, d, lib.ball).to(device=x.device, dtype=x.dtype)
    points = lib.tensors.ManifoldTensor(x, manifold=lib.ball, man_dim=1)
    leaves = [x, *(p.tensor if hasattr(p, "tensor") else p for p in layer.parameters())]
    return [passes("HypLL", lambda: layer(points).tensor, leaves, gradient, compared=False)]


def lorentz_linear(setting: Setting, batch: int, coordinates: int) -> Case:
    """Forward and backward pass of a layer with square weights: all coordinates, the time coordinate included."""
    sheet = Lorentz().to(setting.device)
    d = coordinates - 1
    x = leaf(sheet.expmap0(vectors(batch, d, setting=setting)))
    gradient = torch.randn(batch, coordinates, **setting.placed)
    floor = nn.Linear(coordinates, coordinates).to(**setting.placed)
    layer = lorentz.Linear(Lorentz(), d, d).to(**setting.placed)
    with torch.no_grad():
        layer.bias.normal_(std=0.01)
    theirs = [leaf(parameter) for parameter in (layer.weight, layer.bias, layer.log_scale)]
    return Case(
        passes("nn.Linear", lambda: floor(x), [x, *floor.parameters()], gradient, compared=False),
        passes("ours", lambda: layer(x), [x, *layer.parameters()], gradient),
        [passes("HyboNet", lambda: peers.hybonet_linear(x, *theirs), [x, *theirs], gradient)],
    )


_LORENTZ = {64: (1.8, "1.4"), 256: (1.3, "1.15"), 512: (1.15, "1.05")}
_MOBIUS = {64: (3.4, "2"), 256: (2.0, "1.4"), 512: (1.5, "1.2")}

_LORENTZ_ROWS = [
    Row(
        f"lorentz-linear-{size}",
        f"Lorentz linear, 4096 x {size}",
        lorentz_linear,
        {"batch": 4096, "coordinates": size},
        {"batch": 6, "coordinates": 5},
        gates=[Gate(gate)],
        aim=aim,
        kernels=("lorentz", "lorentz_linear"),
    )
    for size, (gate, aim) in _LORENTZ.items()
]
_MOBIUS_ROWS = [
    Row(
        f"mobius-linear-{d}",
        f"Möbius linear, 4096 x {d}",
        mobius_linear,
        {"batch": 4096, "d": d},
        {"batch": 6, "d": 5},
        gates=[Gate(gate)],
        aim=aim,
        kernels=("mobius", "mobius_affine"),
    )
    for d, (gate, aim) in _MOBIUS.items()
]
ROWS = [*_LORENTZ_ROWS, *_MOBIUS_ROWS]
