"""A training step of translation: HyboNet's Transformer (Chen et al. 2022), its Euclidean twin, and PyTorch's.

The floor is the Euclidean Transformer on the project's layers, with PyTorch's fused Adam; all have the same sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import Geometry, make_geometry
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import training_step

_LR = 1e-4
_SMOOTHING = 0.1
_CLIP = 0.5


class _Translator(nn.Module):
    """Tables of source and target words, encoder and decoder, and logits of the next word."""

    def __init__(
        self, geometry: Geometry, vocabulary: int, d: int, n_heads: int, n_layers: int, length: int, dropout: float
    ):
        super().__init__()
        self.source, self.target = (geometry.embedding(vocabulary, d) for _ in range(2))
        settings = {
            "n_layers": n_layers,
            "n_heads": n_heads,
            "d_feed_forward": 4 * d,
            "dropout": 0.0,
            "attention_dropout": dropout,
            "n_positions": length,
            "norm": "post",
        }
        self.encoder = TransformerEncoder(geometry, d, d, **settings, streams=1)
        self.decoder = TransformerEncoder.decoder(geometry, d, d, **settings)
        self.logits = geometry.logits(d, vocabulary)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        memory, _ = self.encoder(self.source(source), lengths)
        states = self.decoder(self.target(target[:, :-1]), memory, lengths)
        loss: Tensor = self.logits.cross_entropy(states, target[:, 1:], _SMOOTHING, ignore_index=0)
        return loss


class _Torch(nn.Module):
    """The same of PyTorch's parts."""

    def __init__(self, vocabulary: int, d: int, n_heads: int, n_layers: int, length: int):
        super().__init__()
        self.source, self.target = (nn.Embedding(vocabulary, d) for _ in range(2))
        self.positions = nn.Parameter(0.02 * torch.randn(2, length, d))
        self.network = nn.Transformer(d, n_heads, n_layers, n_layers, 4 * d, 0.0, batch_first=True)
        self.logits = nn.Linear(d, vocabulary)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        n, words = source.shape[1], target[:, :-1]
        padding = torch.arange(n, device=source.device) >= lengths.unsqueeze(-1)
        later = torch.ones(words.shape[1], words.shape[1], dtype=torch.bool, device=source.device).triu(1)
        states = self.network(
            self.source(source) + self.positions[0, :n],
            self.target(words) + self.positions[1, : words.shape[1]],
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = self.logits(states).flatten(0, 1)
        return nn.functional.cross_entropy(logits, target[:, 1:].flatten(), ignore_index=0, label_smoothing=_SMOOTHING)


def step(
    setting: Setting,
    sentences: int,
    words: int,
    vocabulary: int,
    d: int,
    n_heads: int,
    n_layers: int,
    dropout: float = 0.0,
) -> Case:
    """Loss of a batch of padded sentences, gradients, clipping and optimiser. dropout: of the attention's weights; with
    it PyTorch's Transformer, which has but one dropout for all its parts, is left out."""
    place = {"device": setting.device}
    lengths = torch.randint(words // 2, words + 1, (sentences,), **place)
    lengths[0] = words
    source = torch.randint(1, vocabulary, (sentences, words), **place)
    target = torch.randint(1, vocabulary, (sentences, words + 1), **place)
    target[torch.arange(words + 1, **place) > lengths.unsqueeze(-1)] = 0
    sizes = (vocabulary, d, n_heads, n_layers, words)

    def variant(name: str, model: nn.Module, plain: bool) -> Variant:
        model = model.to(**setting.placed)
        return training_step(name, model, lambda model: model(source, lengths, target), _LR, _CLIP, plain)

    flat = make_geometry("euclidean", "Euclidean", "euclidean")
    lorentz = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0, options={"Logits": {"learn_alpha": False}})
    return Case(
        variant("Euclidean twin", _Translator(flat, *sizes, dropout), True),
        variant("ours", _Translator(lorentz, *sizes, dropout), False),
        [] if dropout else [variant("torch.nn.Transformer", _Torch(*sizes), True)],
    )


_SIZES = {"sentences": 64, "words": 20, "vocabulary": 6000, "d": 64, "n_heads": 4, "n_layers": 6}
_TINY = {"sentences": 3, "words": 4, "vocabulary": 9, "d": 4, "n_heads": 2, "n_layers": 1}
_KERNELS = ("lorentz", "lorentz_linear", "lorentz_lift", "lorentz_mean", "losses", "streamed_cross_entropy")
ROWS = [
    Row(
        "translation-step",
        "training step, HyboNet's Transformer, 64 x 20 words, d 64",
        step,
        _SIZES,
        _TINY,
        gates=[Gate(1.45), Gate(1.45, "torch.nn.Transformer")],  # on some processors as quick as the twin
        aim="1.3",
        kernels=_KERNELS,
    ),
    Row(
        "translation-step-dropout",
        "training step, HyboNet's Transformer, 64 x 20 words, d 64, attention dropout 0.1",
        step,
        _SIZES | {"dropout": 0.1},
        _TINY | {"dropout": 0.1},
        gates=[Gate(1.45)],
        aim="1.3",
        kernels=_KERNELS,
    ),
]
