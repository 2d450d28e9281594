"""Pairs of nodes that mode=predict is asked about, from lines and from tables."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tasks.errors import UserError
from tasks.graph.folder import ENDS
from tasks.name_tables import read_names
from tasks.names import Names
from tasks.reading import Fault, brief, is_blank, read_lines
from tasks.rows import read_examples, read_new_rows
from tasks.separators import choose_separator, is_csv, separators_of

KEYS = ("nodes",)  # of a pair as an object of JSON
FORMS = "`node <tab> node`"
Ends = tuple[int, ...]  # the numbers of the nodes that are asked about


def read_queries(lines: Iterable[bytes], name: str, nodes: Names) -> Iterator[Ends]:
    """The pairs of a stream, one a line, or an object of JSON {"nodes": [node, node]}.

    name: of the stream, for messages. Raises UserError, which names the line, for what is none, and for a name that the
    graph does not have.
    """

    def parse(line: str) -> Ends:
        return _ends(line.split("\t"), nodes)

    return read_examples(lines, name, parse, "pairs", f"Each line is {FORMS}", KEYS, between="\t")


def read_query_table(path: Path, nodes: Names) -> Iterator[tuple[Ends, dict[str, str]]] | None:
    """As `read_queries`, of a table whose first line names the columns as that of edges may, each pair with the other
    columns, and of a file .csv whose rows are pairs; None of any other file, whose lines are read."""
    rows = read_new_rows(path, ENDS, lambda row: _ends([row[field] for field in ENDS], nodes))
    if rows is not None or not _is_plain_table(path):
        return rows

    def plain() -> Iterator[tuple[Ends, dict[str, str]]]:
        for number, columns in read_names(path, ENDS, FORMS).rows:
            try:
                yield _ends(columns, nodes), {}
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


def _ends(columns: list[str], nodes: Names) -> Ends:
    """The numbers of a pair of nodes. Raises Fault where it is none."""
    names = [column.strip() for column in columns]
    if len(names) != len(ENDS) or not all(names):
        raise Fault(f"{brief(chr(9).join(columns))} is no pair of nodes")
    return tuple(map(nodes.number_of, names))
