"""Measure this code against that of another checkout: `bench.py --quick` of both in turn, and the ratio of the medians.

python scripts/bench_against.py CHECKOUT [--repeats N] [--rows GLOB...]   as in: bench_against.py ../before --repeats 5
python scripts/bench_against.py CHECKOUT --output results/bench/against.json

CHECKOUT is another working tree of this project: git worktree add ../before COMMIT. The table has the seconds of ours,
and the ratios of these and of the multiples of the floor, the Euclidean twin measured in the same process. What rows of
one process leave in memory changes the times of the next ones: --rows A B C measures each of these in processes of its
own. Of globs, rows that only one checkout has are left out and named; a name is one that both have.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from scripts import commands  # noqa: E402
from tasks.errors import UserError, whole  # noqa: E402
from tasks.folders import write_text  # noqa: E402
from tasks.terminal import show_table  # noqa: E402

Run = dict[str, Any]  # the content of a file of bench.py


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where one of the two cannot be measured. Exits with 2 for bad usage."""
    options = _parser().parse_args(arguments)
    whole("--repeats", options.repeats, 1)
    words = ["--quick", "--threads", str(whole("--threads", options.threads, 1)), "--sizes", options.sizes]
    runs: list[tuple[Run, Run]] = []
    for k in range(options.repeats):
        print(f"{k + 1}/{options.repeats}", file=sys.stderr)
        for rows in options.rows:
            pair = [measure(checkout, [*words, "--rows", rows]) for checkout in (options.checkout.resolve(), ROOT)]
            runs.append((pair[0], pair[1]))
    result = {"repeats": options.repeats, **compare(runs)}
    body = [
        [name, f"{row['before']:.3g}", f"{row['now']:.3g}", f"{row['ratio']:.2f}", f"{row['ratio_to_floor']:.2f}"]
        for name, row in result["rows"].items()
    ]
    commits = " and ".join(str(result[side]["commit"])[:7] for side in ("before", "now"))
    header = ["row", "before, s", "now, s", "now / before", "in multiples of the floor"]
    show_table(f"{commits}, {options.repeats} runs of each in turn", header, body, [False, True, True, True, True])
    if result["left_out"]:
        print(f"only in one of them: {', '.join(result['left_out'])}")
    if options.output:
        write_text(options.output, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {options.output}")
    return 0


def measure(checkout: Path, words: list[str]) -> Run:
    """What a checkout's `bench.py` gives. Raises UserError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(checkout / "scripts" / "bench.py"), *words, "--output", folder]
        run = subprocess.run(command, cwd=checkout if checkout.is_dir() else None, capture_output=True, text=True)
        files = list(Path(folder).glob("*.json"))
        if run.returncode or len(files) != 1:
            last = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
            raise UserError(f"{checkout}: its scripts/bench.py ended with {run.returncode}: {''.join(last)[:300]}")
        result: Run = json.loads(files[0].read_text(encoding="utf-8"))
        return result


def compare(runs: list[tuple[Run, Run]]) -> dict[str, Any]:
    """By row, of both that have it, the medians of the seconds of ours and their ratio, and the ratio of the medians in
    multiples of the floor."""
    before, now = (_times(side) for side in zip(*runs, strict=True))
    rows = {}
    for name in (each for each in now if each in before):
        (seconds, multiple), (seconds_now, multiple_now) = before[name], now[name]
        ratios = {"ratio": seconds_now / seconds, "ratio_to_floor": multiple_now / multiple}
        rows[name] = {"before": seconds, "now": seconds_now, **ratios}
    where = ("commit", "dirty", "packages", "threads", "device_name")
    sides = [{key: run[key] for key in where} for run in runs[0]]
    left_out = sorted({*before, *now} - {*rows})
    return {"before": sides[0], "now": sides[1], "rows": rows, "left_out": left_out}


def _times(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """By row the medians of ours, in seconds and in multiples of the floor."""
    rows = [row for run in runs for row in run["rows"]]
    ours = [(row["name"], each) for row in rows for each in row["variants"] if each["role"] == "ours" and each["ratio"]]
    times: dict[str, tuple[float, float]] = {}
    for name in dict(ours):
        own = [each for other, each in ours if other == name]
        times[name] = (statistics.median(e["seconds"] for e in own), statistics.median(e["ratio"] for e in own))
    return times


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("bench_against.py", __doc__)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="another working tree of this project")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each (5)")
    about = "only rows whose name matches, as in 'mobius-*'; several: each in processes of its own"
    parser.add_argument("--rows", default=["*"], nargs="+", metavar="GLOB", help=about)
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads (2)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the same as JSON")
    parser.add_argument("--sizes", choices=["table", "tiny"], default="table", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
