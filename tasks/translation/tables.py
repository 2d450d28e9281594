"""Tables with a pair of sentences in each row: columns between tabs, in files .csv commas or semicolons; JSON lines."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tasks.errors import UserError
from tasks.reading import Fault, brief, is_blank, read_lines
from tasks.rows import TABLES, read_new_rows, read_records
from tasks.separators import choose_separator, ending, has_columns, separators_of, split_columns
from tasks.split_column import split_of

NAMES = ("id", "index", "split", "src", "tgt", "translation")  # of columns, rather than sentences
ENDINGS = (".tsv", ".csv", ".jsonl")  # of tables that are found by the name of a split
Fields = Mapping[str, Sequence[str]]


def fields_of(source: str, target: str) -> dict[str, list[str]]:
    """The names that the columns of both languages may have."""
    return {"source": [source, "source"], "target": [target, "target"]}


def read_sources(path: Path, source: str) -> Iterator[tuple[str, dict[str, str]]] | None:
    """The sentences to translate of each row of a file .csv or .tsv, in the column named by the language `source`, or
    "source", and its other columns; None of another file. Raises UserError where the first line names no such column,
    and for a row that cannot be used."""

    def parse(row: dict[str, str]) -> str:
        if not (text := one_line(row["source"])):
            raise Fault("its sentence is blank")
        return text

    rows = read_new_rows(path, {"source": [source, "source"]}, parse)
    if rows is None and ending(path) in TABLES:
        raise UserError(
            f"{path}: its first line names no column {source} or source. Name the column of the sentences so, or give "
            "the sentences alone, one a line, in a file .txt."
        )
    return rows


def header_of(path: Path, fields: Fields, languages: Sequence[str]) -> list[str] | None:
    """Names for the columns of a table whose first line does not have one for each of `fields`, in any case of letters:
    the languages in their order, and then others. None where it has, and of JSON lines, which name their texts. Raises
    UserError where the file cannot be read, and where the line has a name for one of the two alone, or others."""
    line = next(itertools.dropwhile(is_blank, read_lines(path)), (0, ""))[1]
    if not isinstance(line, str) or line.lstrip().startswith("{"):
        return None
    separators = separators_of(path)
    if any(has_columns(split_columns(line, separator), fields) for separator in separators):
        return None
    separator = choose_separator(line, separators, lambda columns: len(columns) > 1) or separators[0]
    columns = split_columns(line, separator)
    named = [key for key in fields if has_columns(columns, {key: fields[key]})]
    others = [name for name in columns if name.strip().lower() in NAMES]
    if len(others) == 1 and len(columns) == 2:  # a pair of words may begin so
        others = []
    if there := [" or ".join(fields[key]) for key in named] or others:
        missing = next(" or ".join(names) for key, names in fields.items() if key not in named)
        raise UserError(
            f"{path}: its first line, {brief(line)}, names a column {there[0].strip()} and none {missing}. "
            "Name the languages of the columns, as the line has them, with task.data.source=... and "
            "task.data.target=...; where the line is a pair of sentences, put one with both names before it."
        )
    return [*languages, *(f"column {k}" for k in range(len(languages) + 1, len(columns) + 1))]


def read_rows(
    path: Path, fields: Fields, header: Sequence[str] | None, split: str | None = None
) -> Iterator[tuple[str, str]]:
    """Source and target of each row, without blanks around and ends of lines within; blank lines are passed over.

    fields: of `fields_of`. header: of `header_of`; None: the first line names the columns, and is no pair. split: of
    the rows of this one alone, as the column split says. Raises UserError, which names the line, for one that cannot be
    used, and where there is none.
    """
    for number, record in _records(path, fields, header, () if split is None else ("split",)):
        if split is None or split_of(path, number, record["split"]) == split:
            yield one_line(record["source"]), one_line(record["target"])


def count_splits(path: Path, fields: Fields) -> Counter[str]:
    """The rows of each split that the column split says, and those of none, ""; for the rest as `read_rows`."""
    rows = _records(path, fields, None, ("split",))
    return Counter(split_of(path, number, record["split"]) or "" for number, record in rows)


def _records(
    path: Path, fields: Fields, header: Sequence[str] | None, optional: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each line and its fields; see `read_rows`."""
    source, target = (names[0] for names in fields.values())
    forms = (
        f"a sentence ({source}) and its translation ({target}) in each line with a tab between them, in files .csv "
        "with a comma or semicolon, where a sentence that has one stands in quotes; where there are other columns, a "
        f'first line that names {source} and {target}; or JSON lines {{"{source}": "...", "{target}": "..."}}'
    )
    for number, record in read_records(path, fields, forms, optional, header):
        if isinstance(record, Fault):
            raise UserError(f"{path}, line {number}: {record}. Expected are {forms}.")
        yield number, record


def one_line(text: str) -> str:
    """The text of a column, which in quotes may have ends of lines."""
    return text.replace("\n", " ").strip()
