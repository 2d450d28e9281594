"""Questions to a trained model: `head <tab> relation <tab> ?` and `? <tab> relation <tab> tail`."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tasks.errors import UserError
from tasks.kg_completion.names import Names

UNKNOWN = "?"
FORMS = "`head <tab> relation <tab> ?` or `? <tab> relation <tab> tail`"


class Query(NamedTuple):
    """A question in words, with "?" for what is sought, and in numbers: the entity e, the relation r, and the side."""

    head: str
    relation: str
    tail: str
    e: int
    r: int
    seeks_head: bool


def read_queries(lines: Iterable[bytes], name: str, entities: Names, relations: Names) -> Iterator[Query]:
    """The questions of a file, one a line; blank lines are passed over.

    name: of the file, for messages. Raises UserError, which names the line, where one has not three columns, not one
    "?", or a name that the graph does not have; and for a file without questions.
    """
    count = 0
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}, line {number} is not UTF-8 ({error.reason}).") from None
        if not text.strip():
            continue
        columns = text.split("\t")
        if len(columns) != 3 or not all(columns) or (columns[0] == UNKNOWN) == (columns[2] == UNKNOWN):
            raise UserError(f"{name}, line {number}: {text!r} is no question; write {FORMS}.")
        head, relation, tail = columns
        try:
            e, r = entities.number_of(tail if head == UNKNOWN else head), relations.number_of(relation)
        except UserError as error:
            raise UserError(f"{name}, line {number}: {error}") from None
        count += 1
        yield Query(head, relation, tail, e, r, head == UNKNOWN)
    if not count:
        raise UserError(f"{name} has no questions. Each line is {FORMS}.")
