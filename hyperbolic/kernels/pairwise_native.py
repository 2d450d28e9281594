"""The factors and lengths of :mod:`hyperbolic.kernels.pairwise` in C++ passes on a CPU."""

from __future__ import annotations

import ctypes
import functools
import math

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.function import Context, Function
from hyperbolic.kernels.mlr import refuse_graph
from hyperbolic.native import address
from hyperbolic.numerics import BALL_EPS, WIDE

_POINTER, _SIZE, _FLAG, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_double
_FACTORS = (_SIZE, _SIZE, _NUMBER, _NUMBER, _FLAG)
_ARGUMENTS = {
    "poincare_factors": (_POINTER, _POINTER, *_FACTORS),
    "poincare_factors_grad": (*[_POINTER] * 4, *_FACTORS),
    "lorentz_factors": (_POINTER, _POINTER, *_FACTORS),
    "lorentz_factors_grad": (*[_POINTER] * 4, *_FACTORS),
    "lengths": (*[_POINTER] * 4, *[_SIZE] * 4, _FLAG, _NUMBER, _NUMBER, _POINTER),
    "slopes": (*[_POINTER] * 3, _SIZE, _SIZE, _NUMBER, _POINTER),
}
_FLOOR = BALL_EPS[torch.float32] / 4  # of gaps


@functools.cache
def _function(name: str, dtype: torch.dtype | None = None) -> native.CFunction:
    return native.function("pairwise", name + native.SUFFIX[dtype], *_ARGUMENTS[name])


def usable(h: Tensor) -> bool:
    """Whether :class:`Lengths` can be used."""
    return native.usable(h) and native.library("pairwise") is not None


def factors_usable(x: Tensor, y: Tensor, c: Tensor) -> bool:
    """Whether :class:`Factors` can be used: of float32 points, whose row numbers are plain float64."""
    return x.dtype is y.dtype is torch.float32 and c.dim() == 0 and usable(x.new_empty(0)) and y.device == x.device


class Factors(Function[Tensor]):
    """Left or right factors (..., d+2) in float64 of points of a model, "poincare" or "lorentz"."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, c: Tensor, model: str, left: bool) -> Tensor:
        x = x.contiguous()
        d = x.shape[-1] - (model == "lorentz")
        out = x.new_empty(*x.shape[:-1], d + 2, dtype=WIDE)
        numbers = out.numel() // (d + 2), d, float(c), _FLOOR, left
        _function(f"{model}_factors")(address(x), address(out), *numbers, torch.get_num_threads())
        ctx.save_for_backward(x)
        ctx.model, ctx.numbers = model, numbers
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        refuse_graph("a matrix of distances")
        (x,) = ctx.saved_tensors
        grad, grad_x = grad.contiguous(), torch.empty_like(x)
        rows = grad.new_empty(grad.shape[:-1])
        run = _function(f"{ctx.model}_factors_grad")
        run(*map(address, (grad, x, grad_x, rows)), *ctx.numbers, torch.get_num_threads())
        return grad_x, rows.sum() if ctx.needs_input_grad[1] else None, None, None


class Lengths(Function[tuple[Tensor, int]]):
    """``2/sqrt(c) arsinh(sqrt(h))`` (..., T, N) in the dtype, and how many pairs are close.

    Those are pairs with h not above the limit times their terms; their length is 0, and their h becomes -1.

    Args: left (..., T, e), right (..., N, e): factors, of which the products of the columns e-2 .. e-2+terms are terms.
    """

    @staticmethod
    def forward(
        ctx: Context,
        h: Tensor,
        c: Tensor,
        left: Tensor,
        right: Tensor,
        terms: int,
        limit: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, int]:
        lead, (t, n), e = h.shape[:-2], h.shape[-2:], left.shape[-1]
        out, close = h.new_empty(h.shape, dtype=dtype), torch.zeros((), dtype=torch.long)
        left, right = (side.expand(*lead, *side.shape[-2:]).contiguous() for side in (left, right))
        sizes = math.prod(lead), t, n, e - 2, terms
        constants = limit, 2 / math.sqrt(c), address(close), torch.get_num_threads()
        _function("lengths", dtype)(*map(address, (h, out, left, right)), *sizes, *constants)
        ctx.save_for_backward(h, c)
        return out, int(close)

    @staticmethod
    def backward(ctx: Context, grad: Tensor, _: None) -> tuple[Tensor | None, ...]:
        refuse_graph("a matrix of distances")
        h, c = ctx.saved_tensors
        out, grad = torch.empty_like(h), grad.contiguous()
        grad_c = torch.zeros_like(c) if ctx.needs_input_grad[1] else None
        sizes = h.numel() // max(h.shape[-1], 1), h.shape[-1], float(c)
        run = _function("slopes", grad.dtype)
        run(*map(address, (h, grad, out)), *sizes, address(grad_c), torch.get_num_threads())
        return out, grad_c, *[None] * 5
