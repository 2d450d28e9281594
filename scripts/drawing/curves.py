"""Curves over the epochs of one or several runs: losses and metrics, and the norms of text vectors (HyFi, Figure 6)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.drawing import canvas
from scripts.drawing.options import FigureOptions, Loader
from scripts.trained import Run
from tasks.errors import UserError

NORM = "diagnostics/texts/dist0_mean"  # column of a history
NORM_FOOT = (
    "Distance of the text's point, which the classifier takes, from the origin of its space: hyperbolic, or the norm "
    "where that space is flat; mean over the first batch of the dev split."
)
FOOT = "Training values are means over the epoch, while the weights change."
RINGS = "Rings: the selected epoch."  # of runs of which one was: not the mean of the last epochs' weights


class Curve(NamedTuple):
    """The values (epoch, value) of one column of a run's history. best: the epoch that was selected, or None. band: the
    lower and upper end of a band about each value; none without."""

    label: str
    points: list[tuple[float, float]]
    best: float | None = None
    band: Sequence[tuple[float, float]] = ()


Panel = tuple[str, list[Curve]]  # what stands on the axis of values, and the curves


def draw_norms(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Mean distance of text vectors from the origin by epoch (HyFi, Figure 6), a curve for each run."""
    for run in runs:
        if not run.column(NORM):
            raise UserError(
                f"{run.folder}: its history.csv has no column {NORM}, the distance of its text vectors from the "
                "origin. Name a run of an entity typing task, or train it again."
            )
    panel = "mean distance from the origin", read_curves(runs, NORM)
    return [options.save(plot([panel], "Norm of text vectors by epoch", NORM_FOOT, from_zero=True), "norms", runs)]


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Losses and the selecting metric by epoch, a curve for each run."""
    selecting = [run.settings.get("task.module.select") for run in runs]
    columns = dict.fromkeys(["train/loss", "val/loss", *selecting])
    panels = [(column, curves) for column in columns if (curves := read_curves(runs, column))]
    if not panels:
        raise UserError(f"{runs[0].folder}: the run has no history.csv with losses. Name the folder of a training run.")
    return [options.save(plot(panels, "Learning curves", FOOT), "curves", runs)]


def read_curves(runs: Sequence[Run], column: str) -> list[Curve]:
    """A curve for each run whose history has the column."""
    columns = [(run, run.column(column)) for run in runs]
    return [Curve(f"{run.title} ({run.space})", points, run.best_epoch) for run, points in columns if points]


def plot_panel(axis: Axes, measure: str, curves: Sequence[Curve], from_zero: bool) -> None:
    """The curves; a ring marks the selected epoch. Colour, dashes and markers all tell runs apart."""
    for k, curve in enumerate(curves):
        (line,) = axis.plot(
            *zip(*curve.points, strict=True), marker=canvas.MARKERS[k % len(canvas.MARKERS)], markersize=3.5,
            markevery=max(1, len(curve.points) // 8), linewidth=1.4, label=curve.label, **canvas.line_style(k),
        )  # fmt: skip
        if curve.band:
            epochs = [epoch for epoch, _ in curve.points]
            axis.fill_between(epochs, *zip(*curve.band, strict=True), color=line.get_color(), alpha=0.18, linewidth=0)
        for epoch, value in curve.points:
            if epoch == curve.best:
                axis.plot(epoch, value, "o", markersize=9, markerfacecolor="none", markeredgecolor=line.get_color())
    axis.set(xlabel="epoch", ylabel=measure)
    low, high = axis.get_xlim()
    if high - low < 2:  # one epoch: whole numbers need room beside it
        axis.set_xlim((low + high) / 2 - 1, (low + high) / 2 + 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(visible=True)
    if from_zero:
        axis.set_ylim(bottom=0)


def plot(panels: Sequence[Panel], title: str, foot: str, from_zero: bool = False) -> Figure:
    """The panels side by side with one legend under them. from_zero: the axes of values start at 0."""
    legend = 0.17 * len({curve.label for _, curves in panels for curve in curves})
    contents = [(*panel, from_zero) for panel in panels]
    if any(epoch == curve.best for _, curves in panels for curve in curves for epoch, _ in curve.points):
        foot = f"{RINGS} {foot}"
    with canvas.panels(plot_panel, contents, (3.9, 2.9), 1.0 + legend, title, foot, least=6.0) as (body, axes):
        canvas.legend(body, axes, loc="outside lower left", ncols=1)
    return body.figure
