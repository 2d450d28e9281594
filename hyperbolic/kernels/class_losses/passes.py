"""The passes of :mod:`hyperbolic.kernels.class_losses` in C++: losses of a tile of products between matrix products."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.class_losses import plain
from hyperbolic.kernels.scratch import aligned_size, set_product
from hyperbolic.native import Argument, Strided
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

LIBRARY = native.Library("losses")
_ENTRIES = 1 << 17  # of a tile, which stays in the cache with x and its gradient
_ROWS = 2048  # most rows of a tile; fewer rows make products with few classes, which are slow


class Classes(NamedTuple):
    """Some of the classes, and what belongs to them: rows of w and of its gradient, entries of the others, or None.

    In C++ the logits are ``scale arsinh(z + bias)`` of the products z, or ``z + bias`` without a scale.
    """

    columns: slice
    w: Tensor
    grad_w: Tensor | None
    scale: Tensor | None
    bias: Tensor | None
    grad_scale: Tensor | None
    grad_bias: Tensor | None

    def arguments(self, z: Tensor, total: Tensor) -> tuple[Argument, ...]:
        """Of a C++ pass: z (R, C) becomes the derivative of the loss by it, total, a float64 scalar, grows by the loss,
        and the gradients of scale and bias by theirs."""
        return Strided(z), *z.shape, z.stride(0), self.scale, self.bias, self.grad_scale, self.grad_bias, total


def _forward(
    ctx: Context,
    x: Tensor,
    w: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    shape: tuple[int, int],
    on_tile: Callable[[Tensor, Tensor, slice, Classes], None],
) -> Tensor:
    """The sum of a loss over tiles of this shape, in float64, and its gradients.

    Args: on_tile: the C++ pass, of products, the sum so far, the rows and the classes.
    """
    x, w = x.contiguous(), w.contiguous()
    scale, bias = (None if t is None else t.contiguous() for t in (scale, bias))
    needs, empty = ctx.needs_input_grad[:4], torch.empty_like if len(x) else torch.zeros_like
    operands = zip((empty, empty, torch.zeros_like, torch.zeros_like), (x, w, scale, bias), needs, strict=True)
    grads = [kind(t) if need and t is not None else None for kind, t, need in operands]
    grad_x, grad_w, *_ = grads
    total = x.new_zeros((), dtype=torch.float64)
    most_rows, step = shape
    pieces = (itertools.repeat(None) if t is None else t.split(step) for t in (w, grad_w, scale, bias, *grads[2:]))
    columns = (slice(k, min(k + step, len(w))) for k in range(0, len(w), step))
    parts = [Classes(*part) for part in zip(columns, *pieces, strict=False)]
    buffer = x.new_empty(min(most_rows, len(x)) * aligned_size(min(step, len(w))))
    for r in range(0, len(x), most_rows):
        rows = slice(r, min(r + most_rows, len(x)))
        some = x[rows]
        for part in parts:
            by_row = aligned_size(len(part.w))
            z = buffer[: len(some) * by_row].view(len(some), by_row)[:, : len(part.w)]
            torch.mm(some, part.w.T, out=z)
            on_tile(z, total, rows, part)
            if grad_x is not None:
                set_product(grad_x[rows], z, part.w, add=part.columns.start > 0)
            if part.grad_w is not None:
                set_product(part.grad_w, z.T, some, add=r > 0)
    ctx.own_grads = grads
    return total


class _Streamed(Operator):
    """What both losses share: the forward pass leaves the gradients of x, w, scale and bias."""

    @staticmethod
    def fits(x: Tensor, w: Tensor, scale: Tensor | None, bias: Tensor | None, *others: Any) -> bool:
        return (
            x.dim() == w.dim() == 2
            and len(w) > 0
            and x.shape[1] == w.shape[1]
            and all(t is None or t.shape == w.shape[:1] for t in (scale, bias))
            and (scale is None or bias is None)  # of which plain takes the scale
            and LIBRARY.readable(x, w, scale, bias)
            and all(t.is_cpu for t in others if isinstance(t, Tensor))
        )

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gives away what the forward pass has made, which is as large as the weights: no copy."""
        grads = [t if t is None or grad == 1 else t.mul_(grad) for t in ctx.own_grads]
        ctx.own_grads.clear()
        return *grads, None, None, None


@operator(
    "streamed_bce(Tensor x, Tensor w, Tensor? scale, Tensor? bias, Tensor targets, Tensor? row_weights, "
    "Tensor? groups) -> Tensor"
)
class BinaryCrossEntropy(_Streamed):
    """:func:`plain.bce`, whose logits are never held all at once."""

    plain = staticmethod(plain.bce)

    @staticmethod
    def fits(*arguments: Any) -> bool:
        x, w, _, _, targets, row_weights, groups = arguments
        return (
            _Streamed.fits(*arguments)
            and targets.dim() == 2
            and targets.shape[0] == x.shape[0]
            and (targets.dtype is torch.long or targets.shape[1] == w.shape[0])
            and (row_weights is None or (row_weights.dim() == 2 and row_weights.shape[0] == x.shape[0]))
            and (row_weights is None or groups is not None or row_weights.shape[1] > 0)
            and (groups is None or row_weights is not None)
            and (groups is None or (groups.shape == w.shape[:1] and native.takes_index(groups)))
        )

    @staticmethod
    def forward(ctx: Context, x: Tensor, w: Tensor, *others: Any) -> Tensor:
        scale, bias, targets, row_weights, groups = others
        if groups is not None and row_weights is not None:
            groups = native.checked_index(groups, row_weights.shape[1], "bce", "groups")
        if targets.dtype is torch.long and targets.numel():  # compiled code has no other check of it; -1 is none
            native.checked_index(targets.clamp_min(0), len(w), "bce", "classes")
        rows = max(min(len(targets), _ROWS), 1)
        shape = rows, max(_ENTRIES // rows // 64, 1) * 64
        factor = 1.0 if row_weights is not None else 1 / max(len(targets) * len(w), 1)

        def on_tile(z: Tensor, total: Tensor, rows: slice, part: Classes) -> None:
            dense: tuple[Argument, int] = (None, 0)
            lists: tuple[Tensor | None, int, int] = (None, 0, part.columns.start)
            if targets.dtype is torch.long:
                lists = (targets[rows].contiguous(), targets.shape[1], part.columns.start)
            else:
                y = targets[rows, part.columns].to(z.dtype)
                y = y if y.stride(1) == 1 else y.contiguous()
                dense = (Strided(y), y.stride(0))
            weights = None if row_weights is None else row_weights[rows].to(z.dtype).contiguous()
            places = None if groups is None else groups[part.columns].contiguous()
            weighted = (weights, 0 if weights is None else weights.shape[1], places)
            LIBRARY.run("bce", *part.arguments(z, total), *dense, *lists, *weighted, factor)

        return (_forward(ctx, x, w, scale, bias, shape, on_tile) * factor).to(x.dtype)


@operator(
    "streamed_cross_entropy(Tensor x, Tensor w, Tensor? scale, Tensor? bias, Tensor target, Tensor counted, "
    "float smoothing) -> Tensor"
)
class CrossEntropy(_Streamed):
    """:func:`plain.cross_entropy`, whose logits are never held all at once."""

    plain = staticmethod(plain.cross_entropy)
    settings: ClassVar[Mapping[str, Any]] = {"split_reductions": False}  # a softmax of many classes in one kernel

    @staticmethod
    def fits(*arguments: Any) -> bool:
        x, *_, y, counted, _ = arguments
        dtypes_fit = y.dtype is torch.long and counted.dtype is torch.bool
        return dtypes_fit and y.shape == counted.shape == x.shape[:1] and _Streamed.fits(*arguments)

    @staticmethod
    def forward(ctx: Context, x: Tensor, w: Tensor, *others: Any) -> Tensor:
        scale, bias, target, counted, smoothing = others
        if len(target):  # compiled code has no other check of it
            target = native.checked_index(target, len(w), "cross_entropy", "classes")
        weights = counted.to(x.dtype) / counted.sum().clamp_min(1)
        shape = max(40, len(target) // 24) * 4, len(w)  # all classes

        def on_tile(z: Tensor, total: Tensor, rows: slice, part: Classes) -> None:
            numbers = target[rows].contiguous(), weights[rows].contiguous()
            LIBRARY.run("cross_entropy", *part.arguments(z, total), *numbers, smoothing)

        return _forward(ctx, x, w, scale, bias, shape, on_tile).to(x.dtype)
