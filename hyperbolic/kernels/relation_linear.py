"""Products of rows with matrices of their own, of which many rows share one: ``y_i = W_{r_i} x_i``.

With one (d_out, d_in) matrix for each relation of a knowledge graph, gathering a matrix for every row costs
B d_out d_in numbers: 1 GB for a batch of 1,000 at d = 500. Here large products go relation by relation, small ones are
one batched product of gathered matrices; the gradient of large ones is written for the relations of the batch only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import fusion
from hyperbolic.switch import is_followed
from hyperbolic.typing import Context, Function

GATHERED = 1 << 22  # entries of gathered matrices, up to which one batched product is faster


def relation_linear(x: Tensor, weight: Tensor, r: Tensor, sparse: bool = False) -> Tensor:
    """``y_i = W_{r_i} x_i``: x (B, d_in), weight (R, d_out, d_in), r long (B,) -> (B, d_out).

    Args: sparse: the gradient of the weight is a sparse tensor of the matrices used, for an optimiser with
        ``lazy=True``.

    Raises:
        ValueError: sizes or dtypes that do not fit. IndexError: a matrix that is not there.
    """
    if r.shape != x.shape[:1] or x.shape[1:] != weight.shape[2:] or weight.dim() != 3:
        raise ValueError(
            f"relation_linear: takes x (B, d_in), weight (R, d_out, d_in) and r (B,), got {tuple(x.shape)}, "
            f"{tuple(weight.shape)} and {tuple(r.shape)}"
        )
    if x.dtype is not weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"relation_linear: x is {x.dtype} and weight {weight.dtype}; make them one dtype")
    gathered = r.shape[0] * weight[0].numel() <= GATHERED
    if is_followed(x, weight) or (gathered and not sparse):
        return _gathered(x, weight, r)
    with torch.autocast(x.device.type, enabled=False):  # in which rows would have another dtype than results
        return _ByRelation.apply(x.to(weight.dtype), weight, r, sparse)


def _gathered(x: Tensor, weight: Tensor, r: Tensor) -> Tensor:
    return torch.bmm(weight.index_select(0, r.long()), x.unsqueeze(-1)).squeeze(-1)


class _ByRelation(Function[Tensor]):
    """With a sparse gradient, or of so many matrices that they go one after the other."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, r: Tensor, sparse: bool) -> Tensor:
        ctx.sparse, ctx.split = sparse, None
        if len(r) * weight[0].numel() <= GATHERED:
            ctx.save_for_backward(x, weight, r)
            return _gathered(x, weight.detach().as_subclass(Tensor), r)
        order = r.argsort(stable=True)
        values, counts = torch.unique_consecutive(r[order], return_counts=True)
        ctx.split = counts.tolist()
        ctx.save_for_backward(x, weight, r, values, order)
        weight = weight.detach().as_subclass(Tensor)
        relations = values.tolist()
        if relations and relations[0] < 0:  # which would count from the end
            raise IndexError(f"relation_linear: index {relations[0]} is out of range of {len(weight)} matrices")
        y = x.new_empty(len(x), weight.shape[1])
        for relation, rows in zip(relations, order.split(ctx.split), strict=True):
            y[rows] = x[rows] @ weight[relation].T
        return y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        if torch.is_grad_enabled():  # for a second derivative, dense
            x, weight, r = ctx.saved_tensors[:3]
            return *fusion.gradients(_gathered, (x, weight, r), [grad], ctx.needs_input_grad[:3])[:2], None, None
        grad_x = values = parts = None
        if ctx.split is None:
            x, weight, r = ctx.saved_tensors
            if ctx.needs_input_grad[0]:
                grad_x = torch.bmm(weight[r].mT, grad.unsqueeze(-1)).squeeze(-1)
            if ctx.needs_input_grad[1]:
                values, place = torch.unique(r, return_inverse=True)
                outer = grad.unsqueeze(-1) * x.unsqueeze(-2)
                parts = outer.new_zeros(len(values), *outer.shape[1:]).index_add_(0, place, outer)
        else:
            x, weight, _, values, order = ctx.saved_tensors
            groups = list(zip(values.tolist(), order.split(ctx.split), strict=True))
            if ctx.needs_input_grad[0]:
                grad_x = torch.empty_like(x)
                for relation, rows in groups:
                    grad_x[rows] = grad[rows] @ weight[relation]
            if ctx.needs_input_grad[1]:
                parts = torch.stack([grad[rows].T @ x[rows] for _, rows in groups])
        if values is None or parts is None:
            return grad_x, None, None, None
        if not ctx.sparse:
            return grad_x, torch.zeros_like(weight).index_copy_(0, values, parts), None, None
        index = values.unsqueeze(0)
        grad_weight = torch.sparse_coo_tensor(index, parts, weight.shape, is_coalesced=True, check_invariants=False)
        return grad_x, grad_weight, None, None
