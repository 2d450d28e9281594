"""Rows of text files: JSON objects, and tables whose columns have names."""

import itertools
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.errors import UserError
from tasks.reading import Example, Fault, brief, decode, decode_lines, is_blank, is_json, parse_each, read_lines
from tasks.separators import (
    all_quoted,
    choose_separator,
    ending,
    has_columns,
    likelier_separator,
    named_columns,
    quoted_rows,
    separators_of,
    split_columns,
    tab_columns,
    wrong_separator,
)
from tasks.split_column import SPLIT

TABLES = (".csv", ".tsv")
ARRAY = (
    "an array of JSON, and an object a line is needed: pandas writes these by to_json(FILE, orient='records', "
    "lines=True), and jq -c '.[]' FILE > NEW_FILE.jsonl makes them"
)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def is_finite(value: object) -> bool:
    """Whether a value is a number that a float64 holds: JSON's whole numbers have no end."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(record := dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        raise Fault(f"it has the key {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return record


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object. Raises Fault where the text is none, is nested too deeply, has a key twice, or holds half of a
    surrogate pair or a number that is not finite."""
    try:
        record = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
        if SURROGATE.search(text):
            json.dumps(record, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise Fault("it is not a JSON object (nested too deeply)") from None
    except UnicodeEncodeError:
        raise Fault(r"it has half of a surrogate pair (\ud800 to \udfff), which is no character") from None
    except Fault:
        raise
    except ValueError as error:
        raise Fault(f"it is not a JSON object ({error})") from None
    if not isinstance(record, dict):
        raise Fault("it is not a JSON object")
    return record


def other_keys(line: bytes, keys: Sequence[str]) -> dict[str, Any]:
    """Of a line that is an object of JSON what it has under other keys than these; nothing of other lines."""
    if not line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{"):
        return {}
    try:
        record = parse_object(decode(line))
    except Fault:  # a text that begins with a brace
        return {}
    lower = {key.lower() for key in keys}
    return {key: value for key, value in record.items() if key.lower() not in lower}


def pick_fields(
    record: Mapping[str, Any], fields: Mapping[str, Sequence[str]], optional: Sequence[str] = ()
) -> dict[str, str]:
    """The fields of an object of JSON, each by the first of its names that is there, in large or small letters; "" for
    an `optional` one without.

    Blanks around the field `label` are dropped, and it may be a whole number, also as 2.0, which pandas makes of 2 in a
    column where one is missing. Raises Fault for one that is not there or
    no string.
    """
    values = {}
    for field, names in fields.items():
        name = next((key for name in names if (key := _key(record, name)) is not None), None)
        if name is None:
            raise Fault(f"it has none of the keys {', '.join(names)}")
        value = record[name]
        if field == "label" and isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0:
            value = str(int(value))
        if not isinstance(value, str):
            allowed = "a string or a whole number" if field == "label" else "a string"
            raise Fault(f"{name} must be {allowed}, and it is {brief(value)}")
        values[field] = value.strip() if field == "label" else value
    others = {field: record.get(_key(record, field) or field) for field in optional}
    return values | {field: "" if value is None else str(value) for field, value in others.items()}


def _key(record: Mapping[str, Any], name: str) -> str | None:
    """The key of this name, or one that differs in large and small letters alone."""
    return name if name in record else next((key for key in record if key.lower() == name.lower()), None)


def read_records(
    path: Path,
    fields: Mapping[str, Sequence[str]],
    forms: str,
    optional: Sequence[str] = (),
    header: Sequence[str] | None = None,
    remedy: Callable[[dict[str, tuple[str, ...]], str], str] | None = None,
) -> Iterator[tuple[int, dict[str, str] | Fault]]:
    """The number of each line and its fields by name, or what is wrong with it; blank lines are passed over.

    A file whose first line begins with { has JSON objects, one a line, see `pick_fields`. Others are tables: of columns
    that commas or semicolons separate in files .csv, where columns in quotes may hold these, quotes and ends of lines,
    and tabs in others, where quotes are characters as any but where a program has put them: around all columns of the
    first line, then as in files .csv, or around one with doubled quotes within. The first line names the columns,
    unless `header` does, and decides between commas and semicolons: by the columns that are needed, or with `header` by
    their number. A row may lack columns at its end that no field needs.

    fields: the names that each field has in files. optional: fields that are "" where a file does not have them. forms:
    what is expected, for messages. remedy: of a table whose first line lacks a column that is needed, a sentence that
    says what makes it readable, from what the first rows have in each column. Warns of a column split that is none of
    the fields, and of several columns that may be one field, of which the first of its names is read. Raises UserError
    for a file that cannot be read or is empty, and for a table without a column that is needed. One line is held at a
    time, of rows with quotes at most LONGEST characters; a core reads about 100,000 lines a second.
    """
    rows = _read_rows(path, fields, forms, optional, header, remedy)
    known = {*optional, *itertools.chain(*fields.values())}
    for first in itertools.islice(rows, 1):
        record = {} if isinstance(first[1], Fault) else first[1]
        if any(key.lower() in SPLIT for key in record.keys() - known):
            warnings.warn(
                f"{path}: the column split is not read, as each split is to have a file of its own.", stacklevel=2
            )
        for field, names in fields.items():
            columns = list(dict.fromkeys(key for name in names if (key := _key(record, name)) is not None))
            if len(columns) > 1:
                others = " and ".join(columns[1:])
                warnings.warn(f"{path}: the column {columns[0]} is read as the {field}, not {others}.", stacklevel=2)
        rows = itertools.chain([first], rows)
    yield from parse_each(rows, lambda row: pick_fields(row, fields, optional))


def _read_rows(
    path: Path,
    fields: Mapping[str, Sequence[str]],
    forms: str,
    optional: Sequence[str],
    header: Sequence[str] | None = None,
    remedy: Callable[[dict[str, tuple[str, ...]], str], str] | None = None,
) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """The number and all columns of each line by name, see `read_records`."""
    lines: Iterator[tuple[int, str | Fault]] = itertools.dropwhile(is_blank, read_lines(path))
    number, line = next(lines, (0, ""))
    if not number:
        raise UserError(f"{path} is empty. Expected are {forms}.")
    lines = itertools.chain([(number, line)], lines)
    if isinstance(line, str) and line.lstrip().startswith("{"):
        yield from parse_each(lines, parse_object)
        return
    if isinstance(line, str) and is_json(line):
        raise UserError(f"{path} is {ARRAY}.")
    separator = _separator(path, line if isinstance(line, str) else "", fields, header)
    in_quotes = separator != "\t" or (header is None and isinstance(line, str) and all_quoted(line))
    rows = quoted_rows(lines, separator) if in_quotes else parse_each(lines, tab_columns)
    first = next(rows)[1] if header is None else list(header)
    if isinstance(first, Fault):
        raise UserError(f"{path}, line {number}: {first}. Expected are {forms}.")
    names = named_columns(first, {**fields, **{field: (field,) for field in optional}})
    keys = [next((name for name in several if name in names), "") for several in fields.values()]
    where = "its first line" if header is None else "its header, as the settings name it,"
    if "" in keys:
        hint = f" {remedy(_first_cells(names, rows), separator)}" if remedy and header is None else ""
        missing = [*fields.values()][keys.index("")][0]
        raise UserError(
            f"{path}: {where} has no column {missing} (it has "
            f"{', '.join(names)[:200]}). Expected are {forms}.{hint.rstrip()}"
        )
    keys += [field for field in optional if field in names]
    if twice := [name for name in keys if names.count(name) > 1]:
        raise UserError(f"{path}: {where} has two columns {twice[0]}; give one of them another name.")
    needed = 1 + max(map(names.index, keys))
    rows = rows if in_quotes else _within_lines(path, rows, len(names))

    def name(row: list[str]) -> dict[str, str]:
        if not needed <= len(row) <= len(names):
            n, listed = len(names), ", ".join(names)
            expected = f"the first line has {n}" if header is None else f"{n} are expected ({listed})"
            opens = not in_quotes and row[-1].startswith('"')
            hint = ". Texts in quotes that go on in other lines are read in files .csv" if opens else ""
            raise Fault(f"it has {len(row)} columns, and {expected}{hint}")
        return dict(zip(names, row, strict=False))

    yield from parse_each(rows, name)


def _within_lines(
    path: Path, rows: Iterator[tuple[int, list[str] | Fault]], width: int
) -> Iterator[tuple[int, list[str] | Fault]]:
    """Rows of a table of so many columns in which quotes are characters. Raises UserError where a text in quotes goes
    on in other lines, which then lack columns: its parts would be taken for rows."""
    opened = short = False
    for number, row in rows:
        if isinstance(row, list):
            first, last = row[0], row[-1]
            short = (opened and short) or len(row) < width
            if opened and short and first.count('"') % 2 and not first.startswith('"'):
                raise UserError(
                    f"{path}, line {number}: a text in quotes that began in a line before ends here, {brief(first)}. "
                    "Ends of lines within texts are read in files .csv, and in tables with quotes around all columns; "
                    "save it so."
                )
            opened = (last.startswith('"') and last.count('"') % 2 == 1) or (opened and len(row) == 1)
        yield number, row


def names_columns(path: Path, fields: Mapping[str, Sequence[str]]) -> bool:
    """Whether the first line of a file .csv or .tsv, packed or not, has a column for each field, so that `read_records`
    reads it as a table. Raises UserError where it cannot be read."""
    line = first_line(path) if ending(path) in TABLES else ""
    return any(has_columns(split_columns(line, separator), fields) for separator in separators_of(path))


def has_column(path: Path, name: str) -> bool:
    """Whether the first line of a table has a column of this name, in any case of letters, or any object of a file of
    JSON lines such a key. Raises UserError where it cannot be read."""
    line = first_line(path)
    if not line.lstrip().startswith("{"):
        return any(has_columns(split_columns(line, separator), {name: [name]}) for separator in separators_of(path))
    lines = (line for _, line in read_lines(path) if isinstance(line, str) and f'"{name}"' in line.lower())
    rows = (row for _, row in parse_each(enumerate(lines), parse_object))
    return any(isinstance(row, dict) and _key(row, name) is not None for row in rows)


def is_other_table(path: Path, fields: Mapping[str, Sequence[str]]) -> bool:
    """Whether a file .csv or .tsv, packed or not, has neither these columns nor objects of JSON. Raises UserError where
    it cannot be read."""
    return ending(path) in TABLES and first_line(path).strip()[:1] not in ("", "{") and not names_columns(path, fields)


def first_line(path: Path) -> str:
    """The first line of a file that is not blank; "" without one, and where it cannot be read as text."""
    line = next(itertools.dropwhile(is_blank, read_lines(path)), (0, ""))[1]
    return line if isinstance(line, str) else ""


def read_new_rows(
    path: Path,
    fields: Mapping[str, Sequence[str]],
    parse: Callable[[dict[str, str]], Example],
    optional: Sequence[str] = (),
) -> Iterator[tuple[Example, dict[str, str]]] | None:
    """What `parse` makes of the fields of each row of a table of new examples, and what its other columns have, such as
    a label, by their names, for `TaskData.read_table`; None for a file that is no table, see `names_columns`.

    fields, optional: as of `read_records`. Raises UserError for a row that cannot be used, which names its line, and
    where there is none.
    """
    if not names_columns(path, fields):
        return None
    forms = f"rows with {', '.join(names[0] for names in fields.values())}, as the first line names the columns"

    def parse_row(row: dict[str, str]) -> tuple[Example, dict[str, str]]:
        used = {next((name for name in names if name in row), "") for names in fields.values()}
        others = {name: text for name, text in row.items() if name and name not in {*used, *optional}}
        return parse(pick_fields(row, fields, optional)), others

    def rows() -> Iterator[tuple[Example, dict[str, str]]]:
        number = 0
        for number, example in parse_each(_read_rows(path, fields, forms, optional), parse_row):
            if isinstance(example, Fault):
                raise UserError(f"{path}, line {number}: {example}. Expected are {forms}.")
            yield example
        if not number:
            raise UserError(f"{path} has no rows below the names of its columns.")

    return rows()


def _separator(path: Path, line: str, fields: Mapping[str, Sequence[str]], header: Sequence[str] | None) -> str:
    """What separates the columns of a table, by its first line. Raises UserError where no file of this ending may have
    it."""
    separators = separators_of(path)
    if header is not None:
        most = len(header)
        return choose_separator(line, separators, lambda columns: 1 < len(columns) <= most) or separators[0]
    separator = choose_separator(line, separators, lambda columns: has_columns(columns, fields))
    if separator is None and (fault := wrong_separator(line, separators, fields)):
        raise UserError(f"{path}: {fault}.")
    return separator or likelier_separator(line, separators)


def _first_cells(names: Sequence[str], rows: Iterable[tuple[int, list[str] | Fault]]) -> dict[str, tuple[str, ...]]:
    """By name what the first rows of a table have in each column."""
    first = [row for _, row in itertools.islice(rows, 100) if not isinstance(row, Fault) and len(row) == len(names)]
    return dict(zip(names, zip(*first, strict=True), strict=True)) if first else dict.fromkeys(names, ())


def columns_of(line: str, keys: Sequence[str], between: str) -> str:
    """A line with tabs between its columns, of an object of JSON that has them under `keys`, in large or small letters,
    of which the last ones may be missing; any other line as it is. Of lists, as of words, the elements are joined with
    `between`.

    Raises Fault for an object of JSON that lacks a key before one that it has, and for a value that is no column.
    """
    if not line.lstrip().startswith("{") or not line.rstrip().endswith("}"):
        return line
    try:
        record = parse_object(line)
    except Fault:  # a text in braces
        return line
    present = {key: own for key in keys if (own := _key(record, key)) is not None}
    if not present:
        raise Fault(f"it has no key {keys[0]}")
    for key, other in zip(keys, present, strict=False):
        if key != other:
            raise Fault(f"it has a key {present[other]} and no key {key}")
    return "\t".join(_column(own, record[own], between) for own in present.values())


def _column(key: str, value: Any, between: str) -> str:
    """A value of an object of JSON as a column. Raises Fault where it cannot be one."""
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if not isinstance(text, (str, int)) or isinstance(text, bool) or "\t" in str(text):
            raise Fault(f"{key} must be a text without tabs, or a list of such texts, and it is {brief(value)}")
    return between.join(map(str, texts))


def read_examples(
    lines: Iterable[bytes],
    name: str,
    parse: Callable[[str], Example],
    kind: str,
    forms: str,
    keys: Sequence[str] = (),
) -> Iterator[Example]:
    """What `parse` makes of each line of a stream, for `TaskData.read_inputs`; blank lines are passed over.

    name: of the stream; kind: of the examples, as "pairs"; forms: a sentence that says what a line must be. keys: a
    line may also be an object of JSON, see `columns_of`; without them `parse` gets every line as it is. Raises
    UserError, which names the line, for the Fault of a line, and where there is no example at all.
    """
    number = 0

    def parse_line(line: str) -> Example:
        if line.lstrip().startswith("[") and is_json(line):
            raise Fault(f"it is {ARRAY}")
        return parse(columns_of(line, keys, " ") if keys else line)

    for number, example in parse_each(decode_lines(lines), parse_line):
        if isinstance(example, Fault):
            raise UserError(f"{name}, line {number}: {example}. {forms}.") from None
        yield example
    if not number:
        raise UserError(f"{name} has no {kind}. {forms}.")
