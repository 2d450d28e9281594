"""Riemannian Adam and SGD steps in closed form on the rows of a table of points.

A step takes the gradient g into the momentum m, then moves x and m along a geodesic. Each half is two sums over every
row (``<x, h>`` and ``|h|^2`` of the Euclidean gradient h, then ``<x, m>`` and ``|m|^2``), a few coefficients of every
row in float64 (:mod:`hyperbolic.kernels.geodesic_steps`), and combinations of rows in the table's own dtype:
``m <- beta m + p x + q h``, then ``x' = a x + b m`` and ``m' = a_m x + b_m m``. The sums are float64 sums of exact
products, taken a few rows at a time, so that no float64 copy of the table is made.

Tests compare every kernel with the same update written with the methods of the manifold.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic.kernels.geodesic_steps import MODELS, Model, Numbers, Rule, Sums, inverse_square
from hyperbolic.numerics import SHEET_RADIUS, WIDE, limit

_BLOCK = 1 << 15  # numbers in a block of rows for each CPU thread: its float64 copies fit in the cache
_CHUNK = 1 << 14  # rows whose coefficients are computed together
_HUGE = 1e100  # float64 gradients are cut here: their squares have to be finite


class Rows(NamedTuple):
    """A table and its state, updated in place: x, grad, momentum (N, D); square and largest (N, 1)."""

    x: Tensor
    grad: Tensor
    momentum: Tensor | None = None
    square: Tensor | None = None
    largest: Tensor | None = None


def _dot(x: Tensor, y: Tensor, product: Tensor) -> Tensor:
    """``<x, y>`` of float64 rows, (N, 1); product is overwritten."""
    return torch.mul(x, y, out=product) @ x.new_ones(x.shape[-1], 1)


def _sums(x: Tensor, v: Tensor, xx: Tensor | None, orthogonal: bool, work: Tensor) -> Sums:
    """The sums of some rows; ``work`` (3, rows, D) in float64 is overwritten.

    In float64 tables the part of v orthogonal to x is formed before it is squared; in float32 the rounding of the
    table itself is larger than what ``|v|^2 - <x, v>^2/|x|^2`` loses in float64.
    """
    exact = x.dtype is WIDE
    x, v, product = work[0, : len(x)].copy_(x), work[1, : len(v)].copy_(v), work[2, : len(x)]
    xx, xv = _dot(x, x, product) if xx is None else xx, _dot(x, v, product)
    if not orthogonal:
        return Sums(xx, xv, _dot(v, v, product))
    along = xv * inverse_square(xx)
    if exact:
        v.addcmul_(x, along, value=-1)
        return Sums(xx, xv, _dot(v, v, product))
    return Sums(xx, xv, torch.addcmul(_dot(v, v, product), xv, along, value=-1).clamp_min_(0))


def _moments(rows: Rows, length2: Tensor, k: Numbers, rule: Rule) -> tuple[Tensor, Tensor]:
    """Weight of the gradient in the momentum, and of the momentum in the step, from ``<g, g>_x``; updates v.

    A gradient so long that its square overflows in the table's dtype is shortened.
    """
    longest = torch.finfo(rows.x.dtype).max ** 0.5 / 8 if rows.x.dtype is not WIDE else _HUGE
    shrink = (length2.clamp_min(longest**2).rsqrt_() * longest).clamp_max_(1)
    weight = shrink * k.share
    if not rule.adam:
        return weight, -k.rate.expand_as(weight)
    v = rows.square.to(WIDE)
    v = torch.addcmul(v, shrink.square().mul_(length2).sub_(v), k.follow)
    rows.square.copy_(v)
    if rule.amsgrad:
        v = torch.maximum(rows.largest.to(WIDE), v)
        rows.largest.copy_(v)
    return weight, (v * k.correction).sqrt_().add_(k.eps).reciprocal_().mul_(-k.rate)


def _narrow(t: Tensor, dtype: torch.dtype) -> Tensor:
    largest = torch.finfo(dtype).max
    return t if dtype is WIDE else t.clamp(-largest, largest).to(dtype)


def _take_gradient(model: Model, rows: Rows, sums: Sums, k: Numbers, rule: Rule) -> tuple[Tensor, ...]:
    """The scale of the step, and the coefficients of h and x in the new momentum (of x where it has a part in g)."""
    square, p, q = model.gradient(rows.x, rows.grad, sums, k.c)
    weight, scale = _moments(rows, square, k, rule)
    return scale, *(_narrow(t * weight, rows.x.dtype) for t in (q, p) if t is not None)


def _take_step(model: Model, x: Tensor, sums: Sums, scale: Tensor, k: Numbers, rule: Rule) -> tuple[Tensor, ...]:
    """Coefficients of the new points and momenta, and what is left of ``<x', m'>`` for the time coordinate."""
    return tuple(_narrow(t, x.dtype) for t in model.move(x, sums, scale, k, rule) if t is not None)


def _add_gradient(x: Tensor, h: Tensor, m: Tensor, beta: Tensor, q: Tensor, p: Tensor | None = None) -> None:
    """``m <- beta m + p x + q h``."""
    m.mul_(beta).addcmul_(h, q)
    if p is not None:
        m.addcmul_(x, p)


def _move(x: Tensor, m: Tensor, a: Tensor, b: Tensor, a_m: Tensor, b_m: Tensor) -> None:
    """``x <- a x + b m`` and ``m <- a_m x + b_m m``."""
    added = x * a_m
    x.mul_(a).addcmul_(m, b)
    m.mul_(b_m).add_(added)


def _joined(parts: list[Sums]) -> Sums:
    return parts[0] if len(parts) == 1 else Sums(*map(torch.cat, zip(*parts, strict=True)))


def _step_chunk(model: Model, rows: Rows, k: Numbers, rule: Rule, work: Tensor) -> None:
    x, h, m = rows[:3]
    m = torch.zeros_like(x) if m is None else m
    beta, start = k.beta.to(x.dtype), model.start
    blocks = [slice(i, i + work.shape[1]) for i in range(0, len(x), work.shape[1])]
    sums = _joined([_sums(x[i, start:], h[i, start:], None, model.orthogonal, work) for i in blocks])
    scale, *into = _take_gradient(model, rows, sums, k, rule)
    parts = []
    for i in blocks:
        _add_gradient(x[i], h[i], m[i], beta, *(t[i] for t in into))
        parts.append(_sums(x[i, start:], m[i, start:], sums.xx[i], model.orthogonal, work))
    move = _take_step(model, x, _joined(parts), scale, k, rule)
    for i in blocks:
        _move(x[i], m[i], *(t[i] for t in move[:4]))
        if start:
            _set_times(x[i], m[i], move[4][i], k.c, work)


def _set_times(x: Tensor, m: Tensor, product: Tensor, c: Tensor, work: Tensor) -> None:
    """Time coordinates of points and momenta of the hyperboloid; product is ``<x, m>`` of space coordinates.

    The points are those that were written: a step from far out over the origin leaves few digits of them.
    """
    point = work[0, : len(x)].copy_(x[:, 1:])
    square, bound = _dot(point, point, work[2, : len(x)]), math.sinh(limit(SHEET_RADIUS, x.dtype)) ** 2 / c
    inside = (bound / square.clamp_min(bound)).sqrt_()
    time = torch.addcmul(1 / c, square, inside * inside).sqrt_()
    x.mul_(inside.to(x.dtype))
    x[:, :1] = time
    m[:, :1] = product.to(WIDE).div_(time)


@torch.no_grad()
def step(name: str, rows: Rows, k: Numbers, rule: Rule) -> None:
    """One step of all rows, in place.

    Args:
        name: a key of ``MODELS``. rows: square and largest are needed by Adam, momentum unless SGD has none.
    """
    model, (n, size), device = MODELS[name], rows.x.shape, rows.x.device
    if rows.grad.dtype is WIDE:
        rows = rows._replace(grad=rows.grad.clamp(-_HUGE, _HUGE))
    chunk, block = n, n
    if device.type == "cpu":
        block = max(1, min(n, _BLOCK * torch.get_num_threads() // size))
        chunk = -(-_CHUNK // block) * block
    work = torch.empty(3, block, size - model.start, dtype=WIDE, device=device)
    for i in range(0, n, max(1, chunk)):
        _step_chunk(model, Rows(*(t if t is None else t[i : i + chunk] for t in rows)), k, rule, work)
