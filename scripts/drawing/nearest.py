"""The class points nearest to given ones, by the distance of the model's space (Lopez & Strube 2020, Tables 2, 9)."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, entity_types
from scripts.drawing.entity_types import TABLE_9
from scripts.drawing.lettering import shortened
from scripts.drawing.options import FigureOptions, Loader, number_of
from scripts.trained import Run

N_NEAREST = 5
CHAINS = 9  # at most in one picture; Ultra-Fine has as many coarse types
COLOURS = dict(zip(entity_types.GRANULARITIES, canvas.COLOURS, strict=False))
MARKERS = dict(zip(entity_types.GRANULARITIES, "sDo", strict=True))


class Column(NamedTuple):
    """A class and those nearest to it: (name, distance, granularity)."""

    label: str
    nearest: list[tuple[str, float, str]]


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Class points nearest to some types, with distances (HyFi, Tables 2 and 9), a table and a picture a run."""
    files = []
    for run in runs:
        trained = load(run)
        manifold, points = entity_types.class_points(trained)
        names, kinds = entity_types.types(trained)
        space = (manifold, points, names, kinds)
        labels = entity_types.labels(trained, options)
        columns = [column(*space, number_of(label, names, trained)) for label in labels]
        rows = [columns[k : k + 3] for k in range(0, len(columns), 3)]
        tables = [("nearest", f"Nearest class points: {', '.join(labels)}", rows)]
        heads = [name for name, kind in zip(names, kinds, strict=True) if kind == "coarse" and name not in labels]
        if not options.labels and heads:
            heads.sort(key=lambda name: TABLE_9.index(name) if name in TABLE_9 else len(TABLE_9))
            chains = [chain(*space, number_of(head, names, trained)) for head in heads[:CHAINS]]
            which = "the coarse types" if len(heads) <= CHAINS else f"{CHAINS} of {len(heads):,} coarse types"
            tables.append(("nearest-coarse", f"Nearest class points, in chains from {which} on", chains))
        kind, measure = "Euclidean", "distance"
        if manifold.is_curved:
            kind, measure = "geodesic", "hyperbolic distance"
        foot = (
            f"{run.title}; {trained.about(manifold)}. Points of the classifier, one for each of {len(names):,} types; "
            f"{kind} distances."
        )
        own = options.for_run(run, runs)
        for name, title, table in tables:
            files.append(own.write(markdown(table, title, foot), name, [run]))
            files.append(own.save(plot(table, title, foot, measure), name, [run]))
    return files


@torch.no_grad()
def column(
    manifold: Manifold, points: Tensor, names: Sequence[str], kinds: Sequence[str], label: int, n: int = N_NEAREST
) -> Column:
    """The n classes whose points are nearest to that of class `label`, the nearest first; ties by the class's number.

    points: (K, D). kinds: the granularity of each class.
    """
    points = points.detach().double()
    distance = manifold.dist(points[label], points)
    distance[label] = torch.inf
    order = torch.argsort(distance, stable=True)[: min(n, len(names) - 1)].tolist()
    return Column(names[label], [(names[i], float(distance[i]), kinds[i]) for i in order])


def chain(
    manifold: Manifold, points: Tensor, names: Sequence[str], kinds: Sequence[str], label: int, length: int = 3,
    n: int = N_NEAREST,
) -> list[Column]:  # fmt: skip
    """The columns of a class, of the class nearest to it, of the class nearest to that and so on, as in Table 9.

    A class that already stands at the head of a column is passed over; the chain ends where no other is listed.
    """
    columns = [column(manifold, points, names, kinds, label, n)]
    while len(columns) < length:
        heads = {each.label for each in columns}
        following = next((name for name, *_ in columns[-1].nearest if name not in heads), None)
        if following is None:
            break
        columns.append(column(manifold, points, names, kinds, names.index(following), n))
    return columns


def markdown(rows: Sequence[Sequence[Column]], title: str, foot: str, measure: str = "d") -> str:
    """A Markdown table for each row of columns: under each class the names and the distances."""
    lines = [f"## {title}", ""]
    for columns in rows:
        lines.append("| " + " | ".join(f"{_cell(c.label)} | {measure}" for c in columns) + " |")
        lines.append("|---|---:" * len(columns) + "|")
        for entries in zip_longest(*(c.nearest for c in columns)):
            cells = [f"{_cell(entry[0])} | {entry[1]:.2f}" if entry else " | " for entry in entries]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, foot, ""])


def _cell(name: str) -> str:
    return name.replace("|", "\\|")


def plot(rows: Sequence[Sequence[Column]], title: str, foot: str, measure: str) -> Figure:
    """A panel for each class: its nearest classes from top to bottom, at their distance."""
    entries = [entry for columns in rows for each in columns for entry in each.nearest]
    far = max(distance for _, distance, _ in entries)
    width = max(5.5, 3.3 * max(map(len, rows)))
    with canvas.canvas(width, 1.2 + 1.4 * len(rows), title, foot) as body:
        measures = [""] * (len(rows) - 1) + [measure]
        contents = [[(each, far, name) for each in row] for row, name in zip(rows, measures, strict=True)]
        canvas.plot_rows(body, plot_panel, contents, sharex=True)
        kinds = sorted({kind for *_, kind in entries}, key=entity_types.GRANULARITIES.index)
        handles = [canvas.dot(COLOURS[kind], kind, MARKERS[kind], 5) for kind in kinds]
        body.legend(handles=handles, loc="outside lower right", ncols=len(kinds))
    return body.figure


def plot_panel(axis: Axes, column: Column, far: float, measure: str) -> None:
    for place, (_, distance, kind) in enumerate(column.nearest):
        axis.hlines(place, 0, distance, color=COLOURS[kind], linewidth=1.2, alpha=0.6)
        axis.plot(distance, place, MARKERS[kind], color=COLOURS[kind], markersize=5)
        axis.annotate(f"{distance:.2f}", (distance, place), (5, 0), textcoords="offset points", va="center", fontsize=7)
    axis.set_yticks(range(len(column.nearest)), [shortened(name) for name, *_ in column.nearest])
    axis.set(xlim=(0, 1.25 * far if far else 1), ylim=(len(column.nearest) - 0.5, -0.5), xlabel=measure)
    axis.set_title(shortened(column.label), fontweight="bold", loc="left")
