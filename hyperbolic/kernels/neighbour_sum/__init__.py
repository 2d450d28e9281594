"""Sums over the neighbours of the nodes of a graph, as products with sparse matrices by rows."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.kernels.neighbour_sum import plain
from hyperbolic.native import checked_index
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

with warnings.catch_warnings():  # PyTorch says once in a process that this layout is in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([]).long(), torch.tensor([]), (1, 1))


def neighbour_sum(
    x: Tensor, weights: Tensor, target: Tensor, source: Tensor, offsets: Tensor, reverse_offsets: Tensor,
    reverse_target: Tensor, order: Tensor, n_targets: int,
) -> Tensor:  # fmt: skip
    """``y_i = sum_j w_ij x_j`` over the pairs (i, j) of a graph: x (M, D), weights (E,) -> (N, D), 0 without any pair.

    Args:
        target, source: int64 (E,), the ends i and j of each pair, target sorted. offsets: (N+1,), where the pairs of
            each target begin. order: (E,), the pairs sorted by their source; reverse_target: (E,), their targets in
            this order; reverse_offsets: (M+1,), where those of each source begin. n_targets: N.
            :class:`~hyperbolic.layers.neighbours.Neighbours` makes them all. Others raise IndexError in eager code.
    """
    pairs = (target, source, offsets, reverse_offsets, reverse_target, order)
    if not switch.is_followed(x, weights, *pairs):
        NeighbourSum.check(x, weights, *pairs, n_targets)
    y: Tensor = NeighbourSum.run(x, weights, *pairs, n_targets)
    return y


@operator(
    "neighbour_sum(Tensor x, Tensor weights, Tensor target, Tensor source, Tensor offsets, Tensor reverse_offsets, "
    "Tensor reverse_target, Tensor order, int n_targets) -> Tensor"
)
class NeighbourSum(Operator):
    """The product with a sparse matrix, by whose transpose the gradient comes."""

    plain = staticmethod(plain.sums)
    fuses = False  # a sparse product is one kernel

    @staticmethod
    def fits(x: Tensor, weights: Tensor, target: Tensor, source: Tensor, *others: Any) -> bool:
        """Sparse products look at no index."""
        offsets, reverse_offsets, reverse_target, order, n_targets = others
        pairs = (target, source, reverse_target, order)
        of_pairs = all(t.shape == weights.shape for t in pairs)
        is_whole = all(t.dtype is torch.int64 for t in (*pairs, offsets, reverse_offsets))
        ends = x.dim() == 2 and offsets.shape == (n_targets + 1,) and reverse_offsets.shape == (len(x) + 1,)
        dtypes_fit = x.dtype is weights.dtype and x.dtype in (torch.float32, torch.float64)
        return ends and of_pairs and is_whole and dtypes_fit

    @staticmethod
    def check(x: Tensor, weights: Tensor, *others: Any) -> None:
        """Raises IndexError for what is out of range, where sparse products would read outside of x."""
        *index, n_targets = others
        m = len(weights)
        for t, n in zip(index, (n_targets, len(x), m + 1, m + 1, n_targets, m), strict=True):
            if len(t):
                checked_index(t, n, "neighbour_sum", "rows")

    @staticmethod
    def forward(ctx: Context, x: Tensor, weights: Tensor, *at: Any) -> Tensor:
        _, source, offsets, *_, n_targets = at
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else x.new_empty(0), weights, *at[:-1])
        ctx.n_sources = len(x)
        return _matrix(offsets, source, weights, (n_targets, len(x))) @ x

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, target, source, _, reverse_offsets, reverse_target, order = ctx.saved_tensors
        grad_x = grad_weights = None
        if ctx.needs_input_grad[0]:
            grad_x = _matrix(reverse_offsets, reverse_target, weights[order], (ctx.n_sources, len(grad))) @ grad
        if ctx.needs_input_grad[1]:
            grad_weights = (grad[target] * x[source]).sum(-1)
        return grad_x, grad_weights, *(None for _ in range(7))


def _matrix(offsets: Tensor, index: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(offsets, index, values, shape, check_invariants=False)
