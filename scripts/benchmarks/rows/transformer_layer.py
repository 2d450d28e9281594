"""An encoder layer of HyboNet's Transformer (Chen et al. 2022), its Euclidean twin, and PyTorch's own layer.

The floor is the twin on the project's layers; all have heads, feed-forward block and no dropout of the same sizes.
"""

from __future__ import annotations

import torch
from torch import nn

from hyperbolic.encoders.transformer_layers import TransformerEncoderLayer
from hyperbolic.geometry import make_geometry
from hyperbolic.manifolds import Lorentz
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import leaf, passes, place, vectors


def layer(setting: Setting, sentences: int, words: int, d: int, n_heads: int, d_feed_forward: int) -> Case:
    """Forward and backward pass, with the gradient of the input; on a CPU of an eighth of the sentences."""
    if setting.device.type == "cpu":
        sentences = max(sentences // 8, 1)
    plain = vectors(sentences, words, d, setting=setting)
    points = Lorentz().to(setting.device).expmap0(plain)

    def variant(name: str, network: nn.Module, x: torch.Tensor, compiled: bool = False) -> Variant:
        network, x = place(network, setting, compiled), leaf(x)
        gradient = torch.randn_like(x)
        return passes(name, lambda: network(x), [x, *network.parameters()], gradient, compared=False)

    sizes = (d, n_heads, d_feed_forward, 0.0, 0.0, "post")
    flat = make_geometry("euclidean", "Euclidean", "euclidean")
    lorentz = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)
    theirs = nn.TransformerEncoderLayer(d, n_heads, d_feed_forward, 0.0, batch_first=True)
    peers = [variant("torch.nn.TransformerEncoderLayer", theirs, plain)]
    if setting.compiles:
        peers += [
            variant("Euclidean twin, compiled", TransformerEncoderLayer(flat, *sizes), plain, compiled=True),
            variant("ours, compiled", TransformerEncoderLayer(lorentz, *sizes), points, compiled=True),
        ]
    return Case(
        variant("Euclidean twin", TransformerEncoderLayer(flat, *sizes), plain),
        variant("ours", TransformerEncoderLayer(lorentz, *sizes), points),
        peers,
    )


ROWS = [
    Row(
        "transformer-layer",
        "HyboNet's Transformer layer, 64 x 64 words (8 x 64 on a CPU), d 512, 8 heads",
        layer,
        {"sentences": 64, "words": 64, "d": 512, "n_heads": 8, "d_feed_forward": 2048},
        {"sentences": 2, "words": 3, "d": 4, "n_heads": 2, "d_feed_forward": 8},
        gates=[Gate(1.6), Gate(1.3, device="cuda")],
        aim="1.15",
        kernels=("lorentz", "lorentz_linear", "lorentz_mean"),
    )
]
