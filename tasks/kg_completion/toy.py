"""A generated graph about a tree, whose triples of dev and test follow from those of train."""

import hashlib
from collections.abc import Sequence

import numpy as np

from tasks.batches import SPLITS
from tasks.edges import complete_tree
from tasks.errors import UserError, number, whole
from tasks.kg_completion.triples import Graph, assemble

PARENT, ANCESTOR, SIBLING, NOISE = "parent_of", "ancestor_of", "sibling_of", "linked_to"
SOURCE = "generated"  # where a split's file would be named
Triple = tuple[str, str, str]


def toy_graph(depth: int, branching: int, noise: int, held_out: float, seed: int) -> Graph:
    """A tree of `depth` levels below its root, where each node has `branching` children, as triples of four relations:

        parent_of    from a node to its children; all in train
        ancestor_of  from a node to all below it (transitive)
        sibling_of   between children of one parent, both ways (symmetric)
        linked_to    `noise` links between any two nodes, which follow from nothing; all in train

    The shares `held_out` of the ancestors that are no parents, and of the pairs of siblings one direction, go to dev,
    and as many to test: each follows from parent_of, or from the other direction. Every entity and relation is in
    train. Nodes are named by their path: 0, 0.2, 0.2.1. depth 3 and branching 4 give 85 entities.

    Raises UserError for settings that cannot be.
    """
    whole("depth", depth, 2)
    whole("branching", branching, 2)
    whole("noise", noise, 0)
    if not 0 < number("held_out", held_out) < 0.5:
        raise UserError(f"held_out must be between 0 and 0.5, and it is {held_out}.")
    draw = np.random.default_rng(seed)
    nodes = complete_tree(depth, branching).names
    if noise > len(nodes) * (len(nodes) - 1) // 2:
        raise UserError(f"noise={noise} links are too many for {len(nodes)} nodes.")
    parents, ancestors = [], []
    for node in nodes[1:]:
        above = node.split(".")
        lines = [(".".join(above[:k]), ANCESTOR, node) for k in range(1, len(above))]
        parents += [(lines[-1][0], PARENT, node), lines[-1]]
        ancestors += lines[:-1]
    families = [[f"{node}.{k}" for k in range(branching)] for node in nodes if node.count(".") < depth]
    pairs = [(a, SIBLING, b) for family in families for k, a in enumerate(family) for b in family[k + 1 :]]
    swap = draw.random(len(pairs)) < 0.5
    pairs = [(b, r, a) if s else (a, r, b) for (a, r, b), s in zip(pairs, swap, strict=True)]

    rows: dict[str, list[Triple]] = {split: [] for split in SPLITS}
    rows["train"] += parents + [(b, r, a) for a, r, b in pairs] + _noise(nodes, noise, draw)
    for inferable in (ancestors, pairs):
        order = [inferable[k] for k in draw.permutation(len(inferable))]
        n = max(1, round(held_out * len(order)))
        rows["dev"] += order[:n]
        rows["test"] += order[n : 2 * n]
        rows["train"] += order[2 * n :]
    for split in SPLITS:
        rows[split] = [rows[split][k] for k in draw.permutation(len(rows[split]))]
    return _graph(f"toy-{depth}-{branching}", rows)


def _noise(nodes: Sequence[str], count: int, draw: np.random.Generator) -> list[Triple]:
    links: dict[Triple, None] = {}
    while len(links) < count:
        a, b = draw.integers(len(nodes), size=2)
        if a != b:
            links[nodes[a], NOISE, nodes[b]] = None
    return list(links)


def _graph(name: str, rows: dict[str, list[Triple]]) -> Graph:
    everything = [row for split in SPLITS for row in rows[split]]
    entities = {e: k for k, e in enumerate(dict.fromkeys(e for h, _, t in everything for e in (h, t)))}
    relations = {r: k for k, r in enumerate(dict.fromkeys(r for _, r, _ in everything))}
    arrays = {s: np.array([(entities[h], relations[r], entities[t]) for h, r, t in rows[s]]) for s in SPLITS}
    texts = {s: "".join("\t".join(row) + "\n" for row in rows[s]).encode() for s in SPLITS}
    sha256 = {s: hashlib.sha256(text).hexdigest() for s, text in texts.items()}
    return assemble(name, list(entities), list(relations), arrays, dict.fromkeys(SPLITS, SOURCE), sha256)
