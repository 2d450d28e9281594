"""Queries and keys of the distance attention, in two dimensions (Lopez & Strube 2020, Figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts


@dataclass(frozen=True)
class Cloud:
    """Queries and keys on paper, each (N, 2). in_mention: (N,) boolean. distance: mean distance of a query and the key
    of the same word. drawn, of: how many words are drawn, of how many. share: see `charts.Basis`. manifold: theirs."""

    queries: Tensor
    keys: Tensor
    in_mention: Tensor
    distance: float
    drawn: int
    of: int
    share: float
    manifold: Manifold


@torch.no_grad()
def cloud(manifold: Manifold, queries: Tensor, keys: Tensor, in_mention: Tensor, most: int, seed: int = 0) -> Cloud:
    """Choose at most `most` words of queries and keys (N, D), the same for every run of one seed, and flatten them.

    The plane is that of all chosen queries and keys together, so that the two are seen in one picture.
    """
    n = len(queries)
    chosen = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values
    mean = float(manifold.dist(queries.double(), keys.double()).mean())
    queries, keys, in_mention = queries[chosen], keys[chosen], in_mention[chosen]
    basis = charts.plane_of(manifold, torch.cat([queries, keys]))
    flat = [charts.flatten(manifold, x, basis) for x in (queries, keys)]
    return Cloud(*flat, in_mention, mean, len(chosen), n, basis.share, manifold)


def paint(axis: Axes, found: Cloud, title: str) -> None:
    """Queries in red, keys in blue; words inside of the mention as larger, dark triangles."""
    extent = 0.0
    for points, colour, dark, label in (
        (found.keys, canvas.SKY, canvas.BLUE, "keys"),
        (found.queries, "#F2A07B", canvas.RED, "queries"),
    ):
        inside = found.in_mention.numpy()
        x, y = points.numpy().T
        if not inside.all():
            axis.scatter(x[~inside], y[~inside], s=6, color=colour, alpha=0.55, linewidths=0, label=label, zorder=2)
        if inside.any():
            name = label if inside.all() else f"{label} inside the mention"
            axis.scatter(
                x[inside], y[inside], s=13, marker="^", color=dark, alpha=0.8, linewidths=0, label=name, zorder=3
            )
        extent = max(extent, float(points.abs().max()))
    if charts.is_curved(found.manifold):
        canvas.disk(axis)
    else:
        canvas.plain(axis, 1.08 * extent or 1.0)
    drawn = f"{found.drawn:,} of {found.of:,} words, mean d(query, key) {found.distance:.2f}"
    axis.set_title(f"{canvas.wrapped(title, 3.7, 9)}\n{drawn}")


def draw(panels: Sequence[Sequence[tuple[str, Cloud]]], title: str) -> Figure:
    """A row of panels (title, cloud) for each run."""
    clouds = [found for row in panels for _, found in row]
    foot = "\n".join(dict.fromkeys(_note(found, clouds) for found in clouds))
    foot += "\nThe nearer a word's query is to its own key, the more weight the word gets (where β > 0)."
    n_columns = max(len(row) for row in panels)
    with canvas.canvas(max(5.0, 4.2 * n_columns), 1.2 + 4.6 * len(panels), title, foot) as body:
        axes = body.subplots(len(panels), n_columns, squeeze=False)
        for row, line in zip(axes, panels, strict=True):
            for axis, panel in zip(row, [*line, *[None] * (n_columns - len(line))], strict=True):
                if panel is None:
                    axis.set_axis_off()
                else:
                    paint(axis, panel[1], panel[0])
        handles: dict[str, object] = {}
        for axis in axes.flat:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        legend = body.legend(handles.values(), handles, loc="outside lower center", ncols=2, markerscale=1.8)
        for handle in legend.legend_handles:
            handle.set_alpha(1)
    return body.figure


def _note(found: Cloud, clouds: Sequence[Cloud]) -> str:
    """The note on the kind of chart, with the smallest share among the panels of this kind."""
    kind = charts.is_curved(found.manifold)
    return charts.explained(found.manifold, min(c.share for c in clouds if charts.is_curved(c.manifold) == kind))
