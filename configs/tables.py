"""The files of the published tables (results/published/*.yaml): rows, columns, cells and the papers' own values."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from configs import files
from configs.cells import Cell, Place, TableError, read_cells, search_words

PUBLISHED = files.FOLDER.parent / "results" / "published"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where PyYAML was built with libyaml: ten times as fast
MOST_IN_C = 10_000  # characters; in longer files deep nesting would end the process without a word

SPREADS = {
    "deviation": "mean ± sample standard deviation over the seeds",
    "confidence": "mean ± half the width of the 95 % confidence interval of the mean (Student's t) over the seeds",
}
KEYS = (
    "name", "table", "title", "protocol", "label", "values_of", "sources", "contests", "orderings", "rows", "columns",
    "overrides", "intervals", "metric", "gain", "tuned", "tuning", "budget",
)  # fmt: skip
ROW = ("experiment", "overrides", "published", "tuned", "budget")
OPTIONAL = ("source", "measure", "best_of_three", "digits", "parameters", "theirs", "spread", "scale")
INHERITED = ("source", "measure", "columns", "metrics", "whole_rows", "digits", "spread", "scale", "intervals")


@dataclass(frozen=True)
class Ordering:
    """What the paper says, or what is expected where it lacks a value: `higher` has more than `lower`.

    pairs: what is compared: the column, and in it the cells (row, column) of `higher` and of `lower`, two rows; or the
    row, where they are columns.
    """

    higher: str
    lower: str
    pairs: tuple[tuple[str, tuple[str, str], tuple[str, str]], ...]


@dataclass(frozen=True)
class Layout:
    """One table of one paper.

    file: the name of its file. name, number: the paper and which of its tables. cells: what runs can fill, nothing of a
    row that is `quoted`: the paper took it from others, or its system is not built here.
    published[row, column]: a metric's value; None where it is there but cannot be read in our copy of the paper, no
    entry where the paper has no such value. scale: by which values are multiplied in print, 100 where they lie between
    0 and 1, else 1 (BLEU, mean ranks). metrics: column -> metric of a record. whole_rows: a run
    fills all columns of a row; else one run is one cell. again: the table is made again under another protocol, with
    the rows it has in common with the paper's; `label` says what is different, `theirs` what the paper's values are
    called beside ours, "published" where the protocol is the paper's, so that ours may be compared with them.
    parameters: sizes of the models, as printed. sources: parts of the training data that a run needs, or it is partial.
    digits: decimals of the printed values. spread: what ± means beside our means, a key
    of SPREADS; intervals[row, column]: what stands there in the paper. orderings: pairs of rows, or of columns, of
    which the notes say whether one is above the other in ours. contests: rows of which the notes say how often each is
    the highest. gain: two rows, the first a hyperbolic model, whose difference stands beside the δ-hyperbolicity of the
    graph that each column names (`graph`). tuning: the words of a search, the same for every cell. tuned[row]: who
    tuned our runs besides, and how; tuned_else: of rows with neither. budgets[row, column]: with how many steps its
    authors trained it; the column is None as in cells.
    """

    file: str
    name: str
    number: int
    title: str
    source: str
    measure: str
    protocol: str
    again: bool
    label: str | None
    rows: tuple[str, ...]
    columns: dict[str, dict[str, Any]]
    metrics: dict[str, str]
    whole_rows: bool
    cells: tuple[Cell, ...]
    published: dict[tuple[str, str], float | None]
    parameters: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    best_of_three: bool = False
    digits: int = 2
    scale: int = 100
    theirs: str = "paper, its own data"
    spread: str = "deviation"
    intervals: dict[tuple[str, str], float | None] = field(default_factory=dict)
    contests: tuple[tuple[str, ...], ...] = ()
    gain: tuple[str, str] | None = None
    tuned: dict[str, str] = field(default_factory=dict)
    tuned_else: str | None = None
    tuning: tuple[str, ...] = ()
    budgets: dict[Place, int] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """What a difference of two printed values is in; of values that are no percentages it is not said."""
        return " in points" if self.scale == 100 else ""

    @property
    def of_paper(self) -> str:
        """What the paper's values are called beside ours."""
        return self.theirs if self.again or self.label else "published"

    @property
    def places(self) -> Iterator[tuple[str, Place]]:
        """Every cell, or every row where a run fills one, with its name."""
        for column in [None] if self.whole_rows else list(self.columns):
            for row in self.rows:
                yield row if column is None else f"{column} {row}", (row, column)

    @property
    def is_compared(self) -> bool:
        """Whether ours are of the paper's protocol, so that their differences from the paper's values say something."""
        return self.of_paper == "published"

    @property
    def quoted(self) -> set[str]:
        return set(self.rows) - {cell.row for cell in self.cells}


def load_layouts(folder: Path | None = None) -> list[Layout]:
    """Every table of `folder` (PUBLISHED), by paper and number, a table that is made again after the paper's.

    Raises TableError where there is none, or a file does not fit.
    """
    folder = folder or PUBLISHED
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.yaml"))}
    if not texts:
        raise TableError(f"{folder}: no table file (*.yaml) here, so there is no table to make.")
    layouts: dict[str, Layout] = {}
    for path, text in sorted(texts.items(), key=lambda item: "\nvalues_of:" in item[1]):
        try:
            node = yaml.load(text, LOADER if len(text) < MOST_IN_C else yaml.SafeLoader)
            base = node.get("values_of")
            if base is not None and base not in layouts:
                raise TableError(f"{path}: values_of names {base}, and there is no such table of a paper in {folder}.")
            layouts[path.stem] = make_layout(path, node, layouts.get(base))
        except TableError:
            raise
        except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            reason = f"needs {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise TableError(f"{path}: is not a table file ({reason}); CONTRIBUTING.md shows one.") from error
    return sorted(layouts.values(), key=lambda layout: (layout.name, layout.number, layout.file))


def make_layout(path: Path, node: dict[str, Any], base: Layout | None) -> Layout:
    """The table in one YAML file. base: the paper's table, which the file makes again; it has the values."""
    _check_names(path, "has keys that are none of a table", node, (*KEYS, *OPTIONAL))
    if not re.fullmatch(r"\w[\w-]*", str(node["name"])):
        raise TableError(f"{path}: name={node['name']!r} cannot name a file of results/tables/.")
    rows = {row: spec or {} for row, spec in node["rows"].items()}
    for row, spec in rows.items():
        _check_names(path, f"row '{row}' has keys that are none of a row", spec, ROW)
    if base is None:
        own = _published(path, node, rows)
    else:
        own = {key: getattr(base, key) for key in INHERITED}
        if "columns" in node:  # some of the paper's
            own["columns"] = {column: base.columns.get(column) for column in node["columns"]}
            _check_names(path, "names columns that the table has not", own["columns"], base.columns)
            own["metrics"] = {column: base.metrics[column] for column in own["columns"]}
        own["published"] = {p: v for p, v in base.published.items() if p[0] in rows and p[1] in own["columns"]}
    own |= {key: node[key] for key in OPTIONAL if key in node} | {"rows": tuple(rows)}
    contests = tuple(tuple(names) for names in node.get("contests", ()))
    named = [*own.get("parameters", {}), *(row for contest in contests for row in contest)]
    _check_names(path, "names rows that the table has not", named, rows)
    if own.get("spread", "deviation") not in SPREADS:
        raise TableError(f"{path}: spread must be {' or '.join(SPREADS)}, and it is {own['spread']!r}")
    cells = tuple(read_cells(path, node, rows, own))
    return Layout(
        **own,
        **{key: node[key] for key in ("name", "title", "protocol")},
        file=path.stem,
        number=node["table"],
        again=base is not None,
        label=node.get("label"),
        cells=cells,
        sources=tuple(node.get("sources", ())),
        contests=contests,
        gain=_gain(path, node, own),
        tuned={row: spec["tuned"] for row, spec in rows.items() if spec.get("tuned")},
        tuned_else=node.get("tuned"),
        tuning=search_words(path, node.get("tuning", []), cells),
        budgets=_budgets(path, node, rows, own),
        orderings=tuple(_ordering(path, one, own) for one in node.get("orderings", ())),
    )


def _published(path: Path, node: dict[str, Any], rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Columns, metrics and values of a paper's own table."""
    columns = node["columns"]
    whole_rows = all(isinstance(spec, str) for spec in columns.values())
    values = _pairs(path, {row: spec.get("published", ()) for row, spec in rows.items()}, columns)
    intervals = _pairs(path, node.get("intervals", {}), columns)
    _check_names(path, "intervals of rows that the table has not", node.get("intervals", {}), rows)
    both = [*values.items(), *intervals.items()]
    if (scale := node.get("scale", 100)) not in (1, 100):
        raise TableError(f"{path}: scale must be 100, for fractions, or 1, for values as printed; it is {scale!r}")
    most = 1 if scale == 100 else sys.float_info.max
    wrong = [f"{row}, {column}: {v!r}" for (row, column), v in both if v is not None and not 0 <= v <= most]
    if wrong:
        kind = "fractions between 0 and 1" if most == 1 else "numbers from 0"
        raise TableError(f"{path}: values are {kind}, or null; not so: {'; '.join(wrong)}")
    return {
        "columns": {column: {} if whole_rows else spec or {} for column, spec in columns.items()},
        "metrics": dict(columns) if whole_rows else dict.fromkeys(columns, node["metric"]),
        "whole_rows": whole_rows,
        "published": values,
        "intervals": intervals,
    }


def _pairs(path: Path, rows: dict[str, Any], columns: dict[str, Any]) -> dict[tuple[str, str], float | None]:
    """Values by row and column, without those that are "-". Raises TableError where a row has not one for each column,
    or "-"."""
    short = [row for row, values in rows.items() if len(values) != len(columns)]
    if short:
        raise TableError(f"{path}: not one value for each of the {len(columns)} columns in: {'; '.join(short)}")
    pairs = {(row, column): v for row, values in rows.items() for column, v in zip(columns, values, strict=True)}
    return {place: v for place, v in pairs.items() if v != "-"}


def _ordering(path: Path, node: dict[str, Any], own: dict[str, Any]) -> Ordering:
    """One of a file's `orderings`, of two rows or of two columns. own: the table's rows, columns and metrics."""
    between_columns = "higher_column" in node
    compared, others = ("columns", "rows") if between_columns else ("rows", "columns")
    higher, lower = ("higher_column", "lower_column") if between_columns else ("higher", "lower")
    if not {higher, lower} <= set(node) <= {higher, lower, others}:
        raise TableError(
            f"{path}: orderings: takes higher and lower, perhaps with columns, or higher_column and lower_column, "
            f"perhaps with rows; one has {', '.join(node)}"
        )
    along = tuple(node.get(others, own[others]))
    named = (higher, [node[higher]], compared), (lower, [node[lower]], compared), (others, along, others)
    for key, names, kind in named:
        _check_names(path, f"orderings: {key} names {kind} that the table has not", names, own[kind])
    if between_columns and own["metrics"][node[higher]] != own["metrics"][node[lower]]:
        metrics = " and ".join(own["metrics"][node[key]] for key in (higher, lower))
        raise TableError(
            f"{path}: orderings: {higher} {node[higher]} and {lower} {node[lower]} are different metrics, {metrics}"
        )
    ends = node[higher], node[lower]
    return Ordering(*ends, tuple((n, *((n, end) if between_columns else (end, n) for end in ends)) for n in along))


def _budgets(path: Path, node: dict[str, Any], rows: dict[str, Any], own: dict[str, Any]) -> dict[Place, int]:
    """The steps of a model's authors, of the row, else of the column, else of the table."""
    budgets: dict[Place, int] = {}
    for row, spec in rows.items():
        for column, more in ({None: {}} if own["whole_rows"] else own["columns"]).items():
            steps = spec.get("budget", (more or {}).get("budget", node.get("budget")))
            if steps is not None and (not isinstance(steps, int) or steps < 1):
                raise TableError(f"{path}: budget is a number of steps of the model's authors, and it is {steps!r}.")
            budgets |= {} if steps is None else {(row, column): steps}
    return budgets


def _gain(path: Path, node: dict[str, Any], own: dict[str, Any]) -> tuple[str, str] | None:
    if "gain" not in node:
        return None
    _check_names(path, "gain: names rows that the table has not", node["gain"], own["rows"])
    if lacking := [column for column, spec in own["columns"].items() if "graph" not in spec]:
        raise TableError(f"{path}: gain needs a `graph` in each column, and {lacking[0]} has none.")
    high, low = node["gain"]
    return high, low


def _check_names(path: Path, fault: str, names: Any, existing: Any) -> None:
    if unknown := sorted(set(names) - set(existing)):
        raise TableError(f"{path}: {fault}: {'; '.join(unknown)}")
