"""The passes of :mod:`hyperbolic.kernels.pairwise` in C++: factors of float32 points, and lengths of products.

What is not there in C++, the factors of float64 points and the pairs that are computed again, is derived by autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.operator import Operator, operator
from hyperbolic.kernels.pairwise import plain
from hyperbolic.numerics import BALL_EPS
from hyperbolic.typing import Context

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


class _Model(NamedTuple):
    """terms: how many of the last factors say how large the terms of a product are."""

    name: str
    terms: int
    factors: Callable[[Tensor, Tensor, bool], Tensor]
    distance: Callable[[Tensor, Tensor, Tensor], Tensor]


_POINCARE = _Model("poincare", 2, plain.poincare_factors, plain.poincare_distance)
_LORENTZ = _Model("lorentz", 1, plain.lorentz_factors, plain.lorentz_distance)


class _Graph:
    """A function of tensors, and its gradients by autograd if they are needed."""

    def __init__(self, function: Callable[..., Tensor], needed: bool, *tensors: Tensor):
        self.leaves = [t.detach().requires_grad_(needed) for t in tensors]
        with torch.set_grad_enabled(needed):
            self.out = function(*self.leaves)
        self.value = self.out.detach()

    def grads(self, grad: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.out, self.leaves, grad, retain_graph=True)


class _Factors:
    """Left or right factors (..., d+2) of points, by C++ in float32."""

    def __init__(self, model: _Model, x: Tensor, c: Tensor, left: bool, needed: bool):
        self.x, self.model, self.graph = x, model, None
        if x.dtype is torch.float64:
            self.graph = _Graph(lambda x, c: model.factors(x, c, left), needed, x, c)
            self.value = self.graph.value
            return
        self.x = x = x.contiguous()
        d = x.shape[-1] - (model is _LORENTZ)
        self.numbers = x.numel() // x.shape[-1], d, float(c), _FLOOR, left
        self.value = x.new_empty(*x.shape[:-1], d + 2, dtype=torch.float64)
        LIBRARY.run(f"{model.name}_factors", x, self.value, *self.numbers)

    def grads(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Of the points and of c; grad may have more leading axes."""
        grad = grad.sum_to_size(self.value.shape).contiguous()
        if self.graph is not None:
            grad_x, grad_c = self.graph.grads(grad)
            return grad_x, grad_c
        grad_x, rows = torch.empty_like(self.x), grad.new_empty(grad.shape[:-1])
        LIBRARY.run(f"{self.model.name}_factors_grad", grad, self.x, grad_x, rows, *self.numbers)
        return grad_x, rows.sum()


def _fits(x: Tensor, y: Tensor, c: Tensor, refine: bool) -> bool:
    return c.dim() == 0 and x.shape[-1] == y.shape[-1] > 0 and LIBRARY.readable(x, y)


def _forward(ctx: Context, model: _Model, x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
    needed = any(ctx.needs_input_grad)
    ctx.factors = [_Factors(model, points, c, left, needed) for points, left in ((x, True), (y, False))]
    left, right = (factors.value for factors in ctx.factors)
    h = (left @ right.mT).contiguous()
    lead, (t, n), e = h.shape[:-2], h.shape[-2:], left.shape[-1]
    out, close = h.new_empty(h.shape, dtype=x.dtype), torch.zeros((), dtype=torch.long)
    sides = (side.expand(*lead, *side.shape[-2:]).contiguous() for side in (left, right))
    sizes = math.prod(lead), t, n, e - 2, model.terms
    limit = plain.CLOSE[x.dtype] if refine else 0.0
    # lengths are 0 at close pairs, and their h becomes -1
    LIBRARY.run("lengths", h, out, *sides, *sizes, limit, 2 / math.sqrt(c), close, dtype=x.dtype)
    ctx.save_for_backward(h, c)
    ctx.index = index = (h < 0).nonzero(as_tuple=True) if refine and close else None
    if index is not None:
        ctx.again = _Graph(lambda x, y, c: model.distance(*plain.pairs(x, y, index), c), needed, x, y, c)
        out.index_put_(index, ctx.again.value.squeeze(-1).to(x.dtype))
    return out


def _backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    h, c = ctx.saved_tensors
    grad, grad_h, grad_c = grad.contiguous(), torch.empty_like(h), torch.zeros_like(c)
    sizes = h.numel() // max(h.shape[-1], 1), h.shape[-1], float(c)
    LIBRARY.run("slopes", h, grad, grad_h, *sizes, grad_c if ctx.needs_input_grad[2] else None, dtype=grad.dtype)
    left, right = ctx.factors
    (grad_x, by_left), (grad_y, by_right) = left.grads(grad_h @ right.value), right.grads(grad_h.mT @ left.value)
    grad_c = grad_c + by_left + by_right
    if ctx.index is not None:
        more = ctx.again.grads(grad[ctx.index].double().unsqueeze(-1))
        grad_x, grad_y, grad_c = (a + b for a, b in zip((grad_x, grad_y, grad_c), more, strict=True))
    return grad_x, grad_y, grad_c, None


@operator("poincare_pairwise(Tensor x, Tensor y, Tensor c, bool refine) -> Tensor")
class Poincare(Operator):
    plain = staticmethod(plain.poincare)
    fits = staticmethod(_fits)

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
        return _forward(ctx, _POINCARE, x, y, c, refine)

    backward = staticmethod(_backward)


@operator("lorentz_pairwise(Tensor x, Tensor y, Tensor c, bool refine) -> Tensor")
class Lorentz(Operator):
    plain = staticmethod(plain.lorentz)
    fits = staticmethod(_fits)

    @staticmethod
    def forward(ctx: Context, x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
        return _forward(ctx, _LORENTZ, x, y, c, refine)

    backward = staticmethod(_backward)
