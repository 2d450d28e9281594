"""The cases in which other libraries fail, each with the true value and what every library gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import geoopt
import torch
from torch import Tensor

from hyperbolic.manifolds import Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam
from scripts.exactness.arithmetic import TRACE, exact, flat, mp, norm, relative_error
from scripts.exactness.libraries import LIBRARIES, functions, installed
from scripts.exactness.measure import TARGETS
from scripts.exactness.spaces import SPACES

F32, F64 = torch.float32, torch.float64


@dataclass
class Failure:
    """One row: what each library gives (text), and how far ours is from the truth; ``over`` marks a miss."""

    name: str
    true: str
    values: dict[str, str] = field(default_factory=dict)
    error: float | None = None
    over: bool = False


def show(value: float) -> str:
    return "NaN" if math.isnan(value) else "0" if value == 0 else f"{value:.6g}"


def compare(
    name: str, space: str, function: str, *arguments: Tensor, then: str | None = None, target: float | None = None
) -> Failure:
    """A function whose result is shown as a number (of a vector, its length).

    then: its inverse, which is called with the result, so that the first argument is the true one. target: of the
    relative error; None: that of the dtype.
    """
    dtype = arguments[-1].dtype
    inputs = [exact(a.tolist()) for a in arguments]
    true = inputs[0] if then else getattr(SPACES[space](1.0), function)(*inputs)
    true = true if norm(flat(true)) > TRACE else mp.mpf(0)
    row = Failure(name, _size(true))
    for library in LIBRARIES:
        calls = functions(library, space, 1.0, dtype)
        if function in calls:
            result = calls[function](*arguments)
            value = exact(calls[then](result) if then else result)
            row.values[library] = _size(value)
            if library == "ours":
                row.error = relative_error(value, true)
    row.over = not row.error <= (target or TARGETS[str(dtype).removeprefix("torch.")])
    return row


def _size(value) -> str:
    entries = flat(value)
    return show(float(entries[0] if len(entries) == 1 else norm(entries)))


def measured(name: str, true: str, number: Callable[[str], float | None], right: Callable[[float], bool]) -> Failure:
    """A number that each library computes in its own way; None where a library has no such thing."""
    row = Failure(name, true)
    for library in filter(installed, LIBRARIES):
        value = number(library)
        if value is not None:
            row.values[library] = show(value)
        if library == "ours":
            row.over = value is None or not right(value)
    return row


def point(size: float, dtype: torch.dtype) -> Tensor:
    direction = torch.nn.functional.normalize(torch.tensor([1.0, -2.0, 0.5], dtype=F64), dim=0)
    return (size * direction).to(dtype)


def scalars_and_distances() -> list[Failure]:
    ball, rows = "PoincareBall", []
    rows.append(compare("arsinh(-1e4), f32", "scalar", "arsinh", torch.tensor([-1e4])))
    rows.append(compare("artanh(1 - 1e-9), f64", "scalar", "artanh", torch.tensor([1 - 1e-9], dtype=F64)))
    for gap, dtype, name in ((1e-4, F32, "1e-4, f32"), (1e-7, F64, "1e-7, f64")):
        x = point(1 - gap, dtype)
        rows.append(compare(f"ball: dist(x, -x), \\|x\\| = 1 - {name}", ball, "dist", x, -x))
    for size, gap in ((0.99999, 1e-7), (0.5, 1e-9)):
        x = torch.tensor([size, 0.0])
        title = f"ball: dist of points {gap:.0e} apart at \\|x\\| = {size}, f32".replace("e-0", "e-")
        rows.append(compare(title, ball, "dist", x, x + torch.tensor([0.0, gap])))
    for radius in (1.0, 11.0, 20.0):
        p = Lorentz(1.0).expmap0(point(radius, F32))
        rows.append(compare(f"Lorentz: dist(p, p) at radius {radius:g}, f32", "Lorentz", "dist", p, p))
    x, a, p = torch.tensor([0.99999, 0.001]), torch.tensor([-1.0, 0.5]), torch.tensor([0.1, 0.2])
    rows.append(compare("ball: MLR logit at \\|x\\| = 0.99999, f32", ball, "mlr_logits", x, p, a))
    weight = torch.tensor([[0.5, -1.0, 0.25], [1.0, 0.5, 2.0]])
    rows.append(compare("ball: Möbius matvec of \\|x\\| = 1e-8, f32", ball, "mobius_matvec", weight, point(1e-8, F32)))
    x = Lorentz(1.0).expmap0(torch.tensor([0.3, -0.7], dtype=F64))
    y = Lorentz(1.0).expmap(x, Lorentz(1.0).transp0(x, torch.tensor([6e-6, 8e-6], dtype=F64)))
    rows.append(compare("Lorentz: space part of log_x(y) at distance 1e-5, f64", "Lorentz", "logmap", x, y))
    return rows


def round_trips() -> list[Failure]:
    """log0 after exp0. Where the point between them cannot be held in the dtype, each step counts on its own bits."""
    rows = []
    for space, size in (("PoincareBall", 1e-8), ("Lorentz", 1e-8), ("Lorentz", 1e-4), ("Lorentz", 5.0)):
        name = f"{_short(space)}: log0(exp0(v)), \\|v\\| = {size:g}, f32"
        rows.append(compare(name, space, "expmap0", point(size, F32), then="logmap0"))
    ball, v = "PoincareBall", point(5.0, F32)
    rows.append(compare("ball: length of exp0(v), \\|v\\| = 5, f32", ball, "expmap0", v))
    rows.append(compare("ball: log0 of that float32 point", ball, "logmap0", PoincareBall(1.0).expmap0(v)))
    name = "ball: log0(exp0(v)), \\|v\\| = 5, f32 (one rounding of the point moves it by 1e-4)"
    rows.append(compare(name, ball, "expmap0", v, then="logmap0", target=3e-4))
    return rows


def _short(space: str) -> str:
    return "ball" if space == "PoincareBall" else space


def gradients() -> list[Failure]:
    rows = []

    def by_normal(library: str) -> float | None:
        x, p, a = torch.tensor([0.3, -0.2]), torch.tensor([0.1, 0.2]), torch.zeros(2, requires_grad=True)
        if library == "HypLL":  # planes by orientation and offset
            from hypll.manifolds.poincare_ball.math.linalg import poincare_hyperplane_dists

            logit = poincare_hyperplane_dists(x[None], a[:, None], torch.tensor([0.1]), torch.tensor(1.0))
        else:
            logit = functions(library, "PoincareBall", 1.0, F32)["mlr_logits"](x, p, a)
        return float(torch.autograd.grad(logit.sum(), a)[0].norm())

    rows.append(measured("ball: length of the MLR gradient at a = 0, f32", "< 4", by_normal, lambda g: g < 4))
    for space in ("PoincareBall", "Lorentz"):
        for dtype in (F32, F64):
            rows.append(measured(*_identity(space, dtype), lambda entry: abs(entry - 1) <= 1e-5))

    def matvec(library: str) -> float | None:
        call = functions(library, "PoincareBall", 1.0, F32).get("mobius_matvec")
        if not call:
            return None
        weight = torch.tensor([[1.0, 0.5], [-2.0, 0.25]])
        return float(torch.autograd.functional.jacobian(lambda x: call(weight, x), torch.zeros(2))[0, 0])

    rows.append(measured("ball: d(W ⊗ x)/dx at 0, first entry, f32", "1", matvec, lambda e: abs(e - 1) <= 1e-5))
    return rows


def _identity(space: str, dtype: torch.dtype):
    def entry(library: str) -> float | None:
        call = functions(library, space, 1.0, dtype).get("logmap0")
        if not call:
            return None
        zero = torch.zeros(3, dtype=dtype) if space == "PoincareBall" else torch.tensor([1.0, 0, 0], dtype=dtype)
        jacobian = torch.autograd.functional.jacobian(call, zero)
        return float(jacobian[0, 0 if space == "PoincareBall" else 1])

    name = f"{_short(space)}: d log0(x)/dx at 0, first entry, f{torch.finfo(dtype).bits}"
    return name, "1", entry


def behaviour() -> list[Failure]:
    """What goes wrong without a formula being wrong."""
    name = "Lorentz: Riemannian Adam, gradients without a tangent part: share of NaN rows, f32"
    rows = [measured(name, "0", adam, lambda share: share == 0)]

    def projected_radius(library: str) -> float:
        x = PoincareBall(1.0).expmap0(point(6.0, F32))
        if library == "HypLL":
            from hypll.manifolds.poincare_ball.math.diffgeom import project

            x = project(x, torch.tensor(1.0))
        elif library == "geoopt":
            x = geoopt.PoincareBall(c=1.0).projx(x)
        else:
            x = PoincareBall(1.0).projx(x)
        return float(PoincareBall(1.0).dist0(x))

    name = "ball: radius left by the projection of a point at 12, f32"
    rows.append(measured(name, "12", projected_radius, lambda r: r > 11.9))

    def curvature(library: str) -> float:
        if library == "HypLL":
            from hypll.manifolds.poincare_ball import Curvature

            return float(Curvature(1.0, requires_grad=True)().detach())
        if library == "geoopt":
            return float(geoopt.PoincareBall(c=1.0, learnable=True).c.detach())
        return float(PoincareBall(1.0, learn_c=True).c.detach())

    rows.append(measured("learned curvature asked to start at 1", "1", curvature, lambda c: abs(c - 1) < 1e-13))

    def entries_changed(library: str) -> float | None:
        if library == "HypLL":
            return None
        manifold = Lorentz(1.0) if library == "ours" else geoopt.Lorentz(k=1.0)
        x, gradient = Lorentz(1.0).expmap0(point(1.0, F32)), torch.ones(4)
        manifold.egrad2rgrad(x, gradient)
        return float((gradient != 1).sum())

    name = "Lorentz: entries of its argument that egrad2rgrad changes"
    rows.append(measured(name, "0", entries_changed, lambda n: n == 0))
    return rows


def adam(library: str) -> float | None:
    """Share of rows that are NaN after one step along the normal of the sheet, 1000 points at radii 0 to 8, float32."""
    if library == "HypLL":
        return None
    generator = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(1000, 4, generator=generator))
    x = Lorentz(1.0).expmap0(torch.linspace(0, 8, 1000)[:, None] * directions)
    manifold = Lorentz(1.0) if library == "ours" else geoopt.Lorentz(k=1.0)
    parameter = geoopt.ManifoldParameter(x, manifold=manifold)
    kind = RiemannianAdam if library == "ours" else geoopt.optim.RiemannianAdam
    optimiser = kind([parameter], lr=0.01)
    parameter.grad = torch.cat([-x[:, :1], x[:, 1:]], -1)
    optimiser.step()
    return float(parameter.detach().isnan().any(-1).float().mean())


def all_rows() -> list[Failure]:
    return [*scalars_and_distances(), *round_trips(), *gradients(), *behaviour()]
