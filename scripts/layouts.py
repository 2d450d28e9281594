"""The layouts of the published tables (results/published/*.yaml): rows, columns and the paper's own values."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from scripts.records import ROOT

PUBLISHED = ROOT / "results" / "published"
EXPERIMENTS = ROOT / "configs" / "experiment"

Place = tuple[str, str | None]  # row and column; no column: the whole row
Key = tuple[str, int, str | None]  # paper, table, variant
SPREADS = {
    "deviation": "mean ± sample standard deviation over the seeds",
    "confidence": "mean ± half the width of the 95 % confidence interval of the mean (Student's t) over the seeds",
}


class LayoutError(ValueError):
    """A layout file, or an experiment's `paper` node, that does not fit; the message names the culprit."""


@dataclass(frozen=True)
class Ordering:
    """What the paper says, or what is expected where it lacks a value: `higher` has more than `lower`.

    Both are rows, compared in each column that `along` names; with of_columns both are columns, compared in each row.
    """

    higher: str
    lower: str
    along: tuple[str, ...]
    of_columns: bool = False

    def pairs(self) -> Iterator[tuple[str, tuple[str, str], tuple[str, str]]]:
        """What is compared: the column, or the row, and in it the cells (row, column) of `higher` and of `lower`."""
        for name in self.along:
            if self.of_columns:
                yield name, (name, self.higher), (name, self.lower)
            else:
                yield name, (self.higher, name), (self.lower, name)


@dataclass(frozen=True)
class Layout:
    """One table of one paper.

    published[row, column]: a fraction between 0 and 1; None where the value is there but cannot be read in our copy of
    the paper, no entry where the paper has no such value. metrics: column -> metric of a record. whole_rows: one run
    fills all columns of a row; else one run is one cell. variant: tells several layouts of one table apart, as those of
    its data sets. again: the table is made again under another protocol, with the rows it has in common with the
    paper's; `label` says what is different, `theirs` what the paper's values are called beside ours. quoted: rows that
    the paper took from others or from systems that are not built here. parameters: sizes of the models, as printed.
    sources: parts of the training data that a run needs, or it is partial. digits: decimals of the printed percentages.
    spread: what ± means beside our means, a key of SPREADS; intervals[row, column]: what stands there in the paper.
    orderings: pairs of rows, or of columns, of which the notes tell whether one is above the other in ours.
    contests: rows of which the notes tell how often each is the highest.
    """

    name: str
    table: int
    variant: str | None
    title: str
    source: str
    measure: str
    protocol: str
    again: bool
    label: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metrics: dict[str, str]
    whole_rows: bool
    published: dict[tuple[str, str], float | None]
    quoted: tuple[str, ...] = ()
    parameters: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    orderings: tuple[Ordering, ...] = ()
    best_of_three: bool = False
    digits: int = 2
    theirs: str = "paper, its own data"
    spread: str = "deviation"
    intervals: dict[tuple[str, str], float] = field(default_factory=dict)
    contests: tuple[tuple[str, ...], ...] = ()

    @property
    def key(self) -> Key:
        return self.name, self.table, self.variant

    def check(self, paper: dict, where: str) -> None:
        """Raise LayoutError unless the `paper` node names a cell of this table with its value and metric, or a row."""
        row, column = paper["row"], paper["column"]
        if row not in self.rows or (column is not None and column not in self.columns):
            raise LayoutError(
                f"{where}: {self.title} has no cell '{row}', '{column}'. "
                f"Rows: {'; '.join(self.rows)}. Columns: {'; '.join(self.columns)}."
            )
        if row in self.quoted:
            raise LayoutError(f"{where}: {self.title} only quotes '{row}'; take it out of `quoted` when it is built.")
        if self.whole_rows:
            extra = [key for key in ("column", "metric", "published") if paper[key] is not None]
            if extra:
                raise LayoutError(
                    f"{where}: a run fills a whole row of {self.title}, so {' and '.join(extra)} must be null."
                )
            return
        if column is None:
            raise LayoutError(f"{where}: a run is one cell of {self.title}; name its column, metric and value.")
        value, metric = self.published[row, column], self.metrics[column]
        if value is None or paper["published"] is None:
            same = value is paper["published"]
        else:
            same = abs(value - paper["published"]) <= 1e-9
        if not same or paper["metric"] != metric:
            raise LayoutError(
                f"{where}: says {paper['metric']} {paper['published']} for '{row}', '{column}', "
                f"and {self.title} has {metric} {value}. Correct the one that misquotes the paper."
            )


def places(paper: dict) -> Iterator[tuple[Key, dict]]:
    """Every table that a `paper` node names, with the node as it would be if it named this one alone."""
    variant = paper.get("variant")
    yield (paper["name"], paper["table"], variant), paper
    for more in paper.get("also") or ():
        name = more.get("name") or paper["name"]
        yield (name, more["table"], variant), {**paper, "name": name, "table": more["table"], "row": more["row"]}


def find(layouts: dict[Key, Layout], key: Key, where: str) -> Layout:
    """The layout of a table. Raises LayoutError where there is none."""
    if key not in layouts:
        name, table, variant = key
        which = f"{name}, table {table}" + (f", variant {variant}" if variant else "")
        raise LayoutError(f"{where}: no layout in results/published/ is {which}.")
    return layouts[key]


def load_layouts(folder: Path = PUBLISHED) -> list[Layout]:
    """Every layout in `folder`, by paper and table number, a variant after its table.

    A file whose rows are a list makes a table again: its values are those of the variant that `values_of` names, or of
    the layout without variant.

    Raises LayoutError where there is none, two are of the same table, or a file does not fit.
    """
    nodes = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}
    if not nodes:
        raise LayoutError(f"{folder}: no table layout (*.yaml) here, so there is no table to make.")
    layouts: dict[Key, Layout] = {}
    for path, node in sorted(nodes.items(), key=lambda item: isinstance(item[1].get("rows"), list)):
        base = None
        if isinstance(node["rows"], list):
            base = find(layouts, (node["name"], node["table"], node.get("values_of")), str(path))
        layout = make_layout(path, node, base)
        if layout.key in layouts:
            raise LayoutError(f"{path}: there is another layout of {layout.title}.")
        layouts[layout.key] = layout
    return sorted(layouts.values(), key=lambda layout: (layout.name, layout.table, layout.variant or ""))


def make_layout(path: Path, node: dict, base: Layout | None) -> Layout:
    """The layout in one YAML file. base: the paper's table, which the file makes again; it has the values."""
    if base is None:
        own, published = _published(path, node), None
    else:
        taken = ("source", "measure", "columns", "metrics", "whole_rows", "digits", "spread", "intervals")
        own = {key: getattr(base, key) for key in taken}
        published = {place: value for place, value in base.published.items() if place[0] in node["rows"]}
        own |= {"rows": tuple(node["rows"]), "published": published}
        if "columns" in node:  # some of the paper's
            if unknown := sorted(set(node["columns"]) - set(base.columns)):
                raise LayoutError(f"{path}: names columns that the table has not: {'; '.join(unknown)}")
            own["columns"] = tuple(node["columns"])
            own["metrics"] = {column: base.metrics[column] for column in own["columns"]}
            published = {place: value for place, value in published.items() if place[1] in own["columns"]}
            own["published"] = published
    for key in ("source", "measure", "best_of_three", "digits", "parameters", "theirs", "spread"):
        if key in node:
            own[key] = node[key]
    layout = Layout(
        **own,
        **{key: node[key] for key in ("name", "table", "title", "protocol")},
        variant=node.get("variant"),
        again=base is not None,
        label=node.get("label"),
        quoted=tuple(node.get("quoted", ())),
        sources=tuple(node.get("sources", ())),
        contests=tuple(tuple(rows) for rows in node.get("contests", ())),
        orderings=tuple(_ordering(path, one, own) for one in node.get("orderings", ())),
    )
    if layout.spread not in SPREADS:
        raise LayoutError(f"{path}: spread must be {' or '.join(SPREADS)}, and it is {layout.spread!r}")
    named = [*layout.quoted, *layout.parameters, *(row for contest in layout.contests for row in contest)]
    if unknown := sorted(set(named) - set(layout.rows)):
        raise LayoutError(f"{path}: names rows that the table has not: {'; '.join(unknown)}")
    return layout


def _ordering(path: Path, node: dict, own: dict) -> Ordering:
    """One of a file's `orderings`, of two rows or of two columns. own: the table's rows, columns and metrics."""
    of_columns = "higher_column" in node
    compared, others = ("columns", "rows") if of_columns else ("rows", "columns")
    higher, lower = ("higher_column", "lower_column") if of_columns else ("higher", "lower")
    if not {higher, lower} <= set(node) <= {higher, lower, others}:
        raise LayoutError(
            f"{path}: orderings: takes higher and lower, perhaps with columns, or higher_column and lower_column, "
            f"perhaps with rows; one has {', '.join(node)}"
        )
    along = tuple(node.get(others, own[others]))
    named = ((higher, (node[higher],), compared), (lower, (node[lower],), compared), (others, along, others))
    for key, names, kind in named:
        if unknown := sorted(set(names) - set(own[kind])):
            raise LayoutError(f"{path}: orderings: {key} names {kind} that the table has not: {'; '.join(unknown)}")
    if of_columns and own["metrics"][node[higher]] != own["metrics"][node[lower]]:
        metrics = " and ".join(own["metrics"][node[key]] for key in (higher, lower))
        raise LayoutError(
            f"{path}: orderings: {higher} {node[higher]} and {lower} {node[lower]} are different metrics, {metrics}"
        )
    return Ordering(node[higher], node[lower], along, of_columns)


def _published(path: Path, node: dict) -> dict:
    """Rows, columns, metrics and values of a paper's own table."""
    whole_rows = isinstance(node["columns"], dict)
    columns, rows = tuple(node["columns"]), node["rows"]
    pairs = _pairs(path, rows, columns)
    intervals = _pairs(path, node.get("intervals", {}), columns)
    if unknown := sorted(set(intervals) - set(pairs)):
        raise LayoutError(f"{path}: intervals of rows that the table has not: {unknown[0][0]}")
    both = [*pairs.items(), *intervals.items()]
    bad = [f"{row}, {column}: {v!r}" for (row, column), v in both if v is not None and not 0 <= v <= 1]
    if bad:
        raise LayoutError(f"{path}: values are fractions between 0 and 1, or null; not so: {'; '.join(bad)}")
    return {
        "rows": tuple(rows),
        "columns": columns,
        "metrics": dict(node["columns"]) if whole_rows else dict.fromkeys(columns, node["metric"]),
        "whole_rows": whole_rows,
        "published": pairs,
        "intervals": intervals,
    }


def _pairs(path: Path, rows: dict, columns: tuple[str, ...]) -> dict[tuple[str, str], float | None]:
    """Values by row and column. Raises LayoutError where a row has not one for each column."""
    short = [row for row, values in rows.items() if len(values) != len(columns)]
    if short:
        raise LayoutError(f"{path}: not one value for each of the {len(columns)} columns in: {'; '.join(short)}")
    return {(row, column): v for row, values in rows.items() for column, v in zip(columns, values, strict=True)}


def experiments(folder: Path = EXPERIMENTS) -> dict[str, dict]:
    """Experiment -> its `paper` node, of those that have one."""
    nodes = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}
    return {name: node["paper"] for name, node in nodes.items() if node.get("paper")}


def main(arguments: list[str] | None = None, published: Path = PUBLISHED, folder: Path = EXPERIMENTS) -> int:
    """Print the experiments of one table, joined by commas; 1 where no layout has that name."""
    parser = argparse.ArgumentParser(prog="python -m scripts.layouts", description="List the experiments of a table.")
    parser.add_argument("table", help="name of its layout in results/published/, as in hyfi_table5_crowd")
    table = parser.parse_args(arguments).table
    path = published / f"{table}.yaml"
    if not path.is_file():
        known = ", ".join(p.stem for p in sorted(published.glob("*.yaml")))
        print(f"error: there is no table {table}. There are: {known}.", file=sys.stderr)
        return 1
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    key = (node["name"], node["table"], node.get("variant"))
    found = [name for name, paper in experiments(folder).items() if key in (place for place, _ in places(paper))]
    if not found:
        print(f"error: no experiment fills a cell of {table}.", file=sys.stderr)
        return 1
    print(",".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
