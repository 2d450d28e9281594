"""Make results/tables/*.md from the records in results/runs/ and print the tables; --check only compares."""

import argparse
import difflib
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from rich.box import SQUARE
from rich.console import Console
from rich.table import Table

from scripts.collect import write_atomically
from scripts.layouts import PUBLISHED, Layout, LayoutError, load_layouts
from scripts.records import ROOT, RUNS, Record, RecordError, paper_of, read, validate, value_at

TABLES = ROOT / "results" / "tables"
OPENING = "<!-- Made by `make tables` from results/runs/; `make check-tables` fails if it is edited by hand. -->\n"
# What has to agree among the runs of one cell: they are one experiment run with several seeds.
SETTINGS = (
    "task",
    "geometry",
    "encoder",
    "optim",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.limit_train_batches",
    "trainer.accumulate_grad_batches",
    "trainer.val_check_interval",
    "trainer.patience",
    "trainer.precision",
)

Cells = dict[tuple[str, str], list[Record]]


def main(
    arguments: list[str] | None = None, runs: Path = RUNS, tables: Path = TABLES, published: Path = PUBLISHED
) -> int:
    """Run the command; returns 0, or 1 where a record is unusable or, with --check, a table is out of date."""
    parser = argparse.ArgumentParser(prog="make tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a table is out of date")
    options = parser.parse_args(arguments)
    try:
        layouts = load_layouts(published)
        cells = assign(load_runs(runs), layouts)
        texts = render_files(layouts, cells)
    except (LayoutError, RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.check:
        drift = differences(texts, tables)
        sys.stdout.write(drift or f"{len(texts)} table file(s) agree with the records\n")
        return 1 if drift else 0
    tables.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(tables / name, text)
    console = Console(width=None if sys.stdout.isatty() else 150)
    for layout in layouts:
        show(layout, cells[layout.name, layout.table], console)
    return 0


def load_runs(runs: Path) -> dict[Path, Record]:
    """The valid records in `runs`; raises RecordError for a bad one and for two of one experiment and seed."""
    records = {path: read(path) for path in sorted(runs.glob("*.json"))}
    seen: dict[tuple[str, int], Path] = {}
    for path, record in records.items():
        validate(record, path)
        key = (record["experiment"], record["seed"])
        if key in seen:
            raise RecordError(f"{seen[key]} and {path} are both {key[0]} with seed {key[1]}. Remove one of them.")
        seen[key] = path
    return records


def assign(records: dict[Path, Record], layouts: list[Layout]) -> dict[tuple[str, int], Cells]:
    """For each table its cells with a run: (row, column) -> records, in the order of their seeds."""
    by_table = {(layout.name, layout.table): layout for layout in layouts}
    cells: dict[tuple[str, int], Cells] = {key: defaultdict(list) for key in by_table}
    for path, record in records.items():
        paper = paper_of(record)
        if paper is None:
            continue
        layout = by_table.get((paper["name"], paper["table"]))
        if layout is None:
            raise LayoutError(f"{path}: no layout in results/published/ is {paper['name']}, table {paper['table']}.")
        layout.check(paper, str(path))
        cells[layout.name, layout.table][paper["row"], paper["column"]].append(record)
    for table in cells.values():
        for place, runs in table.items():
            runs.sort(key=lambda record: record["seed"])
            require_same_settings(runs, place)
    return cells


def require_same_settings(runs: list[Record], place: tuple[str, str]) -> None:
    """Raise RecordError where the runs of one cell differ in more than their seeds: their mean would mean nothing."""
    first = runs[0]
    for other in runs[1:]:
        keys = [key for key in SETTINGS if without_seed(value_at(first, key)) != without_seed(value_at(other, key))]
        keys += ["data.share"] if first["data"]["share"] != other["data"]["share"] else []
        keys += ["experiment"] if first["experiment"] != other["experiment"] else []
        keys += ["fidelity"] if first["fidelity"] != other["fidelity"] else []
        if keys:
            raise RecordError(
                f"The runs of '{place[0]}', '{place[1]}' with seeds {first['seed']} and {other['seed']} differ in "
                f"{', '.join(keys)}. Keep runs of one kind only: collect the others again, or remove their records."
            )


def without_seed(node):
    """A node of the configuration without the run's own seed, which interpolation may have put anywhere in it."""
    if isinstance(node, dict):
        return {key: without_seed(value) for key, value in node.items() if key != "seed"}
    return node


def cell_lines(published: float, metric: str, runs: list[Record]) -> list[str]:
    """What a cell says, line by line: the paper's value, ours, the difference in points, the paper's protocol."""
    lines = [f"published {100 * published:.2f}"]
    if not runs:
        return [*lines, "not run"]
    values = [100 * run["metrics"][metric] for run in runs]
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    lines.append(f"**ours {mean:.2f}{spread}** ({len(values)} seed{'s' if len(values) > 1 else ''})")
    lines.append(f"difference {mean - 100 * published:+.2f}")
    if len(runs) >= 3:
        best = 100 * best_of_three(runs, metric)["metrics"][metric]
        lines.append(f"best validation of 3: {best:.2f} ({best - 100 * published:+.2f})")
    share = runs[0]["data"]["share"]
    if share < 1:
        lines.append(f"partial: {100 * share:.3g} % of the data")
    return lines


def best_of_three(runs: list[Record], metric: str) -> Record:
    """Of the runs with the three lowest seeds, the one with the best validation value of `metric`."""
    validation = "val/" + metric.removeprefix("test/")
    three = sorted(runs, key=lambda run: run["seed"])[:3]
    lacking = [f"{run['experiment']} with seed {run['seed']}" for run in three if validation not in run["metrics"]]
    if lacking:
        raise RecordError(f"No metric {validation}, by which the best of 3 runs is chosen, in: {', '.join(lacking)}")
    return max(three, key=lambda run: run["metrics"][validation])


def settings_line(run: Record) -> str:
    """How a run was made, from its record: length, batch, precision, optimiser, choice of the epoch."""
    epochs, steps = value_at(run, "trainer.max_epochs"), value_at(run, "trainer.max_steps")
    precision, optim = str(value_at(run, "trainer.precision")), value_at(run, "optim") or {}
    parts = [f"{epochs} epochs"] if epochs not in (None, -1) else []
    parts += [f"at most {steps} steps"] if steps not in (None, -1) else []
    parts.append(f"batches of {value_at(run, 'task.data.batch_size')}")
    parts.append({"32-true": "float32", "64-true": "float64"}.get(precision, precision))
    parts.append(f"{optim.get('rule')} with learning rate {optim.get('lr')}")
    for role in ("embeddings", "biases", "matrices"):
        own = {key: value for key, value in (optim.get(role) or {}).items() if value is not None}
        parts += [f"{role}: {' '.join(f'{key} {value}' for key, value in own.items())}"] if own else []
    if optim.get("max_grad_norm") is not None:
        parts.append(f"gradient norm at most {optim['max_grad_norm']} ({optim.get('clip')})")
    if isinstance(run["selection"], dict) and run["selection"].get("metric"):
        parts.append(f"tested at the best {run['selection']['metric']}")
    parts.append(f"fidelity {run['fidelity']}")
    if run["dirty"] is not False or not run["commit"]:
        parts.append("code with uncommitted changes")
    return ", ".join(parts)


def notes(layout: Layout, cells: Cells) -> list[str]:
    """The lines under a table: the paper's protocol, then our settings, each with the cells it made."""
    lines = [f"Paper: {layout.protocol}"]
    places: dict[str, list[str]] = defaultdict(list)
    for column in layout.columns:
        for row in layout.rows:
            by_settings: dict[str, list[int]] = defaultdict(list)
            for run in cells.get((row, column), []):
                by_settings[settings_line(run)].append(run["seed"])
            for settings, seeds in by_settings.items():
                plural = "seed" if len(seeds) == 1 else "seeds"
                places[settings].append(f"{column} {row} ({plural} {', '.join(map(str, seeds))})")
    lines += [f"Ours, {settings}: {'; '.join(where)}" for settings, where in places.items()]
    lines.append("Ours: mean ± sample standard deviation over the seeds; one record for each seed in results/runs/.")
    return lines


def render_files(layouts: list[Layout], cells: dict[tuple[str, int], Cells]) -> dict[str, str]:
    """File name -> text, one file for each paper."""
    texts: dict[str, str] = {}
    for layout in layouts:
        name = f"{layout.name}.md"
        texts[name] = texts.get(name, OPENING) + "\n" + markdown(layout, cells[layout.name, layout.table])
    return texts


def markdown(layout: Layout, cells: Cells) -> str:
    """One table in Markdown, with its title and notes."""
    lines = [f"## {layout.title}", "", f"{layout.source}. {layout.measure.capitalize()}, differences in points.", ""]
    lines.append("| | " + " | ".join(layout.columns) + " |")
    lines.append("|---" * (len(layout.columns) + 1) + "|")
    for row in layout.rows:
        texts = ["<br>".join(_cell(layout, cells, row, column)) for column in layout.columns]
        lines.append(f"| {row} | " + " | ".join(texts) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(layout, cells))]) + "\n"


def show(layout: Layout, cells: Cells, console: Console) -> None:
    """Print one table to the terminal."""
    table = Table(title=f"{layout.title}: {layout.measure}", box=SQUARE, show_lines=True, title_justify="left")
    table.add_column("")
    for column in layout.columns:
        table.add_column(column, no_wrap=True)
    for row in layout.rows:
        texts = ["\n".join(_cell(layout, cells, row, column)).replace("**", "") for column in layout.columns]
        table.add_row(row, *texts)
    console.print(table)
    for note in notes(layout, cells):
        console.print(f"- {note}", highlight=False, markup=False)


def differences(texts: dict[str, str], tables: Path) -> str:
    """The unified diff from the committed table files to what the records give; empty where they agree."""
    drift = []
    committed = {path.name: path.read_text(encoding="utf-8") for path in sorted(tables.glob("*.md"))}
    for name in sorted(texts.keys() | committed.keys()):
        old, new = committed.get(name, ""), texts.get(name, "")
        drift += difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"{tables.name}/{name}", "from the records"
        )
    return "".join(drift)


def _cell(layout: Layout, cells: Cells, row: str, column: str) -> list[str]:
    return cell_lines(layout.published[row, column], layout.metric, cells.get((row, column), []))


if __name__ == "__main__":
    sys.exit(main())
