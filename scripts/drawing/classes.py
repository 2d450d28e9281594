"""How many examples each class has, and how many of them a model finds (Patel et al., Figure 10)."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.drawing import canvas
from scripts.drawing.options import FigureOptions, Loader
from scripts.trained import Run
from tasks.errors import UserError
from tasks.reading import brief

MOST = 30  # classes in a panel
LIMIT = 1 << 53  # above it a drawing, which has floats, would show another number
TITLE = "Classes of the test split, and true positives"
FOOT = (
    "Light: examples whose gold label is the class; dark: those of them for which the model says so (true positives), "
    "with their share (recall); below: for how many examples it says so."
)


class Count(NamedTuple):
    """Of one class: examples that have it, examples for which it is predicted, and those that are both."""

    label: str
    gold: int
    predicted: int
    true_positives: int


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Classes of the test split and true positives (HyperA, Figure 10), from the tables that the runs left."""
    panels = [(f"{run.title}\n{run.space}", read_counts(run)) for run in runs]
    return [options.save(plot(panels, TITLE), "classes", runs)]


def read_counts(run: Run) -> list[Count]:
    """The counts of each class of the test split, as the run wrote them down.

    Raises UserError where it did not, or the table is damaged.
    """
    path = run.folder / "classes.csv"
    if not path.is_file():
        raise UserError(
            f"{run.folder}: it has no classes.csv, which a training leaves whose task gives each example one class, as "
            "snli, documents or graph_nc; name the folder of one."
        )
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
        counts = [Count(row["label"], *(_count(row[name]) for name in Count._fields[1:])) for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        columns = ", ".join(("split", *Count._fields))
        raise UserError(f"{path} is damaged ({error}); its columns are {columns}. Run it again.") from error
    if not counts:
        raise UserError(f"{path} has no rows of the test split. Run it again.")
    return counts


def _count(text: str) -> int:
    if not 0 <= (count := int(text)) < LIMIT:
        raise ValueError(f"{brief(text)} is no number of examples")
    return count


def plot_panel(axis: Axes, title: str, counts: Sequence[Count]) -> None:
    """Two bars for each class, of MOST at most, with the share of true positives."""
    n_right, n = sum(c.true_positives for c in counts), sum(c.gold for c in counts)
    share = f"{n_right:,} of {n:,} right ({100 * n_right / max(1, n):.1f} %)"
    if len(counts) > MOST:
        share += f"; the {MOST} largest of {len(counts):,} classes"
        counts = sorted(counts, key=lambda c: -c.gold)[:MOST]
    places = np.arange(len(counts))
    gold, right = [c.gold for c in counts], [c.true_positives for c in counts]
    shares = [f"{k:,}\n{100 * k / n:.0f} %" if n else f"{k:,}" for k, n in zip(right, gold, strict=True)]
    for offset, colour, values, labels, name in (
        (-0.2, canvas.SKY, gold, [f"{k:,}" for k in gold], "examples of the class"),
        (0.2, canvas.BLUE, right, shares, "true positives"),
    ):
        axis.bar_label(axis.bar(places + offset, values, 0.38, color=colour, label=name), labels, padding=2, fontsize=7)
    axis.set_xticks(places, [f"{c.label}\npredicted {c.predicted:,}" for c in counts])
    axis.margins(y=0.16)
    axis.set_title(f"{canvas.wrapped(title, 3.9, 9)}\n{share}")


def plot(panels: Sequence[tuple[str, Sequence[Count]]], title: str) -> Figure:
    """A panel for each run, on one axis of numbers: (title, counts)."""
    size = max(4.1, 1.2 * min(MOST, max(len(counts) for _, counts in panels))), 3.5
    with canvas.panels(plot_panel, panels, size, 0.8, title, FOOT, least=5.0) as (body, axes):
        top = max(axis.get_ylim()[1] for axis in axes)
        for axis in axes:
            axis.set_ylim(0, top)
        canvas.legend(body, axes, loc="outside lower center", ncols=2)
    return body.figure
