"""Losses of class logits, streamed over tiles of rows x classes: the logits of all classes are never kept.

The logits are those of :func:`hyperbolic.kernels.mlr.class_logits`: ``s_k arsinh(<x, w_k>)``, or ``<x, w_k> + b_k``.
In C++ gradients are computed together with the loss, with three matrix products a tile, the number that a linear layer
needs; the backward pass multiplies them by one number. Without gradients only the loss is computed.

On a GPU the formula is compiled, not streamed: it keeps three tensors of the size (B, K), where PyTorch's cross entropy
of a linear layer keeps two.
"""

from __future__ import annotations

from torch import Tensor

from hyperbolic.kernels.class_losses import passes
from hyperbolic.kernels.class_losses.plain import dense_targets


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
        x: (B, e). w: (K, e). scale, bias: (K,) or None; the bias counts where there is no scale.
        targets: classes of each row, long (B, L), distinct, filled up with -1; or the matrix y (B, K). No gradient.
        row_weights: (B, G), without gradient. groups: long (K,), below G; None for G = 1.
    """
    loss: Tensor = passes.BinaryCrossEntropy.run(x, w, scale, bias, targets, row_weights, groups)
    return loss


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
        x: (B, e). w: (K, e). scale, bias: (K,) or None; the bias counts where there is no scale.
        target: long (B,), a class also where the row is not counted. counted: boolean (B,). label_smoothing: eps.
    """
    loss: Tensor = passes.CrossEntropy.run(x, w, scale, bias, target, counted, label_smoothing)
    return loss


__all__ = ["dense_targets", "streamed_bce", "streamed_cross_entropy"]
