"""A hierarchy embedded in two dimensions, with the edges of its top levels (Nickel & Kiela 2017, Figure 2b)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts, lettering
from scripts.drawing.options import FigureOptions, Loader, caption, check_plane, number_of, unfit
from scripts.trained import Run
from tasks.edges import depths

MOST_EDGES = 600
NAMED = 12
STEPS = 25  # points of an edge
PALE = "#BBBBBB"
FOOT = (
    f"{charts.TRUE_PLACES} Level: the fewest edges up to a root; edges are geodesics, each from one level to the next, "
    "and nodes of lower levels, if any, are pale. Of a cycle with nothing above it, the node of the most children "
    "counts as a root. Named are roots and, level by level, the nodes of the most children, or chosen ones, where "
    "there is room."
)


@dataclass(frozen=True)
class Picture:
    """A hierarchy on paper."""

    xy: Tensor  # (N, 2), in the unit disk or in flat axes
    depth: np.ndarray  # (N,), edges to the nearest root
    levels: int  # the greatest depth of the nodes whose edges are drawn
    edges: np.ndarray  # (E, STEPS, 2), curves from parent to child
    named: tuple[tuple[int, str], ...]  # numbers and names of nodes that may get one, the most important first
    most_named: int  # how many of them do
    manifold: Manifold


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """A hierarchy embedded in two dimensions, with its top levels (Nickel & Kiela 2017, Figure 2)."""
    panels = []
    for run in runs:
        trained = load(run)
        model, edges = trained.model, getattr(trained.data, "edges", None)
        if not hasattr(edges, "names"):
            raise unfit(run, "embeds no hierarchy; name runs of task=poincare_embeddings.")
        check_plane(run, model.manifold, model.points)
        labels = [number_of(label, edges.names, trained, "nodes") for label in options.labels or ()]
        nodes = picture(model.manifold, model.points, edges.names, edges.child, edges.parent, labels)
        panels.append((caption(trained, model.manifold), nodes))
    sources = ", ".join(dict.fromkeys(load(run).data.edges.source for run in runs))
    return [options.save(plot(panels, f"The top levels of {sources}"), "tree", runs)]


@torch.no_grad()
def picture(
    manifold: Manifold, points: Tensor, names: Sequence[str], child: np.ndarray, parent: np.ndarray,
    labels: Sequence[int] = (), most: int = MOST_EDGES,
) -> Picture:  # fmt: skip
    """Nodes at points (N, D) of a space of two dimensions, with the edges (child, parent) of as many whole levels from
    the top as have at most `most` of them, of one level in any case.

    labels: nodes that get a name; else the roots and, level by level, those of the most children. Edges are geodesics.
    """
    depth = _levels(child, parent, len(points))
    from_above = depth[parent] < depth[child]
    child, above = child[from_above], parent[from_above]
    levels = 1
    while levels < depth[child].max(initial=0) and (depth[child] <= levels + 1).sum() <= most:
        levels += 1
    drawn = depth[child] <= levels
    xy = charts.flatten(manifold, points)
    edges = geodesics(xy[above[drawn]], xy[child[drawn]], manifold.is_curved)
    children = np.bincount(parent, minlength=len(points))
    top = np.flatnonzero(depth <= levels)
    candidates = list(labels) or top[np.lexsort((top, -children[top], depth[top]))][: 20 * NAMED].tolist()
    named = tuple((k, lettering.shortened(names[k], 26)) for k in candidates)
    return Picture(xy, depth, levels, edges.numpy(), named, len(labels) or NAMED, manifold)


def _levels(child: np.ndarray, parent: np.ndarray, n: int) -> np.ndarray:
    """The edges from each of n nodes up to the nearest root, a node without parents; where no such node is above, the
    one of the most children is a root too."""
    children = np.bincount(parent, minlength=n)
    while (depth := depths(child, parent, n)).max(initial=0) == n > 0:
        root = np.argmax(np.where(depth == n, children, -1))
        child, parent = child[others := child != root], parent[others]
    return depth


def geodesics(a: Tensor, b: Tensor, curved: bool) -> Tensor:
    """The curves (E, STEPS, 2) from a to b, both (E, 2): of the Poincaré disk of radius 1, or straight.

    A geodesic of the disk is an arc of the circle about m with ``2 <m, x> = 1 + |x|^2`` at both of its ends, which
    meets the rim at right angles; where the ends are in line with the origin it is straight.
    """
    t = torch.linspace(0, 1, STEPS, dtype=torch.float64)
    a, b = (torch.view_as_complex(x.contiguous()).unsqueeze(-1) for x in (a, b))
    curves = a + t * (b - a)
    across = (a.conj() * b).imag
    bent = (across.abs() > 1e-6).squeeze(-1)
    if curved and bent.any():
        a, b, across = a[bent], b[bent], across[bent]
        m = 1j * ((1 + b.abs() ** 2) * a - (1 + a.abs() ** 2) * b) / (2 * across)
        curves[bent] = m + (a - m) * torch.exp(1j * t * ((b - m) / (a - m)).angle())
    return torch.view_as_real(curves)


def plot_panel(axis: Axes, title: str, picture: Picture, levels: int) -> None:
    """All nodes, those of the top levels in the colour of their level, their edges, and the names that fit."""
    curved = picture.manifold.is_curved
    extent = 1.04 if curved else 1.1 * float(picture.xy.abs().max()) or 1.0
    canvas.frame(axis, 0.0 if curved else extent)
    axis.add_collection(LineCollection(picture.edges, colors="#777777", linewidths=0.6, alpha=0.6, zorder=2))
    below = picture.xy[picture.depth > picture.levels].numpy()
    axis.scatter(*below.T, s=1.2, color=PALE, linewidths=0, alpha=0.6, zorder=1, rasterized=True)
    for level in reversed(range(picture.levels + 1)):
        xy = picture.xy[picture.depth == level].numpy()
        size, order = (9, 3 + 1 / (1 + level)) if level else (22, 4)
        axis.scatter(*xy.T, s=size, color=colour(level, levels), linewidths=0, zorder=order)
    lettering.write(axis, picture.xy, picture.named, picture.most_named, extent)
    which = "level 1" if picture.levels == 1 else f"levels 1 to {picture.levels}"
    count = f"{len(picture.xy):,} nodes, {len(picture.edges):,} edges of {which}"
    axis.set_title(f"{canvas.wrapped(title, 4.6, 9)}\n{count}")


def colour(level: int, levels: int) -> tuple[float, float, float, float]:
    return colormaps["plasma"](0.85 * level / max(1, levels))


def plot(panels: Sequence[tuple[str, Picture]], title: str) -> Figure:
    """One panel for each run: (title, picture)."""
    levels = max(each.levels for _, each in panels)
    contents = [(*panel, levels) for panel in panels]
    with canvas.panels(plot_panel, contents, (5.2, 5.6), 0.9, title, FOOT, least=5.6, most=2) as (body, _):
        handles = [canvas.dot(colour(k, levels), f"level {k}") for k in range(levels + 1)]
        if any((picture.depth > picture.levels).any() for _, picture in panels):
            handles.append(canvas.dot(PALE, "below"))
        body.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)))
    return body.figure
