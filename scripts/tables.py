"""Make results/tables/*.md from the records in results/runs/ and print the tables; --check only compares."""

import argparse
import difflib
import shlex
import sys
from collections import defaultdict
from pathlib import Path

from rich.box import SQUARE
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from configs.cells import Place  # noqa: E402
from configs.matching import cells_of, misfit  # noqa: E402
from configs.tables import PUBLISHED, Layout, load_layouts  # noqa: E402
from scripts.cells import Cells, blocks, notes  # noqa: E402
from scripts.commands import reports_errors  # noqa: E402
from scripts.records import MAX_KEPT_BYTES, RUNS, Record, RecordError, read, validate  # noqa: E402
from tasks.folders import write_text  # noqa: E402

TABLES = ROOT / "results" / "tables"
OPENING = "<!-- Made by `make tables` from results/runs/; `make check-tables` fails if it is edited by hand. -->\n"
WIDTH = 150  # of a terminal that is none


@reports_errors
def main(
    arguments: list[str] | None = None, runs: Path = RUNS, tables: Path = TABLES, published: Path = PUBLISHED
) -> int:
    """Run the command; returns 0, or 1 where a record is unusable or, with --check, a table is out of date."""
    parser = argparse.ArgumentParser(prog="make tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a table is out of date")
    parser.add_argument("--missing", action="store_true", help="write nothing, print what runs the missing cells")
    options = parser.parse_args(arguments)
    layouts = load_layouts(published)
    cells = assign(load_runs(runs), layouts)
    texts = render_files(layouts, cells)
    if options.missing:
        print("\n".join(missing(layouts, cells)))
        return 0
    if options.check:
        drift = differences(texts, tables)
        sys.stdout.write(drift or f"{len(texts)} table file(s) agree with the records\n")
        return 1 if drift else 0
    for name, text in texts.items():
        write_text(tables / name, text)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for layout in layouts:
        show(layout, cells[layout.file], console)
    return 0


def load_runs(runs: Path) -> dict[Path, Record]:
    """The valid records in `runs`. Raises RecordError for a bad one."""
    return {path: validate(read(path, MAX_KEPT_BYTES), path) for path in sorted(runs.glob("*.json"))}


def assign(records: dict[Path, Record], layouts: list[Layout]) -> dict[str, Cells]:
    """For each table its cells with a run: (row, column) -> records, in the order of their seeds.

    The column is None where one run fills a row. A run stands in every cell that its experiment and settings fit; that
    it fits none is an error where its experiment has cells, and a note where that is gone and cells have its task.
    """
    tables = {layout.file: layout for layout in layouts}
    owners = {cell.experiment for layout in layouts for cell in layout.cells}
    places: dict[tuple[str, Place], dict[int, Path]] = defaultdict(dict)
    for path, record in records.items():
        cells = cells_of(record, layouts)
        if not cells and (reason := misfit(record, layouts)):
            if record["experiment"] in owners:
                raise RecordError(f"{path}: {reason}. Remove it, or run the cell again.")
            print(f"note: {path} {reason}.", file=sys.stderr)
        for cell in cells:
            if other := places[cell.table, cell.place].get(record["seed"]):
                where = f"'{cell}' of {tables[cell.table].title} with seed {record['seed']}"
                raise RecordError(f"{other} and {path} both fill {where}. Remove one of them.")
            places[cell.table, cell.place][record["seed"]] = path
            metrics = tables[cell.table].metrics
            needed = metrics.values() if cell.column is None else [metrics[cell.column]]
            if lacking := [metric for metric in needed if metric not in record["metrics"]]:
                others = ", ".join(sorted(name for name in record["metrics"] if name.startswith("test/")))
                raise RecordError(
                    f"{path}: '{cell}' of {tables[cell.table].title} needs {', '.join(lacking)}, and the record has no "
                    f"such metric, but {others or 'none of a test'}. "
                    "Correct the table's metrics, or run the experiment again to its end."
                )
    assigned: dict[str, Cells] = {file: defaultdict(list) for file in tables}
    for (file, place), paths in places.items():
        runs = [records[path] for _, path in sorted(paths.items())]
        require_same_data(runs, place)
        assigned[file][place] = runs
    return assigned


def require_same_data(runs: list[Record], place: Place) -> None:
    """Raise RecordError where the runs of a cell, whose settings agree, had other shares or sources of data, or files
    of other names; splits may be drawn anew for each seed."""
    first = runs[0]
    for other in runs[1:]:
        names = [key for key in ("share", "sources", "files") if first["data"].get(key) != other["data"].get(key)]
        if keys := [f"data.{key}" for key in names]:
            raise RecordError(
                f"The runs of '{place[0]}' with seeds {first['seed']} and {other['seed']} differ in {', '.join(keys)}. "
                "Keep runs of one kind only: collect the others again, or remove their records."
            )


def missing(layouts: list[Layout], cells: dict[str, Cells]) -> list[str]:
    """The command of every run that fills a cell without a record, with the cells that it fills below it."""
    commands: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for layout in layouts:
        for cell in layout.cells:
            if not cells[layout.file].get(cell.place):
                commands[cell.words].append(f"    {layout.file}: {cell}")
    return [line for words, names in commands.items() for line in (f"python run.py {shlex.join(words)}", *names)]


def render_files(layouts: list[Layout], cells: dict[str, Cells]) -> dict[str, str]:
    """File name -> text, one file for each paper."""
    texts: dict[str, str] = {}
    for layout in layouts:
        name = f"{layout.name}.md"
        texts[name] = texts.get(name, OPENING) + "\n" + markdown(layout, cells[layout.file])
    return texts


def markdown(layout: Layout, cells: Cells) -> str:
    """One table in Markdown, with its title and notes."""
    measure = layout.measure[0].upper() + layout.measure[1:]
    differences = f", differences{layout.unit}" if layout.is_compared and layout.unit else ""
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
    drift: list[str] = []
    committed = {path.name: path.read_text(encoding="utf-8") for path in sorted(tables.glob("*.md"))}
    for name in sorted(texts.keys() | committed.keys()):
        old, new = committed.get(name, ""), texts.get(name, "")
        if name not in texts:
            drift.append(f"{tables.name}/{name} is made from no table: remove it.\n")
        drift += difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"{tables.name}/{name}", "from the records"
        )
    return "".join(drift)


if __name__ == "__main__":
    sys.exit(main())
