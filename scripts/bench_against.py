"""Measure this code against that of another checkout: `bench.py --quick` of both in turn, and the ratio of the medians.

python scripts/bench_against.py CHECKOUT [--repeats N] [--rows GLOB]      as in: bench_against.py ../before --repeats 5
python scripts/bench_against.py CHECKOUT --output results/bench/against.json

CHECKOUT is another working tree of this project: git worktree add ../before COMMIT. A row counts by the time of ours in
multiples of its floor, the Euclidean twin measured in the same process, which evens out what slows the machine. Rows
that only one of them has are left out and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from scripts import commands  # noqa: E402
from tasks.errors import UserError, whole  # noqa: E402
from tasks.folders import whole_file  # noqa: E402
from tasks.terminal import show_table  # noqa: E402

Run = dict[str, Any]  # the content of a file of bench.py


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where one of the two cannot be measured. Exits with 2 for bad usage."""
    options = _parser().parse_args(arguments)
    whole("--repeats", options.repeats, 1)
    words = ["--quick", "--rows", options.rows, "--threads", str(whole("--threads", options.threads, 1))]
    words += ["--sizes", options.sizes]
    runs: list[tuple[Run, Run]] = []
    for k in range(options.repeats):
        print(f"{k + 1}/{options.repeats}", file=sys.stderr)
        runs.append((measure(options.checkout.resolve(), words), measure(ROOT, words)))
    result = compare(runs)
    rows = result["rows"].items()
    body = [[name, f"{row['before']:.3g}", f"{row['now']:.3g}", f"{row['ratio']:.2f}"] for name, row in rows]
    commits = " and ".join(str(result[side]["commit"])[:7] for side in ("before", "now"))
    header = ["row (floor = 1)", "before", "now", "now / before"]
    show_table(f"{commits}, {options.repeats} runs of each in turn", header, body, [False, True, True, True])
    if result["left_out"]:
        print(f"only in one of them: {', '.join(result['left_out'])}")
    if options.output:
        with whole_file(options.output) as part:
            part.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
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
    """By row, of both that have it, the medians of the time of ours in multiples of the floor, and their ratio."""
    before, now = ([_ratios(run) for run in side] for side in zip(*runs, strict=True))
    names = [name for name in now[0] if name in before[0]]
    rows = {}
    for name in names:
        medians = [statistics.median(run[name] for run in side) for side in (before, now)]
        rows[name] = {"before": medians[0], "now": medians[1], "ratio": medians[1] / medians[0]}
    where = ("commit", "dirty", "packages", "threads", "device_name")
    sides = [{key: run[key] for key in where} for run in runs[0]]
    left_out = sorted({*before[0], *now[0]} - {*names})
    return {"before": sides[0], "now": sides[1], "repeats": len(runs), "rows": rows, "left_out": left_out}


def _ratios(run: Run) -> dict[str, float]:
    variants = [(row["name"], each) for row in run["rows"] for each in row["variants"]]
    return {name: each["ratio"] for name, each in variants if each["role"] == "ours" and each["ratio"]}


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("bench_against.py", __doc__)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="another working tree of this project")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each (5)")
    parser.add_argument("--rows", default="*", metavar="GLOB", help="only rows whose name matches, as in 'mobius-*'")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads (2)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the same as JSON")
    parser.add_argument("--sizes", choices=["table", "tiny"], default="table", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
