"""What a run shows at its end: a small table and the learning curves."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.base import Task
from tasks.checkpoints import CURVATURE
from tasks.folders import whole_file
from tasks.outcome import Outcome
from tasks.processes import is_first
from tasks.record import remove_if_empty, write
from tasks.remarks import remarks
from tasks.terminal import show_table


class Published(NamedTuple):
    """A published value of a cell that a run fills; label: `published`, or what it is called in a table made again."""

    table: str
    row: str
    column: str
    metric: str
    value: float
    label: str


def conclude(
    task: Task, outcome: Outcome, record: dict[str, Any], folder: Path, published: Sequence[Published] = ()
) -> None:
    """Leave the files of a run in its folder, and show its result; the last line printed is the record's path.

    The record is written before anything is printed, to what may have been closed by then, as by `| head`.
    """
    title = f"{folder.parent.name}, seed {record['seed']}"
    try:
        curve = outcome.history and learning_curve(outcome.history, task.select, folder / "learning_curve.png")
        exported = task.export(folder) if record["config"]["mode"] == "fit" else {}
        if any(name.startswith("test/") for name in record["metrics"]):
            exported |= task.write_test(folder)
        place = write(folder / "record.json", record)
    except Exception:  # as of a full disk: the numbers are not lost
        show(title, record, published)
        raise
    show(title, record, published)
    if record["config"]["mode"] != "predict":
        show_counts(record["data"]["counts"])
    if curve:
        print(f"figure: {curve}")
    for name, text in (*record.get("measures", {}).items(), *exported.items()):
        print(f"{name}: {text}")
    if outcome.prediction and outcome.prediction["output"]:
        print(f"predictions: {outcome.prediction['output']} ({outcome.prediction['examples']:,} lines)")
    if record["config"]["mode"] != "predict":
        for line in remarks(task, record, outcome.history):
            print(f"note: {line}")
    print(f"record: {place}", flush=True)


def show_counts(counts: dict[str, dict[str, Any]]) -> None:
    """Print what each split has, as train: 120 documents, 3,000 words. counts: those of a data set's fingerprint."""
    for split, numbers in counts.items():
        parts = {name.replace("_", " "): n for name, n in numbers.items() if isinstance(n, int) and n}
        print(f"{split}: {', '.join(f'{n:,} {name}' for name, n in parts.items())}")


def pass_over(message: str, path: Path, folder: Path) -> dict[str, Any] | None:
    """Say that a run is not made again, and leave nothing in its folder. path: of the earlier run's record; returns its
    selection."""
    selection: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")).get("selection")
    remove_if_empty(folder)
    if is_first():
        print(f"{message}\nrecord: {path}", flush=True)
    return selection


def show(title: str, record: dict[str, Any], published: Sequence[Published] = ()) -> None:
    """Print the metrics of a record, and below them the published values of the cells that it fills.

    Metrics of groups, as test/coarse/macro_f1, stand beside those of all examples, in a column for each group.
    """
    metrics = record["metrics"]
    groups = list(dict.fromkeys(name.split("/")[1] for name in metrics if name.count("/") == 2))
    header = ["metric", "all" if groups else "value", *groups]
    lines: list[list[str]] = []
    rows = dict.fromkeys((n.split("/")[0], n.split("/")[-1]) for n in metrics)
    for split, score in sorted(rows, key=lambda row: row[0], reverse=True):  # val, train, test
        names = [f"{split}/{score}", *(f"{split}/{group}/{score}" for group in groups)]
        lines.append([names[0], *(f"{metrics[n]:.4f}" if n in metrics else "" for n in names)])
        quoted: dict[str, dict[str, Published]] = defaultdict(dict)
        for cell in published:
            if cell.metric in names:
                quoted[f"{cell.label} ({cell.row})"][cell.metric] = cell
        for label, cells in quoted.items():
            columns = ", ".join(cell.column for cell in cells.values())
            values = [f"{cells[n].value:.4f}" if n in cells else "" for n in names]
            lines.append([f"  {label[:-1]}, {columns})", *values])
    footer = []
    selection = record["selection"] or {}
    if selection.get("epoch"):
        footer.append([f"best {selection['metric']} in epoch", str(selection["epoch"])])
    if selection.get("average_last"):
        footer.append(["mean of the weights of so many epochs", str(selection["average_last"])])
    if prediction := record.get("prediction"):
        footer.append(["examples", f"{prediction['examples']:,}"])
    footer += [
        [f"{name.removeprefix('diagnostics/')} (learned, at the end)", f"{value:.4g}"]
        for name, value in record["diagnostics"].items()
        if name.endswith(CURVATURE)
    ]
    footer.append(["parameters", f"{record['parameters']:,}"])
    if record["examples_per_s"]:
        what = "examples" if record.get("prediction") else "training examples"
        footer.append([f"{what} per second", f"{record['examples_per_s']:,.0f}"])
    footer.append(["wall time", f"{record['wall_s']:.0f} s"])
    show_table(title, header, lines, [False] + [True] * (len(header) - 1), footer=footer)


def learning_curve(rows: list[dict[str, float]], select: str, path: Path) -> Path:
    """Draw the losses, and the selecting metric, over the epochs.

    rows: of the history, each with "epoch". select: as "val/accuracy".
    """
    from matplotlib.figure import Figure

    name = select.partition("/")[2]
    panels = list(dict.fromkeys(["loss", name]))
    figure = Figure(figsize=(4.5 * len(panels), 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)
    steps_per_epoch = max(row["step"] / row["epoch"] for row in rows) if rows else 1
    for axis, metric in zip(axes[0], panels, strict=True):
        for split, style in (("train", "C0o--"), ("val", "C1s-")):
            points = [(r["step"] / steps_per_epoch, r[f"{split}/{metric}"]) for r in rows if f"{split}/{metric}" in r]
            if points:
                axis.plot(*zip(*points, strict=True), style, markersize=3, linewidth=1.2, label=split)
        axis.set_xlabel("epoch")
        low, high = axis.get_xlim()
        if high - low < 2:  # one epoch: whole numbers need room beside it
            axis.set_xlim((low + high) / 2 - 1, (low + high) / 2 + 1)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_ylabel(metric)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(frameon=False)
    with whole_file(path) as part:
        figure.savefig(part, dpi=120)
    return path
