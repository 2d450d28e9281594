"""Check the records that runs left and copy the good ones to results/runs/, from which the tables are made, and the
trials of `make tune` to results/tuning/."""

import argparse
import csv
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from configs.cells import Cell  # noqa: E402
from configs.matching import cells_of, fits, misfit  # noqa: E402
from configs.tables import PUBLISHED, Layout, load_layouts  # noqa: E402
from configs.tuning import TRIALS, search_values  # noqa: E402
from scripts.commands import reports_errors  # noqa: E402
from scripts.records import MAX_KEPT_BYTES, RUNS, Record, RecordError, read, validate  # noqa: E402
from tasks import search  # noqa: E402
from tasks.errors import UserError  # noqa: E402
from tasks.folders import write_table, write_text  # noqa: E402
from tasks.reading import brief  # noqa: E402


@reports_errors
def main(arguments: list[str] | None = None, root: Path = ROOT, runs: Path = RUNS, published: Path = PUBLISHED) -> int:
    """Run the command; returns 0 if every record was copied, already there or rightly skipped, else 1."""
    parser = argparse.ArgumentParser(prog="make collect", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="record.json files or folders (default: outputs)")
    parser.add_argument("--allow-dirty", action="store_true", help="take runs of code that was not committed")
    parser.add_argument("--force", action="store_true", help="replace the record kept for the same cell and seed")
    options = parser.parse_args(arguments)

    places = options.paths or [root / "outputs"]
    paths = find(places)
    searched = searched_values(load_layouts(published))
    searches = [file.parent for place in places for file in sorted(place.rglob(search.SUMMARY))]
    counts: Counter[str] = Counter()
    accepted: dict[str, list[tuple[Path, Record, Cell | None]]] = defaultdict(list)  # by what they stand for
    refusals: list[str] = []
    kept = published.parent / "tuning"
    for folder in searches:
        try:
            if folder.name in searched:
                if several := [str(other) for other in searches if other.name == folder.name and other != folder]:
                    raise RecordError(f"{folder}: {', '.join(several)} is a search of the same cell; name one of them.")
                keep_search(folder, searched[folder.name], kept, options.allow_dirty, options.force)
                counts["searches kept"] += 1
        except UserError as error:
            refusals.append(str(error))
    layouts = load_layouts(published)  # with what the searches chose
    for path in paths:
        try:
            record = read(path, MAX_KEPT_BYTES)
            reason = reason_to_skip(record)
            if reason:
                counts[reason] += 1
                continue
            check(record, path, allow_dirty=options.allow_dirty)
            cell = cell_of(record, path, layouts)
            accepted[name_of(record, cell)].append((path, record, cell))
        except UserError as error:
            refusals.append(str(error))
    for name, results in accepted.items():
        if len(results) > 1:
            places = [str(path) for path, *_ in results]
            refusals.append(
                f"{name} was run {len(places)} times: {', '.join(places)}. Name the one to keep: "
                f"make collect ARGS={places[-1]}"
            )
            continue
        try:
            path, record, cell = results[0]
            counts[keep(record, path, cell, runs=runs, force=options.force)] += 1
        except RecordError as error:
            refusals.append(str(error))

    for refusal in refusals:
        print(f"refused: {refusal}", file=sys.stderr)
    counts["refused"] = len(refusals)
    print(f"{len(paths)} records: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items()) if n))
    return 1 if refusals else 0


def find(paths: list[Path]) -> list[Path]:
    """Every record.json at or below `paths`, sorted. Raises RecordError where there is none."""
    if missing := [str(p) for p in paths if not p.exists()]:
        raise RecordError(f"no {', '.join(missing)}. Run an experiment first, or name its folder.")
    records = sorted({r for p in paths for r in ([p] if p.is_file() else p.rglob("record.json"))})
    if not records:
        where = ", ".join(str(p) for p in paths)
        raise RecordError(f"no record.json under {where}. Run an experiment first, as in: make reproduce")
    return records


def reason_to_skip(record: Record) -> str | None:
    """Why a record is no result to keep, in a word for the summary, or None."""
    if not record.get("experiment"):
        return "skipped (no experiment)"
    if record["experiment"] == "quickstart":
        return "skipped (quickstart)"
    config = record.get("config")
    if isinstance(config, dict) and config.get("mode", "fit") != "fit":
        return "skipped (not a training run)"
    metrics = record.get("metrics")
    if isinstance(metrics, dict) and metrics and not any(name.startswith("test/") for name in metrics):
        return "skipped (not tested, as the trials of a search)"
    return None


def check(record: Record, path: Path, allow_dirty: bool = False) -> None:
    """Raise RecordError unless `record` is of a finished run of committed code."""
    validate(record, path)
    if not re.fullmatch(r"[\w.-]+", record["experiment"]):
        raise RecordError(f"{path}: the experiment's name {brief(record['experiment'])} cannot name a file.")
    if allow_dirty:
        return
    if not record["commit"]:
        raise RecordError(f"{path}: made outside a git clone, so nobody can say which code gave it (--allow-dirty).")
    if record["dirty"] is not False:
        raise RecordError(
            f"{path}: made by code with changes that were not committed (at {record['commit'][:8]}), so nobody can "
            "run it again. Commit and run it again, or pass --allow-dirty to keep it under a name that says so."
        )


def cell_of(record: Record, path: Path, layouts: list[Layout]) -> Cell | None:
    """The first cell that a record fills, or None where its experiment is in no table.

    Raises RecordError where its experiment is in a table and the record fits none of its cells.
    """
    if cells := cells_of(record, layouts):
        return cells[0]
    if any(cell.experiment == record["experiment"] for layout in layouts for cell in layout.cells):
        raise RecordError(
            f"{path}: {misfit(record, layouts)}. Run it with the cell's settings, or give its own an experiment in "
            "configs/experiment/, which may have a row in the table's file."
        )
    return None


def name_of(record: Record, cell: Cell | None) -> str:
    """What a record stands for, of which one is kept: its experiment, with what its cell overrides, and the seed."""
    return f"{record['experiment'] if cell is None else cell.name}-seed{record['seed']}"


def keep(record: Record, path: Path, cell: Cell | None, runs: Path, force: bool = False) -> str:
    """Write `record` into the folder `runs`, whole or not at all; returns "copied", "replaced" or "unchanged".

    Raises RecordError where another record of the same cell, or experiment without one, and seed is there and `force`
    is false.
    """
    name = name_of(record, cell)
    mark = "" if record["dirty"] is False else "-dirty"
    target = runs / f"{name}-{(record['commit'] or 'unknown')[:8]}{mark}.json"
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    rivals = [file for file in sorted(runs.glob(f"*-seed{record['seed']}-*.json")) if is_rival(file, name, cell)]
    if any(rival.read_text(encoding="utf-8") == text for rival in rivals):
        return "unchanged"
    if rivals and not force:
        raise RecordError(
            f"{path}: {', '.join(map(str, rivals))} is already kept for {name}, and it differs. Use another seed, or "
            f"replace it: make collect ARGS='--force {path}'"
        )
    write_text(target, text)
    for rival in rivals:
        if rival != target:
            rival.unlink()
    return "replaced" if rivals else "copied"


def is_rival(file: Path, name: str, cell: Cell | None) -> bool:
    """Whether a kept record stands for the same: by its file's name, or because it fills the cell."""
    named = re.fullmatch(re.escape(name) + r"-\w+(-dirty)?\.json", file.name) is not None
    return named or (cell is not None and fits(read(file), cell))


def searched_values(layouts: list[Layout]) -> dict[str, dict[str, set[str] | None]]:
    """By the name of a cell what the words of `make tune` search for it, see `search_values`, in all its tables."""
    settings: dict[str, dict[str, set[str] | None]] = defaultdict(dict)
    for layout in layouts:
        for key, values in search_values(layout.tuning).items():
            for cell in layout.cells:
                earlier = settings[cell.name].get(key, set())
                settings[cell.name][key] = None if earlier is None or values is None else earlier | values
    return settings


def keep_search(
    folder: Path, settings: dict[str, set[str] | None], target: Path, allow_dirty: bool, force: bool = False
) -> None:
    """Write the trials of a cell's search, the best first, into the folder `target`, where its table finds them.

    settings: what may be searched for the cell, see `searched_values`, as what the best trial has becomes words of its
    command. Raises RecordError where trials have others, where their number is another, some are missing, none has a
    result, or of code that was not committed, and where other trials are kept and `force` is false.
    """
    summary = search.read(folder)
    for trial in summary.trials:
        for key, value in trial.settings.items():
            if key not in settings or ((values := settings[key]) is not None and value not in values):
                raise RecordError(
                    f"{folder}: trial {trial.number} has {brief(key)[1:-1]}={brief(value)}, which `tuning` of the "
                    "cell's table does not search; tune again with make tune."
                )
    if len(summary.trials) < summary.n_trials and not summary.best:  # draws that repeat an earlier one are no trials
        raise RecordError(f"{folder}: {len(summary.trials)} of {summary.n_trials} trials have ended; go on with it.")
    if (counts := settings.get(TRIALS)) and str(summary.n_trials) not in counts:
        raise RecordError(
            f"{folder}: a search of {summary.n_trials} trials, and `tuning` of the cell's table has "
            f"{' or '.join(sorted(counts))}; tune again with make tune."
        )
    if all(trial.value is None for trial in summary.trials):
        raise RecordError(f"{folder}: no trial has a result, so there is no best one; search other settings.")
    if not allow_dirty and any(trial.dirty is not False for trial in summary.trials if trial.value is not None):
        raise RecordError(f"{folder}: has trials of code that was not committed; tune again, or --allow-dirty.")
    header, rows = search.rows(summary)
    columns = [k for k, name in enumerate(header) if name not in ("folder", "reason")]
    file, trials = target / f"{folder.name}.csv", [[row[k] for k in columns] for row in [header, *rows]]
    if file.exists() and not force:
        with file.open(newline="", encoding="utf-8") as lines:
            if [*csv.reader(lines)] != [["" if value is None else str(value) for value in row] for row in trials]:
                raise RecordError(
                    f"{folder}: {file} keeps other trials of this cell. Replace them: make collect ARGS='--force "
                    f"{folder}'"
                )
    write_table(file, trials[0], trials[1:])


if __name__ == "__main__":
    sys.exit(main())
