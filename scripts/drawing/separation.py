"""Nodes of a subtree against all others, and the curve that separates them (Ganea et al. 2018, Figure 2).

Points of two dimensions are drawn where they are, in the Poincaré disk, and nothing is projected. The curve is the zero
of the trained classifier's margin (logit of the subtree minus the other) on a grid of the same disk, so that it is
right for every classifier: a geodesic for one hyperplane in hyperbolic space, a curve between two of them where each
class has its own, a straight line in the ball's coordinates, or the image of one by the exponential map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts

RADII, ANGLES = 300, 721
FAR = 12.0  # times 1/sqrt(c): how far out the disk's grid goes, 1 - 1e-5 of its radius
INSIDE, OUTSIDE, CURVE = canvas.RED, "#EFC000", canvas.GREEN  # the colours of the paper
_POINTS = 20_000  # whose logits are computed at a time


@dataclass(frozen=True)
class Field:
    """A classifier on paper.

    xy: (N, 2) the points, in the unit disk or in flat axes. inside: (N,) which are of the subtree. x, y: (R, A) the
    grid. margin: (R, A), positive where the subtree is predicted. extent: of flat axes; 0 of a disk.
    """

    xy: Tensor
    inside: Tensor
    x: Tensor
    y: Tensor
    margin: Tensor
    extent: float


@torch.no_grad()
def field(
    manifold: Manifold, points: Tensor, inside: Tensor, margin: Callable[[Tensor], Tensor], rim: float = 0.0
) -> Field:
    """The points (N, D) of a space of two dimensions, and on it `margin`, which takes points (M, D) in float64 to (M,).

    rim: of a flat space whose coordinates are those of a ball, the radius of the ball: it is drawn as the disk, too.
    """
    angle = torch.linspace(0, 2 * math.pi, ANGLES, dtype=torch.float64)
    basis, extent = charts.itself(), 0.0
    xy = charts.flatten(manifold, points, basis)
    if charts.is_curved(manifold):
        distance = torch.linspace(0, FAR / charts.curvature(manifold) ** 0.5, RADII, dtype=torch.float64)
        radius = charts.radius(manifold, distance)
    elif rim:
        xy, radius = xy / rim, torch.linspace(0, 1 - 1e-6, RADII, dtype=torch.float64)
        distance = rim * radius
    else:
        extent = 1.1 * float(xy.abs().max()) or 1.0
        radius = distance = torch.linspace(0, 2**0.5 * extent, RADII, dtype=torch.float64)
    grid = charts.points_of(manifold, distance.unsqueeze(-1).expand(-1, ANGLES), angle, basis.axes)
    found = torch.cat([margin(x).double() for x in grid.flatten(0, 1).split(_POINTS)]).view(RADII, ANGLES)
    radius = radius.unsqueeze(-1)
    return Field(xy, inside.cpu(), radius * angle.cos(), radius * angle.sin(), found.cpu(), extent)


def paint(axis: Axes, found: Field, title: str) -> None:
    """The other nodes, those of the subtree over them, a light wash where the subtree is predicted, and the curve."""
    x, y, margin = found.x.numpy(), found.y.numpy(), found.margin.numpy()
    if margin.max() > 0:
        axis.contourf(x, y, margin, levels=[0, float(margin.max())], colors=[CURVE], alpha=0.12, zorder=0)
    for points, colour, size in ((found.xy[~found.inside], OUTSIDE, 1.5), (found.xy[found.inside], INSIDE, 3.0)):
        size = max(size, min(14.0, 1500 / max(1, len(points))))
        axis.scatter(*points.numpy().T, s=size, color=colour, linewidths=0, alpha=0.8, zorder=2, rasterized=True)
    if margin.max() > 0 > margin.min():
        axis.contour(x, y, margin, levels=[0], colors=[CURVE], linewidths=1.8, zorder=3)
        where = ""
    else:
        where = f"\npredicted {'everywhere' if margin.max() > 0 else 'nowhere'}"
    if found.extent:
        canvas.plain(axis, found.extent)
    else:
        canvas.disk(axis)
    axis.set_title(canvas.wrapped(title, 3.8, 9) + where)


def draw(panels: Sequence[tuple[str, Field]], title: str) -> Figure:
    """One panel for each run: (title, field)."""
    foot = (
        "Points are where they are, in the Poincaré disk of radius 1 (or, where no rim is drawn, in a flat plane): "
        "nothing is projected. Curve: where the trained classifier gives the subtree probability 1/2; shaded: where it "
        "predicts the subtree. F1 of the subtree, in the state that is drawn."
    )
    handles = [
        Line2D([], [], ls="", marker="o", markersize=4, color=INSIDE, label="in the subtree"),
        Line2D([], [], ls="", marker="o", markersize=4, color=OUTSIDE, label="all other nodes"),
        Line2D([], [], color=CURVE, label="separation"),
        Patch(facecolor=CURVE, alpha=0.12, label="predicted as the subtree"),
    ]
    width, rows = max(5.4, 4.3 * min(3, len(panels))), -(-len(panels) // 3)
    with canvas.canvas(width, 0.9 + 4.8 * rows, title, foot) as body:
        for axis, (name, found) in zip(canvas.grid(body, len(panels)), panels, strict=True):
            paint(axis, found, name)
        body.legend(handles=handles, loc="outside lower center", ncols=2 if width < 8 else 4)
    return body.figure
