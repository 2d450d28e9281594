"""Say what the shape of a knowledge graph is like, before a model is trained on it.

python scripts/graph_statistics.py FOLDER [--samples N] [--seed S]      as in: graph_statistics.py data/WN18RR

FOLDER has train.txt, valid.txt and test.txt with rows head, relation, tail; the numbers are those of train.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

import numpy as np  # noqa: E402

from scripts import commands  # noqa: E402
from tasks.errors import whole  # noqa: E402
from tasks.kg_completion.statistics import Net, Shape, categories, curvature, krackhardt, one_way, shape  # noqa: E402
from tasks.kg_completion.triples import Graph, read_graph  # noqa: E402

LEGEND = """\
category  1-1, 1-N, N-1 or N-N: how many heads a tail has, and how many tails a head (N: 1.5 or more in the mean)
Khs       of the pairs with a path from u to v, the share without one back; 1 is a hierarchy, 0 symmetric
one-way   the same of the triples themselves
xi        curvature from sampled triangles; negative is like a tree, 0 flat, positive like a cycle"""
STRONG, WEAK = -1.0, -0.3  # mean xi over the relations up to which they are called much, or somewhat, like trees


@dataclass(frozen=True)
class Row:
    """What the table says of a relation."""

    name: str
    triples: int
    category: str
    khs: float
    one_way: float
    xi: float


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where the graph cannot be read. Exits with 2 for bad usage."""
    options = _parser().parse_args(arguments)
    whole("--samples", options.samples, 1)
    whole("--seed", options.seed, 0)
    graph = read_graph(options.folder)
    every = shape(graph.triples["train"], options.samples, options.seed)
    print("\n".join(report(graph, every, relation_rows(graph, options.samples, options.seed))))
    return 0


def relation_rows(graph: Graph, samples: int, seed: int) -> list[Row]:
    """A row for each relation of train, the most frequent first."""
    train = graph.triples["train"]
    kinds, array = categories(train, len(graph.relations)), train.numpy()
    order = np.argsort(array[:, 1], kind="stable")
    parts = np.split(array[order][:, ::2], np.cumsum(np.bincount(array[:, 1], minlength=len(graph.relations)))[:-1])
    rows = []
    for k, (name, edges) in enumerate(zip(graph.relations, parts, strict=True)):
        if len(edges):
            draw = np.random.default_rng([seed, k])
            khs, xi = krackhardt(edges, samples, draw), curvature(Net(edges), samples, draw)
            rows.append(Row(name, len(edges), kinds[k], khs, one_way(edges), xi))
    return sorted(rows, key=lambda row: -row.triples)


def report(graph: Graph, every: Shape, rows: Sequence[Row]) -> list[str]:
    """The lines to print."""
    counts = f"{every.triples:,} triples, {every.entities:,} entities, {every.relations} relations"
    lines = [f"{graph.name}, train: {counts}"]
    lines += [f"note: {remark}" for remark in graph.remarks()]
    relative = f"; 2 delta / diameter {_number(every.relative_delta)}"
    lines += [
        f"neighbours of an entity, mean {every.mean_degree:.2f}; "
        f"largest connected part {every.component:.1%} of the entities",
        f"delta of sampled quadruples: largest {_number(every.delta_max)}, mean {_number(every.delta_mean)}; "
        f"diameter seen {every.diameter}{relative}",
        "",
    ]
    table = [("triples", "category", "Khs", "one-way", "xi", "relation")]
    numbers = (_number(every.khs), _number(every.one_way), _number(every.xi))
    table.append((f"{every.triples:,}", "", *numbers, "(all together)"))
    for row in rows:
        numbers = (_number(row.khs), _number(row.one_way), _number(row.xi))
        table.append((f"{row.triples:,}", row.category, *numbers, row.name))
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    for *cells, name in table:
        lines.append("  ".join([*(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)), name]))
    return [*lines, "", LEGEND, "", verdict(rows)]


def verdict(rows: Sequence[Row]) -> str:
    """A sentence about what the numbers suggest, by the mean of xi over the relations, weighted by their triples."""
    measured = [row for row in rows if not math.isnan(row.xi)]
    if not measured:
        return "No relation connects three entities, so these numbers do not say which space suits the graph."
    xi = sum(row.triples * row.xi for row in measured) / sum(row.triples for row in measured)
    text = f"The mean of xi over the relations, weighted by triples, is {_number(xi)}: "
    if xi <= STRONG:
        text += "most triples belong to relations much like trees, where hyperbolic space can help at small dimensions."
    elif xi <= WEAK:
        text += "the relations are somewhat like trees, and hyperbolic space may help a little at small dimensions."
    else:
        text += "the relations are little like trees, and a Euclidean model may do as well."
    return f"{text} This is a hint from the graph alone; compare both on the dev split."


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("graph_statistics.py", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of train.txt, valid.txt and test.txt")
    parser.add_argument("--samples", type=int, default=1000, metavar="N", help="starts and triangles drawn (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of what is drawn (0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
