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

from hyperbolic.kernels.geodesic_steps import MODELS, Model, Numbers, Rule, Sums, inverse_square, nothing
from hyperbolic.numerics import SHEET_RADIUS, WIDE, limit

_BLOCK = 1 << 16  # numbers in a block of rows for each CPU thread: its float64 copies fit in the cache
_CHUNK = 1 << 15  # rows whose coefficients are computed together
_LANES = 16
_HUGE = 1e100  # float64 gradients are cut here: their squares have to be finite


class Rows(NamedTuple):
    """A table and its state, updated in place: x, grad, momentum (N, D); square and largest (N, 1)."""

    x: Tensor
    grad: Tensor
    momentum: Tensor | None = None
    square: Tensor | None = None
    largest: Tensor | None = None


class Work(NamedTuple):
    """Memory for float64 copies of a block of rows: x, v, product (rows, D); ones (D, 1), 0 for a time coordinate."""

    x: Tensor
    v: Tensor
    product: Tensor
    ones: Tensor


def _dot(x: Tensor, y: Tensor, work: Work | None = None, out: Tensor | None = None) -> Tensor:
    """``<x, y>`` of float64 rows, (N, 1).

    Compiled sums along a row are slow in float64: there 16 partial sums are left to a matrix product.
    """
    if work is not None:
        return torch.mm(torch.mul(x, y, out=work.product[: len(x)]), work.ones, out=out)
    padded = torch.nn.functional.pad(x * y, (0, -x.shape[-1] % _LANES))
    sums: Tensor = padded.unflatten(-1, (-1, _LANES)).sum(1) @ x.new_ones(_LANES, 1)
    return sums


def _square(x: Tensor, model: Model, work: Work | None, out: Tensor | None) -> Tensor:
    """``|x|^2`` of space coordinates in float64, (N, 1); a norm, unlike :func:`_dot`, leaves no products in memory."""
    if work is None:
        return _dot(x, x)
    norm: Tensor = torch.linalg.vector_norm(x[:, model.start :], dim=1, keepdim=True, out=out)
    return norm.square_()


def _wide(x: Tensor, out: Tensor) -> Tensor:
    return x if x.dtype is WIDE else out[: len(x)].copy_(x)


def _sums(
    x: Tensor, v: Tensor, xx: Tensor | None, model: Model, work: Work | None = None, out: Sums | None = None
) -> Sums:
    """The sums of some rows, of space coordinates, for :func:`_finished`.

    In float64 tables the part of v orthogonal to x is formed before it is squared; in float32 the rounding of the
    table itself is larger than what ``|v|^2 - <x, v>^2/|x|^2`` loses in float64.
    """
    across = model.orthogonal and x.dtype is WIDE
    if work is None:
        x, v = x[:, model.start :].to(WIDE), v[:, model.start :].to(WIDE)
    else:
        x, v = _wide(x, work.x), _wide(v, work.v)
    needs_dot = model.orthogonal or xx is not None  # of the gradient of the ball only the length matters
    xx_out, xv_out, vv_out = (None, None, None) if out is None else out[:3]
    xv = _dot(x, v, work, xv_out) if needs_dot else None
    xx = _square(x, model, work, xx_out) if xx is None else xx
    if across and xv is not None:
        v = torch.addcmul(v, x, xv * inverse_square(xx), value=-1)
    return Sums(xx, xv, _square(v, model, work, vv_out))


def _finished(sums: Sums, model: Model, x: Tensor) -> Sums:
    if not model.orthogonal:
        return sums
    assert sums.xv is not None
    inverse = inverse_square(sums.xx) if sums.inverse is None else sums.inverse
    if x.dtype is WIDE:
        return sums._replace(inverse=inverse)
    vv = torch.addcmul(sums.vv, sums.xv, sums.xv * inverse, value=-1).clamp_min_(0)
    return sums._replace(vv=vv, inverse=inverse)


def _moments(rows: Rows, length2: Tensor, k: Numbers, rule: Rule) -> tuple[Tensor, Tensor]:
    """Weight of the gradient in the momentum, and of the momentum in the step, from ``<g, g>_x``; updates v.

    A gradient so long that its square overflows in the table's dtype is shortened.
    """
    longest = torch.finfo(rows.x.dtype).max ** 0.5 / 8 if rows.x.dtype is not WIDE else _HUGE
    shrink = (length2.clamp_min(longest**2).rsqrt_() * longest).clamp_max_(1)
    weight = shrink * k.share
    if not rule.adam:
        return weight, -k.rate.expand_as(weight)
    assert rows.square is not None
    v = rows.square.to(WIDE)
    v = torch.addcmul(v, shrink.square().mul_(length2).sub_(v), k.follow)
    rows.square.copy_(v)
    if rule.amsgrad:
        assert rows.largest is not None
        v = torch.maximum(rows.largest.to(WIDE), v)
        rows.largest.copy_(v)
    return weight, (v * k.correction).sqrt_().add_(k.eps).reciprocal_().mul_(-k.rate)


def _narrow(t: Tensor, dtype: torch.dtype) -> Tensor:
    largest = torch.finfo(dtype).max
    return t if dtype is WIDE else t.clamp(-largest, largest).to(dtype)


def _take_gradient(model: Model, rows: Rows, sums: Sums, k: Numbers, rule: Rule) -> tuple[Tensor, ...]:
    """The scale of the step, and the coefficients of h and x in the new momentum (of x where it has a part in g)."""
    square, p, q = model.gradient(rows.x, rows.grad, _finished(sums, model, rows.x), k.c)
    weight, scale = _moments(rows, square, k, rule)
    return scale, *(_narrow(t * weight, rows.x.dtype) for t in (q, p) if t is not None)


def _take_step(model: Model, x: Tensor, sums: Sums, scale: Tensor, k: Numbers, rule: Rule) -> tuple[Tensor, ...]:
    """Coefficients of the new points and momenta, and what is left of ``<x', m'>`` for the time coordinate."""
    move = model.move(x, _finished(sums, model, x), scale, k, rule)
    return tuple(_narrow(t, x.dtype) for t in move if t is not None)


def _add_gradient(x: Tensor, h: Tensor, m: Tensor, k: Numbers, q: Tensor, p: Tensor | None = None) -> None:
    """``m <- beta m + p x + q h``."""
    m.mul_(k.beta.to(m.dtype)).addcmul_(h, q)
    if p is not None:
        m.addcmul_(x, p)


def _move(x: Tensor, m: Tensor, a: Tensor, b: Tensor, a_m: Tensor, b_m: Tensor) -> None:
    """``x <- a x + b m`` and ``m <- a_m x + b_m m``."""
    added = x * a_m
    x.mul_(a).addcmul_(m, b)
    m.mul_(b_m).add_(added)


def _step_chunk(model: Model, rows: Rows, k: Numbers, rule: Rule, work: Work) -> None:
    """The step by cache-sized blocks; only the coefficients are of all rows."""
    size, momentum = len(work.x), rows.momentum
    assert momentum is not None
    xs, hs, ms = (t.split(size) for t in (rows.x, rows.grad, momentum))
    vectors = torch.empty(3, len(rows.x), 1, dtype=WIDE, device=rows.x.device).unbind(0)
    sums = Sums(*vectors)
    parts = [Sums(*each) for each in zip(*(t.split(size) for t in vectors), strict=True)]
    for x, h, part in zip(xs, hs, parts, strict=True):
        _sums(x, h, None, model, work, part)
    if model.orthogonal:
        sums = sums._replace(inverse=inverse_square(sums.xx))
    scale, *into = _take_gradient(model, rows, sums, k, rule)
    for x, h, m, part, *weights in zip(xs, hs, ms, parts, *(t.split(size) for t in into), strict=True):
        _add_gradient(x, h, m, k, *weights)
        _sums(x, m, part.xx, model, work, part)
    move = _take_step(model, rows.x, sums, scale, k, rule)
    for x, m, part, *weights in zip(xs, ms, parts, *(t.split(size) for t in move[:4]), strict=True):
        _move(x, m, *weights)
        if model.start:
            _square(_wide(x, work.x), model, work, part.xx)
    if model.start:
        _set_times(rows.x, momentum, *_times(sums.xx, move[4], k.c, rows.x.dtype))


def _times(square: Tensor, product: Tensor, c: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The factor that pulls points of the hyperboloid inside, and time coordinates of points and momenta.

    Args:
        square: of the space coordinates that were written: a step from far out over the origin leaves few digits of
            them. product: ``<x, m>`` of space coordinates.
    """
    bound = math.sinh(limit(SHEET_RADIUS, dtype)) ** 2 / c
    inside = (bound / square.clamp_min(bound)).sqrt_()
    time = torch.addcmul(1 / c, square, inside * inside).sqrt_()
    return inside.to(dtype), time, product.to(WIDE) / time


def _set_times(x: Tensor, m: Tensor, inside: Tensor, time: Tensor, time_m: Tensor) -> None:
    if not nothing(inside < 1):
        x.mul_(inside)
    x[:, :1] = time
    m[:, :1] = time_m


@torch.no_grad()
def step(name: str, rows: Rows, k: Numbers, rule: Rule) -> None:
    """One step of all rows, in place.

    Args:
        name: a key of ``MODELS``. rows: square and largest are needed by Adam, momentum unless SGD has none.
    """
    model, (n, size), device = MODELS[name], rows.x.shape, rows.x.device
    if rows.grad.dtype is WIDE:
        rows = rows._replace(grad=rows.grad.clamp(-_HUGE, _HUGE))
    if rows.momentum is None:
        rows = rows._replace(momentum=torch.zeros_like(rows.x))
    block = max(1, n)
    if device.type == "cpu" and n * size > 2 * _BLOCK:
        block = max(1, _BLOCK * torch.get_num_threads() // size)
    chunk = max(1, n // max(1, n // _CHUNK)) if device.type == "cpu" else n
    work = None
    for i in range(0, n, max(1, chunk)):
        cut = slice(i, i + chunk)
        part = Rows(rows.x[cut], rows.grad[cut], *(t if t is None else t[cut] for t in rows[2:]))
        if work is None:
            ones = torch.ones(size, 1, dtype=WIDE, device=device)
            ones[: model.start] = 0
            x, v, product = torch.empty(3, block, size, dtype=WIDE, device=device)
            work = Work(x, v, product, ones)
        _step_chunk(model, part, k, rule, work)
