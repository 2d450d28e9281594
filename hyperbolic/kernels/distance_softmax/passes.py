"""The passes of :mod:`hyperbolic.kernels.distance_softmax`: one in C++ on a block of rows between its products."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import fusion, native
from hyperbolic.kernels.distance_softmax import plain
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

_BLOCK = 1 << 16  # float64 entries that are worked on at a time, half a megabyte
_LEAST_WEIGHT = 1e-290  # of a pair; beside smaller ones, of points more than 667 T apart, others would be 0
LIBRARY = native.Library("distance_softmax")


@operator(
    "distance_softmax(Tensor left, Tensor right, Tensor h, Tensor rows, Tensor columns, Tensor power) -> Tensor"
)
class DistanceSoftmax(Operator):
    plain = staticmethod(plain.loss)

    @staticmethod
    def fits(left: Tensor, right: Tensor, h: Tensor, rows: Tensor, columns: Tensor, power: Tensor) -> bool:
        return (
            left.dim() == right.dim() == 2
            and len(left) > 0
            and left.shape[1] == right.shape[1]
            and h.shape == left.shape[:1]
            and rows.dim() == 1
            and rows.shape == columns.shape
            and native.takes_index(rows)
            and native.takes_index(columns)
            and power.dim() == 0
            and left.dtype is torch.float64
            and LIBRARY.readable(left, right, h, power)
        )

    @staticmethod
    def forward(
        ctx: Context, left: Tensor, right: Tensor, h: Tensor, rows: Tensor, columns: Tensor, power: Tensor
    ) -> Tensor:
        left, right, n, exponent = left.contiguous(), right.contiguous(), len(left), float(power)
        near, slope, length = _weights(h.clamp_min(plain.LEAST**2), exponent)
        rows, columns = rows.long(), columns.long()
        if len(rows):
            rows = native.checked_index(rows, n, "distance_softmax", "rows")
            columns = native.checked_index(columns, len(right), "distance_softmax", "columns")
        if near.min() < _LEAST_WEIGHT:
            arguments, needs = (left, right, h, rows, columns, power), ctx.needs_input_grad
            grads = fusion.gradients(plain.loss, arguments, [h.new_ones(())], needs) if any(needs) else (None,) * 6
            ctx.save_for_backward(*grads[:3], grads[5])
            return plain.loss(*arguments)
        order = rows.argsort()
        rows, columns = rows[order], columns[order]
        bounds = torch.searchsorted(rows, torch.arange(n + 1, device=rows.device))
        step = max(1, _BLOCK // max(len(right), 1))
        needs, sums = ctx.needs_input_grad, torch.empty_like(near)
        grad_left = torch.empty_like(left) if needs[0] else None
        grad_right = torch.zeros_like(right) if needs[1] else None
        lengths = torch.empty_like(near) if needs[5] else None  # of the others, times their weights
        for start in range(0, n, step):
            some, ends = slice(start, start + step), bounds[start : start + step + 1]
            slopes = left[some] @ right.T
            of_rows = (near[some], sums[some], None if lengths is None else lengths[some], ends, columns)
            LIBRARY.run("distance_softmax", slopes, *of_rows, *slopes.shape, plain.LEAST, exponent)
            if grad_left is not None:
                torch.mm(slopes, right, out=grad_left[some]).div_(n)
            if grad_right is not None:
                grad_right.addmm_(slopes.T, left[some], alpha=1 / n)
        total, grad_near = (sums / near).log().sum(), 1 - near / sums
        grad_power = None if lengths is None else ((length * grad_near) - lengths / sums).sum() / n
        ctx.save_for_backward(grad_left, grad_right, grad_near.mul_(slope).div_(n), grad_power)
        return total / n

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_left, grad_right, grad_h, grad_power = (None if t is None else grad * t for t in ctx.saved_tensors)
        return grad_left, grad_right, grad_h, None, None, grad_power


def _weights(h: Tensor, power: float) -> tuple[Tensor, Tensor, Tensor]:
    """``exp(-power arsinh(sqrt(h)))``, the slope of ``power arsinh(sqrt(h))``, ``power / (2 sqrt(h (1 + h)))``, and
    ``arsinh(sqrt(h)) = log(1 + 2h + 2 sqrt(h (1 + h))) / 2``."""
    root = torch.addcmul(h, h, h).sqrt_()
    length = (h + root).mul_(2).log1p_().div_(2)
    return torch.exp(-power * length), root.reciprocal_().mul_(power / 2), length
