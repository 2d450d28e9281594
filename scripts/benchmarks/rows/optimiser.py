"""Riemannian Adam (Bécigneul & Ganea 2019) on tables of points, on all rows and on those of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import geoopt
import torch
from torch import Tensor

from hyperbolic.manifolds import Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam
from scripts.benchmarks import peers
from scripts.benchmarks.measure import Case, Variant
from scripts.benchmarks.row import Gate, Row, Setting
from scripts.benchmarks.work import vectors

_LR = 1e-3


def _variant(
    name: str,
    table: Tensor,
    parameter: Callable[[Tensor], Tensor],
    optimiser: Callable[[list[Tensor]], torch.optim.Optimizer],
    gradient: Callable[[Tensor], None],
    compare: bool = True,
) -> Variant:
    """One step; its value is the table after the first step from `table`.

    Args: parameter: makes the parameter of a copy of the table. gradient: gives the parameter its gradient.
    """

    def start() -> tuple[Tensor, torch.optim.Optimizer]:
        p = parameter(table.clone())
        return p, optimiser([p])

    def step(p: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        gradient(p)
        optimizer.step()
        return p

    p, optimizer = start()
    return Variant(
        name,
        lambda: step(p, optimizer),
        (lambda: getattr(moved := step(*start()), "tensor", moved).detach().as_subclass(Tensor)) if compare else None,
        tolerance=1e-5,
    )


def dense(setting: Setting, space: str, n: int, d: int) -> Case:
    """A step on all rows of a table."""
    manifold = {"Lorentz": Lorentz, "PoincareBall": PoincareBall}[space]().to(setting.device)
    theirs = {"Lorentz": geoopt.Lorentz, "PoincareBall": geoopt.PoincareBall}[space]().to(setting.device)
    table = manifold.expmap0(vectors(n, d, setting=setting, std=0.5))
    gradient = torch.randn_like(table)
    fixed = gradient.clone()

    def same(p: Tensor) -> None:
        p.grad = fixed

    def restored(p: Tensor) -> None:
        """geoopt changes the gradient in place."""
        p.grad = gradient.clone() if p.grad is None else p.grad.copy_(gradient)

    variants = [
        _variant("torch Adam", table, torch.nn.Parameter, _adam, same, compare=False),
        _variant("ours", table, lambda x: geoopt.ManifoldParameter(x, manifold=manifold), _ours, same),
        _variant("geoopt", table, lambda x: geoopt.ManifoldParameter(x, manifold=theirs), _geoopt, restored),
    ]
    lib = peers.hypll()
    if lib is not None and space == "PoincareBall":
        lib.ball.to(setting.device)
        variants.append(
            _variant(
                "HypLL",
                table,
                lambda x: lib.tensors.ManifoldParameter(x, manifold=lib.ball, man_dim=1),
                lambda params: lib.optim.RiemannianAdam(params, lr=_LR),
                same,
            )
        )
    return Case(variants[0], variants[1], variants[2:])


def _adam(params: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=_LR, foreach=True)


def _ours(params: list[Tensor]) -> torch.optim.Optimizer:
    return RiemannianAdam(params, lr=_LR)


def _geoopt(params: list[Tensor]) -> torch.optim.Optimizer:
    return geoopt.optim.RiemannianAdam(params, lr=_LR)


def lazy(setting: Setting, n: int, d: int, rows: int) -> Case:
    """A step on the rows of a batch only, from the sparse gradient that an embedding leaves."""
    manifold = Lorentz().to(setting.device)
    table = manifold.expmap0(vectors(n, d, setting=setting, std=0.5))
    index = torch.randperm(n)[:rows].to(setting.device)
    values = torch.randn(rows, table.shape[-1], **setting.placed)

    def sparse(p: Tensor) -> None:
        p.grad = torch.sparse_coo_tensor(index.unsqueeze(0), values, p.shape, check_invariants=False)

    def restored(p: Tensor) -> None:
        """geoopt changes the values in place."""
        p.grad = torch.sparse_coo_tensor(index.unsqueeze(0), values.clone(), p.shape, check_invariants=False)

    return Case(
        _variant(
            "torch SparseAdam",
            table,
            torch.nn.Parameter,
            lambda params: torch.optim.SparseAdam(params, lr=_LR),
            sparse,
            compare=False,
        ),
        _variant(
            "ours",
            table,
            lambda x: geoopt.ManifoldParameter(x, manifold=manifold),
            lambda params: RiemannianAdam([{"params": params, "lazy": True}], lr=_LR),
            sparse,
        ),
        [
            _variant(
                "geoopt",
                table,
                lambda x: geoopt.ManifoldParameter(x, manifold=geoopt.Lorentz().to(setting.device)),
                lambda params: geoopt.optim.SparseRiemannianAdam(params, lr=_LR),
                restored,
                compare=False,  # its second moment is one number for a coordinate here
            )
        ],
    )


_LORENTZ = Row(
    "radam-lorentz",
    "Riemannian Adam, Lorentz 40,943 x 33, eager",
    dense,
    {"space": "Lorentz", "n": 40_943, "d": 32},
    {"space": "Lorentz", "n": 9, "d": 4},
    gates=[Gate(4.5), Gate(0.3, against="geoopt")],
    aim="1.5",
)
_POINCARE = Row(
    "radam-poincare",
    "Riemannian Adam, Poincaré 100,000 x 100, eager",
    dense,
    {"space": "PoincareBall", "n": 100_000, "d": 100},
    {"space": "PoincareBall", "n": 9, "d": 4},
    gates=[Gate(2.5), Gate(0.15, against="geoopt")],
    aim="1.0",
)


def _compiled(row: Row, limit: float) -> Row:
    gates = [Gate(limit), *row.gates[1:]]
    title = row.title.replace("eager", "compiled")
    return replace(row, name=f"{row.name}-compiled", title=title, gates=gates, compiled=True)


ROWS = [
    _LORENTZ,
    _POINCARE,
    _compiled(_LORENTZ, 4.0),
    _compiled(_POINCARE, 1.4),
    Row(
        "lazy-rows",
        "lazy rows, 1,000 of 40,943 x 33, Lorentz",
        lazy,
        {"n": 40_943, "d": 32, "rows": 1000},
        {"n": 9, "d": 4, "rows": 3},
        gates=[Gate(1.0)],
        aim="0.6",
    ),
]
