"""Compare ours, geoopt and HypLL with the exact values and write results/numerics.md; --check only compares.

Returns 1 where an error of ours is over its target, and with --check where the file differs in more than last digits.
"""

import argparse
import math
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import torch  # noqa: E402

from scripts.commands import reports_errors  # noqa: E402
from scripts.exactness import failures, finite  # noqa: E402
from scripts.exactness.cases import CURVATURES, FUNCTIONS, RADIUS, REGIMES  # noqa: E402
from scripts.exactness.libraries import LIBRARIES, installed  # noqa: E402
from scripts.exactness.measure import GRADIENT_TARGET, ROUNDINGS, TARGETS, Cell, measure, worse  # noqa: E402
from scripts.golden import GOLDEN, load  # noqa: E402
from tasks.folders import write_text  # noqa: E402

REPORT = ROOT / "results" / "numerics.md"
DASH = "–"
FACTOR = 4  # by which two errors may differ between machines
VERSIONS = "Versions: "
DTYPES = {"float32": "f32", "float64": "f64"}
TITLES = {
    "PoincareBall": "Poincaré ball",
    "Lorentz": "Lorentz model",
    "Klein": "Klein disk",
    "scalar": "Scalar functions",
}
NUMBER = re.compile(r"<?-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")

Cells = dict[tuple[str, str, str, str], Cell]


@reports_errors
def main(arguments: list[str] | None = None, report: Path = REPORT, golden: Path = GOLDEN) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make numerics", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the report is out of date")
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        text, misses = render(measure(load(golden)), failures.all_rows(), finite.table())
    finally:
        torch.set_num_threads(threads)
    for miss in misses:
        print(f"over target: {miss}", file=sys.stderr)
    if options.check:
        drift = differences(report.read_text(encoding="utf-8") if report.exists() else "", text)
        print("\n".join(drift) or f"{report.name} agrees")
        return 1 if drift or misses else 0
    write_text(report, text)
    print(f"{report.name}: {len(misses)} rows over target")
    return 1 if misses else 0


def render(cells: Cells, rows: list[failures.Failure], stated: list) -> tuple[str, list[str]]:
    """The report, and the names of the rows over target."""
    misses: list[str] = []
    parts = [
        opening(),
        *summary_part(cells),
        *failure_part(rows, misses),
        *finite_part(stated, misses),
        *(line for space in FUNCTIONS for line in space_part(space, cells, misses)),
    ]
    return "\n".join(parts) + "\n", misses


def opening() -> str:
    names = ("torch", "geoopt", "hypll", "mpmath")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    radii = "; ".join(f"{RADIUS[s, 'float32']:g} and {RADIUS[s, 'float64']:g} ({TITLES[s]})" for s in list(TITLES)[:3])
    curvatures = ", ".join(f"{c:g}" for c in CURVATURES)
    return f"""<!-- Made by `make numerics`; `python -m scripts.numerics --check` fails if it is edited by hand. -->

# How exact

Command: `make numerics` (`python -m scripts.numerics`). The exact values are in `tests/golden/`, made by
`python -m scripts.golden` with mpmath in 120 digits from textbook definitions.
{VERSIONS}Python {platform.python_version()}, {versions}.

- An error is `|computed - exact| / |exact|` for the exact input bits: normwise for vectors, absolute where the exact
  value is 0; the largest over the cases of a cell. `<1e-7` and `<2e-16`: no more than one unit of the dtype.
- Targets for ours: {_short(TARGETS["float32"])} in float32, {_short(TARGETS["float64"])} in float64. For the gradients
  of a weighted sum of the result, by every argument and by the curvature, {_short(GRADIENT_TARGET)}; one by c that is
  smaller than weights times value over c counts relative to that.
- Curvatures -c with c = {curvatures}; dimensions 2 to 4. "near the boundary" is the last unit of radius, in float32
  and float64 up to {radii}, times 1/sqrt(c).
  The Klein disk ends sooner because its points run out of digits: |x| = tanh(r) there, tanh(r/2) in the ball.
- Of hyperboloid points and tangent vectors, the space coordinates count; the time coordinate is completed from them.
- All libraries get the same bits, each in its own conventions (`scripts/exactness/libraries.py`), at its defaults:
  projections included. {DASH}: the library has no such function.
- `condition` is how much the function magnifies a relative change of one input entry: an algorithm that rounds once
  on the way loses that many units. `OVER`: above target. `limit`: above target, but within {ROUNDINGS} roundings of the
  matrix product that these logits are. It happens where x lies next to a hyperplane's point (the logit is about 0) or
  both lie near the boundary (its terms are e^(r + r') times larger than their sum)."""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def summary_rows(cells: Cells) -> list[list[str]]:
    """For README: function, then ours, geoopt and HypLL in float32 and in float64; the worst of all regimes."""
    rows = [["function", *(f"{library} {short}" for short in DTYPES.values() for library in LIBRARIES)]]
    for space in ("PoincareBall", "Lorentz", "Klein"):
        for function in ("dist", "expmap", "logmap", "transp", "centroid", "mobius_add", "mobius_matvec", "mlr_logits"):
            if function not in FUNCTIONS[space]:
                continue
            row = [f"{TITLES[space]}: {function}"]
            for dtype in DTYPES:
                worst: dict[str, float] = {}
                for regime in REGIMES:
                    cell = cells.get((space, function, dtype, regime), Cell())
                    for library, error in cell.errors.items():
                        worst[library] = worse(worst.get(library, 0.0), error)
                row += [error_text(worst.get(library), dtype) for library in LIBRARIES]
            rows.append(row)
    return rows


def table(rows: list[list[str]]) -> list[str]:
    """Markdown lines of a table whose first row is the head."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [head, "|---" * len(rows[0]) + "|", *body]


def error_text(error: float | None, dtype: str) -> str:
    """One digit, or that the error is within the unit of the dtype, or a dash for None."""
    if error is None:
        return DASH
    if math.isnan(error) or math.isinf(error):
        return "NaN" if math.isnan(error) else "inf"
    unit = torch.finfo(getattr(torch, dtype)).eps
    return f"<{unit:.0e}".replace("e-0", "e-") if error <= unit else _short(error)


def _short(value: float) -> str:
    text = f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return text.removesuffix("e0")


def summary_part(cells: Cells) -> list[str]:
    return ["", "## Summary: the largest error over all regimes", "", *table(summary_rows(cells))]


def failure_part(rows: list[failures.Failure], misses: list[str]) -> list[str]:
    lines = [["case", "true", *LIBRARIES, "error of ours", ""]]
    for row in rows:
        misses += [row.name] if row.over else []
        values = [row.values.get(library, DASH) for library in LIBRARIES]
        error = error_text(row.error, "float64" if "f64" in row.name else "float32")
        lines.append([row.name, row.true, *values, error, "OVER" if row.over else "ok"])
    return ["", "## Where other libraries fail", "", *table(lines)]


def finite_part(stated: list, misses: list[str]) -> list[str]:
    lines = [["model", "dtype", "stated radius", *LIBRARIES]]
    for space, dtype, radius, counts in stated:
        texts = [DASH if counts[library] is None else "{} of {}".format(*counts[library]) for library in LIBRARIES]
        lines.append([TITLES[space], dtype, f"{radius:.1f}", *texts])
        if counts["ours"][0]:
            misses.append(f"{TITLES[space]}, {dtype}: {counts['ours'][0]} results are not finite")
    text = "Functions called at all pairs of radii from 0 to the stated one (c = 1): calls with NaN or inf in value or"
    return ["", "## Not a number", "", text, "gradient.", "", *table(lines)]


def space_part(space: str, cells: Cells, misses: list[str]) -> list[str]:
    libraries = {"PoincareBall": LIBRARIES, "Klein": LIBRARIES[:1]}.get(space, LIBRARIES[:2])
    head = ["function", "regime", *(f"{each} {short}" for short in DTYPES.values() for each in libraries)]
    lines = [[*head, "gradient f32", "gradient f64", "condition", ""]]
    for function in FUNCTIONS[space]:
        for regime in REGIMES:
            pair = {dtype: cells.get((space, function, dtype, regime)) for dtype in DTYPES}
            if None in pair.values():
                continue
            errors = [error_text(cell.errors.get(each), dtype) for dtype, cell in pair.items() for each in libraries]
            gradients = [error_text(cell.gradient, dtype) for dtype, cell in pair.items()]
            condition = _short(max(cell.condition for cell in pair.values()))
            over, limited = (any(getattr(cell, name) for cell in pair.values()) for name in ("over", "limited"))
            misses += [f"{TITLES[space]}: {function}, {regime}"] if over else []
            lines.append([function, regime, *errors, *gradients, condition, _mark(over, limited)])
    return ["", f"## {TITLES[space]}", "", *table(lines)]


def _mark(over: bool, limited: bool) -> str:
    return "OVER" if over else "limit" if limited else "ok"


def differences(old: str, new: str) -> list[str]:
    """Lines that differ in words, or in numbers by more than the factor.

    The line of versions may differ; columns of libraries that are not installed are left out.
    """
    absent = [library for library in LIBRARIES if not installed(library)]
    before, after = (_lines_to_compare(text, absent) for text in (old, new))
    if len(before) != len(after):
        return [f"{len(before)} lines instead of {len(after)}"]
    return [line for a, b in zip(before, after, strict=True) if not _same(a, b) for line in (f"- {a}", f"+ {b}")]


def _lines_to_compare(text: str, absent: list[str]) -> list[str]:
    lines, columns = [], None
    for line in text.splitlines():
        if line.startswith(VERSIONS):
            continue
        cells = re.split(r"(?<!\\)\|", line)
        if not line.startswith("|"):
            columns = None
        elif columns is None:
            columns = [i for i, cell in enumerate(cells) if not cell.strip().startswith(tuple(absent) or "|")]
        lines.append("|".join(cells[i] for i in columns) if columns else line)
    return lines


def _same(a: str, b: str) -> bool:
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    return all(_close(float(s.lstrip("<")), float(t.lstrip("<"))) for s, t in pairs)


def _close(a: float, b: float) -> bool:
    return a == b or (a * b > 0 and max(abs(a), abs(b)) <= FACTOR * min(abs(a), abs(b)))


if __name__ == "__main__":
    sys.exit(main())
