"""Class logits of the Lorentz family: by distance from class points, and by distance from hyperplanes."""

from __future__ import annotations

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.layers.classes import ClassLogits
from hyperbolic.layers.guard import check_points
from hyperbolic.layers.initial import glorot
from hyperbolic.manifolds import Lorentz
from hyperbolic.numerics import sqnorm, wide

_TINY = 1e-76  # keeps |a| positive; its root is below every float32 number


def unit_points(manifold: Lorentz, n: int, d: int) -> Tensor:
    """HyboNet's start: normal vectors of d + 1 entries made unit, their space parts through exp_0; the points lie at
    most ``1/sqrt(c)`` from the origin."""
    vector = nn.functional.normalize(torch.randn(n, d + 1), dim=-1)[:, 1:]
    return manifold.expmap0(vector / manifold.c.detach().sqrt())


def _height(s: Tensor, c: Tensor) -> Tensor:
    """``x_0 - 1/sqrt(c)`` of points with the space parts s (..., d): (..., 1) in float64, without cancellation."""
    square = sqnorm(s)
    return square / ((1 / c + square).sqrt() + c.rsqrt())


class Logits(ClassLogits):
    """``-d_L^2(x, t_k) / alpha_k + beta_k = (2/c + 2 <x, t_k>_L) / alpha_k + beta_k`` with class points t_k (Chen et
    al., A.2); ``d_L^2 = -2/c - 2 <x, t>_L`` is the squared Lorentz distance.

    With the heights ``h(x) = x_0 - 1/sqrt(c)`` it is computed as ``d_L^2 / 2 = h(x) t_0 - <x_s, t_s> + h(t)/sqrt(c)``:
    near the origin its error is in proportion to ``|x_s|^2 + |t_s|^2``. Where x and t are far, and close to each other,
    the products cancel: in float32 the absolute error of ``d_L^2`` is up to about ``2e-6 x_0 t_0`` (32 dimensions),
    that is ``0.01 / c`` where the distances of x and t from the origin add up to ``10 / sqrt(c)``, and ``4 / c`` at
    ``16 / sqrt(c)``: points further than that need float64.

    Args:
        d: intrinsic size. n_classes: number K of classes.
        learn_alpha: train alpha > 0, 1 at the start. False: alpha = 1, the output layer of HyboNet's translation and
            node classification.
        beta: beta at the start. Points that a layer with lambda = 10 gives are about 2.5 from the origin, so d_L^2 is
            about 17 there; at beta = 0 independent (sigmoid) classes then start all but ruled out.
    """

    def __init__(self, manifold: Lorentz, d: int, n_classes: int, learn_alpha: bool = True, beta: float = 0.0):
        super().__init__(manifold, d, n_classes)
        self.points = ManifoldParameter(unit_points(manifold, n_classes, d), manifold=manifold)
        self.bias = nn.Parameter(torch.full((n_classes,), float(beta)))
        self.log_alpha = nn.Parameter(torch.zeros(n_classes)) if learn_alpha else None

    @property
    def class_points(self) -> Tensor:
        return self.manifold.projx(self.points)  # its time coordinate, whatever c was before

    @torch.no_grad()
    def start_at(self, points: Tensor) -> None:
        """Put the class points at copies of points (K, D), as HyboNet's program for translation does with the rows of
        the target's embedding; raises ValueError for another shape and for points off the manifold."""
        check_points(self, points, self.n_classes, self.d)
        self.points.copy_(points)

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        c, s, t = self.manifold.c, x[..., 1:], self.points[:, 1:]
        height = _height(t, c)
        w = 2 * torch.cat([-(height + c.rsqrt()).to(x.dtype), t], -1)
        shift = (-2 * c.rsqrt() * height.squeeze(-1)).to(x.dtype)
        lifted = torch.cat([_height(s, c).to(x.dtype), s], -1)
        if self.log_alpha is None:
            return lifted, w, None, self.bias + shift
        inverse = torch.exp(-self.log_alpha)
        return lifted, w * inverse.unsqueeze(-1), None, self.bias + shift * inverse


class HyperplaneLogits(ClassLogits):
    """``|a_k| / sqrt(c) arsinh(sqrt(c) <x, w_k>_L / |a_k|)``: signed distance from the hyperplane through p_k with the
    normal w_k, times its length, where w_k is a_k moved from the origin to p_k (Bdeir et al. 2024).

    The same as Ganea's logits (2018, Eq. 23) of the isometric ball points, whose normals at the origin are ``a_k / 2``.

    Args:
        d: intrinsic size. n_classes: number K of classes. Points p_k start at the origin, a_k Glorot uniform.
    """

    def __init__(self, manifold: Lorentz, d: int, n_classes: int):
        super().__init__(manifold, d, n_classes)
        self.p = ManifoldParameter(manifold.origin(n_classes, d), manifold=manifold)
        self.a = nn.Parameter(glorot(torch.empty(n_classes, d)))

    @property
    def class_points(self) -> Tensor:
        return self.manifold.projx(self.p)

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        c, a = self.manifold.c, wide(self.a)
        norm = (sqnorm(a) + _TINY).sqrt()
        w = self.manifold.transp0(self.p, a) * (c.sqrt() / norm)  # of the space parts of p, whatever c was before
        w = torch.cat([-w[:, :1], w[:, 1:]], -1)
        return x, w.to(x.dtype), (norm * c.rsqrt()).squeeze(-1).to(x.dtype), None


__all__ = ["HyperplaneLogits", "Logits", "unit_points"]
