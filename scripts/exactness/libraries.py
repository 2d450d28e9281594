"""One way to call every function in this library, in geoopt and in HypLL, each in its own conventions.

The curvature is ``-c`` everywhere. Ours takes ``c``. geoopt's ``Stereographic`` takes ``k = -c`` and its ``Lorentz``
``k = 1/c`` (points with ``<x, x> = -k``). HypLL's ``Curvature`` passes its value through a softplus unless it is
given another function. Both hold the curvature in the dtype of the points; ours holds it in float64.
geoopt's vectors at the origin of the hyperboloid have a time coordinate (0), ours have none; its chart maps to the
unit ball, ours to the ball of radius ``1/sqrt(c)``. A function that a library does not have is missing in its table.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from geoopt import Lorentz as Sheet
from geoopt import Stereographic
from geoopt.manifolds.lorentz import math as sheet
from geoopt.manifolds.stereographic import math as ball
from torch import Tensor

from hyperbolic.kernels.mlr import mlr_logits
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall, charts
from hyperbolic.numerics import ball_gap, wide
from hyperbolic.smooth import artanhc, asinhc, cosh_sqrt, sinhc, tanhc
from scripts.exactness.cases import COMMON

Call = Callable[..., Tensor]
LIBRARIES = ("ours", "geoopt", "HypLL")
MANIFOLDS = {"PoincareBall": PoincareBall, "Lorentz": Lorentz, "Klein": Klein}


def installed(library: str) -> bool:
    return library == "ours" or importlib.util.find_spec(library.lower()) is not None


def functions(library: str, space: str, c: float | Tensor, dtype: torch.dtype) -> dict[str, Call]:
    """The functions that a library has on a space of curvature ``-c``, by our name; empty if it is not installed."""
    if not installed(library):
        return {}
    return ours(space, c) if library == "ours" else {"geoopt": geoopt, "HypLL": hypll}[library](space, c, dtype)


def ours(space: str, c: float | Tensor) -> dict[str, Call]:
    """``c`` a float, or a tensor that gradients flow to."""
    if space == "scalar":
        return {
            "arsinh": lambda s: _widely(s, lambda w: w * asinhc(w.square())),
            "artanh": lambda b: (wide(b) * artanhc(ball_gap(b, torch.ones((), dtype=torch.float64)))).to(b.dtype),
            "tanh": lambda s: _widely(s, lambda w: w * tanhc(w.square())),
            "sinh": lambda h: _widely(h, lambda w: w * sinhc(w.square())),
            "cosh": lambda h: _widely(h, lambda w: cosh_sqrt(w.square())),
        }
    kind = MANIFOLDS[space]
    manifold = kind(float(c)) if not isinstance(c, Tensor) else _with_curvature(kind, c)
    names = [*COMMON, "proju"]
    names += ["mobius_add", "mobius_scalar", "mobius_matvec"] if space == "PoincareBall" else []
    calls = {name: getattr(manifold, name) for name in names}
    short = {"PoincareBall": "poincare", "Lorentz": "lorentz", "Klein": "klein"}[space]
    for target in ("lorentz", "poincare", "klein"):
        if target != short:
            chart = getattr(charts, f"{short}_to_{target}")
            calls[f"to_{target}"] = lambda x, chart=chart: chart(x, manifold.c)
    if space == "PoincareBall":
        calls["mlr_logits"] = lambda x, p, a: mlr_logits(x, p[None], a[None], manifold.c).squeeze(-1)
        calls["mlr_logits_beside"] = calls["mlr_logits"]
    return calls


def _widely(s: Tensor, function: Call) -> Tensor:
    return function(wide(s)).to(s.dtype)


def _with_curvature(kind: type, c: Tensor):
    """A manifold whose ``c`` is this very tensor."""

    class Learned(kind):
        c = property(lambda self: c)

    return Learned(float(c.detach()))


def geoopt(space: str, c: float, dtype: torch.dtype) -> dict[str, Call]:
    if space == "scalar":
        return {"arsinh": ball.arsinh, "artanh": ball.artanh, "tanh": ball.tanh}
    c = torch.tensor(c, dtype=dtype)
    root = c.sqrt()
    if space == "PoincareBall":
        manifold = Stereographic(k=-c)
        names = [*(COMMON.keys() - {"centroid"}), "mobius_add", "mobius_matvec"]
        return {name: getattr(manifold, name) for name in names} | {
            "mobius_scalar": manifold.mobius_scalar_mul,
            "centroid": lambda x, w: manifold.weighted_midpoint(x, w, reducedim=[-2]),
            "mlr_logits": lambda x, p, a: 2 * manifold.dist2plane(x, p, a, signed=True, scaled=True),
            "mlr_logits_beside": lambda x, p, a: 2 * manifold.dist2plane(x, p, a, signed=True, scaled=True),
            "to_lorentz": lambda x: sheet.poincare_to_lorentz(x * root, 1 / c),
        }
    if space == "Lorentz":
        manifold = Sheet(k=1 / c)
        names = ["dist", "dist0", "expmap", "logmap", "transp", "proju"]
        return {name: getattr(manifold, name) for name in names} | {
            "norm": lambda x, u: manifold.norm(u),
            "expmap0": lambda a: manifold.expmap0(_add_time(a)),
            "logmap0": lambda x: manifold.logmap0(x)[..., 1:],
            "transp0": lambda y, a: manifold.transp0(y, _add_time(a)),
            "egrad2rgrad": lambda x, g: manifold.egrad2rgrad(x, g.clone()),
            "to_poincare": lambda x: sheet.lorentz_to_poincare(x[None], 1 / c)[0] / root,
        }
    return {}


def _add_time(a: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(a[..., :1]), a], -1)


def hypll(space: str, c: float, dtype: torch.dtype) -> dict[str, Call]:
    if space != "PoincareBall":
        return {}
    from hypll.manifolds.poincare_ball import Curvature
    from hypll.manifolds.poincare_ball import PoincareBall as Ball
    from hypll.tensors import ManifoldTensor, TangentTensor

    curvature = torch.tensor(c, dtype=dtype)
    ball = Ball(Curvature(c, constraining_strategy=lambda _: curvature))

    def point(x: Tensor) -> ManifoldTensor:
        return ManifoldTensor(x, manifold=ball, man_dim=-1)

    def tangent(x: Tensor | None, u: Tensor) -> TangentTensor:
        return TangentTensor(u, manifold_points=None if x is None else point(x), manifold=ball, man_dim=-1)

    return {
        "dist": lambda x, y: ball.dist(point(x), point(y)),
        "norm": lambda x, u: ball.inner(tangent(x, u), tangent(x, u)).sqrt(),
        "expmap": lambda x, u: ball.expmap(tangent(x, u)).tensor,
        "logmap": lambda x, y: ball.logmap(point(x), point(y)).tensor,
        "expmap0": lambda a: ball.expmap(tangent(None, a)).tensor,
        "logmap0": lambda x: ball.logmap(None, point(x)).tensor,
        "transp": lambda x, y, v: ball.transp(tangent(x, v), point(y)).tensor,
        "egrad2rgrad": lambda x, g: ball.euc_to_tangent(point(x), tangent(x, g)).tensor,
        "centroid": lambda x, w: ball.midpoint(point(x), batch_dim=0, w=w[:, None]).tensor,
        "mobius_add": lambda x, y: ball.mobius_add(point(x), point(y)).tensor,
    }
