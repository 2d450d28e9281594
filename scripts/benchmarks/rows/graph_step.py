"""A training step of knowledge-graph completion: HyboNet (Chen et al. 2022) and a Euclidean bilinear score (RESCAL).

The floor is RESCAL as one writes it in PyTorch, with its fused Adam; "bilinear score, our parts" is the same model with
the project's tables, products and optimiser, which HyboNet has too. The bilinear twin has HyboNet's biases as well,
so that the gate on a GPU, which is against a Euclidean twin, is against this one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from hyperbolic.encoders.relational.bilinear import Bilinear
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.geometry import Geometry, make_geometry
from hyperbolic.kernels.relation_linear import relation_linear
from hyperbolic.kernels.table_products import table_products
from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.optim import RiemannianAdam, parameter_groups
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import place

_RELATIONS = 22  # WN18RR's, with their reciprocals
_LR = 0.005
_STEPS = 10  # at a time: one after another, as in training, where no other model's tables were in the cache before


class _Rescal(nn.Module):
    """``<W_r e_h, e_t>`` with a matrix for each relation (Nickel et al. 2011)."""

    def __init__(self, n_entities: int, n_relations: int, d: int):
        super().__init__()
        self.entity = nn.Embedding(n_entities, d)
        self.matrix = nn.Parameter(torch.randn(n_relations, d, d) / d**0.5)

    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        query = torch.bmm(self.matrix[r], self.entity(h).unsqueeze(-1))
        return torch.bmm(self.entity(t), query).squeeze(-1)


class _OurRescal(Bilinear):
    """The same."""

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, d: int):
        super().__init__(geometry, n_entities, n_relations, False, d, 1)
        self.relation = None
        self.matrix = nn.Parameter(torch.randn(n_relations, d, d) / d**0.5)

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return relation_linear(self.entity(h), self.matrix, r, self.sparse)


class _Twin(_OurRescal):
    """``<W_r e_h + b_r, e_t> + b_h + b'_t``."""

    def __init__(self, geometry: Geometry, n_entities: int, n_relations: int, d: int):
        super().__init__(geometry, n_entities, n_relations, d)
        self.bias = nn.Parameter(torch.zeros(n_relations, d))
        self.head_bias, self.tail_bias = (nn.Parameter(torch.zeros(n_entities, 1)) for _ in range(2))

    def query(self, h: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return super().query(h, r) + table_rows(self.bias, r, self.sparse), table_rows(self.head_bias, h, self.sparse)

    def compare(self, query: tuple[Tensor, Tensor], r: Tensor, t: Tensor) -> Tensor:
        y, shift = query
        return shift + table_products(y, self.entity.weight, t, self.tail_bias, self.sparse)


_TWIN = "bilinear twin, our parts"
_PEERS = {"bilinear score, our parts": _OurRescal, _TWIN: _Twin}


def step(setting: Setting, batch: int, negatives: int, entities: int, d: int) -> Case:
    """Scores of a batch with its negatives, loss, gradients and optimiser; all have d + 1 numbers for an entity."""
    h = torch.randint(entities, (batch,), device=setting.device)
    r = torch.randint(_RELATIONS, (batch,), device=setting.device)
    t = torch.randint(entities, (batch, 1 + negatives), device=setting.device)
    labels = torch.zeros(t.shape, **setting.placed)
    labels[:, 0] = 1
    flat = make_geometry("euclidean", "Euclidean", "euclidean")

    def variant(name: str, model: nn.Module, plain: bool = False, compiled: bool = False) -> Variant:
        model = place(model, setting, compiled)
        optimiser = (
            torch.optim.Adam(model.parameters(), lr=_LR, fused=True)
            if plain
            else RiemannianAdam(parameter_groups(model), lr=_LR)
        )

        def run() -> None:
            for _ in range(_STEPS):
                optimiser.zero_grad()
                binary_cross_entropy_with_logits(model(h, r, t), labels).backward()
                optimiser.step()

        return Variant(name, run, share=_STEPS)

    def ours() -> HyboNet:
        lorentz = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)  # of its own: it moves with the model
        return HyboNet(lorentz, entities, _RELATIONS, False, d, False, 2.0, 8.0, 1.5)

    peers = [variant(name, kind(flat, entities, _RELATIONS, d + 1)) for name, kind in _PEERS.items()]
    if setting.compiles:
        peers.append(variant(f"{_TWIN}, compiled", _Twin(flat, entities, _RELATIONS, d + 1), compiled=True))
        peers.append(variant("ours, compiled", ours(), compiled=True))
    return Case(
        variant("bilinear score", _Rescal(entities, _RELATIONS, d + 1), plain=True), variant("ours", ours()), peers
    )


ROWS = [
    Row(
        "kg-step",
        "training step, HyboNet on WN18RR, 1,000 x 51, d 32",
        step,
        {"batch": 1000, "negatives": 50, "entities": 40_943, "d": 32},
        {"batch": 5, "negatives": 2, "entities": 9, "d": 4},
        gates=[Gate(1.1), *(Gate(1.1, name) for name in _PEERS), Gate(1.3, _TWIN, device="cuda")],
        aim="1.0",
        kernels=("relation_scores", "riemannian_steps"),
    )
]
