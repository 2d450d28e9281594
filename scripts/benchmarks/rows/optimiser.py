"""Riemannian Adam (Bécigneul & Ganea 2019) on tables of points, on all rows and on those of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import geoopt
import torch
from geoopt import ManifoldParameter
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
    gradient: Callable[[Tensor], Tensor],
    compare: bool = True,
) -> Variant:
    """One step; its value is the table after the first step from `table`.

    Args: parameter: makes the parameter of a copy of the table. gradient: what the parameter gets as its gradient.
    """

    def start() -> tuple[Tensor, torch.optim.Optimizer]:
        p = parameter(table.clone())
        return p, optimiser([p])

    def step(p: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        p.grad = gradient(p)
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

    def same(p: Tensor) -> Tensor:
        return fixed

    def restored(p: Tensor) -> Tensor:
        """geoopt changes the gradient in place."""
        return gradient.clone() if p.grad is None else p.grad.copy_(gradient)

    adam = partial(torch.optim.Adam, lr=_LR, fused=True)
    riemannian = partial(geoopt.optim.RiemannianAdam, lr=_LR)
    others = [_variant("geoopt", table, partial(ManifoldParameter, manifold=theirs), riemannian, restored)]
    lib = peers.hypll()
    if lib is not None and space == "PoincareBall":
        lib.ball.to(setting.device)
        parameter = partial(lib.tensors.ManifoldParameter, manifold=lib.ball, man_dim=1)
        others.append(_variant("HypLL", table, parameter, partial(lib.optim.RiemannianAdam, lr=_LR), same))
    return Case(
        _variant("torch Adam", table, torch.nn.Parameter, adam, same, compare=False),
        _variant("ours", table, partial(ManifoldParameter, manifold=manifold), partial(RiemannianAdam, lr=_LR), same),
        others,
    )


def lazy(setting: Setting, n: int, d: int, rows: int) -> Case:
    """A step on the rows of a batch only, from the sparse gradient that an embedding leaves."""
    manifold, theirs = Lorentz().to(setting.device), geoopt.Lorentz().to(setting.device)
    table = manifold.expmap0(vectors(n, d, setting=setting, std=0.5))
    index = torch.randperm(n)[:rows].to(setting.device)
    values = torch.randn(rows, table.shape[-1], **setting.placed)

    def sparse(p: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(index.unsqueeze(0), values, p.shape, check_invariants=False)

    def restored(p: Tensor) -> Tensor:
        """geoopt changes the values in place."""
        return torch.sparse_coo_tensor(index.unsqueeze(0), values.clone(), p.shape, check_invariants=False)

    def ours(params: list[Tensor]) -> RiemannianAdam:
        return RiemannianAdam([{"params": params, "lazy": True}], lr=_LR)

    adam, riemannian = (partial(kind, lr=_LR) for kind in (torch.optim.SparseAdam, geoopt.optim.SparseRiemannianAdam))
    peer = partial(ManifoldParameter, manifold=theirs)
    return Case(
        _variant("torch SparseAdam", table, torch.nn.Parameter, adam, sparse, compare=False),
        _variant("ours", table, partial(ManifoldParameter, manifold=manifold), ours, sparse),
        # geoopt's second moment is one number for a coordinate here
        [_variant("geoopt", table, peer, riemannian, restored, compare=False)],
    )


ROWS = [
    *(
        Row(
            f"radam-{name}",
            f"Riemannian Adam, {title}, eager",
            dense,
            {"space": space, "n": n, "d": d},
            {"space": space, "n": 9, "d": 4},
            gates=[Gate(floor), Gate(geoopt_gate, against="geoopt")],
            aim=aim,
            kernels=("riemannian_steps", "riemannian_steps.triton"),
        )
        for name, title, space, n, d, floor, geoopt_gate, aim in (
            ("lorentz", "Lorentz 40,943 x 33", "Lorentz", 40_943, 32, 4.5, 0.3, "1.5"),
            ("poincare", "Poincaré 100,000 x 100", "PoincareBall", 100_000, 100, 2.5, 0.15, "1.0"),
        )
    ),
    Row(
        "lazy-rows",
        "lazy rows, 1,000 of 40,943 x 33, Lorentz",
        lazy,
        {"n": 40_943, "d": 32, "rows": 1000},
        {"n": 9, "d": 4, "rows": 3},
        gates=[Gate(1.0)],
        aim="0.6",
        kernels=("riemannian_steps", "riemannian_steps.triton"),
    ),
]
