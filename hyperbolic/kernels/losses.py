"""Losses of class logits, streamed over tiles of rows x classes: the logits of all classes are never kept.

The logits are those of :func:`hyperbolic.kernels.mlr.class_logits`: ``s_k arsinh(<x, w_k>)``, or ``<x, w_k> + b_k``.
Gradients are computed together with the loss, with three matrix products a tile, the number that a linear layer needs;
the backward pass multiplies them by one number. Without gradients only the loss is computed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic.kernels.mlr import arsinh_, class_logits, refuse_graph

# Entries of a tile: on a CPU four buffers of this size stay in the cache; on a GPU an operation on so many entries
# takes longer than its launch.
_TILE = {"cpu": 3 << 16, "cuda": 1 << 20}
_ROWS = 2048  # most rows of a tile; fewer rows make products with few classes, which are slow


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
    loss = _BinaryCrossEntropy(targets, w.shape[0], row_weights, groups)
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
    return _streamed(x, w, scale, bias, _CrossEntropy(target, weights, w.shape[0], label_smoothing))


def _streamed(x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None, loss) -> Tensor:
    learned = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, w, scale, bias))
    return _Streamed.apply(x, w, scale, bias, loss, learned)


class _Streamed(torch.autograd.Function):
    """``loss`` (an object with ``tile_shape`` and ``on_tile``) of all logits."""

    @staticmethod
    def forward(ctx, x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None, loss, learned: bool) -> Tensor:
        batch, classes = len(x), len(w)
        x, w = x.contiguous(), w.contiguous()
        wanted = [learned and needed for needed in ctx.needs_input_grad[:4]]
        empty = torch.empty_like if batch else torch.zeros_like
        grads = [empty(t) if want else None for t, want in zip((x, w, scale, bias), wanted, strict=True)]
        total = torch.zeros((), dtype=torch.float64, device=x.device)
        most_rows, most_classes = loss.tile_shape
        factors = w if scale is None else w * scale.unsqueeze(-1)
        bounded = scale is not None and _bounded(x, w)
        buffers = x.new_empty(2 if scale is None else 4, min(most_rows, batch) * min(most_classes, classes))
        for r in range(0, batch, most_rows):
            rows = slice(r, min(r + most_rows, batch))
            for k in range(0, classes, most_classes):
                columns = slice(k, min(k + most_classes, classes))
                shape = (rows.stop - r, columns.stop - k)
                tile = [buffer[: shape[0] * shape[1]].view(shape) for buffer in buffers]
                total += _tile(x, w, scale, bias, loss, rows, columns, tile, learned, grads, factors, bounded)
        if scale is not None and grads[1] is not None:
            grads[1].mul_(scale.unsqueeze(-1))
        ctx.save_for_backward(*(None if grad is None else grad.mul_(loss.factor) for grad in grads))
        return (total * loss.factor).to(x.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        refuse_graph("a streamed loss")
        if grad.device.type == "cpu" and grad == 1:  # as in loss.backward(): no copy
            return *ctx.saved_tensors, None, None
        return *(None if saved is None else grad * saved for saved in ctx.saved_tensors), None, None


def _bounded(x: Tensor, w: Tensor) -> bool:
    """Whether the squares of all products are finite numbers, where knowing it saves time."""
    if x.device.type != "cpu" or not len(x):
        return False
    longest = (float(torch.linalg.vector_norm(t, dim=-1).amax()) for t in (x, w))
    return math.prod(longest) < torch.finfo(x.dtype).max ** 0.5 / 2


def _tile(
    x, w, scale, bias, loss, rows: slice, columns: slice, tile, learned: bool, grads, factors: Tensor, bounded: bool
) -> Tensor:
    """Loss of one tile; adds its gradients to ``grads``, that of w still to be multiplied by the scale.

    factors: w times the scale. bounded: see :func:`arsinh_`.
    """
    grad_x, grad_w, grad_scale, grad_bias = grads
    first_rows = rows.start == 0
    x, w = x[rows], w[columns]
    logits, spare = tile[:2]
    if scale is None:
        torch.mm(x, w.T, out=logits) if bias is None else torch.addmm(bias[columns], x, w.T, out=logits)
        value = loss.on_tile(logits, spare, rows, columns, learned)
    else:
        angle, root = tile[2:]
        torch.mm(x, w.T, out=angle)
        arsinh_(angle, root, spare, logits, bounded)
        torch.mul(angle, scale[columns], out=logits)
        value = loss.on_tile(logits, spare, rows, columns, learned)
        if grad_scale is not None:
            _add(grad_scale[columns], torch.mul(logits, angle, out=spare).sum(0), first_rows)
        if learned:
            logits.div_(root)
    if grad_bias is not None:
        _add(grad_bias[columns], logits.sum(0), first_rows)
    if grad_x is not None:
        grad_x[rows].addmm_(logits, factors[columns], beta=0 if columns.start == 0 else 1)
    if grad_w is not None:
        grad_w[columns].addmm_(logits.T, x, beta=0 if first_rows else 1)
    return value


def _add(total: Tensor, part: Tensor, first: bool) -> None:
    total.copy_(part) if first else total.add_(part)


class _BinaryCrossEntropy:
    def __init__(self, targets: Tensor, classes: int, row_weights: Tensor | None, groups: Tensor | None):
        batch = targets.shape[0]
        rows = max(min(batch, _ROWS), 1)
        self.tile_shape = rows, max(_TILE.get(targets.device.type, _TILE["cuda"]) // rows, 16)
        self.factor = 1.0 if row_weights is not None else 1 / max(batch * classes, 1)
        self.row_weights, self.groups = row_weights, groups
        self.dense, self.lists = targets, None
        if targets.dtype is torch.long:
            kind = _SortedLists if targets.device.type == "cpu" else _Lists
            self.lists = kind(targets, classes, *self.tile_shape)

    def on_tile(self, logits: Tensor, spare: Tensor, rows: slice, columns: slice, learned: bool) -> Tensor:
        """Sum over the tile; ``logits`` becomes its derivative."""
        weights = self._weights(rows, columns, logits.dtype)
        if self.lists:
            # BCE(l, 1) = BCE(-l, 0): the sign of the targets' logits is turned, and that of their derivatives after
            places = self.lists.places(rows, columns)
            self.lists.turn(logits, places)
            torch.clamp_min(logits, 0, out=spare)
            value = _weighted_sum(spare, weights)
        else:
            y = self.dense[rows, columns].to(logits.dtype)
            value = _weighted_sum(torch.clamp_min(logits, 0, out=spare).addcmul_(logits, y, value=-1), weights)
        if self.lists and weights is None:
            torch.sub(logits, spare, alpha=2, out=spare).exp_()  # l - 2 max(l, 0) = -|l|
        else:
            torch.abs(logits, out=spare).neg_().exp_()
        value += _sum_log1p_(spare) if weights is None else _weighted_sum(spare.log1p_(), weights)
        if learned:
            logits.sigmoid_()
            if self.lists:
                self.lists.turn(logits, places)
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


class _Lists:
    """Lists of classes (B, L), filled up with -1, and where they are in a tile; never waits for a GPU."""

    def __init__(self, targets: Tensor, classes: int, tile_rows: int, tile_classes: int):
        self.targets = targets

    def places(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """Column of each target, any where it is not in the tile, and what turns the sign there: -2, or 0."""
        column, last = self.targets[rows] - columns.start, columns.stop - columns.start - 1
        return column.clamp(0, last), ((column >= 0) & (column <= last)) * -2

    def turn(self, values: Tensor, places: tuple[Tensor, Tensor]) -> None:
        """Turns the sign of the entries at ``places``, exactly: ``v - 2v``."""
        column, factor = places
        values.scatter_add_(1, column, values.gather(1, column).mul_(factor))


class _SortedLists:
    """The same, sorted by tile first: less work where reading a number does not wait for a device."""

    def __init__(self, targets: Tensor, classes: int, tile_rows: int, tile_classes: int):
        row, column = (targets >= 0).nonzero(as_tuple=True)
        column = targets[row, column]
        across = -(-classes // tile_classes)
        tile, order = (row // tile_rows * across + column // tile_classes).sort()
        self.row, self.column = row[order], column[order]
        self.tile_rows, self.tile_classes, self.across = tile_rows, tile_classes, across
        tiles = -(-targets.shape[0] // tile_rows) * across
        self.bounds = torch.searchsorted(tile, torch.arange(tiles + 1)).tolist()

    def places(self, rows: slice, columns: slice) -> Tensor:
        """Places of the targets in the flattened tile."""
        tile = rows.start // self.tile_rows * self.across + columns.start // self.tile_classes
        mine = slice(self.bounds[tile], self.bounds[tile + 1])
        return (self.row[mine] - rows.start) * (columns.stop - columns.start) + (self.column[mine] - columns.start)

    def turn(self, values: Tensor, places: Tensor) -> None:
        values = values.view(-1)
        values.index_copy_(0, places, values.index_select(0, places).neg_())


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


class _CrossEntropy:
    factor = 1.0

    def __init__(self, target: Tensor, weights: Tensor, classes: int, label_smoothing: float):
        self.target, self.weights, self.smoothing = target, weights, label_smoothing
        self.tile_shape = max(40, len(target) // 24), classes

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


def bce_reference(x, w, scale, bias, targets, row_weights=None, groups=None) -> Tensor:
    """Plain version of :func:`streamed_bce`."""
    logits = class_logits(x, w, scale, bias)
    y = dense_targets(targets, w.shape[0]) if targets.dtype is torch.long else targets
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")
    if row_weights is None:
        return each.sum() / max(each.numel(), 1)
    return (each * (row_weights[:, :1] if groups is None else row_weights[:, groups])).sum()


def dense_targets(targets: Tensor, n_classes: int) -> Tensor:
    """Lists of classes (B, L), filled up with -1, as a boolean matrix (B, n_classes)."""
    dense = torch.zeros(targets.shape[0], n_classes + 1, dtype=torch.bool, device=targets.device)
    return dense.scatter_(1, targets.masked_fill(targets < 0, n_classes), True)[:, :n_classes]


def cross_entropy_reference(x, w, scale, bias, target, counted, label_smoothing=0.0) -> Tensor:
    """Plain version of :func:`streamed_cross_entropy`."""
    log_p = class_logits(x, w, scale, bias).log_softmax(-1)
    each = -(1 - label_smoothing) * log_p.gather(1, target.unsqueeze(1)).squeeze(1) - label_smoothing * log_p.mean(1)
    return (each * counted).sum() / counted.sum().clamp_min(1)
