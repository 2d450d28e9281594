"""The class points nearest to given ones, by the distance of the model's space (Lopez & Strube 2020, Tables 2, 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas

N_NEAREST = 5
COLOURS = {"coarse": canvas.RED, "fine": canvas.BLUE, "ultrafine": canvas.GREEN}
MARKERS = {"coarse": "s", "fine": "D", "ultrafine": "o"}


class Column(NamedTuple):
    """A class and those nearest to it: (name, distance, granularity)."""

    label: str
    nearest: list[tuple[str, float, str]]


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
    manifold: Manifold,
    points: Tensor,
    names: Sequence[str],
    kinds: Sequence[str],
    label: int,
    length: int = 3,
    n: int = N_NEAREST,
) -> list[Column]:
    """The columns of a class, of the class nearest to it, of the class nearest to that and so on, as in Table 9.

    A class that already stands at the head of a column is passed over; the chain ends where no other is listed.
    """
    index = {name: i for i, name in enumerate(names)}
    found = [column(manifold, points, names, kinds, label, n)]
    while len(found) < length:
        heads = {c.label for c in found}
        following = next((name for name, *_ in found[-1].nearest if name not in heads), None)
        if following is None:
            break
        found.append(column(manifold, points, names, kinds, index[following], n))
    return found


def markdown(rows: Sequence[Sequence[Column]], title: str, foot: str, measure: str = "d") -> str:
    """A Markdown table for each row of columns: under each class the names and the distances."""
    lines = [f"## {title}", ""]
    for columns in rows:
        lines.append("| " + " | ".join(f"{_cell(c.label)} | {measure}" for c in columns) + " |")
        lines.append("|---|---:" * len(columns) + "|")
        for i in range(max(len(c.nearest) for c in columns)):
            listed = [c.nearest[i] if i < len(c.nearest) else None for c in columns]
            cells = [f"{_cell(each[0])} | {each[1]:.2f}" if each else " | " for each in listed]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, foot, ""])


def _cell(name: str) -> str:
    return name.replace("|", "\\|")


def draw(rows: Sequence[Sequence[Column]], title: str, foot: str, measure: str) -> Figure:
    """A panel for each class: its nearest classes from top to bottom, at their distance."""
    n_columns = max(len(columns) for columns in rows)
    far = max(distance for columns in rows for c in columns for _, distance, _ in c.nearest)
    width, height = max(5.5, 3.3 * n_columns), 1.2 + 1.4 * len(rows)
    with canvas.canvas(width, height, title, foot) as body:
        axes = body.subplots(len(rows), n_columns, squeeze=False, sharex=True)
        for i, columns in enumerate(rows):
            for j, axis in enumerate(axes[i]):
                if j >= len(columns):
                    axis.set_axis_off()
                    continue
                _panel(axis, columns[j], far)
                if i == len(rows) - 1:
                    axis.set_xlabel(measure)
        kinds = list(dict.fromkeys(kind for columns in rows for c in columns for *_, kind in c.nearest))
        kinds.sort(key=list(COLOURS).index)
        handles = [Line2D([], [], ls="", color=COLOURS[k], marker=MARKERS[k], markersize=5, label=k) for k in kinds]
        body.legend(handles=handles, loc="outside lower right", ncols=len(kinds))
    return body.figure


def _panel(axis, found: Column, far: float) -> None:
    for place, (_, distance, kind) in enumerate(found.nearest):
        axis.hlines(place, 0, distance, color=COLOURS[kind], linewidth=1.2, alpha=0.6)
        axis.plot(distance, place, MARKERS[kind], color=COLOURS[kind], markersize=5)
        axis.annotate(f"{distance:.2f}", (distance, place), (5, 0), textcoords="offset points", va="center", fontsize=7)
    axis.set_yticks(range(len(found.nearest)), [shortened(name) for name, *_ in found.nearest])
    axis.set_ylim(len(found.nearest) - 0.5, -0.5)
    axis.set_xlim(0, 1.25 * far if far else 1)
    axis.set_title(shortened(found.label), fontweight="bold", loc="left")


def shortened(name: str, letters: int = 19) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"
