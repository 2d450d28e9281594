"""The factors and lengths of :mod:`hyperbolic.kernels.pairwise` in C++ passes on a CPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.table_products import refuse_graph
from hyperbolic.numerics import BALL_EPS, WIDE
from hyperbolic.typing import Context, Function

LIBRARY = native.Library(
    "pairwise",
    poincare_factors="ppnnddi",
    poincare_factors_grad="ppppnnddi",
    lorentz_factors="ppnnddi",
    lorentz_factors_grad="ppppnnddi",
    lengths="ppppnnnniddp",
    slopes="pppnndp",
)
_FLOOR = BALL_EPS[torch.float32] / 4  # of gaps


def factors_usable(x: Tensor, y: Tensor, c: Tensor) -> bool:
    """Whether :class:`Factors` can be used: of float32 points, whose row numbers are plain float64."""
    fits = x.dtype is y.dtype is torch.float32 and c.dim() == 0 and y.device == x.device
    return fits and LIBRARY.usable(x.new_empty(0))


class Factors(Function[Tensor]):
    """Left or right factors (..., d+2) in float64 of points of a model, "poincare" or "lorentz"."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, c: Tensor, model: str, left: bool) -> Tensor:
        x = x.contiguous()
        d = x.shape[-1] - (model == "lorentz")
        out = x.new_empty(*x.shape[:-1], d + 2, dtype=WIDE)
        numbers = out.numel() // (d + 2), d, float(c), _FLOOR, left
        LIBRARY.run(f"{model}_factors", x, out, *numbers)
        ctx.save_for_backward(x)
        ctx.model, ctx.numbers = model, numbers
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        refuse_graph("a matrix of distances")
        (x,) = ctx.saved_tensors
        grad, grad_x = grad.contiguous(), torch.empty_like(x)
        rows = grad.new_empty(grad.shape[:-1])
        LIBRARY.run(f"{ctx.model}_factors_grad", grad, x, grad_x, rows, *ctx.numbers)
        return grad_x, rows.sum() if ctx.needs_input_grad[1] else None, None, None


class Lengths(Function[tuple[Tensor, int]]):
    """``2/sqrt(c) arsinh(sqrt(h))`` (..., T, N) in the dtype, and how many pairs are close.

    Those are pairs with h not above the limit times their terms; their length is 0, and their h becomes -1.

    Args: left (..., T, e), right (..., N, e): factors, of which the products of the columns e-2 .. e-2+terms are terms.
    """

    @staticmethod
    def forward(
        ctx: Context, h: Tensor, c: Tensor, left: Tensor, right: Tensor, terms: int, limit: float, dtype: torch.dtype
    ) -> tuple[Tensor, int]:
        lead, (t, n), e = h.shape[:-2], h.shape[-2:], left.shape[-1]
        out, close = h.new_empty(h.shape, dtype=dtype), torch.zeros((), dtype=torch.long)
        left, right = (side.expand(*lead, *side.shape[-2:]).contiguous() for side in (left, right))
        sizes = math.prod(lead), t, n, e - 2, terms
        LIBRARY.run("lengths", h, out, left, right, *sizes, limit, 2 / math.sqrt(c), close, dtype=dtype)
        ctx.save_for_backward(h, c)
        return out, int(close)

    @staticmethod
    def backward(ctx: Context, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
        refuse_graph("a matrix of distances")
        h, c = ctx.saved_tensors
        out, grad = torch.empty_like(h), grad.contiguous()
        grad_c = torch.zeros_like(c) if ctx.needs_input_grad[1] else None
        sizes = h.numel() // max(h.shape[-1], 1), h.shape[-1], float(c)
        LIBRARY.run("slopes", h, grad, out, *sizes, grad_c, dtype=grad.dtype)
        return out, grad_c, *[None] * 5
