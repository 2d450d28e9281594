"""The Möbius sum of many points with its derivative by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.gyro import constants
from hyperbolic.kernels.mobius_sum import plain
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context


@operator("ball_sum(Tensor x, Tensor gap, Tensor? last) -> Tensor")
class BallSum(Operator):
    """x: (T, D, B) with gaps (T, 1, B), points that do not count at 0. last: (T, 1, B), one at the last step that is
    wanted of each row and zero elsewhere; None for step T."""

    plain = staticmethod(plain.ball_sum)
    fuses = False

    @staticmethod
    def fits(x: Tensor, gap: Tensor, last: Tensor | None) -> bool:
        numbers = [t for t in (gap, last) if t is not None]
        return x.dim() == 3 and all(t.shape == (len(x), 1, x.shape[2]) and t.dtype is x.dtype for t in numbers)

    @staticmethod
    def forward(ctx: Context, x: Tensor, gap: Tensor, last: Tensor | None) -> Tensor:
        steps, size, rows = x.shape
        least = constants(x).least_gap
        # of step t: the sum so far and s = sum + x_t; and the numbers i, a, b, and the gap of the sum so far
        vectors, numbers = x.new_empty(steps + 1, 2, size, rows), x.new_empty(steps + 1, 4, 1, rows)
        vectors[1, 0], numbers[1, 3] = x[0], gap[0]
        for t in range(1, steps):
            (total, s), (i, a, b, total_gap) = vectors[t].unbind(0), numbers[t].unbind(0)
            torch.add(total, x[t], out=s)
            n = (s * s).sum(-2, keepdim=True)
            torch.addcmul(n, total_gap, gap[t], out=i).reciprocal_()
            torch.mul(n, i, out=a)
            torch.mul(total_gap, i, out=b)
            new, new_gap = torch.mul(a, total, out=vectors[t + 1, 0]).addcmul_(b, s), b * gap[t]
            torch.clamp_min(new_gap, least, out=numbers[t + 1, 3])
            new.addcmul_(new, new_gap.sub_(numbers[t + 1, 3]), value=0.5)  # back inside: |x|^2 = 1 - gap, both near 1
        ctx.save_for_backward(gap, vectors, numbers, last)
        if last is None:
            return vectors[-1, 0].clone()
        return (vectors[1:, 0] * last).sum(0)

    @staticmethod
    def backward(ctx: Context, grad_last: Tensor) -> tuple[Tensor, Tensor, None]:
        gap, vectors, numbers, last = ctx.saved_tensors
        steps, size, rows = len(gap), *grad_last.shape
        cut = numbers[:, 3] <= constants(grad_last).least_gap  # sums that were brought back inside, from the second on
        cut = cut if cut[2:].any() else None
        g_x, g_gap = vectors.new_empty(steps, size, rows), torch.empty_like(gap)
        grad = grad_last if last is None else grad_last * last[-1]
        grad_gap = torch.zeros_like(gap[0])
        for t in range(steps - 1, 0, -1):
            i, a, b, total_gap = numbers[t].unbind(0)
            if cut is not None:
                scale = torch.addcmul(-numbers[t + 1, 3], b, gap[t]).mul_(0.5).add_(1)  # 1 inside
                radial = (grad * vectors[t + 1, 0]).sum(-2, keepdim=True).mul_(0.5).div_(scale)
                grad_gap, grad = torch.where(cut[t + 1], radial, grad_gap), grad * scale
            g_a, g_s = (grad * vectors[t]).sum(-2, keepdim=True).unbind(0)
            g_b = torch.addcmul(g_s, grad_gap, gap[t])
            g_d = (g_a * a).addcmul_(g_b, b).mul_(i)  # of 1/i = n + total_gap gap, negative
            torch.mul(grad_gap, b, out=g_gap[t]).addcmul_(g_d, total_gap, value=-1)
            grad_gap = g_b.mul_(i).addcmul_(g_d, gap[t], value=-1)
            torch.mul(b, grad, out=g_x[t]).addcmul_(g_a.mul_(i).sub_(g_d), vectors[t, 1], value=2)
            grad = torch.addcmul(g_x[t], a, grad)
            if last is not None:
                grad.addcmul_(grad_last, last[t - 1])
        g_x[0], g_gap[0] = grad, grad_gap
        return g_x, g_gap, None
