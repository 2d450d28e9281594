"""Labelled pairs of sentences as they are read: JSON lines and tables with a header, as SNLI and MultiNLI have them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tasks.errors import UserError

NO_LABEL = ("-", "-1")  # annotators did not agree: SNLI and MultiNLI write the first, copies of them the second
# What SNLI and MultiNLI call each field, and after it what SICK, SciTail and others do.
FIELDS = {
    "label": ("gold_label", "label", "entailment_label", "entailment_judgment"),
    "premise": ("sentence1", "premise", "sentence_A"),
    "hypothesis": ("sentence2", "hypothesis", "sentence_B"),
}
GENRE = "genre"
FORMS = (
    'JSON lines {"gold_label": "...", "sentence1": "...", "sentence2": "..."}, or tab-separated columns whose first '
    "line has these names (premise and hypothesis, or sentence_A and sentence_B, will do)"
)


class Pair(NamedTuple):
    """Premise, hypothesis, their label as it is written, and the genre ("" where there is none)."""

    premise: str
    hypothesis: str
    label: str
    genre: str = ""


class Fault(ValueError):
    """A line that cannot be used; the message says why, as the end of a sentence."""


def read_pairs(path: Path) -> Iterator[tuple[int, Pair | Fault]]:
    """Line number and pair, or what is wrong with the line, of a file in one of the FORMS; blank lines are passed over.

    Which form it is the first line tells, not the file's name. Raises UserError for a file that cannot be read, is
    empty, or has a header without the columns that are needed.
    """
    try:
        with path.open("rb") as file:
            yield from _read(file, path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None


def _read(lines: Iterable[bytes], path: Path) -> Iterator[tuple[int, Pair | Fault]]:
    parse = None
    for number, raw in enumerate(lines, start=1):
        try:
            line = str(raw, "utf-8").removeprefix("\ufeff").rstrip("\r\n")
        except UnicodeDecodeError as error:
            if parse is None:
                raise UserError(f"{path}, line {number} is not UTF-8; convert it. Expected are {FORMS}.") from None
            yield number, Fault(f"it is not UTF-8 (byte {error.start + 1})")
            continue
        if not line.strip():
            continue
        if parse is None:
            parse = _from_json if line.lstrip().startswith("{") else _Table(line, path)
            if isinstance(parse, _Table):
                continue
        try:
            yield number, parse(line)
        except Fault as fault:
            yield number, fault
    if parse is None:
        raise UserError(f"{path} is empty. Expected are {FORMS}.")


def _from_json(line: str) -> Pair:
    return _from_record(_record(line))


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise Fault(f"it is not a JSON object ({error})") from None
    if not isinstance(record, dict):
        raise Fault("it is not a JSON object")
    return record


def _from_record(record: dict[str, Any]) -> Pair:
    found = {}
    for field, names in FIELDS.items():
        name = next((n for n in names if n in record), None)
        if name is None:
            raise Fault(f"it has none of the keys {', '.join(names)}")
        found[field] = _text(name, record[name], field == "label")
    return Pair(**found, genre=str(record.get(GENRE) or ""))


def _text(name: str, value: Any, is_label: bool) -> str:
    if is_label and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise Fault(f"{name} must be a string, and it is {value!r}")
    return value.strip() if is_label else value


class _Table:
    """Pairs from the lines of a table. header: its first line."""

    def __init__(self, header: str, path: Path) -> None:
        self.names = header.split("\t")
        self.places = {}
        for field, names in FIELDS.items():
            found = next((n for n in names if n in self.names), None)
            if found is None:
                raise UserError(
                    f"{path}: its first line has no column {names[0]} (it has {', '.join(self.names)[:200]}). "
                    f"Expected are {FORMS}."
                )
            self.places[field] = self.names.index(found)
        self.genre = self.names.index(GENRE) if GENRE in self.names else None
        self.needed = 1 + max(*self.places.values(), self.genre or 0)

    def __call__(self, line: str) -> Pair:
        columns = line.split("\t")
        if not self.needed <= len(columns) <= len(self.names):
            raise Fault(f"it has {len(columns)} columns, and the first line has {len(self.names)}")
        found = {field: _text(field, columns[k], field == "label") for field, k in self.places.items()}
        return Pair(**found, genre="" if self.genre is None else columns[self.genre])


def read_inputs(lines: Iterable[bytes], name: str) -> Iterator[Pair]:
    """Pairs without labels from lines `premise <tab> hypothesis` or JSON objects with the two; empty lines are passed
    over. name: of the stream, for messages. Raises UserError, which names the line."""
    forms = 'Each line is premise <tab> hypothesis, or a JSON object {"premise": "...", "hypothesis": "..."}'
    none = True
    for number, raw in enumerate(lines, start=1):
        try:
            line = str(raw, "utf-8").removeprefix("\ufeff").rstrip("\r\n")
            if line.strip():
                none = False
                yield _input(line)
        except UnicodeDecodeError:
            raise UserError(f"{name}, line {number} is not UTF-8; convert it.") from None
        except Fault as fault:
            raise UserError(f"{name}, line {number}: {fault}. {forms}.") from None
    if none:
        raise UserError(f"{name} has no pairs. {forms}.")


def _input(line: str) -> Pair:
    if line.lstrip().startswith("{"):
        pair = _from_record(_record(line) | {"gold_label": ""})
    else:
        columns = line.split("\t")
        if len(columns) != 2:
            raise Fault(f"it has {len(columns)} column{'s' * (len(columns) > 1)} instead of 2")
        pair = Pair(*columns, label="")
    for field in ("premise", "hypothesis"):
        if not getattr(pair, field).strip():
            raise Fault(f"its {field} is empty")
    return pair
