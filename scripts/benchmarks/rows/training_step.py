"""A whole training step of the entity typing model of Lopez & Strube 2020 (BASE), and of its Euclidean twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry, make_geometry
from hyperbolic.manifolds import PoincareBall
from hyperbolic.optim import RiemannianAdam
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import Pass, leaf, place, vectors

_SLOTS, _CHARACTERS, _STEPS = 5, 10, 25  # words of a mention, its characters, words of its context
_ALPHABET = 100
_CLIP = 5.0


class EntityTyper(nn.Module):
    """Mention, characters and context encoded apart, concatenated, classified: sizes s, 2s and 5s of the paper.

    Args: geometry: of all layers. words: size of a word vector. s: size of a part. classes: number of types.
    """

    def __init__(self, geometry: Geometry, words: int, s: int, classes: int):
        super().__init__()
        self.mention = geometry.linear(words, 2 * s)
        self.tanh = geometry.activation("tanh")
        self.mention_attention = geometry.attention(2 * s, n_positions=_SLOTS + 1)
        self.characters = geometry.embedding(_ALPHABET, s)
        self.spelling = geometry.rnn(s, s, nonlinearity="identity")
        self.midpoint = geometry.centroid()
        self.context = geometry.gru(words, s, nonlinearity="tanh", bidirectional=True)
        self.context_attention = geometry.attention(2 * s, n_positions=2 * _STEPS + 2)
        self.concat = geometry.concat((2 * s, 2 * s, s), 5 * s)
        self.types = geometry.logits(5 * s, classes)

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch: mean binary cross entropy over all types."""
        results = {}
        for name, needs, compute in self.parts(batch):
            results[name] = compute(*(results[need] for need in needs))
        return results["MLR + BCE"]

    def parts(self, batch: Batch) -> list[tuple[str, tuple[str, ...], Callable[..., Tensor]]]:
        """The parts of the forward pass in turn: name, names of the parts whose results it takes, function of these."""
        return [
            ("mention", (), lambda: self.tanh(self.mention(batch.mention))),
            ("mention attention", ("mention",), lambda x: self.mention_attention(x, batch.mention_positions)[0]),
            ("characters", (), lambda: self.midpoint(self.spelling(self.characters(batch.characters))[0])),
            ("context GRU", (), lambda: self.context(batch.context)[0]),
            ("context attention", ("context GRU",), lambda x: self.context_attention(x, batch.context_positions)[0]),
            ("concat", ("mention attention", "context attention", "characters"), self.concat),
            ("MLR + BCE", ("concat",), lambda x: self.types.bce(x, batch.targets)),
        ]


@dataclass
class Batch:
    """mention (B, 5, words) and context (B, 25, words) word vectors, characters (B, 10), targets (B, L), positions."""

    mention: Tensor
    context: Tensor
    characters: Tensor
    targets: Tensor
    mention_positions: Tensor
    context_positions: Tensor


def _batch(setting: Setting, size: int, words: int, classes: int) -> Batch:
    """Word vectors in the tangent space at the origin."""
    index = {"device": setting.device}
    return Batch(
        vectors(size, _SLOTS, words, setting=setting, std=0.5),
        vectors(size, _STEPS, words, setting=setting, std=0.5),
        torch.randint(_ALPHABET, (size, _CHARACTERS), **index),
        torch.rand(size, classes).topk(5).indices.to(setting.device),
        torch.arange(1, _SLOTS + 1, **index).expand(size, -1),
        torch.arange(1, _STEPS + 1, **index).expand(size, -1),
    )


@dataclass
class Step:
    """A training step. Args: clip: clips the gradients; ours does so itself."""

    model: EntityTyper
    optimiser: torch.optim.Optimizer
    batch: Batch
    clip: bool

    def __call__(self) -> Tensor:
        self.optimiser.zero_grad()
        loss = self.model(self.batch)
        loss.backward()
        self.update()
        return loss

    def update(self) -> None:
        """Clipping and optimiser."""
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), _CLIP, foreach=True)
        self.optimiser.step()

    def parts(self) -> dict[str, Callable[[], object]]:
        """Forward and backward pass of each part of the model by itself, then clipping and optimiser."""
        parameters = list(self.model.parameters())
        self()
        gradients = [parameter.grad.clone() for parameter in parameters]
        results, runs = {}, {}
        for name, needs, compute in self.model.parts(self.batch):
            inputs = [leaf(results[need]) for need in needs]
            results[name] = compute(*inputs).detach()
            gradient = torch.randn_like(results[name])
            runs[name] = Pass(partial(compute, *inputs), [*inputs, *parameters], gradient)

        def update() -> None:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            self.update()

        return {**runs, "optimiser": update}


def step(setting: Setting, batch: int, words: int, s: int, classes: int) -> Case:
    """Forward pass, backward pass, clipping and optimiser, after Lopez & Strube's settings."""
    flat = _batch(setting, batch, words, classes)
    ball = PoincareBall().to(setting.device)
    curved = replace(flat, mention=ball.expmap0(flat.mention), context=ball.expmap0(flat.context))

    def euclidean(compiled: bool = False) -> Step:
        geometry = make_geometry("euclidean", "Euclidean", "euclidean")
        model = place(EntityTyper(geometry, words, s, classes), setting, compiled)
        return Step(model, torch.optim.Adam(model.parameters(), lr=5e-4, fused=True), flat, clip=True)

    def poincare(compiled: bool = False) -> Step:
        geometry = make_geometry("poincare", "PoincareBall", "mobius", c=1.0)
        model = place(EntityTyper(geometry, words, s, classes), setting, compiled)
        optimiser = RiemannianAdam(model.parameters(), lr=5e-4, max_grad_norm=_CLIP)
        return Step(model, optimiser, curved, clip=False)

    floor, ours, peers = euclidean(), poincare(), []
    if setting.compiles:
        twin = Variant("Euclidean twin, compiled", euclidean(compiled=True))
        peers = [twin, Variant("ours, compiled", poincare(compiled=True))]

    def parts() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
        first, second = floor.parts(), ours.parts()
        return {name: (first[name], second[name]) for name in first}

    return Case(Variant("Euclidean twin", floor), Variant("ours", ours), peers, parts=parts)


_STEP = Row(
    "training-step",
    "whole training step, HyFi BASE, batch 900",
    step,
    {"batch": 900, "words": 100, "s": 20, "classes": 10_331},
    {"batch": 3, "words": 6, "s": 4, "classes": 11},
    gates=[Gate(1.5), Gate(1.3, device="cuda")],
    aim="1.1",
    kernels=("recurrent", "mobius_gru", "mobius_rnn", "mobius", "mobius_affine", "losses", "streamed_bce"),
)

ROWS = [_STEP]
