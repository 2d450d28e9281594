"""Questions to a trained model: `head <tab> relation <tab> ?` and `? <tab> relation <tab> tail`, and whole triples."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tasks.kg_completion.reader import FIELDS
from tasks.name_tables import parse_names
from tasks.names import Names
from tasks.reading import Fault, brief
from tasks.rows import read_examples, read_new_rows
from tasks.separators import is_csv, tab_columns

UNKNOWN = "?"
KEYS = ("head", "relation", "tail")  # of a question as an object of JSON
FORMS = "`head <tab> relation <tab> ?` or `? <tab> relation <tab> tail`, or a triple to be scored"


class Query(NamedTuple):
    """A question in words, with "?" for what is sought, and in numbers: the entity e, the relation r, and the side.
    target: the number of the right answer, where the question is one of the test, or of the tail of a whole triple;
    None where it is not known."""

    head: str
    relation: str
    tail: str
    e: int
    r: int
    seeks_head: bool
    target: int | None = None

    @property
    def is_triple(self) -> bool:
        """Whether nothing is sought."""
        return UNKNOWN not in (self.head, self.tail)


def read_queries(lines: Iterable[bytes], name: str, entities: Names, relations: Names) -> Iterator[Query]:
    """The questions of a file, one a line; blank lines are passed over.

    name: of the file, for messages. Raises UserError, which names the line, where one has not three columns, two "?",
    or a name that the graph does not have; and for a file without questions.
    """
    parse = _parser(entities, relations)

    def question(line: str) -> Query:
        return parse([column.strip() for column in tab_columns(line)], line)

    return read_examples(lines, name, question, "questions", f"Each line is {FORMS}", KEYS)


def read_query_table(
    path: Path, entities: Names, relations: Names
) -> Iterator[tuple[Query, dict[str, str]]] | None:
    """As `read_queries`, of a table whose first line names the columns as those of triples may be, each question with
    the other columns, or of any file .csv; None of another file."""
    parse = _parser(entities, relations)

    def question(columns: list[str]) -> Query:
        return parse([column.strip() for column in columns], ", ".join(columns))

    rows = read_new_rows(path, {key: FIELDS[key] for key in KEYS}, lambda row: question([row[key] for key in KEYS]))
    return rows if rows is not None or not is_csv(path) else parse_names(path, FIELDS, FORMS, question)


def _parser(entities: Names, relations: Names) -> Callable[[list[str], str], Query]:
    """What makes a question of three columns. Raises Fault, which quotes the line, where they are none."""

    def parse(columns: list[str], line: str) -> Query:
        if len(columns) != 3 or not all(columns) or columns[0] == columns[2] == UNKNOWN:
            blank = "" if all(columns) else f"; what is sought is written {UNKNOWN}"
            raise Fault(f"{brief(line)} is no question{blank}")
        head, relation, tail = columns
        e, r = entities.number_of(tail if head == UNKNOWN else head), relations.number_of(relation)
        target = None if UNKNOWN in (head, tail) else entities.number_of(tail)
        return Query(head, relation, tail, e, r, head == UNKNOWN, target)

    return parse
