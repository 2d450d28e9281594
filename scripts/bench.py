"""Measure each hyperbolic operation against its Euclidean counterpart (floor = 1), geoopt, HypLL and official formulas.

python scripts/bench.py             all rows, a few minutes; --quick: about a minute
python scripts/bench.py --check     exits with 1 and names the rows when a gate of the device is missed

Set THP_MEM_ALLOC_ENABLE=1 to measure with huge pages; the table says with which setting it was measured.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import torch  # noqa: E402
from rich.console import Console  # noqa: E402

from hyperbolic import switch  # noqa: E402
from scripts import commands  # noqa: E402
from scripts.benchmarks.report import environment, file_stem, print_table, write  # noqa: E402
from scripts.benchmarks.row import Result, Row, Setting, run_row  # noqa: E402
from scripts.benchmarks.rows import ROWS  # noqa: E402

DTYPES = {"float32": [torch.float32], "float64": [torch.float64], "both": [torch.float32, torch.float64]}
_TRIES = {True: 1, False: 2}  # quick or not: a row that misses its gate by little is measured so many times again


@commands.reports_errors
def main(arguments: list[str] | None = None, rows: list[Row] = ROWS) -> int:
    """Run the command; returns 0, or 1 where --check finds a missed gate. Exits with 2 for bad input."""
    parser = _parser()
    options = parser.parse_args(arguments)
    setting = _setting(parser, options)
    selected = [row for row in rows if fnmatch.fnmatchcase(row.name, options.rows)]
    if not selected:
        parser.error(f"--rows {options.rows!r} matches no row; the rows are {', '.join(row.name for row in rows)}")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output {options.output} cannot be made ({error.strerror})")
    console = Console(width=None if sys.stdout.isatty() else 170)
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        where = environment(options.threads, setting.device, options.quick)
        start = time.monotonic()
        results = _measure(selected, setting, options)
        where["wall_s"] = round(time.monotonic() - start, 1)
    finally:
        torch.set_num_threads(threads)
    print_table(results, where, console)
    console.print(f"measured in {where['wall_s']:.0f} s", highlight=False)
    stem = file_stem(where, options.dtype, partial=len(selected) < len(rows) and options.rows != "*")
    for path in write(results, where, options.output, stem):
        console.print(f"written: {path}", highlight=False, soft_wrap=True)
    return _verdict(results, console) if options.check else 0


def _measure(selected: list[Row], setting: Setting, options: argparse.Namespace) -> list[Result]:
    results = []
    total = len(selected) * len(DTYPES[options.dtype])
    tries = _TRIES[options.quick] if options.check else 0
    for row in selected:
        for dtype in DTYPES[options.dtype]:
            if sys.stderr.isatty():
                print(f"{len(results) + 1}/{total} {row.name}", file=sys.stderr)
            results.append(run_row(row, replace(setting, dtype=dtype), again=tries))
    return results


def _verdict(results: list[Result], console: Console) -> int:
    missed = [result for result in results if result.passed is False]
    gated = sum(result.passed is not None for result in results)
    if missed:
        names = ", ".join(result.row.name for result in missed)
        console.print(f"check: {len(missed)} of {gated} gated rows miss their gate: {names}", highlight=False)
        return 1
    if not gated:
        there = ", ".join(row.name for row in ROWS if any(gate.device == "cuda" for gate in row.gates))
        console.print(f"check: no gate applies here; gates are for float32, on a GPU those of {there}", highlight=False)
        return 0
    absent = sum(v.passed is None and v.gate.against != "floor" for result in results for v in result.verdicts)
    left = f"; gates against others that are not installed left out: {absent}" if absent else ""
    console.print(f"check: all {gated} gated rows pass{left}", highlight=False)
    return 0


def _setting(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Setting:
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no CUDA device here; leave --device out to measure the CPU")
    if not 1 <= options.threads <= 1024:
        parser.error(f"--threads must be between 1 and 1,024, got {options.threads}")
    if options.output.exists() and not options.output.is_dir():
        parser.error(f"--output {options.output} is a file; name a folder")
    try:
        switch.mode()
    except ValueError as error:
        parser.error(str(error))
    device = torch.device(options.device)
    parts = not options.quick or options.rows != "*"
    return Setting(device=device, quick=options.quick, tiny=options.sizes == "tiny", parts=parts)


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("bench.py", __doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; about a minute")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a gate is missed, and name the rows")
    parser.add_argument("--rows", default="*", metavar="GLOB", help="only rows whose name matches, as in 'mobius-*'")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32", help="gates are for float32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads (2, as for the gates)")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench", metavar="DIR", help="results/bench")
    parser.add_argument("--sizes", choices=["table", "tiny"], default="table", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
