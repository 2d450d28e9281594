"""The Möbius GRU over a sequence (Ganea et al. 2018, Eq. 29-31)."""

from __future__ import annotations

import torch
from torch import nn

from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from scripts.benchmarks import peers
from scripts.benchmarks.measure import Case
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, vectors


def gru(setting: Setting, batch: int, steps: int, d_in: int, d_hidden: int) -> Case:
    """All states of a one-directional GRU."""
    ball = PoincareBall().to(setting.device)
    x = leaf(ball.expmap0(vectors(batch, steps, d_in, setting=setting, std=0.5)))
    x_first = leaf(x.transpose(0, 1))  # the layout that torch's GRU prefers
    gradient = torch.randn(batch, steps, d_hidden, **setting.placed)
    floor = nn.GRU(d_in, d_hidden).to(**setting.placed)
    layer = mobius.GRU(PoincareBall(), d_in, d_hidden, bias_std=0.1).to(**setting.placed)
    weights = [leaf(w[0]) for w in (layer.weight_ih, layer.weight_hh, layer.bias)]

    first = gradient.transpose(0, 1).contiguous()
    return Case(
        passes("torch.nn.GRU", lambda: floor(x_first)[0], [x_first, *floor.parameters()], first, compared=False),
        passes("ours", lambda: layer(x)[0], [x, *layer.parameters()], gradient),
        [passes("HyFi", lambda: peers.hyfi_gru(x, *weights), [x, *weights], gradient)],
    )


_GRU = Row(
    "mobius-gru",
    "Möbius GRU, 25 steps, batch 350, 100→50",
    gru,
    {"batch": 350, "steps": 25, "d_in": 100, "d_hidden": 50},
    {"batch": 3, "steps": 4, "d_in": 5, "d_hidden": 4},
    gates=[Gate(5.5)],
    aim="3",
    kernels=("recurrent", "mobius_gru", "recurrent.triton"),
)

ROWS = [_GRU]
