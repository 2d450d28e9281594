"""Losses of class logits, streamed over tiles of rows x classes: the logits of all classes are never kept.

The logits are those of :func:`hyperbolic.kernels.mlr.class_logits`: ``s_k arsinh(<x, w_k>)``, or ``<x, w_k> + b_k``.
Gradients are computed together with the loss, with three matrix products a tile, the number that a linear layer needs;
the backward pass multiplies them by one number. Without gradients only the loss is computed. Between the products a
tile is worked on by one pass in C++ (:mod:`hyperbolic.kernels.losses_native`), or by PyTorch operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels import losses_native
from hyperbolic.kernels.mlr import class_logits
from hyperbolic.kernels.table_products import refuse_graph
from hyperbolic.kernels.target_lists import dense_targets
from hyperbolic.kernels.tile_losses import BinaryCrossEntropy, CrossEntropy, TileLoss
from hyperbolic.kernels.tiled_products import Tiles, TilesInCpp
from hyperbolic.typing import Context, Function


def streamed_bce(
    x: Tensor,
    w: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    targets: Tensor,
    row_weights: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """``sum_bk row_weights[b, groups[k]] BCE(logit_bk, y_bk)``, the mean over all entries without weights.

    Args:
        x: (B, e). w: (K, e). scale, bias: (K,) or None.
        targets: classes of each row, long (B, L), distinct, filled up with -1; or the matrix y (B, K).
        row_weights: (B, G), without gradient. groups: long (K,), below G; None for G = 1.
    """
    loss = BinaryCrossEntropy(targets, w.shape[0], row_weights, groups)
    return _streamed(x, w, scale, bias, loss)


def streamed_cross_entropy(
    x: Tensor,
    w: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    counted: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """``-(1 - eps) log p_target - eps mean_k log p_k`` of the softmax p over the K logits, the mean over counted rows.

    Args:
        x: (B, e). w: (K, e). scale, bias: (K,) or None.
        target: long (B,), a class also where the row is not counted. counted: boolean (B,). label_smoothing: eps.
    """
    weights = counted.to(x.dtype) / counted.sum().clamp_min(1)
    return _streamed(x, w, scale, bias, CrossEntropy(target, weights, w.shape[0], label_smoothing))


def _streamed(x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None, loss: TileLoss) -> Tensor:
    learned = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, w, scale, bias))
    return _Streamed.apply(x, w, scale, bias, loss, learned)


class _Streamed(Function[Tensor]):
    """A loss of :mod:`hyperbolic.kernels.tile_losses` of all logits."""

    @staticmethod
    def forward(
        ctx: Context, x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None, loss: TileLoss, learned: bool
    ) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        scale, bias = (None if t is None else t.contiguous() for t in (scale, bias))
        needs = [learned and need for need in ctx.needs_input_grad[:4]]
        empty = torch.empty_like if len(x) else torch.zeros_like
        kinds = (empty, empty, torch.zeros_like, torch.zeros_like)
        operands = zip(kinds, (x, w, scale, bias), needs, strict=True)
        grads = [kind(t) if need and t is not None else None for kind, t, need in operands]
        in_cpp = losses_native.LIBRARY.usable(x, w, scale, bias) and loss.on_cpu
        total = (TilesInCpp if in_cpp else Tiles)(x, w, scale, bias, loss, learned, grads).run()
        ctx.save_for_backward(*grads)
        return total.to(x.dtype)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_graph("a streamed loss")
        if grad.device.type == "cpu" and grad == 1:  # as in loss.backward(): no copy
            return *ctx.saved_tensors, None, None
        return *(None if saved is None else grad * saved for saved in ctx.saved_tensors), None, None


def bce_reference(
    x: Tensor,
    w: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    targets: Tensor,
    row_weights: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Plain version of :func:`streamed_bce`."""
    logits = class_logits(x, w, scale, bias)
    y = dense_targets(targets, w.shape[0]) if targets.dtype is torch.long else targets
    each: Tensor = torch.nn.functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")
    if row_weights is None:
        return each.sum() / max(each.numel(), 1)
    return (each * (row_weights[:, :1] if groups is None else row_weights[:, groups])).sum()


def cross_entropy_reference(
    x: Tensor,
    w: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    counted: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Plain version of :func:`streamed_cross_entropy`."""
    log_p = class_logits(x, w, scale, bias).log_softmax(-1)
    each = -(1 - label_smoothing) * log_p.gather(1, target.unsqueeze(1)).squeeze(1) - label_smoothing * log_p.mean(1)
    return (each * counted).sum() / counted.sum().clamp_min(1)
