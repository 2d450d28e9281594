"""Recompute the exact values in tests/golden/ with mpmath; --check only compares."""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import mpmath  # noqa: E402

from scripts.commands import reports_errors  # noqa: E402
from scripts.exactness.arithmetic import DIGITS, condition, dot, flat, jacobian, mp, norm, text  # noqa: E402
from scripts.exactness.cases import FUNCTIONS, RADIUS, Case, all_cases  # noqa: E402
from scripts.exactness.measure import weights  # noqa: E402
from scripts.exactness.spaces import SPACES  # noqa: E402
from tasks.folders import write_text  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"
VALUE_DIGITS = {"float32": 11, "float64": 18}  # significant digits of values
SLOPE_DIGITS = 7
SOURCE = (
    "Textbook definitions by Minkowski products, arcosh, cosh and sinh on the hyperboloid, charts for the other models "
    "(scripts/exactness/spaces.py); gradients by central differences with step 1e-30. Inputs: big-endian IEEE bits. "
    "exact: value, condition number, gradients of <weights, value> by each argument and by c."
)


@reports_errors
def main(arguments: list[str] | None = None, folder: Path = GOLDEN) -> int:
    """Write the files, or with --check return 1 where one is not what is computed now."""
    parser = argparse.ArgumentParser(prog="python -m scripts.golden", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is out of date")
    options = parser.parse_args(arguments)
    texts = render()
    if options.check:
        stale = [name for name, content in texts.items() if not _same(folder / name, content)]
        print(f"out of date: {', '.join(stale)}" if stale else f"{len(texts)} golden files agree")
        return 1 if stale else 0
    for name, content in texts.items():
        write_text(folder / name, content)
        print(f"{name}: {len(content) // 1000} kB")
    return 0


def _same(path: Path, content: str) -> bool:
    """Equality but for the version of mpmath."""
    try:
        old, new = json.loads(path.read_text(encoding="utf-8")), json.loads(content)
    except (OSError, ValueError):
        return False
    old.pop("mpmath", None), new.pop("mpmath")
    return old == new


def render() -> dict[str, str]:
    """File name -> text: one file for each model and dtype, one line for each case."""
    groups: dict[str, list[str]] = {}
    for case in all_cases():
        name = f"{case.space.lower()}_{case.dtype}.json"
        record = {"regime": case.regime, "c": case.c, "bits": case.bits, "exact": exact_values(case)}
        groups.setdefault(name, []).append(json.dumps(record, separators=(",", ":")))
    return {name: _file(lines) for name, lines in groups.items()}


def _file(lines: list[str]) -> str:
    head = {"source": SOURCE, "mpmath": mpmath.__version__, "digits": DIGITS, "command": "python -m scripts.golden"}
    opening = json.dumps(head, indent=1)[:-2]
    return f'{opening},\n "cases": [\n' + ",\n".join(lines) + "\n]}\n"


def load(folder: Path = GOLDEN) -> list[tuple[Case, dict]]:
    """The cases in the files with their exact values (see :func:`exact_values`), in the order of the report."""
    cases = []
    for space in SPACES:
        for dtype in VALUE_DIGITS:
            data = json.loads((folder / f"{space.lower()}_{dtype}.json").read_text(encoding="utf-8"))
            for record in data["cases"]:
                cases.append((Case(space, dtype, record["regime"], record["c"], record["bits"]), record["exact"]))
    return cases


def exact_values(case: Case) -> dict[str, list]:
    """Function -> value, condition number, gradients of ``<weights, value>`` by each argument and by c.

    A function whose result is a point farther out than the radius of the targets is left out: the library pulls such
    points back. So are gradients where the exact value has none (a distance of 0).
    """
    values = {}
    for function in FUNCTIONS[case.space]:
        arguments = [*case.arguments(function), mp.mpf(case.c)]

        def call(*inputs, function=function):
            *rest, c = inputs
            return getattr(case.space_at(c), function)(*rest)

        value = call(*arguments)
        if FUNCTIONS[case.space][function].point and _outside(case, value):
            continue
        values[function] = [text(value, VALUE_DIGITS[case.dtype])]
        if norm(flat(value)):
            slopes, w = jacobian(call, arguments), weights(len(flat(value)))
            values[function].append(float(f"{condition(slopes[:-1], arguments[:-1], value):.1e}"))
            values[function] += [text([dot(w, column) for column in columns], SLOPE_DIGITS) for columns in slopes]
    return values


def _outside(case: Case, point: list) -> bool:
    chart = case.space_at(case.c)
    return chart.root * chart.dist0(point) > RADIUS[case.space, case.dtype]


if __name__ == "__main__":
    sys.exit(main())
