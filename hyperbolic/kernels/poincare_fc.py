"""The Poincaré fully connected layer of HNN++ (Shimizu, Mukuta & Harada 2021) as one matrix product and a few passes.

``y = Y / sqrt(c)`` with ``Y = s / (1 + sqrt(1 + |s|^2))``, ``s_k = sinh(2|z_k| arsinh(<X, W_k>))``, X the lift of x and
W_k that of the hyperplane k. Row scalars are float64. Values of arsinh, their derivatives and y are all that is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.kernels.operator import Operator, operator
from hyperbolic.numerics import BALL_EPS, WIDE, ball_gap, limit, scaled, sqnorm, wide
from hyperbolic.typing import Context

_TINY = 1e-74  # keeps |z| positive; the inverse of its root is a float32 number
# Largest argument of sinh: its square is representable, and it is far outside the stated radius.
_LONGEST = {torch.float32: 43.0, torch.float64: 300.0}
_BLOCK = 1 << 16  # entries of a block of rows: its five tensors should fit the cache of a core


def unidirectional_hyperplanes(z: Tensor, r: Tensor | None, c: Tensor) -> tuple[Tensor, Tensor]:
    """W (K, d+1) and ``|z_k|`` (K,) with the signed distance of x from hyperplane k ``arsinh(<X, W_k>) / sqrt(c)``:

    ``<X, W_k> = lambda_x <sqrt(c) x, z_k/|z_k|> cosh(2 sqrt(c) r_k) - (lambda_x - 1) sinh(2 sqrt(c) r_k)`` with X from
    :func:`hyperbolic.kernels.mlr.lift_points` (HNN++, unidirectional MLR).

    z (K, d); r (K,), None for zeros, cut where ``2 sqrt(c)|r|`` leaves the stated radius by far. Where z = 0, W has
    no direction, and the gradient of ``|z_k| W_k`` is finite.
    """
    root = c.sqrt()
    norm = (torch.linalg.vector_norm(z, dim=-1, keepdim=True, dtype=WIDE).square() + _TINY).sqrt()
    normal = (1 / norm).to(z.dtype) * z
    if r is None:
        return torch.cat([root.to(z.dtype) * normal, torch.zeros_like(z[:, :1])], -1), norm.squeeze(-1)
    shift = (2 * root * wide(r).unsqueeze(-1)).clamp(-_LONGEST[torch.float32], _LONGEST[torch.float32])
    w = torch.cat([(root * shift.cosh()).to(z.dtype) * normal, (-0.5 * shift.sinh()).to(z.dtype)], -1)
    return w, norm.squeeze(-1)


def _plain_coordinates(x: Tensor, w: Tensor, k: Tensor, c: Tensor) -> Tensor:
    longest, bound, gap = limit(_LONGEST, x.dtype), 1 - limit(BALL_EPS, x.dtype), ball_gap(x, c)
    space, time = (2 / gap).to(x.dtype), (4 / gap - 2).to(x.dtype)
    s = (k * torch.asinh(space * (x @ w[:, :-1].T) + time * w[:, -1])).clamp(-longest, longest).sinh()
    square = sqnorm(s)
    inside = 1 / (1 + (1 + square).sqrt())
    cut = inside.square() * square > bound**2
    return scaled(torch.where(cut, bound * torch.where(cut, square, 1).rsqrt(), inside) * c.rsqrt(), s)


@operator("poincare_coordinates(Tensor x, Tensor w, Tensor k, Tensor c) -> Tensor")
class _Coordinates(Operator):
    """``(x, W, k, c) -> y`` with ``s = sinh(k arsinh(<X, W>))``; x (N, d) points, W (K, d+1), k (K,).

    The lift ``X = [2x/g, 4/g - 2]``, ``g = 1 - c|x|^2``, is not formed: its factors act on the rows of ``x W^T``.
    """

    plain = staticmethod(_plain_coordinates)

    @staticmethod
    def fits(*_: Tensor) -> bool:
        return True

    @staticmethod
    def forward(ctx: Context, x: Tensor, w: Tensor, k: Tensor, c: Tensor) -> Tensor:
        longest, bound = limit(_LONGEST, x.dtype), 1 - limit(BALL_EPS, x.dtype)
        gap, inverse = _gap(x, c), c.rsqrt()
        space, time = (2 / gap).to(x.dtype), (4 / gap - 2).to(x.dtype)
        value = x @ w[:, :-1].T
        root, y = torch.empty_like(value), torch.empty_like(value)
        scale, pull = torch.empty_like(gap), torch.empty_like(gap)
        for rows, scratch in _blocks(value):
            out = y[rows]
            value[rows].mul_(space[rows]).addcmul_(time[rows], w[:, -1])
            arsinh_(value[rows], root[rows], out, scratch)
            torch.mul(value[rows], k, out=out).clamp_(-longest, longest).sinh_()
            norm = torch.linalg.vector_norm(out, dim=-1, keepdim=True, dtype=WIDE)
            inside = 1 / (1 + (1 + norm.square()).sqrt())
            cut = inside * norm > bound
            scale[rows] = torch.where(cut, bound / norm, inside)
            pull[rows] = torch.where(cut, 1 / bound**2, 1 / (1 - inside))
            out.mul_((scale[rows] * inverse).to(x.dtype))
        ctx.save_for_backward(x, w, k, c, gap, value, root, y, scale, pull)
        return y

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        x, w, k, c, gap, value, root, y, scale, pull = ctx.saved_tensors
        inverse = c.rsqrt()
        grad_z, grad_k, along = torch.empty_like(value), torch.zeros_like(k), torch.empty_like(gap)
        for rows, scratch in _blocks(value):
            out = grad_z[rows]
            along[rows] = torch.mul(grad[rows], y[rows], out=scratch).sum(-1, keepdim=True, dtype=WIDE)
            # of s: scale / sqrt(c) (grad - pull c <grad, y> y)
            torch.addcmul(grad[rows], (-c * pull[rows] * along[rows]).to(x.dtype), y[rows], out=out)
            out.mul_((scale[rows] * inverse).to(x.dtype))
            torch.mul(y[rows], (1 / (scale[rows] * inverse)).to(x.dtype), out=scratch)
            out.mul_(scratch.square_().add_(1).sqrt_())  # of k arsinh: times cosh
            grad_k.add_(torch.mul(out, value[rows], out=scratch).sum(0))
            out.mul_(k).div_(root[rows])
        grad_w = torch.empty_like(w)
        grad_w[:, -1] = ((4 / gap - 2).to(x.dtype).T @ grad_z).squeeze(0)
        by_time = wide(grad_z @ w[:, -1:])
        grad_x = grad_z @ w[:, :-1]  # not yet times the factor 2/g
        by_space = torch.linalg.vecdot(wide(grad_x), wide(x)).unsqueeze(-1)
        grad_gap = torch.where(gap > _floor(x.dtype), -2 / gap.square() * (by_space + 2 * by_time), 0)
        space = (2 / gap).to(x.dtype)
        grad_w[:, :-1] = grad_z.mul_(space).T @ x
        grad_x.mul_(space).addcmul_((-2 * c * grad_gap).to(x.dtype), x)
        grad_c = None
        if ctx.needs_input_grad[3]:
            grad_c = along.sum() / (-2 * c) - (grad_gap * (1 - gap)).sum() / c
        return grad_x, grad_w, grad_k, grad_c


def _floor(dtype: torch.dtype) -> float:
    return limit(BALL_EPS, dtype) / 4


def _gap(x: Tensor, c: Tensor) -> Tensor:
    """:func:`hyperbolic.numerics.ball_gap`, for float32 without a float64 copy of x."""
    if x.dtype is WIDE:
        return ball_gap(x, c)
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=WIDE)
    return (1 - c * norm.square()).clamp_min(_floor(x.dtype))


def _blocks(value: Tensor) -> list[tuple[slice, Tensor]]:
    """Row ranges of (N, K) with scratch of their shape; on a GPU one with all rows."""
    n = value.shape[0]
    step = max(n if value.is_cuda else min(_BLOCK // max(value.shape[1], 1), n), 1)
    scratch = value.new_empty(step, value.shape[1])
    return [(slice(i, i + step), scratch[: n - i]) for i in range(0, n, step)]


def arsinh_(z: Tensor, root: Tensor, size: Tensor, value: Tensor, bounded: bool = False) -> None:
    """``z <- arsinh(z)`` and ``root <- sqrt(1 + z^2)`` in place; ``size`` and ``value`` are scratch of the same shape.

    ``sign(z) log(1 + |z| + |z| |z|/(1 + root))`` in passes over blocks that should fit the cache: ``torch.asinh``
    costs many times more on CPU. Right also where z^2 overflows; there the root is that of the largest number.
    ``bounded``: z^2 is known not to overflow.
    """
    if z.device.type != "cpu":
        torch.hypot(z, torch.ones_like(z[:1, :1]), out=root)
        z.asinh_()
        return
    torch.addcmul(torch.ones((), dtype=z.dtype), z, z, out=root)
    if not bounded:
        root.clamp_max_(torch.finfo(z.dtype).max)
    root.sqrt_()
    torch.abs(z, out=size)
    torch.add(root, 1, out=value)
    torch.div(size, value, out=value)
    if not bounded:
        value.clamp_max_(1)
    torch.addcmul(size, size, value, out=value).log1p_()
    torch.copysign(value, z, out=z)


def poincare_fc(x: Tensor, z: Tensor, r: Tensor | None, c: Tensor) -> Tensor:
    """Points (..., K) of the ball for points x (..., d), from K hyperplanes z (K, d), r (K,) or None.

    Results beyond the stated radius are cut to it.
    """
    w, norm = unidirectional_hyperplanes(z, r, c)
    y: Tensor = _Coordinates.run(x.reshape(-1, x.shape[-1]), w, (2 * norm).to(z.dtype), c)
    return y.view(*x.shape[:-1], z.shape[0])
