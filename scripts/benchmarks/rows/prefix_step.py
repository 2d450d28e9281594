"""A training step of the PREFIX network (Ganea et al. 2018, section 4), and of its Euclidean twin.

The floor is the twin on the project's layers, with PyTorch's fused Adam; both read the same pairs of sentences.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import Geometry, make_geometry
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import place, training_step
from tasks.prefix.pairs import generate
from tasks.sentence_pairs import SentencePairClassifier

_LR = 0.01
_CLIP = 1.0
_NOISE = 10  # percent of a prefix that is redrawn


def _network(geometry: Geometry, vocabulary: int, d: int) -> nn.Module:
    gru = partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
    return SentencePairClassifier(geometry, gru, vocabulary + 1, 2, d, d, d, 0.001, distance=True, join="mobius")


def step(setting: Setting, batch: int, vocabulary: int, words: int, d: int) -> Case:
    """Loss of a batch of pairs, gradients, clipping and optimiser."""
    pairs = generate(batch, _NOISE, vocabulary, words, [0])[torch.arange(batch)]
    sentences, lengths, labels = (pairs[name].to(setting.device) for name in ("words", "lengths", "labels"))

    def variant(name: str, geometry: Geometry, plain: bool, compiled: bool) -> Variant:
        model = place(_network(geometry, vocabulary, d), setting, compiled)
        return training_step(
            name, model, lambda model: cross_entropy(model(sentences, lengths), labels), _LR, _CLIP, plain
        )

    def twin(name: str, compiled: bool = False) -> Variant:
        return variant(name, make_geometry("euclidean", "Euclidean", "euclidean"), True, compiled)

    def ours(name: str, compiled: bool = False) -> Variant:
        return variant(name, make_geometry("poincare", "PoincareBall", "mobius", c=1.0), False, compiled)

    compiled = [twin("Euclidean twin, compiled", True), ours("ours, compiled", True)] if setting.compiles else []
    return Case(twin("Euclidean twin"), ours("ours"), compiled)


ROWS = [
    Row(
        "prefix-step",
        "training step, PREFIX network, 512 pairs of up to 20 words, d 5",
        step,
        {"batch": 512, "vocabulary": 100, "words": 20, "d": 5},
        {"batch": 4, "vocabulary": 9, "words": 4, "d": 3},
        gates=[Gate(2.5), Gate(1.3, device="cuda")],
        aim="1.3",
        kernels=(
            *("recurrent", "mobius_gru", "mobius", "mobius_affine", "mlr", "mlr_logits", "mlr_lift_hyperplanes"),
            *("riemannian_steps", "recurrent.triton", "riemannian_steps.triton"),
        ),
    )
]
