"""A hierarchy embedded in two dimensions, with the edges of its top levels (Nickel & Kiela 2017, Figure 2b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts, lettering
from scripts.drawing.nearest import shortened
from tasks.edges import depths

MOST_EDGES = 600
NAMED = 12
STEPS = 25  # points of an edge
PALE = "#BBBBBB"


@dataclass(frozen=True)
class Picture:
    """A hierarchy on paper.

    xy: (N, 2), in the unit disk or in flat axes. depth: (N,) edges to the nearest root. levels: the greatest depth of
    the nodes whose edges are drawn. edges: (E, STEPS, 2) curves from parent to child. named: numbers and names of nodes
    that may get one, the most important first; most_named of them do. manifold: where the nodes are.
    """

    xy: Tensor
    depth: np.ndarray
    levels: int
    edges: np.ndarray
    named: tuple[tuple[int, str], ...]
    most_named: int
    manifold: Manifold


@torch.no_grad()
def picture(
    manifold: Manifold, points: Tensor, names: Sequence[str], child: np.ndarray, parent: np.ndarray,
    chosen: Sequence[int] = (), most: int = MOST_EDGES,
) -> Picture:  # fmt: skip
    """Nodes at points (N, D) of a space of two dimensions, with the edges (child, parent) of as many whole levels from
    the top as have at most `most` of them, of one level in any case.

    chosen: nodes that get a name; else the roots and, level by level, those of the most children. Edges are geodesics.
    """
    depth = _levels(child, parent, len(points))
    from_above = depth[parent] < depth[child]
    child, above = child[from_above], parent[from_above]
    levels = 1
    while levels < depth[child].max(initial=0) and (depth[child] <= levels + 1).sum() <= most:
        levels += 1
    drawn = depth[child] <= levels
    xy = charts.flatten(manifold, points, charts.itself())
    edges = geodesics(xy[above[drawn]], xy[child[drawn]], charts.is_curved(manifold))
    if chosen:
        candidates = list(chosen)
    else:
        children = np.bincount(parent, minlength=len(points))
        shown = np.flatnonzero(depth <= levels)
        candidates = shown[np.lexsort((shown, -children[shown], depth[shown]))][: 20 * NAMED].tolist()
    named = tuple((k, shortened(names[k], 26)) for k in candidates)
    return Picture(xy, depth, levels, edges.numpy(), named, len(chosen) or NAMED, manifold)


def _levels(child: np.ndarray, parent: np.ndarray, n: int) -> np.ndarray:
    """The edges from each of n nodes up to the nearest root, a node without parents; where no such node is above, the
    one of the most children is a root too."""
    children = np.bincount(parent, minlength=n)
    while (depth := depths(child, parent, n)).max(initial=0) == n > 0:
        root = np.argmax(np.where(depth == n, children, -1))
        child, parent = child[kept := child != root], parent[kept]
    return depth


def geodesics(a: Tensor, b: Tensor, curved: bool) -> Tensor:
    """The curves (E, STEPS, 2) from a to b, both (E, 2): of the Poincaré disk of radius 1, or straight.

    A geodesic of the disk is an arc of the circle about m with ``2 <m, x> = 1 + |x|^2`` at both of its ends, which
    meets the rim at right angles; where the ends are in line with the origin it is straight.
    """
    t = torch.linspace(0, 1, STEPS, dtype=torch.float64).view(-1, 1)
    straight = a.unsqueeze(1) + t * (b - a).unsqueeze(1)
    across = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    bent = across.abs() > 1e-6
    if not curved or not bent.any():
        return straight
    a, b, across = a[bent], b[bent], across[bent].unsqueeze(-1)
    p, q = (1 + x.square().sum(-1, keepdim=True) for x in (a, b))
    m = torch.cat([p * b[:, 1:] - q * a[:, 1:], q * a[:, :1] - p * b[:, :1]], -1) / (2 * across)
    start, end = (torch.atan2(*(x - m).flip(-1).unbind(-1)).unsqueeze(-1) for x in (a, b))
    turn = torch.remainder(end - start + torch.pi, 2 * torch.pi) - torch.pi
    angle = start.unsqueeze(1) + t * turn.unsqueeze(1)
    radius = (a - m).norm(dim=-1).view(-1, 1, 1)
    straight[bent] = m.unsqueeze(1) + radius * torch.cat([angle.cos(), angle.sin()], -1)
    return straight


def paint(axis: Axes, found: Picture, title: str, levels: int) -> None:
    """All nodes, those of the top levels in the colour of their level, their edges, and the names that fit."""
    curved = charts.is_curved(found.manifold)
    extent = 1.04 if curved else 1.1 * float(found.xy.abs().max()) or 1.0
    canvas.disk(axis) if curved else canvas.plain(axis, extent)
    axis.add_collection(LineCollection(found.edges, colors="#777777", linewidths=0.6, alpha=0.6, zorder=2))
    shown = found.depth <= found.levels
    axis.scatter(*found.xy[~shown].numpy().T, s=1.2, color=PALE, linewidths=0, alpha=0.6, zorder=1, rasterized=True)
    for level in reversed(range(found.levels + 1)):
        xy = found.xy[found.depth == level].numpy()
        size, order = (9, 3 + 1 / (1 + level)) if level else (22, 4)
        axis.scatter(*xy.T, s=size, color=colour(level, levels), linewidths=0, zorder=order)
    lettering.write(axis, found.xy, lettering.fitting(found.xy, found.named, found.most_named, extent))
    which = "level 1" if found.levels == 1 else f"levels 1 to {found.levels}"
    count = f"{len(found.xy):,} nodes, {len(found.edges):,} edges of {which}"
    axis.set_title(f"{canvas.wrapped(title, 4.6, 9)}\n{count}")


def colour(level: int, levels: int) -> tuple[float, float, float, float]:
    return colormaps["plasma"](0.85 * level / max(1, levels))


def draw(panels: Sequence[tuple[str, Picture]], title: str) -> Figure:
    """One panel for each run: (title, picture)."""
    foot = (
        "Nodes are where they are, in the Poincaré disk of radius 1 (or, where no rim is drawn, in a flat plane): "
        "nothing is projected. Level: the fewest edges up to a root; edges are geodesics, each from one level to the "
        "next, and nodes of lower levels are pale. Of a cycle with nothing above it, the node of the most children "
        "counts as a root. Named are roots and, level by level, the nodes of the most children, or those that were "
        "asked for, where there is room."
    )
    levels = max(found.levels for _, found in panels)
    marks = {"ls": "", "marker": "o", "markersize": 4}
    width, rows = max(5.6, 5.2 * min(2, len(panels))), -(-len(panels) // 2)
    with canvas.canvas(width, 0.9 + 5.6 * rows, title, foot) as body:
        for axis, (name, found) in zip(canvas.grid(body, len(panels), most=2), panels, strict=True):
            paint(axis, found, name, levels)
        handles = [Line2D([], [], color=colour(k, levels), label=f"level {k}", **marks) for k in range(levels + 1)]
        handles.append(Line2D([], [], color=PALE, label="below", **marks))
        body.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
    return body.figure
