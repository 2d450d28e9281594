"""How many examples each class has, and how many of them a model finds (Patel et al., Figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.drawing import canvas

GOLD, FOUND = canvas.SKY, canvas.BLUE


class Count(NamedTuple):
    """Of one class: examples that have it, examples for which it is predicted, and those that are both."""

    label: str
    gold: int
    predicted: int
    true_positives: int


def paint(axis: Axes, counts: Sequence[Count], title: str) -> None:
    """Two bars for each class, with the share that was found."""
    places = np.arange(len(counts))
    for offset, colour, values, name in (
        (-0.2, GOLD, [c.gold for c in counts], "examples of the class"),
        (0.2, FOUND, [c.true_positives for c in counts], "true positives"),
    ):
        axis.bar(places + offset, values, 0.38, color=colour, label=name)
        for place, value, count in zip(places, values, counts, strict=True):
            share = f"\n{100 * value / count.gold:.0f} %" if offset > 0 and count.gold else ""
            axis.annotate(
                f"{value:,}{share}", (place + offset, value), (0, 2), textcoords="offset points", ha="center",
                va="bottom", fontsize=7,
            )  # fmt: skip
    axis.set_xticks(places, [f"{c.label}\npredicted {c.predicted:,}" for c in counts])
    axis.margins(y=0.16)
    gold, right = sum(c.gold for c in counts), sum(c.true_positives for c in counts)
    axis.set_title(f"{canvas.wrapped(title, 3.9, 9)}\n{right:,} of {gold:,} right ({100 * right / max(1, gold):.1f} %)")


def draw(panels: Sequence[tuple[str, Sequence[Count]]], title: str) -> Figure:
    """A panel for each run, on one axis of numbers: (title, counts)."""
    foot = (
        "Light: examples whose gold label is the class; dark: those of them for which the model says so (true "
        "positives), with their share (recall); below: for how many examples it says so."
    )
    columns, rows = min(3, len(panels)), -(-len(panels) // 3)
    width = max(5.0, columns * max(4.1, 1.2 * max(len(counts) for _, counts in panels)))
    with canvas.canvas(width, 0.8 + 3.5 * rows, title, foot) as body:
        axes = canvas.grid(body, len(panels))
        for axis, (name, counts) in zip(axes, panels, strict=True):
            paint(axis, counts, name)
        top = max(axis.get_ylim()[1] for axis in axes)
        for axis in axes:
            axis.set_ylim(0, top)
        body.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return body.figure
