"""Questions to a trained model: `head <tab> relation <tab> ?` and `? <tab> relation <tab> tail`."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tasks.names import Names
from tasks.reading import Fault, brief
from tasks.rows import read_examples

UNKNOWN = "?"
KEYS = ("head", "relation", "tail")  # of a question as an object of JSON
FORMS = "`head <tab> relation <tab> ?` or `? <tab> relation <tab> tail`"


class Query(NamedTuple):
    """A question in words, with "?" for what is sought, and in numbers: the entity e, the relation r, and the side.
    target: the number of the right answer, where the question is one of the test; None where it is not known."""

    head: str
    relation: str
    tail: str
    e: int
    r: int
    seeks_head: bool
    target: int | None = None


def read_queries(lines: Iterable[bytes], name: str, entities: Names, relations: Names) -> Iterator[Query]:
    """The questions of a file, one a line; blank lines are passed over.

    name: of the file, for messages. Raises UserError, which names the line, where one has not three columns, not one
    "?", or a name that the graph does not have; and for a file without questions.
    """

    def parse(line: str) -> Query:
        columns = line.split("\t")
        if len(columns) != 3 or not all(columns) or (columns[0] == UNKNOWN) == (columns[2] == UNKNOWN):
            raise Fault(f"{brief(line)} is no question")
        head, relation, tail = columns
        e, r = entities.number_of(tail if head == UNKNOWN else head), relations.number_of(relation)
        return Query(head, relation, tail, e, r, head == UNKNOWN)

    return read_examples(lines, name, parse, "questions", f"Each line is {FORMS}", KEYS)
