"""Decision boundaries of a few classes in a plane through the origin (Lopez & Strube 2020, Figure 4).

The paper does not say how its picture became two-dimensional. Here it is the restriction of the trained classifier to
one totally geodesic plane through the origin: nothing is projected, the curves are the zeros of the true logits on that
plane. The plane is spanned by the two principal directions of the (unit) gradients of the logits at the origin. The
level sets of all our logits are symmetric about the line through the origin along that gradient, so a boundary whose
gradient lies in the plane is drawn at its true distance from the origin, and the farther it leaves the plane, the
farther out it is drawn; the legend gives the share of each gradient that the plane holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from hyperbolic.kernels.mlr import class_logits
from hyperbolic.layers.classes import ClassLogits
from scripts.drawing import canvas, charts

FAR = 10.0  # times 1/sqrt(c): the disk is drawn up to this distance, 0.9999 of its radius
RADII, ANGLES = 200, 721
_POINTS = 10_000  # whose coordinates are held at a time


@dataclass(frozen=True)
class Field:
    """Logits of some classes on a plane through the origin.

    names: of the classes. x, y: (R, A) places on paper (disk, or plain coordinates). logits: (k, R, A). shares: (k,),
    how much of each class's gradient at the origin lies in the plane, between 0 and 1. nearest: (k,) distance from the
    origin of the boundary in the plane, infinite where it does not meet it. extent: of plain axes; 0 for a disk.
    """

    names: tuple[str, ...]
    x: Tensor
    y: Tensor
    logits: Tensor
    shares: Tensor
    nearest: Tensor
    extent: float


def logits_of(classifier: ClassLogits, x: Tensor, classes: Tensor) -> Tensor:
    """Logits (..., k) of some classes only, for points x (..., D)."""
    lifted, w, scale, bias = classifier.lifted(x)
    pick = [None if t is None else t[classes] for t in (scale, bias)]
    return class_logits(lifted, w[classes], *pick)


def gradients(classifier: ClassLogits, classes: Tensor) -> Tensor:
    """Gradient (k, d) of the logits of some classes at the origin, by tangent vectors there."""
    d = classifier.d

    def logits(v: Tensor) -> Tensor:
        return logits_of(classifier, classifier.manifold.expmap0(v), classes)

    with torch.enable_grad():
        return torch.autograd.functional.jacobian(logits, torch.zeros(d, dtype=torch.float64)).detach()


def field(classifier: ClassLogits, names: Sequence[str], classes: Sequence[int]) -> Field:
    """The logits of the named classes on the plane that their gradients at the origin span as nearly as possible.

    The classifier is used in float64.
    """
    classifier = classifier.double()
    manifold, index = classifier.manifold, torch.tensor(list(classes))
    slope = gradients(classifier, index)
    slope = slope / slope.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    basis = charts.principal(slope, centred=False)
    shares = basis.coordinates(slope).norm(dim=-1)
    angle = torch.linspace(0, 2 * math.pi, ANGLES, dtype=torch.float64)
    with torch.no_grad():
        if charts.is_curved(manifold):
            extent, far = 0.0, FAR / charts.curvature(manifold) ** 0.5
        else:
            extent = far = _flat_extent(classifier, index, basis.axes)
            far *= 2**0.5
        distance = torch.linspace(0, far, RADII, dtype=torch.float64).unsqueeze(-1)
        blocks = [
            logits_of(classifier, charts.points_of(manifold, r.expand(-1, ANGLES), angle, basis.axes), index)
            for r in distance.split(max(1, _POINTS // ANGLES))
        ]
        logits = torch.cat(blocks).movedim(-1, 0)
        radius = charts.radius(manifold, distance)
    return Field(
        tuple(names), radius * angle.cos(), radius * angle.sin(), logits, shares, _nearest(logits, distance), extent
    )


def _flat_extent(classifier: ClassLogits, classes: Tensor, axes: Tensor) -> float:
    """Half the side of the plain axes: so that every line is seen that is less than 100 times as far as the nearest."""
    at_zero = logits_of(classifier, torch.zeros(classifier.d, dtype=torch.float64), classes)
    slope = gradients(classifier, classes) @ axes.mT
    away = (at_zero.abs() / slope.norm(dim=-1).clamp_min(1e-300)).tolist()
    seen = [a for a in away if a < 100 * max(min(away), 1e-6)]
    return 2 * max(seen) if max(seen) > 0 else 1.0


def _nearest(logits: Tensor, distance: Tensor) -> Tensor:
    """The smallest distance at which the logit changes its sign along a ray, interpolated: (k,)."""
    low, high = logits[:, :-1], logits[:, 1:]
    crossing = (low > 0) != (high > 0)
    step = low / torch.where(crossing, low - high, 1)
    at = distance[:-1] + step * (distance[1:] - distance[:-1])
    return torch.where(crossing, at, torch.inf).flatten(1).amin(1)


def paint(axis: Axes, found: Field, title: str) -> None:
    """Draw the curves, a light wash on the side where a class is predicted, and the legend."""
    axis.set_title(canvas.wrapped(title, 3.8, 9))
    x, y = found.x.numpy(), found.y.numpy()
    handles = []
    for i, name in enumerate(found.names):
        colour, dashes = canvas.COLOURS[i % len(canvas.COLOURS)], canvas.DASHES[i % len(canvas.DASHES)]
        values = found.logits[i].numpy()
        if values.max() > 0:
            axis.contourf(x, y, values, levels=[0, max(values.max(), 1e-12)], colors=[colour], alpha=0.10, zorder=0)
        if values.max() > 0 > values.min():
            axis.contour(x, y, values, levels=[0], colors=[colour], linestyles=[dashes], linewidths=1.8, zorder=3)
            where = f"{found.nearest[i]:.2f} from the origin"
        else:
            where = "predicted everywhere" if values.max() > 0 else "does not meet this plane"
        handles.append(
            Line2D([], [], color=colour, linestyle=dashes, label=f"{name} ({where}; {100 * found.shares[i]:.0f} %)")
        )
    if found.extent:
        canvas.plain(axis, found.extent)
    else:
        canvas.disk(axis)
    axis.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.06 if found.extent else 0.0))


def draw(panels: Sequence[tuple[str, Field]]) -> Figure:
    """One panel for each run: (title, field)."""
    foot = (
        "Curves: where the trained logit of a type is 0 (probability 1/2), on a totally geodesic plane through the "
        "origin (no projection); shaded: where the type is predicted. The plane is spanned by the 2 principal "
        "directions of the gradients of these logits at the origin. In brackets: distance of the curve from the "
        "origin, and the share of the gradient's length that lies in the plane (at 100 % the boundary is seen at its "
        "true distance from the origin). Disk: Poincaré, radius 1."
    )
    names = ", ".join(panels[0][1].names)
    width, rows = max(5.0, 4.3 * min(3, len(panels))), -(-len(panels) // 3)
    with canvas.canvas(width, 0.4 + 5.3 * rows, f"Decision boundaries: {names}", foot) as body:
        for axis, (title, found) in zip(canvas.grid(body, len(panels)), panels, strict=True):
            paint(axis, found, title)
    return body.figure
