"""Tables in text files: how their names end, what separates their columns, and what the first line calls these."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tasks.reading import LONGEST, Fault

DOUBLED = re.compile(r'"[^"]*+(?:""[^"]*+)++"')  # in quotes, and with doubled ones within
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
csv.field_size_limit(LONGEST)  # Python's own limit, 128 KiB, is less than a document may have


def ending(path: Path) -> str:
    """How the name of a file ends, in lower case, .gz apart."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_csv(path: Path) -> bool:
    """Whether a file is called .csv, packed or not."""
    return ending(path) == ".csv"


def separators_of(path: Path) -> str:
    """The characters that may separate the columns of a file: commas or semicolons (as Excel writes them where numbers
    have decimal commas) in files .csv, tabs in others."""
    return ",;" if is_csv(path) else "\t"


def split_columns(line: str, separator: str) -> list[str]:
    """The columns of a line, which may be in quotes, where tabs separate them only all of them, and the last of which
    may go on in the next line. None of a line that is no row."""
    if separator == "\t" and not all_quoted(line):
        return line.split(separator)
    line += '"' * (line.count('"') % 2)
    try:
        return next(_reader([line], separator), [])
    except csv.Error:
        return []


def all_quoted(line: str) -> bool:
    """Whether each of the columns that tabs separate stands in quotes."""
    return all(len(column) > 1 and column[0] == column[-1] == '"' for column in line.rstrip("\r").split("\t"))


def quoted_rows(
    lines: Iterable[tuple[int, str | Fault]], separator: str
) -> Iterator[tuple[int, list[str] | Fault]]:
    """Rows whose columns may be in quotes, by the number of their first line."""
    starts: list[int] = []
    faults: list[tuple[int, Fault]] = []

    def texts() -> Iterator[str]:
        for number, line in lines:
            if isinstance(line, Fault):
                faults.append((number, line))
            else:
                starts.append(number)
                yield line + "\n"

    reader = _reader(texts(), separator)
    row: list[str] | Fault | None = []
    while row is not None:
        starts.clear()
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = Fault(f"it is no row of a table with quotes ({error})")
            if len(starts) > 1 and "unexpected end" in str(error):
                row = Fault(f"a quote in it is not closed, so that it takes in all lines to {starts[-1]} ({error})")
        yield from faults
        faults.clear()
        if row:
            yield starts[0], row


def _reader(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Rows of columns that may be in quotes; of those between commas or semicolons blanks in front are no part."""
    return csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=separator != "\t")


def named_columns(columns: Sequence[str], fields: Mapping[str, Sequence[str]]) -> list[str]:
    """What a first line calls its columns, without blanks around. That of a field, by the first of its names that is
    there in large or small letters, is as the field has it."""
    names = [column.strip() for column in columns]
    for several in fields.values():
        lower = [name.lower() for name in names]
        if (first := next((name for name in several if name.lower() in lower), None)) and first not in names:
            names = [first if name.lower() == first.lower() else name for name in names]
    return names


def has_columns(columns: Sequence[str], fields: Mapping[str, Sequence[str]]) -> bool:
    """Whether there is a column for each field, by one of its names, see `named_columns`."""
    named = named_columns(columns, fields)
    return all(not {*names}.isdisjoint(named) for names in fields.values())


def choose_separator(line: str, separators: str, fits: Callable[[list[str]], bool]) -> str | None:
    """Of the separators that give columns which fit the one that the line has first; None where there is none."""
    fitting = [each for each in separators if fits(split_columns(line, each))]
    return min(fitting, key=line.find, default=None)


def likelier_separator(line: str, separators: str) -> str:
    """The separator that gives the most columns; of several the one that the line has first."""
    return max(separators, key=lambda each: (len(split_columns(line, each)), -line.find(each)))


def wrong_separator(line: str, separators: str, fields: Mapping[str, Sequence[str]]) -> str:
    """Of a first line that has a column for each field with a separator that is none of these: which it is and which is
    right, as the end of a sentence; else nothing."""
    shown = {",": "','", ";": "';'", "\t": "tabs"}
    for other in shown:
        columns = [name.strip().strip('"') for name in line.split(other)]
        if other not in separators and has_columns(columns, fields):
            right = separators[0]
            return (
                f"its columns are separated by {shown[other]} and must be separated by {shown[right]}; save it with "
                f"{NAMES[right]}"
            )
    return ""


def tab_columns(line: str) -> list[str]:
    """The columns between tabs, those whose quotes a program has doubled without."""
    columns = line.split("\t")
    if '""' not in line:
        return columns
    return [each[1:-1].replace('""', '"') if DOUBLED.fullmatch(each) else each for each in columns]
