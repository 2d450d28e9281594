"""The row numbers behind a chain of Möbius sums: coefficients of the vectors, and their derivatives by hand.

Möbius operations only scale and add the vectors that go in. With vectors ``v_j`` (a product ``W x``, or a point) that
stand for the points ``t_j = exp_0(a_j v_j)``, the sum ``(t_1 (+) t_2) (+) ...`` is ``sum_j C_j v_j``, and the
coefficients ``C_j`` follow from the inner products ``c<v_i, v_j>`` alone. All of them are float64, (N, 1), or (1, 1)
for a point that is the same in every row, so that nothing is lost to cancellation near the boundary in float32 points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_TINY = 1e-30  # least length, so that 0/0 does not happen
_SMALL = 1e-5  # below this square two terms of a series are exact to 1e-10, and above it the closed form to 1e-11
_LEAST = 1e-14  # of the denominator of a sum, 6e-11 for two opposite float32 points of least gap

Gram = dict[tuple[int, int], Tensor]  # c<v_i, v_j> for i < j
VectorGrad = tuple[Tensor | None, Tensor | None, Tensor]  # of r^2, f and w^2


class Vector(NamedTuple):
    """A vector and the point it comes from, ``t = exp_0(f artanh(r)/r v)``.

    A fixed point has f = None and r = w, and is the vector itself.
    """

    r: Tensor  # sqrt(c)|x| of the point x, at least _TINY
    w: Tensor  # sqrt(c)|v|
    factor: Tensor | None = None


class Term(NamedTuple):
    """``t = k v`` (k = None: v itself), its gap ``g = 1 - c|t|^2``, and where it comes from."""

    vector: Vector
    log: Tensor | None  # artanh(r)/r
    room: Tensor  # 1 - r^2
    length: Tensor | None
    k: Tensor | None
    gap: Tensor


def _term(vector: Vector, floor: float) -> Term:
    r, w, factor = vector
    room = r.square().neg_().add_(1).clamp_min_(floor)
    if r is w and factor is None:
        return Term(vector, None, room, None, None, room)
    log = torch.addcmul(r, r, r).mul_(2).div_(room).log1p_().div_(r).mul_(0.5)
    length = log if factor is None else factor * log
    u = length * w
    return Term(vector, log, room, length, u.tanh().div_(w), u.cosh_().pow_(-2))


def _term_grad(term: Term, g_k: Tensor, g_gap: Tensor, exact: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    """Gradients of r^2, f and w^2.

    Near 0 the quotients lose their digits, but in gradients of vectors they are multiplied by as small numbers; only
    the gradient of c needs them exact.
    """
    (r, w, factor), log, room, length, k, gap = term
    assert log is not None
    assert length is not None
    assert k is not None
    square, norm = r * r, w * w
    g_length = (k * norm).mul_(g_gap).mul_(-2).add_(g_k).mul_(gap)
    k_slope = (length * gap).sub_(k).div_(norm).mul_(0.5)
    log_slope = (room.reciprocal() - log).div_(square).mul_(0.5)
    if exact:
        log_slope = torch.where(square < _SMALL, 1 / 3 + 2 / 5 * square, log_slope)
        short = length * length
        k_slope = torch.where(short * norm < _SMALL, (4 / 15 * short * norm - 1 / 3) * short * length, k_slope)
    g_norm = k_slope.mul_(g_k).addcmul_((g_gap * gap).mul_(k), length, value=-1)
    if factor is None:
        return g_length.mul_(log_slope), None, g_norm
    return g_length * factor * log_slope, g_length.mul_(log), g_norm


def _times(a: Tensor, k: Tensor | None) -> Tensor:
    return a if k is None else a * k


class Step(NamedTuple):
    """What the gradient of a sum ``m (+) t`` needs. Little is kept, as fresh memory costs more than arithmetic."""

    before: list[Tensor]  # coefficients of m
    gap: Tensor  # of m
    top: Tensor  # n
    inverse: Tensor  # 1/D


def _chain(terms: Sequence[Term], gram: Gram) -> tuple[list[Tensor], Tensor, list[Step]]:
    """``(t_1 (+) t_2) (+) ...``: the coefficients of the vectors, the gap of the sum, and the steps.

    With ``n = 1 + 2c<m, t> + c|t|^2`` and ``D = n - g_m c|t|^2``, ``m (+) t = (n m + g_m t)/D`` with gap ``g_m g_t/D``.
    """
    coefficients, gap = _start(terms)
    steps: list[Step] = []
    for j, term in enumerate(terms[1:], 1):
        top = coefficients[0] * gram[0, j]
        for i in range(1, j):
            top.addcmul_(coefficients[i], gram[i, j])
        if term.k is not None:
            top.mul_(term.k)
        size = 1 - term.gap
        top.mul_(2).add_(1 + size)
        inverse = torch.addcmul(top, gap, size, value=-1).clamp_min_(_LEAST).reciprocal_()
        step = Step(coefficients, gap, top, inverse)
        steps.append(step)
        coefficients, gap = _after(step, term)
    return coefficients, gap, steps


def _start(terms: Sequence[Term]) -> tuple[list[Tensor], Tensor]:
    """Coefficient and gap of the first term, which is a product."""
    assert terms[0].k is not None
    return [terms[0].k], terms[0].gap


def _after(step: Step, term: Term) -> tuple[list[Tensor], Tensor]:
    """Coefficients and gap of the sum."""
    head, tail = step.top * step.inverse, step.gap * step.inverse
    return [head * k for k in step.before] + [_times(tail, term.k)], tail * term.gap


def _chain_grad(
    terms: Sequence[Term], gram: Gram, steps: list[Step], grads: list[Tensor], g_gap: Tensor
) -> tuple[list[tuple[Tensor | None, Tensor]], Gram]:
    """Gradients of each term's (k, gap), of ``c|t|^2`` at fixed k and gap, and of gram, from those of the coefficients
    and of the gap of the sum."""
    g_terms: list[tuple[Tensor | None, Tensor]] = []
    g_gram: Gram = {}
    for j in range(len(steps), 0, -1):
        before, gap, top, inverse = steps[j - 1]
        k, size = terms[j].k, 1 - terms[j].gap
        head, tail = top * inverse, gap * inverse
        g_head = grads[0] * before[0]
        for g, m in zip(grads[1:j], before[1:], strict=True):
            g_head.addcmul_(g, m)
        g_tail = _times(grads[j], k)
        # head, tail and the new gap depend on c|m + t|^2 and g_m through one factor
        common = torch.addcmul(g_tail, g_head, size).addcmul_(g_gap, terms[j].gap).mul_(inverse).mul_(inverse)
        g_square = gap * common  # of -c|m + t|^2
        g_t_gap = (g_head * head).addcmul_(g_tail, tail).neg_().mul_(tail)
        g_t_gap.addcmul_(g_gap, (top - gap).mul_(tail).mul_(inverse)).add_(g_square)
        g_cross = _times(g_square, k).mul(-2)
        if k is None:
            g_terms.append((None, g_t_gap))
        else:
            cross = before[0] * gram[0, j]  # c<m, v>
            for i, m in enumerate(before[1:], 1):
                cross = cross + m * gram[i, j]
            g_terms.append(((grads[j] * tail).addcmul_(g_square, cross, value=-2), g_t_gap))
        g_gram |= {(i, j): g_cross * m for i, m in enumerate(before)}
        grads = [(g * head).addcmul_(g_cross, gram[i, j]) for i, g in enumerate(grads[:j])]
        g_gap = top * common
    return [(grads[0], g_gap), *reversed(g_terms)], g_gram


class Rows(NamedTuple):
    """What the gradient of the coefficients needs."""

    terms: list[Term]
    gram: Gram
    steps: list[Step]
    shrink: Tensor


def row_coefficients(vectors: Sequence[Vector], gram: Gram, bound: float) -> tuple[list[Tensor], Rows]:
    """Coefficients C_j of ``t_1 (+) t_2 (+) ...``, pulled back to the norm bound where the sum lies outside of it."""
    terms = [_term(vector, (1 - bound) / 4) for vector in vectors]
    coefficients, gap, steps = _chain(terms, gram)
    shrink = (1 - gap).clamp_min_(0.5).reciprocal_().mul_(bound * bound).sqrt_().clamp_max_(1)
    return [shrink * k for k in coefficients], Rows(terms, gram, steps, shrink)


def row_coefficients_grad(rows: Rows, grads: Sequence[Tensor], exact: bool) -> tuple[list[VectorGrad], Gram]:
    """Gradients of every vector, and of gram, from those of the coefficients.

    For a fixed point, the gradient of w^2 is that of its square and the others are None. ``exact``: also exact where
    vectors are tiny, as the gradient of the curvature needs it.
    """
    terms, gram, steps, shrink = rows
    coefficients, gap = _after(steps[-1], terms[-1]) if steps else _start(terms)
    g_gap = grads[0] * coefficients[0]
    for g, k in zip(grads[1:], coefficients[1:], strict=True):
        g_gap.addcmul_(g, k)
    g_gap.mul_(shrink).mul_(shrink < 1).div_((1 - gap).clamp_min_(0.5).mul_(2))
    g_terms, g_gram = _chain_grad(terms, gram, steps, [g * shrink for g in grads], g_gap)
    results: list[VectorGrad] = []
    for term, (g_k, g_gap) in zip(terms, g_terms, strict=True):
        if g_k is None:
            results.append((None, None, g_gap.sum().neg().view(1, 1)))
        else:
            results.append(_term_grad(term, g_k, g_gap, exact))
    return results, g_gram
