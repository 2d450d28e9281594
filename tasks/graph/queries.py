"""Pairs of nodes, and single ones, that mode=predict is asked about, from lines and from tables."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tasks.errors import UserError
from tasks.graph.folder import ENDS
from tasks.name_tables import read_names
from tasks.names import Names
from tasks.reading import Fault, is_blank, read_lines
from tasks.rows import columns_of, read_examples, read_new_rows
from tasks.separators import choose_separator, is_csv, separators_of

KEYS = ("nodes", "node")  # of a pair and of a single node as objects of JSON
FORMS = "`node <tab> node`, or a node, whose likeliest links are sought"
Ends = tuple[int, ...]  # the number of a node, or those of a pair


def read_queries(lines: Iterable[bytes], name: str, nodes: Names) -> Iterator[Ends]:
    """The pairs and the single nodes of a stream, one a line; objects of JSON are {"nodes": [node, node]} and
    {"node": node}.

    name: of the stream, for messages. Raises UserError, which names the line, for what is neither, and for a name that
    the graph does not have.
    """

    def parse(line: str) -> Ends:
        return nodes.ends_of(_columns(line))

    return read_examples(lines, name, parse, "nodes", f"Each line is {FORMS}")


def read_query_table(path: Path, nodes: Names) -> Iterator[tuple[Ends, dict[str, str]]] | None:
    """As `read_queries`, of a table whose first line names the columns as that of edges may, each row with the other
    columns, and of a file .csv whose rows are pairs; None of any other file, whose lines are read. A row whose second
    node is empty, or that has no column of it, is a single node."""

    def ends(columns: Sequence[str]) -> Ends:
        return nodes.ends_of("\t".join(columns).rstrip())

    def of_row(row: dict[str, str]) -> Ends:
        return ends([row[field] for field in ENDS if field in row])

    for fields in (ENDS, {"node": ENDS["node"]}):
        if (rows := read_new_rows(path, fields, of_row)) is not None:
            return rows
    if not _is_plain_table(path):
        return None

    def plain() -> Iterator[tuple[Ends, dict[str, str]]]:
        for number, columns in read_names(path, ENDS, FORMS, optional=[*ENDS][1:]).rows:
            try:
                yield ends(columns), {}
            except Fault as fault:
                raise UserError(f"{path}, line {number}: {fault}. Each line is {FORMS}.") from None

    return plain()


def _is_plain_table(path: Path) -> bool:
    """Whether the first line of a file .csv is two columns, and neither a pair between tabs nor an object of JSON."""
    if not is_csv(path):
        return False
    line = next((text for number, text in read_lines(path) if not is_blank((number, text))), "")
    if not isinstance(line, str) or "\t" in line or line.lstrip().startswith("{"):
        return False
    return choose_separator(line, separators_of(path), lambda columns: len(columns) == len(ENDS)) is not None


def _columns(line: str) -> str:
    """A line, of an object of JSON its nodes with a tab between. Raises Fault for one without."""
    for key in KEYS:
        with contextlib.suppress(Fault):
            return columns_of(line, [key], "\t")
    raise Fault(f"it has no key {' or '.join(KEYS)}, with a list of two nodes or a node")
