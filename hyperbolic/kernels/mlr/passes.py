"""The passes of :mod:`hyperbolic.kernels.mlr` in C++: the lifts of float32 rows, and ``s arsinh(z)``."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.mlr import plain
from hyperbolic.numerics import BALL_EPS
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

LIBRARY = native.Library("mlr")
_ROWS, _COLUMNS = 128, 1024  # of a tile of slopes
_FLOOR = BALL_EPS[torch.float32] / 4  # of gaps


@operator("mlr_lift_hyperplanes(Tensor p, Tensor a, Tensor c) -> (Tensor, Tensor)")
class LiftHyperplanes(Operator):
    plain = staticmethod(plain.lift_hyperplanes)

    @staticmethod
    def fits(p: Tensor, a: Tensor, c: Tensor) -> bool:
        return p.shape == a.shape and a.dim() == 2 and a.dtype is torch.float32 and LIBRARY.readable(p, a)

    @staticmethod
    def forward(ctx: Context, p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        p, a, (n, d) = p.contiguous(), a.contiguous(), a.shape
        w, scale = a.new_empty(n, d + 1), a.new_empty(n)
        scalars = a.new_empty(3, n, 1, dtype=torch.float64).unbind()  # gap, shift and norm of each row
        LIBRARY.run("lift_hyperplanes", p, a, w, scale, *scalars, n, d, float(c), _FLOOR)
        ctx.save_for_backward(p, a, c, *scalars)
        return w, scale

    @staticmethod
    def backward(ctx: Context, grad_w: Tensor, grad_s: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        p, a, c, *scalars = ctx.saved_tensors
        grad_p, grad_a = torch.empty_like(p), torch.empty_like(a)
        rows = a.new_empty(len(a), dtype=torch.float64) if ctx.needs_input_grad[2] else None
        tensors = (grad_w.contiguous(), grad_s.contiguous(), p, a, *scalars, grad_p, grad_a, rows)
        LIBRARY.run("lift_hyperplanes_grad", *tensors, *a.shape, float(c), _FLOOR)
        return grad_p, grad_a, None if rows is None else rows.sum().view(c.shape)


@operator("mlr_logits(Tensor x, Tensor w, Tensor scale) -> Tensor")
class Logits(Operator):
    """``s arsinh(x w^T)`` for x (B, e), w (K, e), s (K,).

    It keeps the logits only: the slope is ``s / cosh(logit / s)``.
    """

    plain = staticmethod(plain.logits)

    @staticmethod
    def fits(x: Tensor, w: Tensor, scale: Tensor) -> bool:
        sizes_fit = x.dim() == w.dim() == 2 and x.shape[1] == w.shape[1] and scale.shape == w.shape[:1]
        return sizes_fit and len(w) > 0 and LIBRARY.readable(x, w, scale)

    @staticmethod
    def forward(ctx: Context, x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        x, w, scale = x.contiguous(), w.contiguous(), scale.contiguous()
        out = x @ w.T
        LIBRARY.run("arsinh", out, *out.shape, scale)
        ctx.save_for_backward(x, w, scale, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        """By tiles of slopes that stay in the cache."""
        (x, w, scale, logits), grad, needs = ctx.saved_tensors, grad.contiguous(), ctx.needs_input_grad
        inverse, grad_scale = (1 / scale).clamp_max(torch.finfo(scale.dtype).max), torch.zeros_like(scale)
        grad_x, grad_w = (torch.zeros_like(t) if need else None for t, need in zip((x, w), needs[:2], strict=True))
        rows, columns = min(_ROWS, len(x)), min(_COLUMNS, len(w))
        buffer = x.new_empty(rows * columns)
        for r in range(0, len(x), max(rows, 1)):
            some, x_here = slice(r, r + rows), x[r : r + rows]
            for k in range(0, len(w), columns):
                n = min(columns, len(w) - k)
                slope = buffer[: len(x_here) * n].view(len(x_here), n)
                entries = (native.Strided(t[r:, k:]) for t in (logits, grad))
                numbers = (scale[k:], inverse[k:], grad_scale[k:])
                LIBRARY.run("slopes", *entries, len(w), slope, *slope.shape, *numbers)
                if grad_x is not None:
                    grad_x[some].addmm_(slope, w[k : k + n])
                if grad_w is not None:
                    grad_w[k : k + n].addmm_(slope.T, x_here)
        return grad_x, grad_w, grad_scale if needs[2] else None
