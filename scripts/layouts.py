"""The layouts of the published tables (results/published/*.yaml): rows, columns and the paper's own values."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from scripts.records import ROOT

PUBLISHED = ROOT / "results" / "published"


class LayoutError(ValueError):
    """A layout file, or an experiment's `paper` node, that does not fit; the message names the culprit."""


@dataclass(frozen=True)
class Layout:
    """One table of one paper. `published[row, column]` is a fraction between 0 and 1."""

    name: str
    table: int
    title: str
    source: str
    measure: str
    metric: str
    protocol: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    published: dict[tuple[str, str], float]

    def check(self, paper: dict, where: str) -> None:
        """Raise LayoutError unless the `paper` node names a cell of this table with its value and metric."""
        if paper["row"] not in self.rows or paper["column"] not in self.columns:
            raise LayoutError(
                f"{where}: {self.title} has no cell '{paper['row']}', '{paper['column']}'. "
                f"Rows: {'; '.join(self.rows)}. Columns: {'; '.join(self.columns)}."
            )
        value = self.published[paper["row"], paper["column"]]
        if abs(value - paper["published"]) > 1e-9 or paper["metric"] != self.metric:
            raise LayoutError(
                f"{where}: says {paper['metric']} {paper['published']} for '{paper['row']}', '{paper['column']}', "
                f"and {self.title} has {self.metric} {value}. Correct the one that misquotes the paper."
            )


def load_layouts(folder: Path = PUBLISHED) -> list[Layout]:
    """Every layout in `folder`, by paper and table number. Raises LayoutError where there is none."""
    layouts = [read_layout(path) for path in sorted(folder.glob("*.yaml"))]
    if not layouts:
        raise LayoutError(f"{folder}: no table layout (*.yaml) here, so there is no table to make.")
    return sorted(layouts, key=lambda layout: (layout.name, layout.table))


def read_layout(path: Path) -> Layout:
    """The layout in one YAML file."""
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    columns, rows = tuple(node["columns"]), node["rows"]
    short = [row for row, values in rows.items() if len(values) != len(columns)]
    if short:
        raise LayoutError(f"{path}: not one value for each of the {len(columns)} columns in: {'; '.join(short)}")
    return Layout(
        **{key: node[key] for key in ("name", "table", "title", "source", "measure", "metric", "protocol")},
        rows=tuple(rows),
        columns=columns,
        published={(row, column): v for row, values in rows.items() for column, v in zip(columns, values, strict=True)},
    )
