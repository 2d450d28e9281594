"""What every space offers. The names are geoopt's, so that ``geoopt.ManifoldParameter`` works unchanged.

Two things differ from geoopt, the same way for every space:

* sizes are intrinsic: ``expmap0``, ``logmap0`` and ``transp0`` take and return vectors of the intrinsic
  dimension d in the tangent space at the origin, also where points have one coordinate more (Lorentz);
* ``c > 0`` is the only curvature convention: sectional curvature ``-c``, and ``c = 0`` is the Euclidean space.
"""

from __future__ import annotations

import abc
import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import geoopt
import torch
from torch import Tensor

from hyperbolic.manifolds import sheet
from hyperbolic.numerics import WIDE, wide
from hyperbolic.rows import blocked
from hyperbolic.smooth import asinhc, inverse_softplus, safe_sqrt

M = TypeVar("M", bound="Manifold")


class Manifold(geoopt.Manifold, abc.ABC):
    """Interface of a space; coordinates are on the last axis, leading axes broadcast.

    Args:
        c: positive; the sectional curvature is ``-c``. 0 of a flat space.
        learn_c: make ``c`` a trained parameter (softplus of a free scalar).

    ``is_curved``: whether c is positive. ``is_hyperbolic``: whether it is a :class:`HyperbolicManifold`, whose points
    have coordinates on the hyperboloid. ``origin_scale``: the length of a unit vector at the origin,
    ``dist0(expmap0(u)) = origin_scale |u|``: 2 in the Poincaré ball, 1 in the others. A subclass may take more
    settings, as keywords with defaults.

    Raises:
        ValueError: c that is not a positive number.
    """

    name: str  # type: ignore[assignment]  # geoopt declares it as None
    ndim = 1  # type: ignore[assignment]  # as above
    reversible = False  # type: ignore[assignment]  # as above
    is_curved: ClassVar[bool] = True
    is_hyperbolic: ClassVar[bool] = False
    origin_scale: ClassVar[float] = 1.0
    learn_c: bool
    free_c: torch.nn.Parameter
    fixed_c: Tensor

    def __init__(self, c: float = 1.0, learn_c: bool = False):
        super().__init__()  # type: ignore[no-untyped-call]  # geoopt's has no types
        if self.is_curved and (
            isinstance(c, bool) or not isinstance(c, numbers.Real) or not math.isfinite(c) or c <= 0
        ):
            raise ValueError(
                f"{self.name}: c must be a positive number, an int or a float (the sectional curvature is -c), "
                f"got c={c!r}; use the Euclidean geometry for a flat space"
            )
        self.start_c = float(c)  # c itself unless it is learned; known without looking into a tensor
        self.learn_c = bool(learn_c)
        if self.learn_c:
            self.free_c = torch.nn.Parameter(self._of_start_c())
        else:
            self.register_buffer("fixed_c", self._of_start_c(), persistent=False)

    def _apply(self: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Moves to another device with the model, but stays float64: a cast would round ``c``."""

        def moved(t: Tensor) -> Tensor:
            device = fn(t).device
            if t.is_meta and device.type != "meta":  # of a model that was built without memory: c as it starts
                return self._of_start_c().to(device)
            return t.to(device)

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]  # torch's has no types
        return self

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: dict[str, Any], *args: Any) -> None:
        super()._load_from_state_dict(state, prefix, metadata, *args)
        # of a model built without memory whose parameters are assigned; on the default device until it is moved
        if metadata.get("assign_to_params_buffers") and not self.learn_c and self.fixed_c.is_meta:
            self.fixed_c = self._of_start_c()

    def _of_start_c(self) -> Tensor:
        """What the parameter or buffer that holds c has at the start."""
        return torch.tensor(inverse_softplus(self.start_c) if self.learn_c else self.start_c, dtype=WIDE)

    @property
    def c(self) -> Tensor:
        """Curvature parameter as a float64 scalar tensor: sectional curvature ``-c``."""
        return torch.nn.functional.softplus(self.free_c) if self.learn_c else self.fixed_c

    @property
    def holder(self) -> Tensor:
        """The tensor that holds c: the parameter that is learned, ``c = softplus(free_c)``, or c itself."""
        return self.free_c if self.learn_c else self.fixed_c

    def number(self) -> float:
        """c as a number, without a gradient; as it starts where it has no memory (a meta device)."""
        return self.start_c if self.c.is_meta else float(self.c.detach())

    def twin(self, kind: type[M]) -> M:
        """Another curved manifold with the curvature of this one, also while it is learned."""
        if isinstance(self, kind):
            return self
        if not (issubclass(kind, Manifold) and kind.is_curved):
            raise TypeError(f"twin: takes a class of curved manifolds, as PoincareBall, Lorentz or Klein, got {kind!r}")
        twins: dict[type[Manifold], Manifold] = self.__dict__.setdefault("_twins", {})
        if kind not in twins:
            other = twins[kind] = kind(self.start_c, self.learn_c)
            # The dictionaries themselves, so that what torch.func puts there for a call is the twin's as well.
            other._parameters, other._buffers = self._parameters, self._buffers
        twin = twins[kind]
        assert isinstance(twin, kind)
        return twin

    @abc.abstractmethod
    def max_radius(self, dtype: torch.dtype = torch.float32) -> float:
        """Largest distance from the origin at which points are representable and every function is finite."""

    def ambient_dim(self, d: int) -> int:
        """Coordinates of a point of a d-dimensional space."""
        return d

    def intrinsic_dim(self, coordinates: int) -> int:
        """Dimension of the space whose points have so many coordinates."""
        return coordinates

    def origin(  # type: ignore[override]  # geoopt's has a seed, for manifolds without a distinguished point
        self, *size: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """The origin, repeated: ``size`` is (..., d)."""
        return self.expmap0(torch.zeros(*size, dtype=dtype or torch.get_default_dtype(), device=device))

    def random(  # type: ignore[override]  # geoopt's takes keywords of any name
        self,
        *size: int,
        std: float = 1.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """``expmap0(std * normal)`` for ``size`` = (..., d): a wrapped normal around the origin. They are data, without
        a gradient for a learned c."""
        dtype = dtype or torch.get_default_dtype()
        return self.expmap0(std * torch.randn(*size, generator=generator, dtype=dtype, device=device)).detach()

    # distances and lengths: subclasses give float64 values of shape (..., 1)
    @abc.abstractmethod
    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def _dist2(self, x: Tensor, y: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def _dist(self, x: Tensor, y: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def _dist0(self, x: Tensor) -> Tensor: ...

    def inner(self, x: Tensor, u: Tensor, v: Tensor | None = None, *, keepdim: bool = False) -> Tensor:
        """Riemannian inner product ``<u, v>_x``; ``v`` defaults to ``u``."""
        return _scalar(self._inner(x, u, u if v is None else v), u.dtype, keepdim)

    def norm(self, x: Tensor, u: Tensor, *, keepdim: bool = False) -> Tensor:
        """Riemannian length ``sqrt(<u, u>_x)`` (gradient 0 at u = 0)."""
        return _scalar(safe_sqrt(self._inner(x, u, u)), u.dtype, keepdim)

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        """Geodesic distance. Its gradient at ``x = y``, where it does not exist, is 0; ``dist2`` is smooth."""
        return _scalar(self._dist(x, y), torch.promote_types(x.dtype, y.dtype), keepdim)

    def dist2(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        """Squared geodesic distance, smooth also at ``x = y``."""
        return _scalar(self._dist2(x, y), torch.promote_types(x.dtype, y.dtype), keepdim)

    def dist0(self, x: Tensor, *, keepdim: bool = False) -> Tensor:
        """Geodesic distance from the origin."""
        return _scalar(self._dist0(x), x.dtype, keepdim)

    def beyond(self, x: Tensor, radius: float) -> Tensor:
        """Which points (..., D) are further than that from the origin: bool (...)."""
        return self._dist0(x).squeeze(-1) > radius

    def shorten(self, x: Tensor, radius: float, u: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The points at distance ``radius`` on the way from the origin to x (not the origin), and tangent vectors u
        at x moved there by parallel transport."""
        y = self.expmap0((radius / self._dist0(x)).to(x.dtype) * self.logmap0(x))
        return y, None if u is None else self.transp(x, y, u)

    @abc.abstractmethod
    def expmap0(self, u: Tensor) -> Tensor:
        """Exponential map at the origin; ``u`` (..., d) intrinsic."""

    @abc.abstractmethod
    def logmap0(self, x: Tensor) -> Tensor:
        """Logarithm at the origin, (..., d) intrinsic."""

    @abc.abstractmethod
    def transp0(self, y: Tensor, u: Tensor) -> Tensor:
        """Parallel transport of ``u`` (..., d, intrinsic) from the origin to ``y``."""

    @abc.abstractmethod
    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Weighted centre of points (..., N, D) with weights (..., N), at least one of them positive."""

    def dist_exp0(self, x: Tensor, u: Tensor) -> Tensor:
        """``d(x, exp_0(u))`` of a point x (D,) and vectors u (..., d) at the origin: (...)."""
        return self.dist(x, self.expmap0(u))

    def centroid_exp0(self, u: Tensor, weights: Tensor) -> Tensor:
        """The centroid of the points ``exp_0(u)`` for vectors u (..., N, d) at the origin, weights (..., N)."""
        return self.centroid(self.expmap0(u), weights)

    def proju(self, x: Tensor, u: Tensor) -> Tensor:
        """Every vector is tangent, where points have as many coordinates as the space has dimensions."""
        return u.expand(torch.broadcast_shapes(x.shape, u.shape))

    def _check_vector_on_tangent(
        self, x: Tensor, u: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5
    ) -> tuple[bool, str | None]:
        if x.numel() == 0 or u.numel() == 0:
            return True, None
        gap = (wide(self.proju(x, u)) - wide(u)).abs().max()
        if gap > atol + rtol * wide(u).abs().max():
            return False, f"the vector leaves the tangent space by {gap:.2g}"
        return True, None

    def _check_point_on_manifold(
        self, x: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5
    ) -> tuple[bool, str | None]:
        if x.numel() == 0:
            return True, None
        gap = (wide(self.projx(x)) - wide(x)).abs().amax(-1)
        inside = gap <= atol + rtol * wide(x).abs().amax(-1)  # point by point; False for NaN too
        if inside.all():
            return True, None
        return False, f"the point leaves the space by {gap[~inside].max():.2g}"

    def extra_repr(self) -> str:
        return f"c={self.number():.6g}" + (", learned" if self.learn_c else "")


class HyperbolicManifold(Manifold):
    """What the three models of hyperbolic space share: coordinates on the hyperboloid, and the centroid taken there."""

    name = "HyperbolicManifold"
    is_hyperbolic = True

    @abc.abstractmethod
    def _sheet_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same point on the hyperboloid: ``scale`` (..., 1) and time (..., 1), float64, and v (..., d) of the dtype
        of x; its space coordinates are ``scale v``."""

    def _to_sheet(self, x: Tensor) -> Tensor:
        """Space coordinates of the same point on the hyperboloid, float64."""
        scale, _, v = self._sheet_parts(x)
        return scale * wide(v)

    @abc.abstractmethod
    def _from_sheet(self, space: Tensor, dtype: torch.dtype) -> Tensor:
        """Inverse of ``_to_sheet``."""

    def centroid(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """``sum w_i x_i / sqrt(-c <sum w_i x_i, sum w_i x_i>_L)`` on the hyperboloid: the point that minimises the
        weighted sum of squared Lorentz distances (Law et al. 2019). Its image in the ball is the Möbius midpoint
        (Ungar 2008; Lopez & Strube 2020, Eq. 9), in the Klein disk the Einstein midpoint.

        Args:
            x: (..., N, D). weights: (..., N), not negative, not all zero; equal when left out.
        Raises:
            ValueError: another number of weights than of points.
        """
        check_number(x, weights)
        space = sheet.centroid_of_parts(*self._sheet_parts(x), weights, self.c) if blocked(x) else None
        if space is None:
            space = sheet.centroid(self._to_sheet(x), weights, self.c)
        return self._from_sheet(space, x.dtype)

    def dist_exp0(self, x: Tensor, u: Tensor) -> Tensor:
        """As for any manifold; of many vectors without the points ``exp_0(u)``, by numbers of each vector alone."""
        apart = x.dim() > 1 or x.dtype is not u.dtype or not blocked(u)
        if apart or (parts := sheet.exp0_parts(u, self.c, self.origin_scale)) is None:
            return super().dist_exp0(x, u)
        h = sheet.half_sinh_square_of_parts(self._to_sheet(x).to(u.dtype), *parts, u, self.c)
        return _scalar(2 / self.c.sqrt() * safe_sqrt(h) * asinhc(h), u.dtype, False)

    def centroid_exp0(self, u: Tensor, weights: Tensor) -> Tensor:
        """As for any manifold; of many vectors without the points ``exp_0(u)``, by numbers of each vector alone."""
        check_number(u, weights)
        if not blocked(u) or (parts := sheet.exp0_parts(u, self.c, self.origin_scale)) is None:
            return super().centroid_exp0(u, weights)
        space = sheet.centroid_of_parts(*parts, u, weights, self.c)
        return super().centroid_exp0(u, weights) if space is None else self._from_sheet(space, u.dtype)


def check_number(x: Tensor, weights: Tensor | None) -> None:
    """
    Raises:
        ValueError: weights whose last axis is not the axis of the points (..., N, D).
    """
    if weights is not None and (weights.dim() == 0 or weights.shape[-1] != x.shape[-2]):
        raise ValueError(
            f"centroid: takes points (..., N, D) and weights (..., N), got the shapes {tuple(x.shape)} and "
            f"{tuple(weights.shape)}"
        )


def _scalar(value: Tensor, dtype: torch.dtype, keepdim: bool) -> Tensor:
    value = value.to(dtype)
    return value if keepdim else value.squeeze(-1)
