"""Write a large random graph, to see what a machine can hold and how fast.

python scripts/random_graph.py FOLDER [--entities E] [--triples N] [--relations R] [--held-out H] [--seed S]
python scripts/random_graph.py FOLDER --edges N [--nodes M] [--features F] [--seed S]

The first is a knowledge graph, for task=kg: FOLDER gets train.txt with N triples, and valid.txt and test.txt with H
each. Every entity is the head of a triple of train if N is at least E. The second is for task=graph: FOLDER gets
edges.tsv with N different edges of M nodes, each node with one if N is at least M, and where F > 0 features.npy with F
numbers for each node. All else is drawn, with a few frequent nodes and relations and many rare ones. Nothing follows
from anything, so models learn nothing from it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import numpy as np  # noqa: E402

from scripts import commands  # noqa: E402
from tasks.errors import UserError, whole  # noqa: E402
from tasks.folders import whole_file  # noqa: E402
from tasks.graph.folder import EDGES, FEATURES  # noqa: E402
from tasks.kg_completion.triples import FILES  # noqa: E402

BLOCK = 500_000  # rows that are generated at once
SIZES = {"entities": 2_000_000, "triples": 20_000_000, "relations": 200, "held_out": 500}  # of a knowledge graph
EDGE_SIZES = {"nodes": 1_000_000, "features": 0}  # of a list of edges


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 for numbers that cannot be and folders that cannot be written."""
    options = _parser().parse_args(arguments)
    sizes = [f"--{name.replace('_', '-')}" for name in SIZES if getattr(options, name) is not None]
    of_edges = [f"--{name}" for name in EDGE_SIZES if getattr(options, name) is not None]
    if options.edges and sizes:
        raise UserError(f"--edges makes a list of edges, and {sizes[0]} is of a knowledge graph; leave one out.")
    if not options.edges and of_edges:
        raise UserError(f"{of_edges[0]} is of a list of edges, which --edges makes; give both, or neither.")
    for name, size in (SIZES | EDGE_SIZES).items():
        setattr(options, name, size if getattr(options, name) is None else getattr(options, name))
    for name in ("entities", "triples", "relations", "held_out", "nodes"):
        whole(f"--{name.replace('_', '-')}", getattr(options, name), 1)
    for name in ("seed", "features", "edges"):
        whole(f"--{name}", getattr(options, name), 0)
    existing = [name for name in (*FILES.values(), EDGES, *FEATURES) if (options.folder / name).exists()]
    if existing:
        raise UserError(f"{options.folder} has a {existing[0]} already; name another folder.")
    if 2 * options.edges > options.nodes * (options.nodes - 1) // 2:
        raise UserError(f"--edges {options.edges} is more than half of all pairs of {options.nodes} nodes.")
    options.folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(options.seed)
    if options.edges:
        write_edges(options.folder, options.nodes, options.edges, options.features, draw)
        return 0
    for split, count in (("train", options.triples), ("dev", options.held_out), ("test", options.held_out)):
        write(options.folder / FILES[split], count, options.entities, options.relations, split == "train", draw)
        print(f"{options.folder / FILES[split]}: {count:,} triples", flush=True)
    return 0


def write_edges(folder: Path, nodes: int, count: int, features: int, draw: np.random.Generator) -> None:
    """`count` different undirected edges, none from a node to itself, and `features` numbers of each node."""
    keys = np.empty(0, dtype=np.int64)
    heads = np.arange(min(nodes, count))  # a first edge of each node
    while len(keys) < count:
        tails = _frequent(nodes, len(heads), draw)
        tails = np.where(tails == heads, (heads + 1) % nodes, tails)
        keys = np.concatenate([keys, np.minimum(heads, tails) * nodes + np.maximum(heads, tails)])
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])][:count]
        heads = _frequent(nodes, count - len(keys) + count // 8 + 1, draw)
    with whole_file(folder / EDGES) as part, part.open("w", encoding="utf-8") as file:
        for block in np.split(keys, range(BLOCK, count, BLOCK)):
            ends = zip((block // nodes).tolist(), (block % nodes).tolist(), strict=True)
            file.writelines(f"{a}\t{b}\n" for a, b in ends)
    print(f"{folder / EDGES}: {count:,} edges", flush=True)
    if features:
        with whole_file(folder / FEATURES[0]) as part, part.open("wb") as file:
            np.save(file, draw.random((nodes, features), dtype=np.float32))
        print(f"{folder / FEATURES[0]}: {nodes:,} nodes", flush=True)


def write(path: Path, count: int, entities: int, relations: int, every: bool, draw: np.random.Generator) -> None:
    """One file of triples, whole or not at all. every: heads are all entities in order, before they are drawn."""
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for start in range(0, count, BLOCK):
            n = min(BLOCK, count - start)
            heads, tails = (_frequent(entities, n, draw) for _ in range(2))
            if every:
                in_order = np.arange(start, min(start + n, entities))
                heads[: len(in_order)] = in_order
            rows = zip(heads.tolist(), _frequent(relations, n, draw).tolist(), tails.tolist(), strict=True)
            file.writelines(f"e{h}\tr{r}\te{t}\n" for h, r, t in rows)


def _frequent(size: int, count: int, draw: np.random.Generator) -> np.ndarray:
    """Numbers below `size`, the small ones more often: squares of uniform ones."""
    return (size * draw.random(count) ** 2).astype(np.int64)


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("random_graph.py", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    parser.add_argument("--entities", type=int, metavar="E", help="2,000,000")
    parser.add_argument("--triples", type=int, metavar="N", help="of train (20,000,000)")
    parser.add_argument("--relations", type=int, metavar="R", help="200")
    parser.add_argument("--held-out", type=int, metavar="H", help="of valid and of test (500)")
    parser.add_argument("--edges", type=int, default=0, metavar="N", help="an edge list in the place of triples")
    parser.add_argument("--nodes", type=int, metavar="M", help="of the edge list (1,000,000)")
    parser.add_argument("--features", type=int, metavar="F", help="of each node of the edge list (none)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of what is drawn (0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
