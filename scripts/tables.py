"""Make results/tables/*.md from the records in results/runs/ and print the tables; --check only compares."""

import argparse
import difflib
import sys
from collections import defaultdict
from pathlib import Path

from rich.box import SQUARE
from rich.console import Console
from rich.table import Table

from scripts.cells import Cells, blocks, notes
from scripts.collect import write_atomically
from scripts.layouts import PUBLISHED, Key, Layout, LayoutError, Place, find, load_layouts, places
from scripts.records import ROOT, RUNS, Record, RecordError, paper_of, read, validate, value_at

TABLES = ROOT / "results" / "tables"
OPENING = "<!-- Made by `make tables` from results/runs/; `make check-tables` fails if it is edited by hand. -->\n"
WIDTH = 150  # of a terminal that is none
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
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for layout in layouts:
        show(layout, cells[layout.key], console)
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


def assign(records: dict[Path, Record], layouts: list[Layout]) -> dict[Key, Cells]:
    """For each table its cells with a run: (row, column) -> records, in the order of their seeds.

    The column is None where one run fills a row. A run stands in every table that its `paper` node names.
    """
    by_table = {layout.key: layout for layout in layouts}
    cells: dict[Key, Cells] = {key: defaultdict(list) for key in by_table}
    for path, record in records.items():
        paper = paper_of(record)
        for key, node in places(paper) if paper else ():
            layout = find(by_table, key, str(path))
            layout.check(node, str(path))
            lacking = [metric for metric in layout.metrics.values() if metric not in record["metrics"]]
            if layout.whole_rows and lacking:
                raise RecordError(
                    f"{path}: '{node['row']}' of {layout.title} needs {', '.join(lacking)}, and the record has no such "
                    "metric. Run the experiment again to its end."
                )
            cells[key][node["row"], node["column"]].append(record)
    for table in cells.values():
        for place, runs in table.items():
            runs.sort(key=lambda record: record["seed"])
            require_same_settings(runs, place)
    return cells


def require_same_settings(runs: list[Record], place: Place) -> None:
    """Raise RecordError where the runs of one cell differ in more than their seeds: their mean would mean nothing."""
    first = runs[0]
    for other in runs[1:]:
        keys = [key for key in SETTINGS if without_seed(value_at(first, key)) != without_seed(value_at(other, key))]
        keys += [f"data.{key}" for key in ("share", "sources") if first["data"].get(key) != other["data"].get(key)]
        keys += ["experiment"] if first["experiment"] != other["experiment"] else []
        keys += ["fidelity"] if first["fidelity"] != other["fidelity"] else []
        if keys:
            where = ", ".join(f"'{part}'" for part in place if part is not None)
            raise RecordError(
                f"The runs of {where} with seeds {first['seed']} and {other['seed']} differ in {', '.join(keys)}. "
                "Keep runs of one kind only: collect the others again, or remove their records."
            )


def without_seed(node):
    """A node of the configuration without the run's own seed, which interpolation may have put anywhere in it."""
    if isinstance(node, dict):
        return {key: without_seed(value) for key, value in node.items() if key != "seed"}
    return node


def render_files(layouts: list[Layout], cells: dict[Key, Cells]) -> dict[str, str]:
    """File name -> text, one file for each paper."""
    texts: dict[str, str] = {}
    for layout in layouts:
        name = f"{layout.name}.md"
        texts[name] = texts.get(name, OPENING) + "\n" + markdown(layout, cells[layout.key])
    return texts


def markdown(layout: Layout, cells: Cells) -> str:
    """One table in Markdown, with its title and notes."""
    measure = layout.measure[0].upper() + layout.measure[1:]
    differences = "" if layout.again else ", differences in points"
    lines = [f"## {layout.title}", "", f"{layout.source}. {measure}{differences}.", ""]
    if layout.label:
        lines += [f"**{layout.label}**", ""]
    for block in blocks(layout, cells):
        lines.append("|" + "".join(f" {name} |" if name else " |" for name in block.header))
        lines.append("|---" * len(block.header) + "|")
        lines += ["| " + " | ".join("<br>".join(cell) for cell in row) + " |" for row in block.rows]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in notes(layout, cells))]) + "\n"


def show(layout: Layout, cells: Cells, console: Console) -> None:
    """Print one table to the terminal."""
    title = f"{layout.title}: {layout.measure}" + (f"\n{layout.label}" if layout.label else "")
    for block in blocks(layout, cells):
        table = Table(title=title, box=SQUARE, show_lines=True, title_justify="left")
        for column in block.header:
            table.add_column(column, no_wrap=True)
        for row in block.rows:
            table.add_row(*("\n".join(cell).replace("**", "") for cell in row))
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


if __name__ == "__main__":
    sys.exit(main())
