"""Points with names as files that other programs read."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tasks.errors import UserError
from tasks.folders import whole_file
from tasks.reading import brief


@dataclass(frozen=True, eq=False)
class Table:
    """Names of N things of a kind, as "words", and their coordinates (N, D), float64, in a model of space, as
    "poincare". The curvature is -c; c is 0 where the points lie in flat space. run: whose points they are."""

    kind: str
    names: Sequence[str]
    coordinates: np.ndarray
    model: str
    c: float
    run: str

    @property
    def facts(self) -> dict[str, str]:
        """What the numbers mean, as texts."""
        return {"kind": self.kind, "model": self.model, "c": repr(self.c), "run": self.run}


class Format(NamedTuple):
    """suffix: of its files. write: into a path. forbidden: whether a name cannot stand in it. reason: why."""

    suffix: str
    write: Callable[[Table, Path], Any]
    forbidden: Callable[[str], bool] = lambda name: False
    reason: str = ""


def write(table: Table, name: str, file: Path) -> Path:
    """Write a table in a format of FORMATS, whole or not at all.

    Raises UserError, which names the first culprit, where the format cannot hold a name or a number.
    """
    form = FORMATS[name]
    if wrong := [each for each in table.names if form.forbidden(each)]:
        others = [other for other, each in FORMATS.items() if not any(map(each.forbidden, wrong))]
        raise UserError(
            f"--format {name}: {len(wrong)} of the {len(table.names)} {table.kind} cannot stand in it, the first is "
            f"{brief(wrong[0])}: {form.reason}. Take --format {' or '.join(others)}."
        )
    finite = np.isfinite(table.coordinates).all(1)
    if not finite.all():
        culprit = table.names[int(np.argmin(finite))]
        raise UserError(f"{table.run}: the point of {brief(culprit)} has coordinates that are not finite; train again.")
    with whole_file(file) as part:
        form.write(table, part)
    return file


def _write_tsv(table: Table, file: Path) -> None:
    """A first line `name x1 .. xD`, with the time coordinate of a hyperboloid as x0 before x1, then a name and its
    numbers a line, between tabs; nothing is quoted."""
    first = 0 if table.model == "lorentz" else 1
    header = ["name", *(f"x{k + first}" for k in range(table.coordinates.shape[1]))]
    _write_lines(file, "\t".join(header), ("\t".join(row) for row in _rows(table)))


def _write_word2vec(table: Table, file: Path) -> None:
    """A first line `N D`, then a name and its numbers a line, between blanks."""
    n, d = table.coordinates.shape
    _write_lines(file, f"{n} {d}", (" ".join(row) for row in _rows(table)))


def _rows(table: Table) -> Iterator[list[str]]:
    """Names with their numbers, in as many digits as it takes to read the same float64 again."""
    for name, numbers in zip(table.names, table.coordinates, strict=True):
        yield [name, *map(repr, numbers.tolist())]


def _write_lines(file: Path, header: str, lines: Iterator[str]) -> None:
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(f"{header}\n")
        stream.writelines(f"{line}\n" for line in lines)


def _write_npz(table: Table, file: Path) -> None:
    """Arrays `names` (N,) of texts and `points` (N, D), and the texts of `Table.facts`."""
    facts = {key: np.array(value) for key, value in table.facts.items()} | {"c": np.array(table.c)}
    with file.open("wb") as stream:
        np.savez(stream, names=np.array(table.names, dtype=np.str_), points=table.coordinates, **facts)


def _write_parquet(table: Table, file: Path) -> None:
    """Columns `name` and `vector` (D numbers); the texts of `Table.facts` are metadata of the schema."""
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError("--format parquet needs pyarrow; pip install '.[export]' adds it.") from None
    vectors = pyarrow.FixedSizeListArray.from_arrays(table.coordinates.ravel(), table.coordinates.shape[1])
    columns = {"name": pyarrow.array(list(table.names), pyarrow.string()), "vector": vectors}
    parquet.write_table(pyarrow.table(columns).replace_schema_metadata(table.facts), file)


def _has_blank(name: str) -> bool:
    return not name or any(character.isspace() for character in name)


def _has_tab(name: str) -> bool:
    return not set("\t\r\n").isdisjoint(name)


FORMATS = {
    "tsv": Format("tsv", _write_tsv, _has_tab, "names in it have no tab and no end of a line"),
    "word2vec": Format("txt", _write_word2vec, _has_blank, "blanks stand between its numbers, so names have none"),
    "npz": Format("npz", _write_npz),
    "parquet": Format("parquet", _write_parquet),
}
