"""Run every cell of a table, once for each seed: python -m scripts.reproduce hyfi_table5_crowd [0,1,2] [more words].

A cell that fails does not stop the others; it is listed at the end, and the exit code is 1. After an end before that,
the same command with skip_finished=true runs what is missing.

With --tune, a search for each cell instead, by the words of the table's `tuning`, which are the same for all of them;
the same command goes on with it. `make collect` keeps the trials in results/tuning/, and the cell then has the best
one's settings.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from configs.cells import TableError  # noqa: E402
from configs.matching import settings_of  # noqa: E402
from configs.tables import Layout, load_layouts  # noqa: E402
from scripts.commands import reports_errors  # noqa: E402
from tasks.errors import UserError  # noqa: E402


@reports_errors
def main(arguments: list[str] | None = None, published: Path | None = None) -> int:
    """Run the command; returns 0, or 1 where there is no such table or a cell failed."""
    parser = argparse.ArgumentParser(prog="make reproduce", description=__doc__)
    parser.add_argument("table", help="a file of results/published/, as hyfi_table5_crowd")
    parser.add_argument("seeds", nargs="?", help="as 0,1,2 (0)")
    parser.add_argument("--tune", action="store_true", help="search the settings of each cell, as its table says")
    options, words = parser.parse_known_args(arguments)
    words = words if options.seeds is None else [options.seeds, *words]
    has_seeds = bool(words) and re.fullmatch("[0-9]+(,[0-9]+)*", words[0]) is not None
    seeds = words.pop(0) if has_seeds else "0"
    if has_seeds and options.tune:
        raise UserError(f"--tune takes its seeds from `tuning` of the table; leave out {seeds}.")
    if wrong := [word for word in words if not re.match("[^-=][^=]*=", word)]:
        raise UserError(
            f"{wrong[0]!r} is no setting, as logger=none; seeds are whole numbers with commas between them right after "
            "the table, as in hyfi_table5_crowd 0,1,2."
        )
    layouts = {layout.file: layout for layout in load_layouts(published)}
    if options.table not in layouts:
        raise TableError(f"there is no table {options.table}. There are: {', '.join(sorted(layouts))}.")
    layout = layouts[options.table]
    runs = searches(layout, words) if options.tune else commands(layout, seeds, words)
    failures: list[list[str]] = []
    code = 0
    try:
        for run in runs:
            if ended(run):
                code = 1
                failures.append(run)
    except KeyboardInterrupt:
        rest = "goes on" if options.tune else "with skip_finished=true runs what is missing"
        print(f"It was stopped; the same command {rest}.", file=sys.stderr)
        code = 130
    for run in failures:
        print(f"failed: python {shlex.join(run)}", file=sys.stderr)
    return code


def ended(run: list[str]) -> int:
    """The exit code of Python with these arguments. Raises KeyboardInterrupt upon Ctrl-C, but only after the run, which
    gets it too, has saved what it has and ended; a second Ctrl-C does not wait."""
    child = subprocess.Popen([sys.executable, *run], cwd=ROOT)
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()
        raise


def commands(layout: Layout, seeds: str, words: list[str]) -> list[list[str]]:
    """For each distinct cell the arguments of Python that run it with all seeds.

    Raises TableError where a cell does not compose, before anything is run, or where the table has none.
    """
    for cell in layout.cells:
        settings_of(cell)
    if not layout.cells:
        raise TableError(f"{layout.file} only quotes: none of its rows has an experiment.")
    return [["run.py", "-m", *cell, f"seed={seeds}", *words] for cell in dict.fromkeys(c.words for c in layout.cells)]


def searches(layout: Layout, words: list[str]) -> list[list[str]]:
    """For each distinct cell the arguments of Python that search its settings. Raises TableError where the table does
    not say how."""
    if not layout.tuning:
        raise TableError(f"{layout.file}.yaml has no `tuning`, the words of a search, as [optim.lr=0.01,0.03, seed=9].")
    runs = {}
    for cell in layout.cells:
        folder = f"hydra.sweeper.folder='${{paths.output_dir}}/tuning/{cell.name}'"
        # where both have a key, that of tuning counts: it is the later word
        own = [f"experiment={cell.experiment}", *cell.overrides]
        runs[cell.name] = ["run.py", "-m", "hydra/sweeper=search", *own, *layout.tuning, folder, *words]
    return list(runs.values())


if __name__ == "__main__":
    sys.exit(main())
