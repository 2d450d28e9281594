"""Say what the shape of a graph is like, before a model is trained on it.

python scripts/graph_statistics.py FOLDER... [--samples N] [--seed S]      as in: graph_statistics.py data/WN18RR
python scripts/graph_statistics.py data/graphs/* --output results/hyperbolicity.json

A folder of a knowledge graph has train.txt, valid.txt and test.txt with rows head, relation, tail; the numbers are
those of train. A folder of a graph has edges.tsv, or is one of HGCN's releases, of which only the files of the edges
are needed. A file has edges where its rows are two names, as child, parent, or its first line names the columns of
edges, as source, target, weight; triples where they are three; the output says which. --output keeps what was measured
of graphs, which tables set beside the gain of a hyperbolic model; other graphs that the file has stay in it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import numpy as np  # noqa: E402

from scripts import commands  # noqa: E402
from scripts.hyperbolicity import read_like  # noqa: E402
from scripts.shapes import Net, Shape, curvature, hyperbolicity, krackhardt, one_way, relative_delta, shape  # noqa: E402
from tasks.errors import UserError, plain_warnings, whole  # noqa: E402
from tasks.folders import write_text  # noqa: E402
from tasks.graph.folder import EDGES, ENDS, read_folder, table_file  # noqa: E402
from tasks.graph.folder import FORM as EDGE_FORM  # noqa: E402
from tasks.graph.releases import read_links  # noqa: E402
from tasks.kg_completion.categories import categories  # noqa: E402
from tasks.kg_completion.reader import FIELDS, FORM  # noqa: E402
from tasks.kg_completion.triples import FILES, OTHER_FILES, Graph, read_graph  # noqa: E402
from tasks.name_tables import read_names  # noqa: E402
from tasks.reading import existing  # noqa: E402

LEGEND = """\
category  1-1, 1-N, N-1 or N-N: how many heads a tail has, and how many tails a head (N: 1.5 or more in the mean)
Khs       of the pairs with a path from u to v, the share without one back; 1 is a hierarchy, 0 symmetric
one-way   the same of the triples themselves
xi        curvature from sampled triangles; negative is like a tree, 0 flat, positive like a cycle"""
GRAPH_LEGEND = """\
delta  Gromov's hyperbolicity, from 0 (a tree) to half the diameter; what is seen of both is at most the true value
xi     curvature from sampled triangles; negative is like a tree, 0 flat, positive like a cycle"""
OR_EDGES = (
    "; of edges with a further column, as a weight, the first line must name the columns, as in source, target, weight"
)
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


@dataclass(frozen=True)
class Links:
    """What is said of a graph; the names are those of `Shape`, and of `tasks.graph.graph.Graph`."""

    nodes: int
    edges: int
    isolated: int
    mean_degree: float
    component: float
    xi: float
    delta_max: float
    delta_mean: float
    diameter: int
    sha256: str  # of the files that were read


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where the graph cannot be read. Exits with 2 for bad usage."""
    options = _parser().parse_args(arguments)
    whole("--samples", options.samples, 1)
    whole("--seed", options.seed, 0)
    statistics: dict[str, dict[str, object]] = {}
    names = [folder.resolve().name for folder in options.folders]
    if options.output and (twice := sorted({name for name in names if names.count(name) > 1})):
        raise UserError(f"--output keeps graphs by the names of their folders, and {twice[0]} is there twice.")
    if options.output and options.output.is_dir():
        raise UserError(f"--output {options.output} is a folder; name a file.")
    earlier = read_like(options.output, options.samples, options.seed) if options.output else {}
    for k, folder in enumerate(options.folders):
        print("\n" * (k > 0), end="")
        if folder.exists() and not has_triples(folder):
            statistics[folder.resolve().name] = _graph(folder, options.samples, options.seed)
        else:
            graph = read_graph(folder, {"dev": 0, "test": 0})
            if folder.is_file():
                print(f"{folder.name}: read as triples{'' if graph.headers else OR_EDGES}")
            every = shape(graph.triples["train"], options.samples, options.seed)
            print("\n".join(report(graph, every, relation_rows(graph, options.samples, options.seed))))
    if statistics:
        print(f"\n{GRAPH_LEGEND}")
    if options.output:
        if not statistics:
            raise UserError("--output keeps what was measured of graphs of edges, and there is none among the folders.")
        graphs = earlier | statistics
        text = json.dumps({"samples": options.samples, "seed": options.seed, "graphs": graphs}, indent=1)
        write_text(options.output, text + "\n")
        print(f"\nwritten: {options.output}")
    return 0


def has_triples(folder: Path) -> bool:
    """Whether a folder has the training triples of a knowledge graph, under a name that task=kg reads, and no edges of
    a graph; or whether a file begins as one of triples does, and its first line names no columns of edges alone."""
    if folder.is_file():
        try:
            table = read_names(folder, FIELDS, FORM)
            next(table.rows)
            return table.header is not None or read_names(folder, ENDS, EDGE_FORM).header is None
        except UserError:
            return False
    names = (FILES["train"], *OTHER_FILES["train"])
    return not table_file(folder / EDGES) and any(existing(folder / name) for name in names)


def _graph(folder: Path, samples: int, seed: int) -> dict[str, object]:
    """Print what is said of the graph in a folder or a file, and give it as plain values."""
    if folder.is_file():
        print(f"{folder.name}: read as edges")
    is_own = folder.is_file() or table_file(folder / EDGES)
    graph = read_folder(folder, folder.name, False, splits=False) if is_own else read_links(folder)
    links = links_of(graph.edges, graph.n, graph.sha256, samples, seed)
    print("\n".join(report_links(graph.name, graph.notes, links)))
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(links).items()}


def links_of(edges: np.ndarray, n: int, sha256: str, samples: int, seed: int) -> Links:
    """What is said of edges (E, 2) among n nodes; `samples` starts and triangles are drawn from `seed`."""
    net, draw = Net(edges), np.random.default_rng(seed)
    largest, mean, diameter = hyperbolicity(net, samples, draw)
    return Links(
        n, len(edges), n - net.n, 2 * len(edges) / n, float(np.bincount(net.component).max() / n),
        curvature(net, samples, draw), largest, mean, diameter, sha256,
    )  # fmt: skip


def report_links(name: str, notes: Sequence[str], links: Links) -> list[str]:
    """The lines to print of a graph."""
    return [
        f"{name}: {links.nodes:,} nodes, {links.edges:,} edges, {links.isolated:,} isolated",
        *(f"note: {note}" for note in notes),
        f"neighbours of a node, mean {links.mean_degree:.2f}; "
        f"largest connected part {links.component:.1%} of the nodes",
        f"delta of sampled quadruples: largest {_number(links.delta_max)}, mean {_number(links.delta_mean)}; "
        f"diameter seen {links.diameter}; "
        f"2 delta / diameter {_number(relative_delta(links.delta_max, links.diameter))}",
        f"xi {_number(links.xi)}: {_of_links(links)}",
    ]


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
    lines += [
        f"neighbours of an entity, mean {every.mean_degree:.2f}; "
        f"largest connected part {every.component:.1%} of the entities",
        f"delta of sampled quadruples: largest {_number(every.delta_max)}, mean {_number(every.delta_mean)}; "
        f"diameter seen {every.diameter}; "
        f"2 delta / diameter {_number(relative_delta(every.delta_max, every.diameter))}",
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
    text = f"The mean of xi over the relations, weighted by triples, is {_number(xi)}: {likeness(xi, 'they are')}."
    return f"{text} This is a hint from the graph alone; compare both on the dev split."


def _of_links(links: Links) -> str:
    """What the numbers of a graph suggest, as the end of a sentence."""
    if links.component == 1 and links.edges == links.nodes - 1:
        return "the graph is a tree; the more it branches, the more hyperbolic space can help at small dimensions"
    return likeness(links.xi, "the graph is")


def likeness(xi: float, subject: str) -> str:
    """What xi suggests, as the end of a sentence. subject: with its verb, as "the graph is"."""
    if math.isnan(xi):
        return "too few triangles were measured to say what shape that is"
    if xi <= STRONG:
        return f"{subject} much like a tree, where hyperbolic space can help at small dimensions"
    if xi <= WEAK:
        return f"{subject} somewhat like a tree, and hyperbolic space may help a little at small dimensions"
    return f"{subject} little like a tree, and a Euclidean model may do as well"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("graph_statistics.py", __doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of a graph of either kind; or a file")
    parser.add_argument("--samples", type=int, default=1000, metavar="N", help="starts and triangles drawn (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of what is drawn (0)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a JSON file of what was measured of graphs")
    return parser


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
