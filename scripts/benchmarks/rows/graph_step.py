"""A training step of knowledge-graph completion: HyboNet (Chen et al. 2022) and a Euclidean bilinear score (RESCAL)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hyperbolic.encoders.relational.bilinear import Bilinear
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import make_geometry
from hyperbolic.kernels.relation_linear import relation_linear
from hyperbolic.optim import RiemannianAdam, parameter_groups
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Row, Setting

_RELATIONS = 22  # WN18RR's, with their reciprocals
_LR = 0.005


class _Rescal(Bilinear):
    """``<W_r e_h, e_t>`` with a matrix for each relation."""

    def __init__(self, geometry: Any, n_entities: int, n_relations: int, d: int):
        super().__init__(geometry, n_entities, n_relations, False, d, 1)
        self.start_normal(0.1)
        self.relation = None
        self.matrix = nn.Parameter(torch.randn(n_relations, d, d) / d**0.5)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return relation_linear(self.entity(h), self.matrix, r, self.sparse)


def step(setting: Setting, batch: int, negatives: int, entities: int, d: int) -> Case:
    """Scores of a batch with its negatives, loss, gradients and optimiser; both have d + 1 numbers for an entity."""
    h = torch.randint(entities, (batch,), device=setting.device)
    r = torch.randint(_RELATIONS, (batch,), device=setting.device)
    t = torch.randint(entities, (batch, 1 + negatives), device=setting.device)
    labels = torch.zeros(t.shape, **setting.placed)
    labels[:, 0] = 1
    lorentz = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)
    flat = make_geometry("euclidean", "Euclidean", "euclidean")

    def variant(name: str, model: Scorer) -> Variant:
        model = model.to(**setting.placed)
        optimiser = RiemannianAdam(parameter_groups(model), lr=_LR)

        def run() -> None:
            optimiser.zero_grad()
            binary_cross_entropy_with_logits(model(h, r, t), labels).backward()
            optimiser.step()

        return Variant(name, run)

    ours = HyboNet(lorentz, entities, _RELATIONS, False, d, False, 2.0, 8.0, 1.5)
    return Case(variant("bilinear score", _Rescal(flat, entities, _RELATIONS, d + 1)), variant("ours", ours))


ROWS = [
    Row(
        "kg-step",
        "training step, HyboNet on WN18RR, 1,000 x 51, d 32",
        step,
        {"batch": 1000, "negatives": 50, "entities": 40_943, "d": 32},
        {"batch": 5, "negatives": 2, "entities": 9, "d": 4},
        aim="1.1",
    )
]
