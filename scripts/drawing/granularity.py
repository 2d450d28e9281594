"""How far class points lie from the origin, by the granularity of the classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, entity_types
from scripts.drawing.options import FigureOptions, Loader, caption
from scripts.trained import Run

TITLE = "Distance of class points from the origin, by granularity"
FOOT = "Points p_k of the classifier, one for each type, at the geodesic distance of the model's own space."
BOXES = " Box: quartiles and median; whiskers: the farthest points within 1.5 times the quartiles' distance."
LEAST = 5  # points of a granularity that are drawn as a shape and a box
HEAD = ("run", "granularity", "types", "mean", "sd", "smallest", "quartile 1", "median", "quartile 3", "largest")
Groups = dict[str, np.ndarray]


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Distance of class points from the origin by granularity, a table and a panel for each run."""
    panels, rows = [], []
    for run in runs:
        trained = load(run)
        manifold, points = entity_types.class_points(trained)
        distances = groups(manifold, points, entity_types.inventory(trained).granularity, entity_types.GRANULARITIES)
        measure = "hyperbolic distance from the origin" if manifold.is_curved else "distance from the origin"
        panels.append((caption(trained, manifold), measure, distances))
        rows.append((f"{run.title}; {trained.about(manifold)}", distances))
    table = options.write(markdown(rows, TITLE, FOOT), "granularity", runs)
    boxes = BOXES if any(len(values) >= LEAST for *_, groups in panels for values in groups.values()) else ""
    return [table, options.save(plot(panels, TITLE, FOOT + boxes), "granularity", runs)]


@torch.no_grad()
def groups(manifold: Manifold, points: Tensor, granularity: Tensor, names: Sequence[str]) -> Groups:
    """Distances from the origin of the class points (K, D), by the name of their granularity (K,); none left empty."""
    distance = manifold.dist0(points.detach().double())
    return {name: distance[granularity == i].numpy() for i, name in enumerate(names) if (granularity == i).any()}


def markdown(rows: Sequence[tuple[str, Groups]], title: str, foot: str) -> str:
    """A table with a row for each run and granularity: number of classes, mean, standard deviation, quartiles."""
    lines = [f"## {title}", "", "| " + " | ".join(HEAD) + " |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
    for label, distances in rows:
        for name, values in distances.items():
            spread = values.std(ddof=1) if len(values) > 1 else 0.0
            numbers = [values.mean(), spread, *np.quantile(values, [0, 0.25, 0.5, 0.75, 1])]
            cells = [label, name, f"{len(values):,}", *(f"{v:.3f}" for v in numbers)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", foot, ""])


def plot_panel(axis: Axes, title: str, measure: str, distances: Groups) -> None:
    """A violin for each granularity with its quartiles in a box; single points where there are too few for a shape."""
    for place, values in enumerate(distances.values()):
        colour = canvas.COLOURS[place % 3]
        if len(values) >= LEAST and np.ptp(values) > 0:
            shape = axis.violinplot(values, positions=[place], widths=0.8, showextrema=False)
            shape["bodies"][0].set(facecolor=colour, edgecolor=colour, alpha=0.25)
        if len(values) >= LEAST:
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
    axis.set_xticks(range(len(distances)), [f"{name}\n{len(values):,} types" for name, values in distances.items()])
    axis.set(xlim=(-0.6, len(distances) - 0.4), ylim=(0, None), ylabel=measure)
    axis.grid(visible=True, axis="y")
    axis.set_title(canvas.wrapped(title, 3.7, 9), pad=14)


def plot(panels: Sequence[tuple[str, str, Groups]], title: str, foot: str) -> Figure:
    """A panel for each run: (title, measure, groups)."""
    with canvas.panels(plot_panel, panels, (4.0, 3.6), 0.4, title, foot, least=5.0) as (body, _):
        return body.figure
