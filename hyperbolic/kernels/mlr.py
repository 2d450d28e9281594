"""Hyperbolic multinomial logistic regression as one matrix product (Ganea et al. 2018, Eq. 23).

With the lift ``X = [2x/g_x, 2(1 + c|x|^2)/g_x]``, ``g_x = 1 - c|x|^2``, and per class
``W = sqrt(c)/|a| [a + 2c<p,a>/g_p p, -<p,a>/g_p]``, the argument of arsinh is exactly ``<X, W>``:

``logit_k = 2|a_k|/sqrt(c) arsinh(2 sqrt(c) <-p_k (+) x, a_k> / ((1 - c|-p_k (+) x|^2) |a_k|)) = s_k arsinh(<X, W_k>)``

No tensor of batch x classes x dimension is formed. Row scalars (gaps, squared norms, products) are float64. On a CPU
the passes over rows are those of :mod:`hyperbolic.kernels.mlr_native`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hyperbolic.kernels import mlr_native
from hyperbolic.manifolds.poincare import mobius_add
from hyperbolic.numerics import BALL_EPS, WIDE, ball_gap, dot, limit, sqnorm, wide, wide_curvature
from hyperbolic.typing import Context, Function

_TINY = 1e-74  # keeps |a| positive; the inverse of its root is a float32 number
_BLOCK = 1 << 17  # entries of a block of rows
_LOGITS = 1 << 17  # entries of a block of logits


def lift_points(x: Tensor, c: Tensor) -> Tensor:
    """``[2x/g, 2(1 + c|x|^2)/g]``: (..., d) -> (..., d+1). It can be differentiated once."""
    return _LiftPoints.apply(x, wide_curvature(c).to(x.device))


class _LiftPoints(Function[Tensor]):
    @staticmethod
    def forward(ctx: Context, x: Tensor, c: Tensor) -> Tensor:
        if mlr_native.liftable(x):
            out, gap = mlr_native.lift_points(x, c)
            ctx.save_for_backward(x, c, gap)
            return out
        gap = ball_gap(x, c)
        ctx.save_for_backward(x, c, gap)
        out = x.new_empty(*x.shape[:-1], x.shape[-1] + 1)
        torch.mul(x, 2 / gap, out=out[..., :-1]) if x.dtype is WIDE else out[..., :-1].copy_(2 / gap * wide(x))
        out[..., -1:] = 4 / gap - 2
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        refuse_graph("the lift of points")
        x, c, gap = ctx.saved_tensors
        if mlr_native.liftable(x, grad):
            return mlr_native.lift_points_grad(grad, x, c, gap, ctx.needs_input_grad[1])
        space, time = grad[..., :-1], wide(grad[..., -1:])
        grad_gap = _unfloored(gap, x.dtype) * (dot(space, x) + 2 * time) * (-2 / gap.square())
        grad_x = (2 / gap * wide(space) - 2 * c * grad_gap * wide(x)).to(x.dtype)
        return grad_x, -(grad_gap * sqnorm(x)).sum() if ctx.needs_input_grad[1] else None


def _unfloored(gap: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where :func:`ball_gap` has a gradient, 0 where it is at its floor."""
    return (gap > limit(BALL_EPS, dtype) / 4).to(WIDE)


def lift_hyperplanes(p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """W (K, d+1) and the scales ``s = 2|a|/sqrt(c)`` (K,) of hyperplanes through points p with normals a, both (K, d).

    At a = 0 the logit is 0 and its gradient is finite. It can be differentiated once.
    """
    return _LiftHyperplanes.apply(p, a, wide_curvature(c).to(a.device))


class _LiftHyperplanes(Function[tuple[Tensor, Tensor]]):
    """With ``t = <p,a>/g``, ``alpha = sqrt(c)/|a|``, ``beta = 2 c alpha t``: ``W = [alpha a + beta p, -alpha t]``."""

    @staticmethod
    def forward(ctx: Context, p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        if mlr_native.liftable(p, a):
            w, scale, *scalars = mlr_native.lift_hyperplanes(p, a, c)
            ctx.save_for_backward(p, a, c, *scalars)
            return w, scale
        gap = ball_gap(p, c) if p.dtype is WIDE else (1 - c * _square(p)).clamp_min(limit(BALL_EPS, p.dtype) / 4)
        shift = dot(p, a) / gap
        norm = (_square(a) + _TINY).sqrt()
        alpha = c.sqrt() / norm
        w = a.new_empty(a.shape[0], a.shape[1] + 1)
        torch.mul(a, alpha.to(a.dtype), out=w[:, :-1])
        w[:, :-1].addcmul_((2 * c * alpha * shift).to(a.dtype), p)
        w[:, -1:] = -alpha * shift
        ctx.save_for_backward(p, a, c, gap, shift, norm)
        return w, (2 / c.sqrt() * norm).squeeze(-1).to(a.dtype)

    @staticmethod
    def backward(ctx: Context, grad_w: Tensor, grad_s: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        refuse_graph("the lift of hyperplanes")
        p, a, c, *scalars = ctx.saved_tensors
        if mlr_native.liftable(p, a, grad_w, grad_s):
            return mlr_native.lift_hyperplanes_grad(grad_w, grad_s, p, a, c, scalars, ctx.needs_input_grad[2])
        grad_p, grad_a, grad_c = torch.empty_like(p), torch.empty_like(a), torch.zeros_like(c)
        for rows in _row_blocks(a):
            size = wide(grad_s[rows]).unsqueeze(-1)
            here = [t[rows] for t in (p, a, *scalars, grad_p, grad_a)]
            part = _hyperplane_grads(grad_w[rows], size, c, *here)
            if ctx.needs_input_grad[2]:
                grad_c += part()
        return grad_p, grad_a, grad_c if ctx.needs_input_grad[2] else None


def _hyperplane_grads(
    grad_w: Tensor,
    size: Tensor,
    c: Tensor,
    p: Tensor,
    a: Tensor,
    gap: Tensor,
    shift: Tensor,
    norm: Tensor,
    grad_p: Tensor,
    grad_a: Tensor,
) -> Callable[[], Tensor]:
    """Writes the gradients of p and a of some rows; returns the function that gives their gradient of c."""
    space, time = grad_w[:, :-1], wide(grad_w[:, -1:])
    alpha = c.sqrt() / norm
    along_p = wide(torch.linalg.vecdot(space, p)).unsqueeze(-1)
    slope = 2 * c * along_p - time
    grad_alpha = wide(torch.linalg.vecdot(space, a)).unsqueeze(-1) + shift * slope
    grad_product = alpha * slope / gap  # of <p, a>
    grad_gap = -_unfloored(gap, p.dtype) * grad_product * shift
    grad_norm = (2 / c.sqrt() * size - alpha / norm * grad_alpha) / norm  # over |a|
    _combine(grad_a, (alpha, space), (grad_norm, a), (grad_product, p))
    _combine(grad_p, (2 * c * alpha * shift, space), (grad_product, a), (-2 * c * grad_gap, p))

    def curvature_grad() -> Tensor:
        by_root = (alpha * grad_alpha - 2 / c.sqrt() * norm * size) / (2 * c)
        parts: Tensor = by_root + 2 * alpha * shift * along_p - grad_gap * (1 - gap) / c
        return parts.sum()

    return curvature_grad


def _row_blocks(x: Tensor) -> list[slice]:
    """Blocks of rows (K, d) that stay in the cache."""
    step = max(_BLOCK // max(x.shape[1], 1), 1) if x.device.type == "cpu" else max(len(x), 1)
    return [slice(start, start + step) for start in range(0, len(x), step)]


def _square(x: Tensor) -> Tensor:
    """``|x|^2`` of rows (K, d) in float64, shape (K, 1), without a float64 copy of x."""
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=WIDE)
    return norm.square()


def _combine(out: Tensor, *terms: tuple[Tensor, Tensor]) -> None:
    """``out <- sum_i f_i v_i`` of row factors (K, 1) in float64 and vectors (K, d)."""
    for number, (factor, vectors) in enumerate(terms):
        factor = factor.to(out.dtype)
        out.addcmul_(factor, vectors) if number else torch.mul(factor, vectors, out=out)


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


def scaled_arsinh_(z: Tensor, scale: Tensor) -> None:
    """``z <- scale arsinh(z)`` in place, for z (B, K) and a scale that broadcasts to its rows."""
    if z.device.type != "cpu":
        z.asinh_().mul_(scale)
    elif scale.dim() and mlr_native.LIBRARY.usable(z, scale):
        mlr_native.scaled_arsinh_(z, scale)
    elif z.numel():
        root, size, value = z.new_empty(3, min(_rows(z), len(z)), z.shape[1])
        for block in z.split(len(root)):
            n = len(block)
            arsinh_(block, root[:n], size[:n], value[:n])
            block.mul_(scale)


class _ScaledLogits(Function[Tensor]):
    """``s arsinh(x w^T)`` for x (B, e), which keeps the logits only: the slope is ``s / cosh(logit / s)``."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        out = x @ w.T
        scaled_arsinh_(out, scale)
        ctx.save_for_backward(x, w, scale, out)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_graph("the logits")
        x, w, scale, out = ctx.saved_tensors
        if mlr_native.LIBRARY.usable(x, w, scale, out):
            return mlr_native.logit_grads(x, w, scale, out, grad.contiguous(), ctx.needs_input_grad)
        inverse, twice = 1 / scale, 2 * w * scale.unsqueeze(-1)
        slope, grad_scale = torch.empty_like(out), torch.zeros_like(scale)
        step = _rows(out)
        spare = out.new_empty(min(step, len(out)), out.shape[1])
        for start in range(0, len(out), step):
            rows = slice(start, start + step)
            t, u = slope[rows], spare[: len(out[rows])]
            grad_scale += torch.mul(out[rows], grad[rows], out=u).sum(0)
            torch.mul(out[rows], inverse, out=u).abs_().neg_().exp_()  # 1/cosh(v) = 2 e / (1 + e^2), e = exp(-|v|)
            torch.addcmul(torch.ones((), dtype=u.dtype, device=u.device), u, u, out=t)
            torch.div(u, t, out=t).mul_(grad[rows])
        grads = [slope @ twice, (slope.T @ x).mul_((2 * scale).unsqueeze(-1)), grad_scale.mul_(inverse)]
        return tuple(g if needed else None for g, needed in zip(grads, ctx.needs_input_grad, strict=True))


def _rows(logits: Tensor) -> int:
    """Rows of a block whose temporary tensors stay in the cache."""
    return max(_LOGITS // max(logits.shape[1], 1), 1) if logits.device.type == "cpu" else max(len(logits), 1)


def refuse_graph(what: str) -> None:
    """
    Raises:
        RuntimeError: in a backward pass that shall be differentiated itself.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"{what} can be differentiated once: there is no second derivative (create_graph=True)")


def class_logits(x: Tensor, w: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """``s_k arsinh(<x, w_k>)`` where a scale is given, else ``<x, w_k> + b_k``; (..., e), (K, e), (K,) -> (..., K)."""
    if scale is None:
        return torch.nn.functional.linear(x, w, bias)
    return _ScaledLogits.apply(x.reshape(-1, x.shape[-1]), w, scale).view(*x.shape[:-1], w.shape[0])


def mlr_logits(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Logits of Ganea et al. 2018, Eq. 23, with the normals given at the origin (``a'`` after Eq. 23).

    Args: x (..., d) ball points; p (K, d) ball points; a (K, d) tangent vectors at the origin; c curvature.
    Returns: (..., K).
    """
    return class_logits(lift_points(x, c), *lift_hyperplanes(p, a, c))


def mlr_logits_reference(x: Tensor, p: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """Plain version of :func:`mlr_logits`, with a Möbius sum per pair; float64 arithmetic is advisable."""
    m = mobius_add(-p, x.unsqueeze(-2), c)
    norm = a.norm(dim=-1)
    argument = 2 * c**0.5 * (m * a).sum(-1) / ((1 - c * m.square().sum(-1)) * norm)
    logits: Tensor = 2 * norm / c**0.5 * torch.asinh(argument)
    return logits
