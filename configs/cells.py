"""The cells of published tables: what runs them, and the words of commands that their files may have."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from configs import files
from configs.tuning import Tuning, read_tuning
from tasks.errors import UserError
from tasks.folders import LONGEST_NAME
from tasks.reading import brief

Place = tuple[str, str | None]  # row and column; no column: the whole row
_WORD = re.compile(r"(?!hydra\b)[A-Za-z][\w./@]*=.*")
_TRIALS = re.compile(r"hydra\.sweeper\.(n_trials=\d+|baseline=(true|false))")


class TableError(UserError):
    """A table file that does not fit; the message names the file and the culprit."""


@dataclass(frozen=True)
class Cell:
    """What one run fills, a cell or (column: None) a whole row; overrides: of the table, the row and the column;
    tuning: what a search chose for it, if one did."""

    table: str
    row: str
    column: str | None
    experiment: str
    overrides: tuple[str, ...]
    tuning: Tuning | None = None

    @property
    def name(self) -> str:
        """Of files: the experiment, with what the cell overrides, task.dim=5 as dim=5."""
        pairs = [word.partition("=") for word in self.overrides]
        words = [re.sub(r"[^\w.=+-]", "_", f"{key.rpartition('.')[2]}={value}") for key, _, value in pairs]
        return "-".join([self.experiment, *words])

    @property
    def place(self) -> Place:
        return self.row, self.column

    @property
    def words(self) -> tuple[str, ...]:
        return f"experiment={self.experiment}", *self.overrides, *(self.tuning.words if self.tuning else ())

    def __str__(self) -> str:
        return ", ".join(part for part in (self.row, self.column) if part is not None)


def read_cells(
    path: Path, node: dict[str, Any], rows: dict[str, dict[str, Any]], own: dict[str, Any]
) -> Iterator[Cell]:
    """What runs can fill. Raises TableError where a row or column has a key that does not exist, or an experiment."""
    existing = {file.stem for file in (files.FOLDER / "experiment").glob("*.yaml")}
    columns = {None: {}} if own["whole_rows"] else own["columns"]
    for row, spec in rows.items():
        for column, more in columns.items():
            if "experiment" not in spec:
                continue
            parts = {path.stem: node.get("overrides"), row: spec.get("overrides"), str(column): more.get("overrides")}
            if wrong := [name for name, words in parts.items() if not isinstance(words or [], list)]:
                raise TableError(f"{path}: overrides of '{wrong[0]}' must be a list, as [task.dim=2].")
            overrides = [word for words in parts.values() for word in words or []]
            name = str(spec["experiment"])  # "hnn_{data}_gru_hyp", where a column has `data: snli`
            for key, value in more.items():
                name = name.replace(f"{{{key}}}", str(value))
            if gaps := re.findall(r"\{(\w*)", name):
                raise TableError(f"{path}: the experiment of '{row}' needs '{gaps[0]}', which '{column}' lacks.")
            cell = Cell(path.stem, row, column, name, tuple(map(str, overrides)))
            if len((tuning := f"{cell.name}.csv").encode()) > LONGEST_NAME:
                raise TableError(
                    f"{path}: {brief(str(cell))}: its overrides are too long to name its files; put them into an "
                    "experiment."
                )
            tuned = read_tuning(path.parent.parent / "tuning" / tuning)
            check_words(path, f"'{row}': the override", [*overrides, *(tuned.words if tuned else ())])
            if name not in existing:
                near = " or ".join(difflib.get_close_matches(name, existing, n=2, cutoff=0.5))
                hint = f" Did you mean {near}?" if near else ""
                raise TableError(f"{path}: {cell}: there is no experiment {name} in configs/experiment/.{hint}")
            yield replace(cell, tuning=tuned)


def check_words(path: Path, what: str, words: list[Any]) -> None:
    """Raises TableError for words that set no value: they become a command line."""
    for word in words:
        if not isinstance(word, str) or not _WORD.fullmatch(word) or "_target_" in word or "${" in word:
            raise TableError(f"{path}: {what} {brief(word)} must set a value, as task.dim=2 does.")


def search_words(path: Path, words: Any, cells: tuple[Cell, ...]) -> tuple[str, ...]:
    """The words of a table's search. Raises TableError where they are no list of words, or where two cells would share
    the file of their trials."""
    if not isinstance(words, list):
        raise TableError(f"{path}: tuning must be a list, as [hydra.sweeper.n_trials=5, optim.lr=0.01,0.03, seed=9].")
    check_words(path, "in tuning,", [word for word in words if not _TRIALS.fullmatch(str(word))])
    names: dict[str, Cell] = {}
    for cell in cells if words else ():
        if names.setdefault(cell.name, cell).words != cell.words:
            raise TableError(f"{path}: '{names[cell.name]}' and '{cell}' would both keep trials in {cell.name}.csv.")
    return tuple(words)
