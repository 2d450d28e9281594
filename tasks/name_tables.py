"""Tables of names, as edges and triples: columns between tabs, in files .csv between commas or semicolons."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tasks.errors import UserError, readable
from tasks.reading import NO_JSON, Example, Fault, brief, is_blank, is_json, is_number, other_separator, read_lines
from tasks.separators import (
    all_quoted,
    choose_separator,
    has_columns,
    is_csv,
    likelier_separator,
    named_columns,
    quoted_rows,
    separators_of,
    split_columns,
    tab_columns,
)

Row = tuple[int, list[str]]  # the number of a line, and its columns
Rows = list[Row]
Lines = Iterator[tuple[int, str | Fault]]
INDEX = ("", "index", "unnamed: 0")  # of a column of row numbers before the node's
NODES = ("", "node", "id", "name")  # of the first column of a table of numbers; programs leave out that of an index


class NameTable(NamedTuple):
    """rows: the columns that were asked for of each line that is not blank, without blanks around them, none empty but
    those that may be. header: the names that the first line has for the columns; None where it is a row as any. others:
    those of the columns that were not asked for."""

    rows: Iterator[Row]
    header: tuple[str, ...] | None = None
    others: tuple[str, ...] = ()

    def note(self, path: Path) -> str:
        """That the first line is none of the rows, as a sentence without its end; "" where it is."""
        if self.header is None:
            return ""
        others = f"; further columns are not read: {', '.join(self.others)[:200]}" if self.others else ""
        return readable(f"{path}: the first line names the columns ({', '.join(self.header)[:200]}){others}")


def read_names(
    path: Path,
    fields: Mapping[str, Sequence[str]],
    form: str,
    setting: str = "",
    optional: Sequence[str] = (),
    further: Mapping[str, Sequence[str]] | None = None,
) -> NameTable:
    """The table in a file, UTF-8, plain or .gz, in a .csv of which columns may be in quotes.

    Where the first line has one of the names of each field, in any case of letters, it names the columns: these may
    then stand in any order, among others. Else each line has one column for each field, in the order of `fields`.

    fields: the names that columns have. form, setting: what a line must be and what names the file, for messages.
    optional: fields that may be empty in a row. further: fields, perhaps empty, that stand behind the others in rows
    where the first line has them. Lines are read as the rows are, one at a time; several may be in memory where
    columns in quotes have ends of lines.

    Raises UserError, which names the file and the line: at once where it cannot be read, has no row, or names a column
    twice, and for a line that is not of this form when it is read.
    """
    if "\t" not in separators_of(path):
        form = form.replace(" <tab> ", ",")
    form += f" ({setting})" if setting else ""
    required = [k for k, field in enumerate(fields) if field not in optional]
    lines, line = _begin(path, form)
    separators = separators_of(path)
    separator = choose_separator(line, separators, lambda columns: has_columns(columns, fields))
    if separator is None:
        separator = choose_separator(line, separators, lambda columns: len(columns) == len(fields)) or separators[0]
        known_names = _known_names(path, split_columns(line, separator), {**fields, **(further or {})})
        rows = _split(path, lines, line, separator)
        return NameTable(_check(path, rows, len(fields), len(fields), form, required, known_names))
    next(lines)
    columns = split_columns(line, separator)
    own = {field: each for field, each in (further or {}).items() if has_columns(columns, {field: each})}
    fields = {**fields, **own}
    names, known, places = [name.strip() for name in columns], named_columns(columns, fields), []
    for several in fields.values():
        name = next(name for name in several if name in known)
        if known.count(name) > 1:
            raise UserError(f"{path}: the first line names two columns {name}; give one of them another name.")
        places.append(known.index(name))
    return NameTable(
        _require_rows(path, _pick(path, _split(path, lines, line, separator), places, len(names), form, required)),
        tuple(names[place] for place in places),
        tuple(name for k, name in enumerate(names) if name and k not in places),
    )


def parse_names(
    path: Path, fields: Mapping[str, Sequence[str]], form: str, parse: Callable[[list[str]], Example], last: str = ""
) -> Iterator[tuple[Example, dict[str, str]]]:
    """What `parse` makes of each row of `read_names` and, as `TaskData.read_table` has it, {} for its other columns.

    last: a field that may be empty; "": none may. Raises UserError also for a row for which `parse` raises a Fault.
    """
    for number, columns in read_names(path, fields, form, optional=[last]).rows:
        try:
            yield parse(columns), {}
        except Fault as fault:
            raise UserError(f"{path}, line {number}: {fault}. Each line is {form}.") from None


def read_numbers(path: Path, form: str) -> NameTable:
    """A name and what should be numbers, as texts, of each line of a file that is not blank; the name alone is never
    empty. The first line names the columns where one of them is of NODES and none is a number: the name stands there,
    and a first column before it that is an index, called as in INDEX, is left out. Between semicolons numbers may
    have decimal commas.

    form: what a line must be, for messages. Raises UserError as `read_names` does.
    """
    lines, line = _begin(path, form)
    separators = separators_of(path)
    separator = choose_separator(line, separators, _has_numbers) or likelier_separator(line, separators)
    names = [name.strip() for name in split_columns(line, separator)]
    places = [k for k, name in enumerate(names) if name.lower() in NODES and (name or not k)]
    is_header = len(names) > 1 and bool(places) and not any(map(_is_number, names))
    place = next((k for k in places if names[k]), 0) if is_header else 0
    if is_header:
        next(lines)
    columns = _split(path, lines, line, separator)
    if place:
        others = [k for k, name in enumerate(names) if k != place and (k or name.lower() not in INDEX)]
        if not others:
            raise UserError(f"{path}: the first line, {brief(line)}, names no column of numbers beside {names[place]}.")
        places = [place, *others]
        rows, names = _pick(path, columns, places, len(names), form, required=(0,)), [names[k] for k in places]
    else:
        rows = _check(path, columns, 2, None, form, required=(0,))
    if separator == ";":
        rows = ((k, [name, *map(_with_point, numbers)]) for k, (name, *numbers) in rows)
    return NameTable(_require_rows(path, rows), tuple(names)) if is_header else NameTable(rows)


def _known_names(path: Path, columns: Sequence[str], fields: Mapping[str, Sequence[str]]) -> str:
    """Of a first line that names not all fields which names do, and which of its own are none, for a message; "" in a
    file with tabs where it names no field at all."""
    known = {name for names in fields.values() for name in names}
    unknown = [name for name in named_columns(columns, fields) if name not in known]
    if not is_csv(path) and len(unknown) == len(columns):
        return ""
    names = "; ".join(f"{field} ({', '.join(names)})" for field, names in fields.items())
    here = f" Not known here: {', '.join(filter(None, unknown))[:200]}." if any(unknown) else ""
    return f"further ones are left out where the first line names the columns. Known names: {names}.{here}"


def _begin(path: Path, form: str) -> tuple[Lines, str]:
    """The lines of a file from the first that is not blank, and this one; "" where it cannot be read."""
    lines: Lines = itertools.dropwhile(is_blank, read_lines(path))
    if (first := next(lines, None)) is None:
        raise UserError(f"{path} is empty; it must have lines of the form {form}.")
    if isinstance(first[1], str) and is_json(first[1]):
        raise UserError(f"{path}, line {first[0]}: {brief(first[1])} is not of the form {form}.{NO_JSON}")
    return itertools.chain([first], lines), first[1] if isinstance(first[1], str) else ""


def _has_numbers(columns: Sequence[str]) -> bool:
    return len(columns) > 1 and all(map(_is_number, columns[1:]))


def _is_number(text: str) -> bool:
    return is_number(text.replace(",", "."))


def _with_point(text: str) -> str:
    """A number with a decimal point in the place of a comma; another text as it is."""
    return text.replace(",", ".") if _is_number(text) else text


def _split(path: Path, lines: Lines, first: str, separator: str) -> Iterator[tuple[int, str, list[str]]]:
    """The number of each line that is not blank, the line (of quoted ones as it was read) and its columns. first: the
    first line, which says whether columns between tabs are in quotes."""
    if separator == "\t" and not all_quoted(first):
        for number, line in lines:
            if isinstance(line, Fault):
                raise UserError(f"{path}, line {number}: {line}.")
            if line.strip():
                yield number, line, tab_columns(line)
        return
    for number, row in quoted_rows(lines, separator):
        if isinstance(row, Fault):
            raise UserError(f"{path}, line {number}: {row}.")
        if any(column.strip() for column in row):
            yield number, separator.join(row), row


def _pick(
    path: Path,
    rows: Iterable[tuple[int, str, list[str]]],
    places: Sequence[int],
    most: int,
    form: str,
    required: Sequence[int],
) -> Iterator[Row]:
    """Of rows below the names of `most` columns those in these places."""
    for number, line, columns in rows:
        if not max(places) < len(columns) <= most:
            raise UserError(
                f"{path}, line {number}: {brief(line)} has {len(columns)} columns, and the first line names {most}."
            )
        picked = (number, line, [columns[place] for place in places])
        yield from _check(path, [picked], len(places), None, form, required)


def _check(
    path: Path,
    rows: Iterable[tuple[int, str, list[str]]],
    least: int,
    most: int | None,
    form: str,
    required: Sequence[int] | None = None,
    names: str = "",
) -> Iterator[Row]:
    """Rows of so many columns, none of which goes on in another line, and none of those in the `required` places (None:
    all) is empty. names: what is said where the first row has too many columns, see `_known_names`."""
    for number, line, columns in rows:
        columns = [column.strip() for column in columns]
        is_row = least <= len(columns) <= (most or len(columns)) and not any("\n" in c for c in columns)
        if is_row and all(columns if required is None else (columns[k] for k in required)):
            yield number, columns
            names = ""
            continue
        hint = "" if is_csv(path) else other_separator(line, least, most)
        if is_row:  # but for what is empty
            hint = " A column is empty: fill it, or leave the line out."
        if len(columns) > (most or len(columns)) and (names or is_csv(path)):
            remedy = names or "quotes must stand around a name that has the separator in it."
            hint = f" It has {len(columns)} columns, not {most}: {remedy}"
        raise UserError(f"{path}, line {number}: {brief(line)} is not of the form {form}.{hint}")


def _require_rows(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows, of which there is one at least."""
    first = next(rows, None)
    if first is None:
        raise UserError(f"{path} has no rows below the names of its columns.")
    return itertools.chain([first], rows)
