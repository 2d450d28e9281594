"""Curves over the epochs of one or several runs: losses and metrics, and the norms of text vectors (HyFi, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.drawing import canvas


class Curve(NamedTuple):
    """The values (epoch, value) of one column of a run's history. best: the epoch that was selected, or None."""

    label: str
    points: list[tuple[float, float]]
    best: float | None = None


class Panel(NamedTuple):
    """What stands on the axis of values, and the curves."""

    measure: str
    curves: list[Curve]


def paint(axis: Axes, panel: Panel) -> None:
    """Draw the curves; a ring marks the selected epoch. Colour, dashes and markers all tell runs apart."""
    for i, curve in enumerate(panel.curves):
        colour = canvas.COLOURS[i % len(canvas.COLOURS)]
        every = max(1, len(curve.points) // 8)
        axis.plot(
            *zip(*curve.points, strict=True), color=colour, linestyle=canvas.DASHES[i % len(canvas.DASHES)],
            marker=canvas.MARKERS[i % len(canvas.MARKERS)], markersize=3.5, markevery=every, linewidth=1.4,
            label=curve.label,
        )  # fmt: skip
        for epoch, value in curve.points:
            if curve.best is not None and epoch == curve.best:
                axis.plot(epoch, value, "o", markersize=9, markerfacecolor="none", markeredgecolor=colour)
    axis.set_xlabel("epoch")
    axis.set_ylabel(panel.measure)
    low, high = axis.get_xlim()
    if high - low < 2:  # one epoch: whole numbers need room beside it
        axis.set_xlim((low + high) / 2 - 1, (low + high) / 2 + 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(visible=True)


def draw(panels: Sequence[Panel], title: str, foot: str, from_zero: bool = False) -> Figure:
    """The panels side by side, at most three in a row, with one legend under them.

    from_zero: the axes of values start at 0.
    """
    n_columns, n_rows = min(3, len(panels)), -(-len(panels) // 3)
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    width = max(6.0, 3.9 * n_columns)
    with canvas.canvas(width, 1.0 + 2.9 * n_rows + 0.17 * len(labels), title, foot) as body:
        axes = canvas.grid(body, len(panels))
        for axis, panel in zip(axes, panels, strict=True):
            paint(axis, panel)
            if from_zero:
                axis.set_ylim(bottom=0)
        handles = {}
        for axis in axes:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        body.legend(handles.values(), handles, loc="outside lower left", ncols=1)
    return body.figure
