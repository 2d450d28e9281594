"""One geodesic step of a point and the transport of a tangent vector along it, as coefficients of row sums.

A Riemannian gradient is ``g = p x + q h`` in the point x and the Euclidean gradient h; the end of a step along m is
``x' = a x + b m`` and the transported vector ``m' = a_m x + b_m m``. The coefficients are float64, one for each row.
On the hyperboloid all of this is about space coordinates. Derivations: Nickel & Kiela 2018 (hyperboloid), Ganea,
Bécigneul & Hofmann 2018 (ball). :mod:`hyperbolic.kernels.adam` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic.numerics import BALL_EPS, SHEET_RADIUS, WIDE, ball_gap, limit

_LONGEST_STEP = 32.0  # times 2/sqrt(c); longer steps leave every model
_FAR, _LONGEST_FAR = 2e9, 11.5  # of cosh(r)^2 at the point; of the length there, times sqrt(c)
_TINY = 1e-300


class Rule(NamedTuple):
    """What is fixed while a kernel runs."""

    adam: bool = True  # False: SGD
    momentum: bool = True  # SGD may have none
    amsgrad: bool = False
    decay: bool = False
    exact_exp: bool = True  # False: the retraction proj(x + u), on the Poincaré ball only


class Numbers(NamedTuple):
    """Scalars of one step: 0-dim float64 tensors, so that they may change without compiling again."""

    c: Tensor
    rate: Tensor  # learning rate, for Adam divided by 1 - beta1^t
    beta: Tensor  # decay of the momentum
    share: Tensor  # of the gradient in it: 1 - beta1, for SGD 1
    follow: Tensor  # 1 - beta2
    correction: Tensor  # 1 / (1 - beta2^t)
    eps: Tensor
    keep: Tensor  # 1 - lr * weight_decay


class Sums(NamedTuple):
    """Row sums in float64, each (N, 1), of the points and one other vector."""

    xx: Tensor
    xv: Tensor | None  # not needed of the gradient of the ball
    vv: Tensor  # of models with `orthogonal`, of the part of v orthogonal to x
    inverse: Tensor | None = None  # of models with `orthogonal`: see inverse_square


class Move(NamedTuple):
    """Coefficients (N, 1): ``x' = a x + b m`` and ``m' = a_m x + b_m m``."""

    a: Tensor
    b: Tensor
    a_m: Tensor
    b_m: Tensor
    product: Tensor | None = None  # on the hyperboloid: <x', m'> of space coordinates


def nothing(cases: Tensor) -> bool:
    """Whether a rare case is known to be absent: only eager code on the CPU looks, elsewhere that would wait."""
    return cases.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(cases.any())


def inverse_square(xx: Tensor) -> Tensor:
    """``1/|x|^2``; 0 where x is so short that all directions are alike."""
    short = xx < 1e-30
    return torch.where(short, 0, torch.where(short, 1, xx).reciprocal())


# -- gradients: <g, g>_x, and p and q of g = p x + q h ------------------------------------------------------------


def _lorentz_gradient(x: Tensor, h: Tensor, sums: Sums, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``g = h + c (<s, h> + t h_0) s`` in space coordinates; ``<g, g>_x = |g_o|^2 + <s, g>^2/(|s|^2 (1 + c|s|^2))``."""
    assert sums.xv is not None
    assert sums.inverse is not None
    e = 1 + c * sums.xx
    p = c * torch.addcmul(sums.xv, (e / c).sqrt_(), h[:, :1].to(WIDE))
    radial = torch.addcmul(sums.xv, sums.xx, p)
    return torch.addcmul(sums.vv, radial.square(), sums.inverse / e), p, torch.ones_like(p)


def _poincare_gradient(x: Tensor, h: Tensor, sums: Sums, c: Tensor) -> tuple[Tensor, None, Tensor]:
    """``g = (gap/2)^2 h``."""
    metric = (_gap(x, sums.xx, c) / 2).square_()
    return metric * sums.vv, None, metric


def _klein_gradient(x: Tensor, h: Tensor, sums: Sums, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``g = gap (h - c <x, h> x)``; ``<g, g>_x = gap |h_o|^2 + gap^2 <x, h>^2/|x|^2`` with h_o orthogonal to x."""
    assert sums.xv is not None
    assert sums.inverse is not None
    gap = _gap(x, sums.xx, c)
    square = gap * torch.addcmul(sums.vv, sums.xv.square(), gap * sums.inverse)
    return square, -c * gap * sums.xv, gap


# -- geodesics from x along scale * m, after decay towards the origin ---------------------------------------------


def _length(scale: Tensor, square: Tensor, longest: float | Tensor) -> tuple[Tensor, Tensor]:
    """Length ``r`` of a step ``scale * m`` with ``|m|^2 = square``, and the scale, both cut at the longest step."""
    r = square.sqrt().mul_(scale.abs()).clamp_min_(_TINY)
    return r.clamp_max(longest) if isinstance(longest, float) else torch.minimum(r, longest), (longest / r).clamp_max_(
        1
    ).mul_(scale)


def _lorentz_move(x: Tensor, sums: Sums, scale: Tensor, k: Numbers, rule: Rule) -> Move:
    """``x' = cosh(r) x + sinh(r)/r u``, and u moves to ``cosh(r) u + r sinh(r) x``, in space coordinates."""
    c, (xx, radial, mm, inverse) = k.c, sums
    assert radial is not None
    assert inverse is not None
    e = 1 + c * xx
    keep: Tensor | float | None = None
    added = None  # the momentum moved by the decay is m + added x
    if rule.decay:
        length = (c * xx).clamp_min_(_TINY).sqrt_()
        shorter = length.asinh() * k.keep
        keep, cosh = shorter.sinh() / length, shorter.cosh()
        stretch = cosh * e.rsqrt()
        added, radial, e = radial * inverse * (stretch - 1), radial * stretch, cosh.square_()
    beta = radial * inverse  # that is beta x + n, with n orthogonal to x and mm = |n|^2
    n2 = torch.addcmul(mm, radial, beta / e)
    # from far out, steps over the origin to the other side lose all digits: they are cut
    r, scale = _length(scale, c * n2, torch.where(e > _FAR, _LONGEST_FAR, 2 * _LONGEST_STEP))
    cosh, b = r.cosh(), r.sinh().div_(r).mul_(scale)
    start = cosh if keep is None else cosh * keep
    on_x = torch.addcmul(start, b, beta)  # x' = on_x x + b n
    end = torch.addcmul(on_x.square().mul_(xx), b.square(), mm)
    a = start if added is None else torch.addcmul(start, b, added)
    turned = c * b * n2  # m' = v_x x + v_n n
    v_x, v_n = torch.addcmul(turned if keep is None else turned * keep, cosh, beta), cosh
    bound = math.sinh(limit(SHEET_RADIUS, x.dtype)) ** 2 / c
    outside, inside = end > bound, None
    if not nothing(outside):
        # A step that was cut: its direction at the end by Clairaut's relation, taken back along the ray.
        keep = 1 if keep is None else keep
        inside = (bound / end.clamp_min(bound)).sqrt_()
        time = torch.addcmul(1 / c, end, inside.square()).sqrt_()
        over = end.clamp_min(_TINY)
        along = torch.addcmul(n2, mm * xx, keep * keep / over, value=-1).clamp_min_(0).sqrt_().copysign_(scale)
        along = along * time * (c / over).sqrt()
        v_x = torch.where(outside, along * on_x - keep * mm * b / over, v_x)
        v_n = torch.where(outside, along * b + keep * xx * on_x / over, v_n)
    fits = _fitting(torch.addcmul(v_x.square().mul_(xx), v_n.square(), mm), x.dtype)
    v_x, v_n = v_x * fits, v_n * fits
    product = torch.addcmul((on_x * v_x).mul_(xx), b * v_n, mm)
    b_end = b
    if inside is not None:
        a, b_end, product = a * inside, b * inside, product * inside
    back = -beta if added is None else added - beta
    return Move(a, b_end, torch.addcmul(v_x, v_n, back), v_n, product)


def _fitting(square: Tensor, dtype: torch.dtype) -> Tensor:
    """Factor that keeps momenta of this squared length, which rounding may lengthen far out, inside the dtype."""
    longest = 1e36 if dtype is not WIDE else 1e120
    return (longest * square.clamp_min(longest**2).rsqrt_()).clamp_max_(1)


def _gap(x: Tensor, xx: Tensor, c: Tensor) -> Tensor:
    """``1 - c|x|^2``."""
    return ball_gap(x, c) if x.dtype is WIDE else (1 - c * xx).clamp_min_(limit(BALL_EPS, x.dtype) / 4)


def _least_gap(dtype: torch.dtype) -> float:
    """Gap at the boundary margin, and what rounding a float32 point may take of it."""
    bound = 1 - limit(BALL_EPS, dtype)
    return (1 - bound * bound) * (1 if dtype is WIDE else 1.05)


def _pull(gap: Tensor, least: float) -> Tensor:
    """Factor that pulls a point with this gap back to the boundary margin, 1 for points inside."""
    return ((1 - least) / (1 - gap).clamp_min_(1 - least)).sqrt_()


def _ball_decay(xx: Tensor, gap: Tensor, k: Numbers) -> tuple[Tensor, Tensor]:
    """Factor of x and the new gap, for a point of the ball or the disk that keeps a share of its distance from 0."""
    r = (k.c * xx).clamp_min_(_TINY).sqrt_()
    shorter = ((r + r * r) * 2 / gap).log1p_() * (k.keep / 2)
    return shorter.tanh() / r, shorter.cosh().square_().reciprocal_()


def _norm2(a: Tensor, b: Tensor, sums: Sums) -> Tensor:
    """``|a x + b v|^2``."""
    assert sums.xv is not None
    return torch.addcmul(torch.addcmul(a * a * sums.xx, b * b, sums.vv), a * b, sums.xv, value=2).clamp_min_(0)


def _poincare_move(x: Tensor, sums: Sums, scale: Tensor, k: Numbers, rule: Rule) -> Move:
    """Along the geodesic or the retraction; decay multiplies x by ``keep`` and momenta by the ratio of the gaps."""
    assert sums.xv is not None
    gap, keep, least = _gap(x, sums.xx, k.c), k.keep, _least_gap(x.dtype)
    along = _ball_exp if rule.exact_exp else _ball_retraction
    if not rule.decay:
        return along(least, k.c, keep, gap, scale, sums)
    keep, decayed_gap = _ball_decay(sums.xx, gap, k)
    ratio = decayed_gap / gap
    move = along(least, k.c, keep, decayed_gap, scale, Sums(sums.xx, sums.xv * ratio, sums.vv * ratio.square()))
    return move._replace(b=move.b * ratio, b_m=move.b_m * ratio)


def _ball_exp(least: float, c: Tensor, keep: Tensor, gap: Tensor, scale: Tensor, sums: Sums) -> Move:
    """``x (+) y`` with ``y = eta m``, and ``g'/g gyr[x, y] m``, for the point ``keep x``.

    With ``q = c|x + y|^2`` and ``D = q + g g_y``: ``x (+) y = ((g + q) x + g y)/D``, its gap is ``g g_y/D``, and
    ``gyr[x, y] m = ((g + g_y - g g_y) m + c eta |m|^2 (q + g + g_y) x)/D``.
    """
    r, scale = _length(scale / gap, c * sums.vv, _LONGEST_STEP)
    eta, gap_y = r.tanh().div_(r).mul_(scale), r.cosh().square_().reciprocal_()
    q = c * _norm2(keep, eta, sums)
    product, gaps = gap * gap_y, gap + gap_y
    denominator = q + product
    new_gap = product / denominator
    inside = _pull(new_gap, least) / denominator
    a, b = (gap + q) * keep * inside, gap * eta * inside
    pull = _pull(1 - c * _norm2(a, b, sums), least)  # a float64 step from one side to the other loses digits of q
    share = new_gap.clamp_min(least) / (gap * denominator)
    return Move(a * pull, b * pull, c * eta * sums.vv * (q + gaps) * share * keep, (gaps - product) * share)


def _ball_retraction(least: float, c: Tensor, keep: Tensor, gap: Tensor, scale: Tensor, sums: Sums) -> Move:
    """``x' = proj(x + u)`` and ``g'/g gyr[x', -x] m``, with ``x' - x = e x + b m`` (see ``sheet.gyrate``)."""
    assert sums.xv is not None
    xx, xm, mm = keep * keep * sums.xx, keep * sums.xv, sums.vv
    square = c * _norm2(keep, scale, sums)
    inside = _pull(1 - square, least)
    new_gap = (1 - square * inside.square()).clamp_min_(least / 2)
    e, b = inside - 1, scale * inside
    ee, xe = _norm2(e * keep, b, sums), e * xx + b * xm
    em = e * xm + b * mm
    along_e = -c * gap * xm - c * c * (xx * em - 2 * xe * xm)
    along_x = c * gap * em - c * c * ee * xm
    turn, ratio = 2 / (c * ee + gap * new_gap), new_gap / gap
    return Move(keep * inside, b, keep * ratio * turn * (along_e * e + along_x), ratio * (1 + turn * along_e * b))


def _klein_move(x: Tensor, sums: Sums, scale: Tensor, k: Numbers, rule: Rule) -> Move:
    """``x' = x + f u`` on a straight line, so the momentum keeps its direction and is multiplied by ``gap'/gap``."""
    c, (xx, radial, mm, inverse) = k.c, sums
    assert radial is not None
    assert inverse is not None
    gap, keep, least = _gap(x, xx, c), k.keep, _least_gap(x.dtype)
    beta = radial * inverse  # m = beta x + n, with n orthogonal to x
    root, added = torch.ones_like(xx), torch.zeros_like(xx)  # the momentum moved by the decay is root m + added x
    if rule.decay:
        keep, decayed_gap = _ball_decay(xx, gap, k)
        ratio, gap = decayed_gap / gap, decayed_gap
        root = ratio.sqrt()
        added, beta, radial, mm = (ratio - root) * beta, beta * ratio, radial * ratio, mm * ratio
    n2 = mm / gap + radial * beta / gap.square()
    r, scale = _length(scale, c * n2, _LONGEST_STEP)
    f = r.tanh().div_(r).mul_(scale)
    denominator = 1 + f * (c * keep * radial / gap)
    f = f / denominator
    ratio = (r.cosh() * denominator).square_().reciprocal_()
    end_gap = gap * ratio
    inside = _pull(end_gap, least)
    # a step that was cut: see the hyperboloid
    on_x = torch.addcmul(keep, f, beta)
    over = torch.addcmul(f.square() * mm, on_x.square(), xx).clamp_min_(_TINY)
    turned = keep * end_gap.sqrt() / (gap * over)
    along = torch.addcmul(n2, turned.square() * over, mm * xx, value=-1).clamp_min_(0).sqrt_().copysign_(scale)
    along, turned = along * least * over.rsqrt(), turned * least**0.5
    outside = end_gap < least
    v_n = torch.where(outside, along * f + turned * xx * on_x, ratio)
    v_x = torch.where(outside, along * on_x - turned * mm * f, ratio * beta)
    return Move((keep + f * added) * inside, f * inside * root, v_x + v_n * (added - beta), v_n * root)


class Model(NamedTuple):
    """What a step needs of a model of the space.

    gradient: ``(x, h, sums of x and h, c) -> (<g, g>_x, p, q)``. move: ``(x, sums of x and m, scale, numbers, rule) ->
    Move`` for the step ``scale * m``. orthogonal: sums need the part of the vector orthogonal to x. start: first
    space coordinate.
    """

    gradient: Callable[[Tensor, Tensor, Sums, Tensor], tuple[Tensor, Tensor | None, Tensor]]
    move: Callable[[Tensor, Sums, Tensor, Numbers, Rule], Move]
    orthogonal: bool
    start: int


MODELS: dict[str, Model] = {
    "Lorentz": Model(_lorentz_gradient, _lorentz_move, True, 1),
    "PoincareBall": Model(_poincare_gradient, _poincare_move, False, 0),
    "Klein": Model(_klein_gradient, _klein_move, True, 0),
}
