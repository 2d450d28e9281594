"""Figures of the histories of runs: what changed by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.drawing import curves
from scripts.shown.asked import Models, Wishes
from scripts.trained import Run
from tasks.errors import UserError

NORM = "diagnostics/texts/dist0_mean"  # column of a history


def draw_norms(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file with a curve for each run, of its history."""
    drawn = [curve(run, NORM, "the distance of its text vectors from the origin") for run in runs]
    foot = (
        "Distance of the text's point, which the classifier takes, from the origin of its space: hyperbolic, or the "
        "norm where that space is flat; mean over the first batch of the dev split. Rings: the selected epoch."
    )
    panel = curves.Panel("mean distance from the origin", drawn)
    return [wishes.save(curves.draw([panel], "Norm of text vectors by epoch", foot, from_zero=True), "norms", runs)]


def draw_curves(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file: the training loss, the validation loss and the selecting metrics, a curve for each run."""
    selecting = [run.settings.get("task.module.select") for run in runs]
    panels = []
    for column in dict.fromkeys(["train/loss", "val/loss", *selecting]):
        drawn = [curve(run, column, "") for run in runs if run.column(column)]
        if drawn:
            panels.append(curves.Panel(column, drawn))
    if not panels:
        raise UserError(f"{runs[0].folder}: the run has no history.csv with losses. Name the folder of a training run.")
    foot = "Rings: the selected epoch. Training values are means over the epoch, while the weights change."
    return [wishes.save(curves.draw(panels, "Learning curves", foot), "curves", runs)]


def curve(run: Run, column: str, what: str) -> curves.Curve:
    """A curve with the run's name. Raises UserError where its history lacks the column; `what` says what it holds."""
    points = run.column(column)
    if not points:
        raise UserError(
            f"{run.folder}: its history.csv has no column {column}, {what}. Name a run of an entity typing task, or "
            "train it again."
        )
    return curves.Curve(f"{run.title} ({run.space})", points, run.best_epoch)
