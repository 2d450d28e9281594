"""Pairs of nodes, and single ones, that mode=predict is asked about, from lines."""

import contextlib
from collections.abc import Iterable, Iterator

from tasks.names import Names
from tasks.node_queries import Ends
from tasks.reading import Fault
from tasks.rows import columns_of, read_examples

KEYS = ("nodes", "node")  # of a pair and of a single node as objects of JSON
FORMS = "`node <tab> node`, or a node, whose likeliest links are sought"


def read_queries(lines: Iterable[bytes], name: str, nodes: Names) -> Iterator[Ends]:
    """The pairs and the single nodes of a stream, one a line; objects of JSON are {"nodes": [node, node]} and
    {"node": node}.

    name: of the stream, for messages. Raises UserError, which names the line, for what is neither, and for a name that
    the graph does not have.
    """

    def parse(line: str) -> Ends:
        return nodes.ends_of(_columns(line))

    return read_examples(lines, name, parse, "nodes", f"Each line is {FORMS}")


def _columns(line: str) -> str:
    """A line, of an object of JSON its nodes with a tab between. Raises Fault for one without."""
    for key in KEYS:
        with contextlib.suppress(Fault):
            return columns_of(line, [key], "\t")
    raise Fault(f"it has no key {' or '.join(KEYS)}, with a list of two nodes or a node")
