"""Tables of names, as edges and triples: columns between tabs, in files .csv between commas or semicolons."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tasks.errors import UserError, readable
from tasks.reading import Fault, brief, other_separator, read_lines
from tasks.rows import quoted_rows
from tasks.separators import choose_separator, has_columns, likelier_separator, separators_of, split_columns

Row = tuple[int, list[str]]  # the number of a line, and its columns


class NameTable(NamedTuple):
    """rows: the columns that were asked for of each line that is not blank, without blanks around them, none empty.
    header: the names that the first line has for the columns; None where it is a row as any. unread: those of the
    columns that were not asked for."""

    rows: Iterator[Row]
    header: tuple[str, ...] | None = None
    unread: tuple[str, ...] = ()

    def note(self, path: Path) -> str:
        """That the first line is none of the rows, as a sentence without its end; "" where it is."""
        if self.header is None:
            return ""
        unread = f"; further columns are not read: {', '.join(self.unread)[:200]}" if self.unread else ""
        return readable(f"{path}: the first line names the columns ({', '.join(self.header)}){unread}")


def read_names(path: Path, fields: Mapping[str, Sequence[str]], form: str, setting: str = "") -> NameTable:
    """The table in a file, UTF-8, plain or .gz, in a .csv of which columns may be in quotes.

    Where the first line has one of the names of each field, in any case of letters, it names the columns: these may
    then stand in any order, among others. Else each line has one column for each field, in the order of `fields`.

    fields: the names that columns have, first the one for messages. form, setting: what a line must be and what names
    the file, for messages. Lines are read as the rows are, one at a time.

    Raises UserError, which names the file and the line, where it cannot be read or is empty (at once), and for a line
    that is not of this form (when it is read).
    """
    form += f" ({setting})" if setting else ""
    lines: Iterator[tuple[int, str | Fault]] = itertools.dropwhile(_is_blank, read_lines(path))
    first = next(lines, None)
    if first is None:
        raise UserError(f"{path} is empty; it must have lines of the form {form}.")
    line = first[1] if isinstance(first[1], str) else ""
    separators = separators_of(path)
    separator = choose_separator(line, separators, lambda columns: has_columns(_names(columns), fields))
    names = [] if separator is None else [name.strip() for name in split_columns(line, separator)]
    if separator is None:
        separator = choose_separator(line, separators, lambda columns: len(columns) == len(fields)) or separators[0]
    n = len(fields)
    if not names:
        return NameTable(_checked(path, _split(path, itertools.chain([first], lines), separator), n, n, form))
    lower = _names(names)
    places = [next(lower.index(name) for name in several if name in lower) for several in fields.values()]
    return NameTable(
        _checked(path, _picked(_split(path, lines, separator), places, len(names)), n, n, form),
        tuple(names[place] for place in places),
        tuple(name for k, name in enumerate(names) if k not in places),
    )


def _names(columns: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in columns]


def _is_blank(line: tuple[int, str | Fault]) -> bool:
    return isinstance(line[1], str) and not line[1].strip()


def read_numbers(path: Path, form: str) -> Iterator[Row]:
    """A name and the numbers, as texts, of each line of a file that is not blank, where the first line may name the
    columns: it has no number then.

    form: what a line must be, for messages. Raises UserError, which names the file and the line, where it cannot be
    read or a column is empty.
    """
    lines = itertools.dropwhile(_is_blank, read_lines(path))
    first = next(lines, (0, ""))
    line = first[1] if isinstance(first[1], str) else ""
    separator = likelier_separator(line, separators_of(path))
    rows = _checked(path, _split(path, itertools.chain([first], lines), separator), 2, None, form)
    start = next(rows, None)
    if start is not None and any(map(_is_number, start[1][1:])):
        yield start
    yield from rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _split(
    path: Path, lines: Iterable[tuple[int, str | Fault]], separator: str
) -> Iterator[tuple[int, str, list[str]]]:
    """The number of each line that is not blank, the line (of quoted ones as it was read) and its columns."""
    if separator == "\t":
        for number, line in lines:
            if isinstance(line, Fault):
                raise UserError(f"{path}, line {number}: {line}.")
            if line.strip():
                yield number, line, line.split("\t")
        return
    for number, row in quoted_rows(lines, separator):
        if isinstance(row, Fault):
            raise UserError(f"{path}, line {number}: {row}.")
        if any(row):
            yield number, separator.join(row), row


def _picked(
    rows: Iterable[tuple[int, str, list[str]]], places: Sequence[int], most: int
) -> Iterator[tuple[int, str, list[str]]]:
    """Of rows of at most `most` columns those in these places; others as no columns at all."""
    for number, line, columns in rows:
        yield number, line, [columns[place] for place in places] if max(places) < len(columns) <= most else []


def _checked(
    path: Path, rows: Iterable[tuple[int, str, list[str]]], least: int, most: int | None, form: str
) -> Iterator[Row]:
    """Rows of so many columns, none of which is empty or goes on in another line."""
    for number, line, columns in rows:
        columns = [column.strip() for column in columns]
        fits = least <= len(columns) <= (most or len(columns))
        if not fits or not all(columns) or any("\n" in column for column in columns):
            hint = other_separator(line, least, most) if columns else ""
            if not hint and most is not None and len(columns) > most:
                hint = " Further columns are left out where the first line names the columns."
            raise UserError(f"{path}, line {number}: {brief(line)} is not of the form {form}.{hint}")
        yield number, columns
