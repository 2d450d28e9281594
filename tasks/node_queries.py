"""Pairs of nodes, and single ones, that mode=predict is asked about, from tables."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tasks.name_tables import parse_names
from tasks.names import Names
from tasks.reading import is_blank, read_lines
from tasks.rows import read_new_rows
from tasks.separators import choose_separator, is_csv, separators_of

Ends = tuple[int, ...]  # the number of a node, or those of a pair


def read_query_table(
    path: Path, nodes: Names, fields: Mapping[str, Sequence[str]], forms: str
) -> Iterator[tuple[Ends, dict[str, str]]] | None:
    """The pairs and the single nodes of a table whose first line names the columns as that of edges may, each row with
    the other columns, and of a file .csv whose rows are pairs; None of any other file, whose lines are read. A row
    whose second node is empty, or that has no column of it, is a single node.

    fields: the names that the columns of both nodes may have. forms: what a row must be, for messages. Raises
    UserError, which names the line, for a row that is neither, and for a name that is none of the `nodes`.
    """
    first, other = fields

    def ends(columns: Sequence[str]) -> Ends:
        return nodes.ends_of("\t".join(columns).rstrip())

    def of_row(row: dict[str, str]) -> Ends:
        return ends([row[field] for field in fields if field in row])

    for named in (fields, {first: fields[first]}):
        if (rows := read_new_rows(path, named, of_row)) is not None:
            return rows
    return parse_names(path, fields, forms, ends, other) if _is_plain_table(path) else None


def _is_plain_table(path: Path) -> bool:
    """Whether the first line of a file .csv is two columns, and neither a pair between tabs nor an object of JSON."""
    if not is_csv(path):
        return False
    line = next((text for number, text in read_lines(path) if not is_blank((number, text))), "")
    if not isinstance(line, str) or "\t" in line or line.lstrip().startswith("{"):
        return False
    return choose_separator(line, separators_of(path), lambda columns: len(columns) == 2) is not None
