"""The passes of :mod:`hyperbolic.kernels.pairwise` in C++: factors of float32 points, and lengths of products.

What is not there in C++, the factors of float64 points and the pairs that are computed again, is derived by autograd.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.pairwise import plain
from hyperbolic.kernels.pairwise.plain import LORENTZ, POINCARE, Model
from hyperbolic.numerics import BALL_EPS
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

LIBRARY = native.Library("pairwise")
_FLOOR = BALL_EPS[torch.float32] / 4  # of gaps


class _Graph:
    """Functions of x, y and c, and their gradients by autograd if they are needed."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], needs: Sequence[bool], *tensors: Tensor):
        leaves = [t.detach().requires_grad_(need) for t, need in zip(tensors, needs, strict=False)]
        with torch.set_grad_enabled(any(needs)):
            self.out = function(*leaves)
        self.values = tuple(value.detach() for value in self.out)
        self.leaves, self.needs = [leaf for leaf in leaves if leaf.requires_grad], needs

    def grads(self, *grads: Tensor) -> tuple[Tensor | None, ...]:
        outs, grads = zip(*(pair for pair in zip(self.out, grads, strict=True) if pair[0].requires_grad), strict=True)
        values = iter(torch.autograd.grad(outs, self.leaves, grads, retain_graph=True))
        return tuple(next(values) if need else None for need in self.needs[:3])


class _Factors:
    """Left factors (..., d+2) of float32 points x and right ones of y, by C++."""

    def __init__(self, model: Model, x: Tensor, y: Tensor, c: Tensor):
        self.points, self.name = (x.contiguous(), y.contiguous()), model.name
        self.numbers = x.shape[-1] - (model is LORENTZ), float(c), _FLOOR
        self.values = tuple(p.new_empty(*p.shape[:-1], self.numbers[0] + 2, dtype=torch.float64) for p in self.points)
        for points, out, left in zip(self.points, self.values, (True, False), strict=True):
            LIBRARY.run(f"{self.name}_factors", points, out, points[..., 0].numel(), *self.numbers, left)

    def grads(self, *grads: Tensor) -> tuple[Tensor, ...]:
        grads_of_points, grad_c = [], grads[0].new_zeros(())
        for points, grad, left in zip(self.points, grads, (True, False), strict=True):
            out, rows = torch.empty_like(points), grad.new_empty(grad.shape[:-1])
            numbers = rows.numel(), *self.numbers, left
            LIBRARY.run(f"{self.name}_factors_grad", grad.contiguous(), points, out, rows, *numbers)
            grads_of_points.append(out)
            grad_c += rows.sum()
        return *grads_of_points, grad_c


def _forward(model: Model, ctx: Context, x: Tensor, y: Tensor, c: Tensor, refine: bool) -> Tensor:
    needs = ctx.needs_input_grad[:3]
    factors: _Factors | _Graph
    if x.dtype is torch.float32:
        factors = _Factors(model, x, y, c)
    else:
        factors = _Graph(lambda x, y, c: (model.factors(x, c, True), model.factors(y, c, False)), needs, x, y, c)
    ctx.factors, (left, right) = factors, factors.values
    h = (left @ right.mT).contiguous()
    lead, (t, n), e = h.shape[:-2], h.shape[-2:], left.shape[-1]
    out, close = h.new_empty(h.shape, dtype=x.dtype), h.new_zeros((), dtype=torch.long)
    sides = (side.expand(*lead, *side.shape[-2:]).contiguous() for side in (left, right))
    sizes = math.prod(lead), t, n, e - 2, model.terms
    limit = plain.CLOSE[x.dtype] if refine else 0.0
    # lengths are 0 at close pairs, and their h becomes -1
    LIBRARY.run("lengths", out, h, *sides, *sizes, limit, 2 / math.sqrt(c), close)
    ctx.save_for_backward(h, c)
    ctx.index = index = (h < 0).nonzero(as_tuple=True) if refine and close else None
    if index is not None:
        ctx.again = _Graph(lambda x, y, c: (model.distance(*plain.pairs(x, y, index), c),), needs, x, y, c)
        out.index_put_(index, ctx.again.values[0].squeeze(-1).to(x.dtype))
    return out


class _Pairwise(Operator):
    @staticmethod
    def fits(x: Tensor, y: Tensor, c: Tensor, refine: bool) -> bool:
        sizes_fit = min(x.dim(), y.dim()) > 1 and c.dim() == 0 and x.shape[-1] == y.shape[-1] > 0
        return sizes_fit and c.dtype is torch.float64 and LIBRARY.readable(x, y)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, c = ctx.saved_tensors
        grad, grad_h, grad_c = grad.contiguous(), torch.empty_like(h), torch.zeros_like(c)
        sizes = h.numel() // max(h.shape[-1], 1), h.shape[-1], float(c)
        LIBRARY.run("slopes", grad, h, grad_h, *sizes, grad_c if ctx.needs_input_grad[2] else None)
        left, right = ctx.factors.values
        by_left, by_right = grad_h @ right, grad_h.mT @ left
        grads = ctx.factors.grads(by_left.sum_to_size(left.shape), by_right.sum_to_size(right.shape))
        if ctx.index is not None:
            more = ctx.again.grads(grad[ctx.index].double().unsqueeze(-1))
            grads = tuple(a if b is None else a + b for a, b in zip(grads, more, strict=True))
        grad_x, grad_y, by_factors = grads
        return grad_x, grad_y, None if by_factors is None else grad_c + by_factors, None


@operator("poincare_pairwise(Tensor x, Tensor y, Tensor c, bool refine) -> Tensor")
class Poincare(_Pairwise):
    plain = staticmethod(functools.partial(plain.distances, POINCARE))
    forward = staticmethod(functools.partial(_forward, POINCARE))


@operator("lorentz_pairwise(Tensor x, Tensor y, Tensor c, bool refine) -> Tensor")
class Lorentz(_Pairwise):
    plain = staticmethod(functools.partial(plain.distances, LORENTZ))
    forward = staticmethod(functools.partial(_forward, LORENTZ))
