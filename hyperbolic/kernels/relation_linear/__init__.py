"""Products of rows with matrices of their own, of which many rows share one: ``y_i = W_{r_i} x_i``.

With one (d_out, d_in) matrix for each relation of a knowledge graph, gathering a matrix for every row costs
B d_out d_in numbers: 1 GB for a batch of 1,000 at d = 500. Here large products go relation by relation (in compiled
code with fast kernels only), small ones are one batched product of gathered matrices. On a GPU nearly all are small: on
an H100 the rows of one relation after another took 90 times as long as the batched product of the benchmark's row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.relation_linear import plain
from hyperbolic.operator import Operator, operator
from hyperbolic.switch import is_followed
from hyperbolic.typing import Context, Function

GATHERED = 1 << 22  # entries of gathered matrices, up to which one batched product is faster on a CPU
GATHERED_ON_GPU = 1 << 28  # and elsewhere, where its memory is the limit


def relation_linear(x: Tensor, weight: Tensor, r: Tensor, sparse: bool = False) -> Tensor:
    """``y_i = W_{r_i} x_i``: x (B, d_in), weight (R, d_out, d_in), r long (B,) -> (B, d_out), of the dtype of weight.

    Args: sparse: the gradient of the weight is a sparse tensor of the matrices used, for an optimiser with
        ``lazy=True``; in traced code it is dense.

    Raises:
        ValueError: sizes or dtypes that do not fit. IndexError: a matrix that is not there.
    """
    if r.shape != x.shape[:1] or x.shape[1:] != weight.shape[2:] or weight.dim() != 3:
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, weight, r))
        raise ValueError(f"relation_linear: takes x (B, d_in), weight (R, d_out, d_in) and r (B,), got {shapes}")
    if x.dtype is not weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"relation_linear: x is {x.dtype} and weight {weight.dtype}; make them one dtype")
    if sparse and not is_followed(x, weight):
        used, r = torch.unique(r.long(), return_inverse=True)
        weight = _Used.apply(weight, used)
    y: Tensor = RelationLinear.run(x.to(weight.dtype), weight, r)
    return y


def gathers(r: Tensor, weight: Tensor) -> bool:
    """Whether the matrices of all rows are gathered."""
    return len(r) * weight.shape[1] * weight.shape[2] <= (GATHERED if weight.is_cpu else GATHERED_ON_GPU)


def by_relation(r: Tensor) -> list[tuple[int, Tensor]]:
    """Each relation of a batch once, in order, with the places (n,) where it stands."""
    order = r.argsort(stable=True)
    values, counts = torch.unique_consecutive(r[order], return_counts=True)
    return list(zip(values.tolist(), order.split(counts.tolist()), strict=True))


class _Used(Function[Tensor]):
    """Matrices of which each is used, and their gradient as a sparse tensor."""

    @staticmethod
    def forward(ctx: Context, weight: Tensor, used: Tensor) -> Tensor:
        ctx.save_for_backward(used)
        ctx.size = weight.shape
        return weight.detach().as_subclass(Tensor).index_select(0, used)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None]:
        (used,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(used[None], grad, ctx.size, is_coalesced=True, check_invariants=False), None


@operator("relation_linear(Tensor x, Tensor weight, Tensor r) -> Tensor")
class RelationLinear(Operator):
    """The passes make one product for each relation of the batch."""

    anywhere = True
    plain = staticmethod(plain.products)

    @staticmethod
    def fits(x: Tensor, weight: Tensor, r: Tensor) -> bool:
        sizes_fit = weight.dim() == 3 and x.dim() == 2 and r.shape == x.shape[:1]
        return sizes_fit and r.dtype in (torch.int64, torch.int32) and not gathers(r, weight)

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, r: Tensor) -> Tensor:
        ctx.groups = by_relation(r)
        ctx.save_for_backward(x, weight)
        if ctx.groups and ctx.groups[0][0] < 0:  # which would count from the end
            raise IndexError(f"relation_linear: index {ctx.groups[0][0]} is out of range of {len(weight)} matrices")
        weight = weight.detach().as_subclass(Tensor)
        y = x.new_empty(len(x), weight.shape[1])
        for relation, rows in ctx.groups:
            y[rows] = x[rows] @ weight[relation].T
        return y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for relation, rows in ctx.groups:
            if grad_x is not None:
                grad_x[rows] = grad[rows] @ weight[relation]
            if grad_weight is not None:
                grad_weight[relation] = grad[rows].T @ x[rows]
        return grad_x, grad_weight, None
