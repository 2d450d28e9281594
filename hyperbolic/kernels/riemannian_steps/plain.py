"""One step of Riemannian Adam, Adagrad or SGD with the methods of the manifold: any manifold, device and dtype."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.manifolds import Manifold
from hyperbolic.numerics import wide

_BLOCK = 1 << 16  # numbers of the rows that a CPU steps together: intermediate results stay in its cache
_LARGEST = 1e100  # number of a gradient or momentum, as in riemannian_steps.cpp


class Rows(NamedTuple):
    """Points and their state, updated in place: x, momentum (N, D); square, largest (N, 1), the second moments.

    grad: (N, D). some: the numbers (K,) of different rows; only these move, and grad is theirs, (K, D).
    """

    x: Tensor
    grad: Tensor
    momentum: Tensor | None = None
    square: Tensor | None = None
    largest: Tensor | None = None
    some: Tensor | None = None

    def require_shapes(self, flat: bool = False) -> None:
        """Before kernels are given addresses. Args: flat: x is no points, but numbers with moments of their own.

        Raises:
            ValueError: a gradient or a state does not have the shape that it has for these points.
        """
        whole = self.x.shape if flat else (self.x.shape[0], self.x.shape[-1])
        square = whole if flat else (whole[0], 1)
        count = 0 if self.some is None else self.some.numel()
        grad = whole if self.some is None else (count, *whole[1:])
        for tensor, shape in zip(self, (whole, grad, whole, square, square, (count,)), strict=True):
            native.check_shape(tensor, shape)


class Rule(NamedTuple):
    """A rule of update at step t, by its numbers: Adam's, and those of Adagrad and SGD where they differ."""

    rate: float  # lr / (1 - beta1^t); others: lr
    beta: float = 0.0  # beta1
    share: float = 1.0  # 1 - beta1; others: 1
    retain: float = 1.0  # beta2; Adagrad: 1
    follow: float = 1.0  # 1 - beta2; Adagrad: 1
    correction: float = 1.0  # 1 / (1 - beta2^t); Adagrad: 1
    eps: float = 1e-8
    keep: float = 1.0  # 1 - lr weight_decay
    exact_exp: bool = True  # False: the retraction


def step(rows: Rows, manifold: Manifold, rule: Rule) -> None:
    """One step of all rows, in place, with g the Riemannian gradient::

        x <- exp_0(keep log_0(x)), and g and m are moved along: weight decay
        m <- beta m + share g            without a momentum: g
        v <- retain v + follow <g, g>_x  (one for each point; AMSGrad goes on with the largest v)
        u = -rate m / (sqrt(correction v) + eps)  without a second moment: -rate m
        x' = exp_x(u), or the retraction, and m' = m moved from x to x' by parallel transport

    Gradients whose squares overflow in the dtype are shortened; in float64 the entries of gradients and momenta are cut
    to +-1e100. Sources: Bonnabel 2013 (SGD); Bécigneul & Ganea 2019, section 3 (Adam, AMSGrad, Adagrad).
    """
    if rows.some is not None:
        return _step_some(rows, rows.some, manifold, rule)
    n, size = rows.x.shape
    block = max(1, _BLOCK // max(1, size)) if rows.x.device.type == "cpu" else max(1, n)
    for i in range(0, n, block):
        x, grad, *moments = (t if t is None else t[i : i + block] for t in rows[:5])
        assert x is not None
        assert grad is not None
        _step_block(Rows(x, grad, *moments), manifold, rule)


def _step_block(rows: Rows, manifold: Manifold, rule: Rule) -> None:
    x, v = rows.x, rows.square
    m = None if rows.momentum is None else bound(rows.momentum)
    g = bound(manifold.egrad2rgrad(x, bound(rows.grad)))
    if rule.keep != 1:
        x = manifold.expmap0(rule.keep * manifold.logmap0(rows.x))
        g = bound(manifold.transp(rows.x, x, g))
        m = m if m is None else bound(manifold.transp(rows.x, x, m))
    scale: Tensor | float = -rule.rate
    g, square = _measure(x, g, manifold)
    if v is not None:
        v.mul_(rule.retain).add_(square, alpha=rule.follow)
        v = v if rows.largest is None else torch.maximum(rows.largest, v, out=rows.largest)
        scale = -rule.rate / (v * rule.correction).sqrt_().add_(rule.eps)
    m = g if m is None else bound(rule.beta * m + rule.share * g)
    new = manifold.expmap(x, scale * m) if rule.exact_exp else manifold.retr(x, scale * m)
    if rows.momentum is not None:
        rows.momentum.copy_(bound(manifold.transp(x, new, m)))
    rows.x.copy_(new)


def _step_some(rows: Rows, index: Tensor, manifold: Manifold, rule: Rule) -> None:
    """These rows are copied from the tables, moved, and written back."""
    tables = [rows.x, *rows[2:5]]
    some = [t if t is None else t.index_select(0, index) for t in tables]
    x, momentum, square, largest = some
    assert x is not None
    step(Rows(x, rows.grad, momentum, square, largest), manifold, rule)
    for table, moved in zip(tables, some, strict=True):
        if table is not None and moved is not None:
            table.index_copy_(0, index, moved)


def _measure(x: Tensor, g: Tensor, manifold: Manifold) -> tuple[Tensor, Tensor]:
    """g and ``<g, g>_x``, of a g that is shortened where its square overflows."""
    square = manifold.inner(x, wide(g), keepdim=True).clamp_min_(0)
    longest = torch.finfo(x.dtype).max ** 0.5 / 8
    far = square > longest**2
    shrink = torch.where(far, longest * torch.where(far, square, 1).rsqrt(), 1)
    return (g * shrink).to(x.dtype), (square * shrink.square()).to(x.dtype)


def bound(x: Tensor) -> Tensor:
    """x with infinities, from overflow of finite gradients at far points, made the largest finite numbers; in float64
    with numbers beyond +-1e100 made that, as their squares overflow."""
    most = min(torch.finfo(x.dtype).max, _LARGEST)
    return x.clamp(-most, most)
