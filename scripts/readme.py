"""Makes the section "How fast, how exact" of README.md from results/bench/ and results/numerics.md,
and the table of what layers go with from results/composability.json.

python -m scripts.readme           write the section between its markers
python -m scripts.readme --check   write nothing, fail if the section is not what the files give
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from scripts.commands import reports_errors  # noqa: E402
from tasks.errors import UserError  # noqa: E402
from tasks.folders import DAMAGED, write_text  # noqa: E402

README = ROOT / "README.md"
NUMERICS = ROOT / "results" / "numerics.md"
BENCH = ROOT / "results" / "bench" / "cpu-float32-2threads.json"
COMPOSABILITY = ROOT / "results" / "composability.json"
START, END = "<!-- measured: `make tables` writes this section -->", "<!-- measured: end -->"
TRIED, TRIED_END = "<!-- tried: `make tables` writes this table -->", "<!-- tried: end -->"
SUMMARY = "## Summary"
_GPU = "on a GPU"
_HUGE = "in brackets with THP_MEM_ALLOC_ENABLE=1"


@reports_errors
def main(
    arguments: list[str] | None = None,
    readme: Path = README,
    bench: Path = BENCH,
    numerics: Path = NUMERICS,
    tried: Path = COMPOSABILITY,
) -> int:
    """Run the command; returns 0, or 1 where a file is unusable or, with --check, the section is out of date."""
    parser = argparse.ArgumentParser(prog="python -m scripts.readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the section is out of date")
    options = parser.parse_args(arguments)
    old = _read(readme)
    new = replaced(old, f"{speed(bench)}\n\n{exactness(numerics)}", readme)
    new = replaced(new, composability(tried), readme, TRIED, TRIED_END)
    if options.check:
        agrees = "agrees with the measurements" if old == new else "does not show the latest measurements: make tables"
        print(f"{readme.name} {agrees}")
        return int(old != new)
    if old != new:
        write_text(readme, new)
    return 0


def replaced(text: str, section: str, path: Path, start: str = START, end: str = END) -> str:
    """The text with ``section`` between the markers."""
    if text.count(start) != 1 or text.count(end) != 1 or text.index(start) > text.index(end):
        raise UserError(f"{path.name} must have the lines\n{start}\n{end}\nonce each, in this order.")
    before, _, rest = text.partition(start)
    return f"{before}{start}\n\n{section}\n\n{end}{rest.partition(end)[2]}"


def composability(path: Path) -> str:
    """The table of what goes with which machinery of PyTorch, from the file of ``scripts/composability.py``. Raises
    UserError where that is damaged."""
    with _values(path, "composability") as run:
        checks, *_ = [list(problems) for layers in run["layers"].values() for problems in layers.values()]
        what = "a number is that of the layers and functions, names are those it fails for:"
        when = f", {_when(run)}" if "commit" in run else ""
        lines = [f"Tried with torch {run['torch']}{when}; {what}", ""]
        lines += [f"| geometry | {' | '.join(checks)} |", "|---" * (len(checks) + 1) + "|"]
        for geometry, layers in run["layers"].items():
            cells = []
            for check in checks:
                bad = [layer for layer, problems in layers.items() if problems[check]]
                cells.append(f"not {', '.join(bad)}" if bad else f"{len(layers)}")
            lines.append(f"| {geometry} | {' | '.join(cells)} |")
    closing = (
        "compile: `torch.compile(fullgraph=True)` of both passes, by Inductor; fullgraph: the same graphs, run as they "
        'are (`backend="aot_eager"`); export: with a dynamic batch; twice: a second derivative; trace: '
        "`torch.jit.trace`, which warns of checks of shapes. What `torch.export.save` wrote needs "
        "`import hyperbolic.layers` before `torch.export.load`, which makes the operators known. All but autocast in "
        "float64. Euclidean attention is PyTorch's own, which on a CPU has no forward-mode and no second derivative; "
        "with more than 64 keys Lorentz attention uses it too, and has no second derivative then."
    )
    return "\n".join([*lines, "", closing])


class Row(NamedTuple):
    """What the table says of a row of a benchmark."""

    title: str
    ratio: str  # of ours to the Euclidean counterpart
    missed: str
    peers: str
    gates: str


class Bench(NamedTuple):
    """A run of a benchmark; rows by name."""

    machine: str
    when: str
    rows: dict[str, Row]


def speed(path: Path) -> str:
    """The table of ratios from the JSON file of a benchmark. Files beside it, where there are such, give what stands in
    brackets (with huge pages) and more columns: the plain formulas, and a GPU. Raises UserError where one of them is
    damaged."""
    run, others = _bench(path), _runs_beside(path)
    columns = {name: other.rows for name, other in others.items()}
    huge = columns.pop(_HUGE, {})
    here = " (on a CPU)" if _GPU in columns else ""
    also = f", {_HUGE}" if huge else ""
    origins = ", ".join(f"{name} ({other.when})" for name, other in others.items())
    lines = [
        f"{run.machine}, float32, {run.when}; `make bench` measures your machine. "
        f"{f'Measured in another run, beside its own Euclidean times: {origins}. ' if origins else ''}"
        f"Forward and backward in multiples of the Euclidean counterpart's time (median of alternating runs){also}:",
        "",
        f"| {' | '.join(['work', 'ours', *columns, f'others{here}', f'must be at most{here}'])} |",
        "|---" * (4 + len(columns)) + "|",
    ]
    for name, row in run.rows.items():
        pages = f" ({huge[name].ratio})" if name in huge else ""
        cells = [row.title, f"{row.ratio}{pages}{row.missed}"]
        cells += [_elsewhere(rows.get(name), column == _GPU) for column, rows in columns.items()]
        lines.append(f"| {' | '.join([*cells, row.peers or '–', row.gates or '–'])} |")
    return "\n".join(lines)


def _elsewhere(row: Row | None, gated: bool) -> str:
    """What another run has of a row, with the gates of its own where it has such."""
    if row is None:
        return "–"
    gates = f" (at most {row.gates})" if row.gates else ""
    return f"{row.ratio}{gates}{row.missed}" if gated else row.ratio


def _runs_beside(path: Path) -> dict[str, Bench]:
    """The other runs of a benchmark that there are files of, by what the table calls them."""
    files = {
        "plain formulas": path.with_name(f"{path.stem}-plain.json"),
        _GPU: path.with_name(f"cuda{path.name.removeprefix('cpu')}"),
        _HUGE: path.with_name(f"{path.stem}-thp.json"),
    }
    return {name: _bench(file) for name, file in files.items() if file.exists()}


def _bench(path: Path) -> Bench:
    with _values(path, "bench") as run:
        machine = f"{run['device_name']}, {run['threads']} threads, torch {run['packages']['torch']}"
        return Bench(machine, _when(run), {row["name"]: _row(row) for row in run["rows"]})


def _row(row: dict[str, Any]) -> Row:
    (ours,) = (v for v in row["variants"] if v["role"] == "ours")
    peers = ", ".join(f"{v['name']} {_digits(v['ratio'])}" for v in row["variants"] if v["role"] == "peer")
    missed = " **missed**" if row["passed"] is False else ""
    tries = f" (measured {row['measured_again'] + 1} times, the last counts)" if row.get("measured_again") else ""
    return Row(f"{row['title']}{tries}", _digits(ours["ratio"]), missed, peers, ", ".join(map(_gate, row["gates"])))


def _when(run: dict[str, Any]) -> str:
    """When a run was made, and of which commit."""
    commit = f"commit {run['commit'][:7]}" if run["commit"] else "no commit known"
    return f"{run['date'][:10]}, {commit}{' with changes' if run['dirty'] else ''}"


def exactness(path: Path) -> str:
    """The summary table of the numerics report."""
    blocks = [block for block in _read(path).split("\n## ") if block.startswith(SUMMARY.removeprefix("## "))]
    if len(blocks) != 1:
        raise UserError(f"{path.name} has no section '{SUMMARY}'; make it with: make numerics")
    table = [line for line in blocks[0].splitlines() if line.startswith("|")]
    opening = (
        "Largest relative error against 120-digit arithmetic on the same input bits, over points near the origin, near "
        "each other, far apart and near the boundary "
        "([results/numerics.md](results/numerics.md), which also has gradients; `make numerics` makes it):"
    )
    closing = (
        "Not in this table: logits of a point beside a hyperplane's own point, or with both near the boundary, have "
        "the error of one rounded matrix product, as in the other libraries, and so no digits where they are about 0 "
        "(`mlr_logits_beside`). The Klein disk's radius in float32 is 6.5, half of the ball's: its points run out of "
        "digits."
    )
    return "\n".join([opening, "", *table, "", closing])


def _gate(gate: dict[str, Any]) -> str:
    if gate["what"] == "difference":
        return f"{gate['limit']:.0f} results may differ" if gate["limit"] else "no result may differ"
    other = "" if gate["against"] == "floor" else f" of {gate['against']}"
    return f"{gate['limit']:g}{other}{' memory' if gate['what'] == 'memory' else ''}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"there is no {path.name}; make bench, numerics and composability write what README.md shows"
        raise UserError(message) from None


@contextlib.contextmanager
def _values(path: Path, target: str) -> Iterator[dict[str, Any]]:
    """What a JSON file holds. Raises UserError, which names the target of make that writes it, where it is none, or
    lacks what is looked up inside the block."""
    text = _read(path)
    try:
        yield json.loads(text)
    except DAMAGED as error:
        fault = f"{path.name} is damaged ({type(error).__name__}: {error})"
        raise UserError(f"{fault}; make it again with: make {target}") from error


if __name__ == "__main__":
    sys.exit(main())
