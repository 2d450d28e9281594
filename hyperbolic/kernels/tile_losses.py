"""Losses of a tile of logits, rows x classes, with their derivative by the logits, for a sum over all tiles.

Each has a ``factor`` of the whole sum, the ``tile_shape`` it asks for, ``on_tile``, the sum over a tile by PyTorch
operations, and ``in_cpp``, which does the same to a tile of products and multiplies the derivatives by the factor.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from hyperbolic.kernels import losses_native
from hyperbolic.kernels.target_lists import Lists, SortedLists

# Entries of a tile: on a CPU its buffers (one in C++, else four) stay in the cache with x and its gradient; on a GPU an
# operation on so many entries takes longer than its launch.
_TILE = {"c++": 1 << 17, "cpu": 3 << 16, "cuda": 1 << 20}
_ROWS = 2048  # most rows of a tile; fewer rows make products with few classes, which are slow


class BinaryCrossEntropy:
    def __init__(self, targets: Tensor, classes: int, row_weights: Tensor | None, groups: Tensor | None):
        self.factor = 1.0 if row_weights is not None else 1 / max(len(targets) * classes, 1)
        self.targets, self.classes, self.row_weights, self.groups = targets, classes, row_weights, groups
        self.listed = targets.dtype is torch.long
        self.on_cpu = all(t is None or t.device.type == "cpu" for t in (targets, row_weights, groups))

    def tile_shape(self, in_cpp: bool) -> tuple[int, int]:
        rows = max(min(len(self.targets), _ROWS), 1)
        entries = _TILE.get("c++" if in_cpp else self.targets.device.type, _TILE["cuda"])
        return rows, max(entries // rows // 64, 1) * 64 if in_cpp else max(entries // rows, 16)

    @functools.cached_property
    def lists(self) -> Lists | SortedLists | None:
        kind: type[Lists | SortedLists] = SortedLists if self.targets.device.type == "cpu" else Lists
        return kind(self.targets, self.classes, *self.tile_shape(in_cpp=False)) if self.listed else None

    def in_cpp(self, tile: losses_native.Tile, rows: slice, columns: slice) -> None:
        """Adds the sum over the tile; its products become the derivative, times the factor."""
        dtype, lists, dense = tile.z.dtype, None, None
        if self.listed:
            lists = self.targets[rows].contiguous()
        else:
            dense = self.targets[rows, columns].to(dtype)
            dense = dense if dense.stride(1) == 1 else dense.contiguous()
        weights = None if self.row_weights is None else self.row_weights[rows].to(dtype).contiguous()
        groups = None if self.groups is None else self.groups[columns].contiguous()
        losses_native.bce(tile, dense, lists, columns.start, weights, groups, self.factor)

    def on_tile(self, logits: Tensor, spare: Tensor, rows: slice, columns: slice, learned: bool) -> Tensor:
        """Sum over the tile; ``logits`` becomes its derivative."""
        weights = self._weights(rows, columns, logits.dtype)
        if self.lists:
            # BCE(l, 1) = BCE(-l, 0): the sign of the targets' logits is turned, and that of their derivatives after
            change_signs = self.lists.sign_change(rows, columns)
            change_signs(logits)
            torch.clamp_min(logits, 0, out=spare)
            value = _weighted_sum(spare, weights)
        else:
            y = self.targets[rows, columns].to(logits.dtype)
            value = _weighted_sum(torch.clamp_min(logits, 0, out=spare).addcmul_(logits, y, value=-1), weights)
        if self.lists and weights is None:
            torch.sub(logits, spare, alpha=2, out=spare).exp_()  # l - 2 max(l, 0) = -|l|
        else:
            torch.abs(logits, out=spare).neg_().exp_()
        value += _sum_log1p_(spare) if weights is None else _weighted_sum(spare.log1p_(), weights)
        if learned:
            logits.sigmoid_()
            if self.lists:
                change_signs(logits)
            else:
                logits.sub_(y)
            if weights is not None:
                logits.mul_(weights)
        return value

    def _weights(self, rows: slice, columns: slice, dtype: torch.dtype) -> Tensor | None:
        if self.row_weights is None:
            return None
        weights = self.row_weights[rows].to(dtype)
        return weights[:, :1] if self.groups is None else weights.index_select(1, self.groups[columns])


def _weighted_sum(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.sum()
    return torch.dot(weights[:, 0], values.sum(1)) if weights.shape[1] == 1 else values.mul_(weights).sum()


def _sum_log1p_(e: Tensor) -> Tensor:
    """``sum log(1 + e)`` for e in [0, 1] of a contiguous tensor, which is overwritten.

    ``(1 + a)(1 + b) = 1 + (a + b + ab)`` joins eight terms before a logarithm is taken, and loses no digits.
    """
    e = e.view(-1)
    value = e[len(e) // 8 * 8 :].log1p().sum()
    for length in (len(e) // 8 * 4, len(e) // 8 * 2, len(e) // 8):
        a, b = e[:length], e[length : 2 * length]
        a.addcmul_(a, b).add_(b)
    return value + e[: len(e) // 8].log1p_().sum()


class CrossEntropy:
    factor = 1.0

    def __init__(self, target: Tensor, weights: Tensor, classes: int, label_smoothing: float):
        self.target, self.weights, self.smoothing = target, weights, label_smoothing
        self.classes, self.on_cpu = classes, target.device.type == "cpu"

    def tile_shape(self, in_cpp: bool) -> tuple[int, int]:
        """All classes, and so many rows that the buffers are as large in both ways."""
        return max(40, len(self.target) // 24) * (4 if in_cpp else 1), self.classes

    def in_cpp(self, tile: losses_native.Tile, rows: slice, columns: slice) -> None:
        target, weights = self.target[rows].contiguous(), self.weights[rows]
        losses_native.cross_entropy(tile, target, weights, self.smoothing)

    def on_tile(self, logits: Tensor, spare: Tensor, rows: slice, columns: slice, learned: bool) -> Tensor:
        """Weighted sum over the rows of a tile with all classes; ``logits`` becomes its derivative."""
        target, weights = self.target[rows].unsqueeze(1), self.weights[rows].unsqueeze(1)
        top = logits.amax(1, keepdim=True)
        logits.sub_(top)
        expected = (1 - self.smoothing) * logits.gather(1, target)
        if self.smoothing:
            expected += self.smoothing * logits.mean(1, keepdim=True)
        logits.exp_()
        partition = logits.sum(1, keepdim=True)
        if learned:
            logits.mul_(weights / partition)
            if self.smoothing:
                logits.sub_(self.smoothing / logits.shape[1] * weights)
            logits.scatter_add_(1, target, (self.smoothing - 1) * weights)
        return torch.sum(weights * (partition.log() - expected))


TileLoss = BinaryCrossEntropy | CrossEntropy
