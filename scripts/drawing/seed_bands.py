"""Learning curves of settings that are compared: the mean over seeds, in a band of a standard deviation."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from scripts.drawing import canvas
from scripts.drawing.curves import Curve, plot
from scripts.trained import Run, read_run
from tasks.comparison import Comparison, Setting, mean_and_deviation
from tasks.errors import UserError

FOOT = (
    "Lines: means over the seeds of a setting; bands: a standard deviation to each side. "
    "Where seeds ended early, means are of those that went on. Training values are means over the epoch."
)


def draw(comparison: Comparison, file: Path) -> Figure:
    """Losses and the selecting metric by epoch, a curve for each setting, for a file of this name.

    Raises UserError for another suffix than those of canvas.FORMATS, and where a run has no history.
    """
    if file.suffix.removeprefix(".") not in canvas.FORMATS:
        raise UserError(f"--curves {file}: the name of the file ends in .{', .'.join(canvas.FORMATS)}.")
    runs = [[read_run(path.parent) for path in setting.files.values()] for setting in comparison.settings]
    for run in (run for several in runs for run in several):
        if not run.history:
            raise UserError(
                f"{run.folder} has no history.csv, which curves are drawn from; leave the run or --curves out."
            )
    columns = dict.fromkeys(["train/loss", "val/loss", comparison.metric])
    panels = []
    for column in columns:
        pairs = zip(comparison.settings, runs, strict=True)
        curves = [curve for setting, several in pairs if (curve := mean_curve(setting, several, column)).points]
        panels += [(column, curves)] if curves else []
    return plot(panels, comparison.title, FOOT)


def mean_curve(setting: Setting, runs: Sequence[Run], column: str) -> Curve:
    """The mean of a column over the runs of a setting, at each epoch that one of them has, with its band."""
    values: dict[float, list[float]] = defaultdict(list)
    for run in runs:
        for epoch, value in run.column(column):
            values[round(epoch, 6)].append(value)
    moments = [mean_and_deviation(values[epoch]) for epoch in sorted(values)]
    band = [(mean - (deviation or 0), mean + (deviation or 0)) for mean, deviation in moments]
    points = [(epoch, mean) for epoch, (mean, _) in zip(sorted(values), moments, strict=True)]
    plural = "s" if len(runs) > 1 else ""
    return Curve(f"{setting} ({len(runs)} seed{plural})", points, band=band if len(runs) > 1 else ())
