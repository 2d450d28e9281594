"""Write a large random knowledge graph, to see what a machine can hold and how fast.

python scripts/random_graph.py FOLDER [--entities E] [--triples N] [--relations R] [--held-out H] [--seed S]

FOLDER gets train.txt with N triples, and valid.txt and test.txt with H each. Every entity is the head of a triple of
train if N is at least E; all else is drawn with a few frequent entities and relations and many rare ones. Nothing
follows from anything, so models learn nothing from it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

import numpy as np  # noqa: E402

from scripts import commands  # noqa: E402
from tasks.errors import UserError, whole  # noqa: E402
from tasks.folders import whole_file  # noqa: E402
from tasks.kg_completion.triples import FILES  # noqa: E402

BLOCK = 500_000  # rows that are generated at once


@commands.reports_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 for numbers that cannot be and folders that cannot be written."""
    options = _parser().parse_args(arguments)
    for name in ("entities", "triples", "relations", "held_out"):
        whole(f"--{name.replace('_', '-')}", getattr(options, name), 1)
    whole("--seed", options.seed, 0)
    existing = [name for name in FILES.values() if (options.folder / name).exists()]
    if existing:
        raise UserError(f"{options.folder} has a {existing[0]} already; name another folder.")
    options.folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(options.seed)
    for split, count in (("train", options.triples), ("dev", options.held_out), ("test", options.held_out)):
        write(options.folder / FILES[split], count, options.entities, options.relations, split == "train", draw)
        print(f"{options.folder / FILES[split]}: {count:,} triples", flush=True)
    return 0


def write(path: Path, count: int, entities: int, relations: int, every: bool, draw: np.random.Generator) -> None:
    """One file, whole or not at all. every: heads are all entities in order, before they are drawn."""
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
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where train.txt, valid.txt and test.txt go")
    parser.add_argument("--entities", type=int, default=2_000_000, metavar="E", help="2,000,000")
    parser.add_argument("--triples", type=int, default=20_000_000, metavar="N", help="of train (20,000,000)")
    parser.add_argument("--relations", type=int, default=200, metavar="R", help="200")
    parser.add_argument("--held-out", type=int, default=500, metavar="H", help="of valid and of test (500)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of what is drawn (0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
