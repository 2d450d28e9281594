"""How far class points lie from the origin, by the granularity of the classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas

COLOURS = (canvas.RED, canvas.BLUE, canvas.GREEN)
Groups = dict[str, np.ndarray]


@torch.no_grad()
def groups(manifold: Manifold, points: Tensor, granularity: Tensor, names: Sequence[str]) -> Groups:
    """Distances from the origin of the class points (K, D), by the name of their granularity (K,); none left empty."""
    distance = manifold.dist0(points.detach().double())
    found = {name: distance[granularity == i].numpy() for i, name in enumerate(names)}
    return {name: values for name, values in found.items() if len(values)}


def markdown(runs: Sequence[tuple[str, Groups]], title: str, foot: str) -> str:
    """A table with a row for each run and granularity: number of classes, mean, standard deviation, quartiles."""
    head = ["run", "granularity", "types", "mean", "sd", "smallest", "quartile 1", "median", "quartile 3", "largest"]
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for label, found in runs:
        for name, values in found.items():
            spread = values.std(ddof=1) if len(values) > 1 else 0.0
            numbers = [values.mean(), spread, *np.quantile(values, [0, 0.25, 0.5, 0.75, 1])]
            cells = [label, name, f"{len(values):,}", *(f"{v:.3f}" for v in numbers)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", foot, ""])


def paint(axis: Axes, found: Groups, title: str, measure: str) -> None:
    """A violin for each granularity with its quartiles in a box; single points where there are too few for a shape."""
    for place, values in enumerate(found.values()):
        colour = COLOURS[place % len(COLOURS)]
        if len(values) >= 5 and np.ptp(values) > 0:
            shape = axis.violinplot(values, positions=[place], widths=0.8, showextrema=False)
            shape["bodies"][0].set(facecolor=colour, edgecolor=colour, alpha=0.25)
        if len(values) >= 5:
            axis.boxplot(
                values, positions=[place], widths=0.16, showfliers=False, patch_artist=True, manage_ticks=False,
                boxprops={"facecolor": "white", "edgecolor": colour}, medianprops={"color": colour, "linewidth": 2},
                whiskerprops={"color": colour}, capprops={"color": colour},
            )  # fmt: skip
        else:
            axis.plot([place] * len(values), values, "o", color=colour, markersize=4)
        axis.annotate(
            f"mean {values.mean():.2f}", (place, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom",
            fontsize=7, color=colour,
        )  # fmt: skip
    axis.set_xticks(range(len(found)), [f"{name}\n{len(values):,} types" for name, values in found.items()])
    axis.set_xlim(-0.6, len(found) - 0.4)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(measure)
    axis.grid(visible=True, axis="y")
    axis.set_title(canvas.wrapped(title, 3.7, 9), pad=14)


def draw(panels: Sequence[tuple[str, str, Groups]], title: str, foot: str) -> Figure:
    """A panel for each run: (title, measure, groups)."""
    width, rows = max(5.0, 4.0 * min(3, len(panels))), -(-len(panels) // 3)
    with canvas.canvas(width, 0.4 + 3.6 * rows, title, foot) as body:
        for axis, (name, measure, found) in zip(canvas.grid(body, len(panels)), panels, strict=True):
            paint(axis, found, name, measure)
    return body.figure


