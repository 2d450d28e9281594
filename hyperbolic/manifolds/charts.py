"""Isometries between the three models of the same hyperbolic space (same ``c``); exact, not log0 followed by exp0.

``c`` is a positive float or a tensor that broadcasts to (..., 1). Results are on the target model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic.manifolds import sheet
from hyperbolic.manifolds.base import HyperbolicManifold, Manifold
from hyperbolic.manifolds.poincare import project
from hyperbolic.numerics import ball_gap, sqnorm, wide


def poincare_to_lorentz(x: Tensor, c: float | Tensor) -> Tensor:
    """``(1 + c|x|^2, 2 sqrt(c) x) / (sqrt(c) (1 - c|x|^2))``: (..., d) -> (..., d+1)."""
    return _with_time(sheet.from_ball(x, c), c).to(x.dtype)


def lorentz_to_poincare(x: Tensor, c: float | Tensor) -> Tensor:
    """``s / (1 + sqrt(c) t)``: (..., d+1) -> (..., d)."""
    return project(sheet.to_ball(x[..., 1:], c).to(x.dtype), c)


def klein_to_lorentz(x: Tensor, c: float | Tensor) -> Tensor:
    """``(1, sqrt(c) x) / sqrt(c (1 - c|x|^2))``: (..., d) -> (..., d+1)."""
    return _with_time(sheet.from_klein(x, c), c).to(x.dtype)


def lorentz_to_klein(x: Tensor, c: float | Tensor) -> Tensor:
    """``s / (sqrt(c) t)``: (..., d+1) -> (..., d)."""
    return project(sheet.to_klein(x[..., 1:], c).to(x.dtype), c)


def poincare_to_klein(x: Tensor, c: float | Tensor) -> Tensor:
    """``2x / (1 + c|x|^2)``."""
    return project((2 * wide(x) / (1 + c * sqnorm(x))).to(x.dtype), c)


def klein_to_poincare(x: Tensor, c: float | Tensor) -> Tensor:
    """``x / (1 + sqrt(1 - c|x|^2))``."""
    return project((wide(x) / (1 + ball_gap(x, c).sqrt())).to(x.dtype), c)


def _with_time(space: Tensor, c: float | Tensor) -> Tensor:
    return torch.cat([sheet.time(space, c), space], -1)


def same_space(source: Manifold, target: Manifold) -> bool:
    """Whether both are models of one hyperbolic space, so that an isometry connects them."""
    if not (source.is_hyperbolic and target.is_hyperbolic):
        return False
    if source.learn_c or target.learn_c:  # models with one curvature are twins, see Manifold.twin
        return source.learn_c and target.learn_c and source.free_c is target.free_c
    return source.start_c == target.start_c


def convert(x: Tensor, source: Manifold, target: Manifold) -> Tensor:
    """The same point in another model: the isometry where ``same_space``, else ``exp_0(log_0(x))``.

    Of two hyperbolic spaces of different c distances from the origin are kept: vectors at the origin of the ball are
    half as long as those of the other models (``Manifold.origin_scale``). With flat space coordinates are kept.

    Args:
        x: (..., D) points of ``source``. Returns (..., D') points of ``target``.
    Raises:
        TypeError: a manifold of geoopt alone, or what is none.
    """
    for space in (source, target):
        if not isinstance(space, Manifold):
            raise TypeError(f"convert: takes manifolds of hyperbolic.manifolds, as PoincareBall(c=1.0), got {space!r}")
    if type(source) is type(target) and (source is target or same_space(source, target)):
        return x
    if isinstance(source, HyperbolicManifold) and isinstance(target, HyperbolicManifold) and same_space(source, target):
        return target._from_sheet(source._to_sheet(x), x.dtype)
    return target.expmap0(origin_vectors(x, source, target))


def origin_vectors(x: Tensor, source: Manifold, target: Manifold) -> Tensor:
    """``log_0(x)`` (..., d) of points of ``source``, as vectors at the origin of ``target``: of two hyperbolic spaces
    with the length there that keeps the distance from the origin."""
    u = source.logmap0(x)
    if source.is_hyperbolic and target.is_hyperbolic and source.origin_scale != target.origin_scale:
        u = source.origin_scale / target.origin_scale * u
    return u
