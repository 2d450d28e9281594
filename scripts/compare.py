"""Compare finished runs: a row for each setting with means over its seeds, the best by the validation metric first.

python scripts/compare.py outputs/A/* outputs/B         folders of runs, folders that hold some, or record.json files
python scripts/compare.py outputs --markdown table.md --csv table.csv --curves curves.png

Only the settings that differ are shown. Runs on different data, or selected by another metric, get tables of their own.
"""

import glob
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from configs.files import choices  # noqa: E402
from scripts import commands  # noqa: E402
from scripts.records import Record, read, validate  # noqa: E402
from tasks import search  # noqa: E402
from tasks.comparison import Comparison, compare  # noqa: E402
from tasks.comparison_table import markdown, numbers, show  # noqa: E402
from tasks.errors import UserError, plain_warnings  # noqa: E402
from tasks.folders import write_table, write_text  # noqa: E402


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where runs cannot be compared. Exits with 2 for bad usage."""
    parser = commands.parser("compare.py", __doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder, pattern of folders, or record.json")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="the numbers, of all test metrics")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the printed tables")
    parser.add_argument(
        "--curves", type=Path, metavar="FILE", help="learning curves with bands over seeds: png, svg, pdf"
    )
    options = parser.parse_args(arguments)
    comparisons = compare(read_trainings(find(options.runs)), choices)
    show(comparisons)
    saves = draw(comparisons, options.curves) if options.curves else []  # what cannot be drawn ends it here
    if options.markdown:
        write_text(options.markdown, markdown(comparisons))
    if options.csv:
        write_table(options.csv, *numbers(comparisons))
    for file in filter(None, (options.markdown, options.csv)):
        print(f"written: {file}")
    for save in saves:
        print(f"written: {save()}")
    return 0


def find(words: Sequence[str]) -> list[Path]:
    """The records at or below the places that words or patterns name, each once. Raises UserError where a word names
    nothing, or no run ended; other runs without a record are counted in a line."""
    records: dict[Path, Path] = {}
    without: set[Path] = set()
    for word in words:
        places = [Path(word)] if Path(word).exists() else [Path(name) for name in sorted(glob.glob(word))]
        if not places:
            raise UserError(f"There is no {word}. Name folders of runs, as outputs/<name>/<time>-seed0, or above them.")
        for place in places:
            files = [place] if place.is_file() else sorted(place.rglob("record.json"))
            records |= {file.resolve(): file for file in files}
            states = [] if place.is_file() else place.rglob("checkpoints")
            without |= {state.parent for state in states if not (state.parent / "record.json").is_file()}
    if without:
        some = f"{len(without)} run{'s' * (len(without) > 1)}"
        print(f"note: {some} without a record left out, as {min(without)}: it is not at its end.", file=sys.stderr)
    if not records:
        raise UserError(f"There is no record.json in {', '.join(words)}: no run there came to its end.")
    return list(records.values())


def read_trainings(files: Sequence[Path]) -> dict[Path, Record]:
    """The records of trainings by file. Raises UserError where one is damaged, or all are of other modes."""
    records = _with_tests({file: read(file) for file in files})
    trials = [file for file, record in records.items() if _is_untested(record)]
    records = {file: record for file, record in records.items() if file not in trials}
    if trials:
        some = f"{len(trials)} run{'s' * (len(trials) > 1)} left out without a test"
        print(f"note: {some}, as {trials[0].parent}; search.md ranks the trials of a search.", file=sys.stderr)
    if not records:
        raise UserError(f"{trials[0].parent} was not tested. The trials of a search are ranked in its search.md.")
    other = [file for file, record in records.items() if _mode(record) != "fit"]
    if len(other) == len(records):
        raise UserError(f"{other[0]} is of mode={_mode(records[other[0]])}; name the folders of trainings.")
    if other:
        some = f"{len(other)} record{'s' * (len(other) > 1)} left out that {'are' if len(other) > 1 else 'is'}"
        print(f"note: {some} of no training, as {other[0]}.", file=sys.stderr)
    return {file: validate(record, file) for file, record in records.items() if file not in other}


def draw(comparisons: Sequence[Comparison], file: Path) -> list[Callable[[], Path]]:
    """Draws learning curves of the settings of each comparison, and returns what writes them: into the file, or where
    there are several into files named after the comparisons."""
    from scripts.drawing import canvas, seed_bands  # takes seconds to import

    saves = []
    for comparison in comparisons:
        ending = "" if len(comparisons) == 1 else "-" + re.sub(r"[^\w.-]+", "_", comparison.title)
        saves.append(partial(canvas.save, seed_bands.draw(comparison, file), file.with_stem(file.stem + ending)))
    return saves


def _with_tests(records: dict[Path, Record]) -> dict[Path, Record]:
    """The records, where the best trial of a search and its test are one: the trial with the metrics of the test."""
    joined = dict(records)
    for file, record in records.items():
        place = file.parent.parent
        if _mode(record) != "test" or not (place / search.SUMMARY).exists():
            continue
        best = str(search.read(place).best.get("folder"))
        trial = next((each for each in place.glob("*/record.json") if each.parent.name == best), None)
        if trial is not None:
            known = next((other for other in records if other.samefile(trial)), trial)
            own = read(known)
            if all(isinstance(each.get("metrics"), dict) for each in (own, record)):  # else damaged, which is told
                joined[known] = own | {"metrics": {**own["metrics"], **record["metrics"]}}
                del joined[file]
    return joined


def _is_untested(record: Record) -> bool:
    metrics = record.get("metrics")
    return _mode(record) == "fit" and isinstance(metrics, dict) and bool(metrics) and not any(
        name.startswith("test/") for name in metrics
    )


def _mode(record: Record) -> str:
    config = record.get("config")
    return str(config.get("mode", "fit")) if isinstance(config, dict) else "fit"


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
