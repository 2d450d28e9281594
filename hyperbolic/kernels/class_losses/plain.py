"""The formulas of :mod:`hyperbolic.kernels.class_losses` in PyTorch operations."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy as cross_entropy_of_logits
from torch.nn.functional import logsigmoid

from hyperbolic.kernels.mlr import class_logits
from hyperbolic.rows.sums import sum_over_rows


def bce(
    x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None,
    targets: Tensor, row_weights: Tensor | None, groups: Tensor | None,
) -> Tensor:  # fmt: skip
    """``sum_bk r_bk ((y_bk - 1) log sigmoid(-l_bk) - y_bk log sigmoid(l_bk))`` with the class logits l (B, K) of x
    (B, e) and w (K, e), targets y (B, K) or (B, L), and weights ``r_bk = row_weights[b, groups[k]]``, or 1 / (B K)."""

    def of_rows(rows: slice, x: Tensor) -> Tensor:
        logits = class_logits(x, w, scale, bias)
        y = targets.detach()[rows]
        if y.dtype is torch.long:
            y = dense_targets(y, w.shape[0])
        if y.dtype is torch.bool:  # BCE(l, 1) = BCE(-l, 0), in which nothing cancels
            each = -logsigmoid(torch.where(y, logits, -logits))
        else:
            y = y.to(logits.dtype)
            each = (y - 1) * logsigmoid(-logits) - y * logsigmoid(logits)
        if row_weights is None:
            return each.sum(dtype=torch.float64) / max(targets.shape[0] * w.shape[0], 1)
        weights = row_weights.detach()[rows].to(each.dtype)
        return (each * (weights[:, :1] if groups is None else weights[:, groups])).sum(dtype=torch.float64)

    return sum_over_rows(of_rows, (x,), w.shape[0]).to(x.dtype)


def cross_entropy(
    x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None, target: Tensor, counted: Tensor, smoothing: float
) -> Tensor:
    """The mean over counted rows b of ``-(1 - eps) log p_b,target - eps mean_k log p_bk``, p the softmax of the class
    logits (B, K) of x (B, e) and w (K, e), eps the smoothing."""

    def of_rows(rows: slice, x: Tensor) -> Tensor:
        logits = class_logits(x, w, scale, bias)
        each = cross_entropy_of_logits(logits, target[rows], reduction="none", label_smoothing=smoothing)
        return torch.where(counted[rows], each, 0).sum(dtype=torch.float64)

    return (sum_over_rows(of_rows, (x,), w.shape[0]) / counted.sum().clamp_min(1)).to(x.dtype)


def dense_targets(targets: Tensor, n_classes: int) -> Tensor:
    """Lists of classes (B, L), filled up with -1, as a boolean matrix (B, n_classes)."""
    dense = torch.zeros(targets.shape[0], n_classes + 1, dtype=torch.bool, device=targets.device)
    return dense.scatter(1, targets.masked_fill(targets < 0, n_classes), True)[:, :n_classes]
