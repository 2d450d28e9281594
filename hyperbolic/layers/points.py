"""Parameters of layers that are points of a manifold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_index, check_manifold, check_points, check_table
from hyperbolic.manifolds import Manifold

L = TypeVar("L", bound="PointLayer")


class PointLayer(nn.Module):
    """A layer with points among its parameters (``geoopt.ManifoldParameter``).

    They stay such where PyTorch puts plain parameters in the place of a module's, which an optimiser would take for
    flat: ``to_empty`` of a layer on the meta device, ``load_state_dict(assign=True)``, and conversions under the flags
    of ``torch.__future__``. Wrappers that shard parameters, as FSDP, are not for them.
    """

    manifold: Manifold

    def _apply(self: L, *args: Any, **kwargs: Any) -> L:
        with self._points_kept():
            super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self._points_kept():
            super()._load_from_state_dict(*args, **kwargs)

    @contextmanager
    def _points_kept(self) -> Iterator[None]:
        own = {name: p.manifold for name, p in self._parameters.items() if isinstance(p, ManifoldParameter)}
        try:
            yield
        finally:  # of some of them, where another one's conversion fails
            for name, manifold in own.items():
                p: Any = self._parameters[name]
                if type(p) is nn.Parameter:
                    p.__class__ = ManifoldParameter  # in place: others may hold the tensor
                    vars(p)["manifold"] = manifold

    def inside(self, points: Tensor) -> Tensor:
        """Parameters of the layer as points of the manifold as it is now: a learned c may have grown meanwhile, and
        only `RiemannianOptimizer` moves the points that it trains along with c."""
        return self.manifold.projx(points) if self.manifold.learn_c else points


class PointTable(PointLayer):
    """Base of tables of points: subclasses make ``weight``, (n, D).

    Raises:
        ValueError: sizes that no table has; from ``forward``, rows that it has not.
    """

    parameter_role = "embeddings"
    weight: ManifoldParameter

    def __init__(self, manifold: Manifold, n: int, d: int, padding_idx: int | None, sparse: bool):
        super().__init__()
        self.manifold, self.n, self.d, self.sparse = manifold, n, d, sparse
        check_manifold(self)
        check_table(self, n, d, padding_idx)

    extra_repr = shows("n", "d", "sparse")

    def forward(self, index: Tensor) -> Tensor:
        """Indices (...) -> points (..., D)."""
        check_index(self, index, self.n)
        return self.inside(table_rows(self.weight, index, self.sparse))

    @torch.no_grad()
    def set_points(self, points: Tensor) -> None:
        """Start from these points (n, D) of the manifold, as pretrained vectors after ``manifold.expmap0``; raises
        ValueError for another shape and for points off the manifold."""
        check_points(self, points, self.n, self.d)
        self.weight.copy_(self.manifold.projx(points))
