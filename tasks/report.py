"""What a run shows at its end: a small table and the learning curves."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def show(title: str, record: dict[str, Any]) -> None:
    """Print the metrics of a record, the published value beside ours where the run stands for a cell of a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    paper = record.get("paper")
    for name, value in sorted(record["metrics"].items(), reverse=True):
        table.add_row(name, f"{value:.4f}")
        if paper and paper["metric"] == name:
            table.add_row(f"  published ({paper['row']}, {paper['column']})", f"{paper['published']:.4f}")
    chosen = record["selection"]
    if chosen and chosen.get("epoch"):
        table.add_row(f"best {chosen['metric']} in epoch", str(chosen["epoch"]))
    table.add_row("parameters", f"{record['parameters']:,}")
    if record["examples_per_s"]:
        table.add_row("training examples per second", f"{record['examples_per_s']:,.0f}")
    table.add_row("wall time", f"{record['wall_s']:.0f} s")
    Console().print(table)


def learning_curve(rows: list[dict[str, float]], select: str, path: Path) -> Path:
    """Draw the losses, and the selecting metric, over the epochs.

    rows: of the history, each with "epoch". select: as "val/accuracy".
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    name = select.partition("/")[2]
    panels = list(dict.fromkeys(["loss", name]))
    figure, axes = plt.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.2), squeeze=False, layout="constrained")
    steps_per_epoch = max(row["step"] / row["epoch"] for row in rows) if rows else 1
    for axis, metric in zip(axes[0], panels, strict=True):
        for split, style in (("train", "o--"), ("val", "s-")):
            points = [(r["step"] / steps_per_epoch, r[f"{split}/{metric}"]) for r in rows if f"{split}/{metric}" in r]
            if points:
                axis.plot(*zip(*points, strict=True), style, markersize=3, linewidth=1.2, label=split)
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_ylabel(metric)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(frameon=False)
    part = path.with_suffix(".part.png")
    figure.savefig(part, dpi=120)
    plt.close(figure)
    part.replace(path)
    return path
