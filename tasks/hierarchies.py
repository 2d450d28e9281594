"""Hierarchies that tasks learn: WordNet's nouns, a list of edges, or a generated tree."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only

from tasks.edges import FORM, Edges, complete_tree, nodes_on_cycles, read_edges
from tasks.errors import UserError
from tasks.local_paths import user_path
from tasks.names import on_spellings
from tasks.reading import brief
from tasks.vocabularies import check_names, check_numbers
from tasks.wordnet import read_nouns

# The largest share of nodes with nothing above them that a forest has, as each of its roots has a child of its own. In
# a tree whose pairs are reversed all leaves are on top, which mostly are more.
MOST_TOPS = 0.5


class Hierarchy:
    """One of: wordnet, a folder with WordNet's noun files; in its place file, a table `child <tab> parent` of direct
    edges; in the place of both toy, the recipe {depth, branching} of a tree (see `edges.complete_tree`).

    Raises UserError where there is none of them.
    """

    def __init__(self, wordnet: str | None, file: str | None, toy: Mapping[str, Any] | None):
        if wordnet is None and file is None and toy is None:
            raise UserError("task.data needs a tree: set task.data.wordnet to a folder or task.data.file to a table.")
        self.wordnet, self.file, self.toy = wordnet, file, toy

    @property
    def source(self) -> str:
        """What it is called in the name of a file: other edges in a file of the same name have another one."""
        if self.toy is not None or self.file is None:
            return "wordnet_nouns" if self.toy is None else "toy"
        return f"{Path(self.file.removesuffix('.gz')).stem}-{self.edges.sha256[:8]}"

    @functools.cached_property
    def edges(self) -> Edges:
        """Read at first use, with a line about nodes that lie on cycles, and one where pairs may be reversed."""
        edges = self._read()
        if len(nodes := nodes_on_cycles(edges.child, edges.parent, n := len(edges.names))):
            first = brief(edges.names[nodes[0]])
            which = f"{len(nodes)} of {n} nodes lie on cycles, as {first}"
            rank_zero_only(print)(f"{edges.source}: {which}; nodes of one cycle are above each other.", flush=True)
        for line in on_spellings(edges.names, "nodes"):
            rank_zero_only(print)(f"note: {edges.source}: {line}.", flush=True)
        tops, several = n - len(np.unique(edges.child)), int((np.bincount(edges.child, minlength=1) > 1).sum())
        is_tree_reversed = several > 0 and len(np.unique(edges.parent)) == len(edges.parent)
        if tops > MOST_TOPS * n or is_tree_reversed:
            what = f"{tops:,} of {n:,} nodes have nothing above them"
            if is_tree_reversed:
                what += f"; with several above them there are {several:,}, with several below them none"
            rank_zero_only(print)(f"note: {what}; is the order in {edges.source} {FORM}?", flush=True)
        return edges

    def kept(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, for `adopt`."""
        edges = self.edges
        known = {"names": list(edges.names), "child": edges.child, "parent": edges.parent}
        return known | {"source": edges.source, "sha256": edges.sha256}

    def adopt(self, kept: Mapping[str, Any]) -> None:
        """Be the hierarchy that a checkpoint keeps. Raises any error for one that cannot be."""
        names = check_names(kept["names"])
        ends = check_numbers(torch.stack([kept["child"], kept["parent"]], -1), 2, len(names)).int().numpy()
        source, sha256 = check_names([kept["source"], kept["sha256"]], different=False)
        if not re.fullmatch("[0-9a-f]{64}", sha256):  # a part of it is in the name of a file
            raise ValueError("its fingerprint is none")
        self.__dict__["edges"] = Edges(tuple(names), ends[:, 0].copy(), ends[:, 1].copy(), source, sha256)

    def _read(self) -> Edges:
        if self.toy is not None:
            return complete_tree(self.toy["depth"], self.toy["branching"])
        if self.file is not None:
            return read_edges(user_path(self.file), "task.data.file")
        assert self.wordnet is not None
        return read_nouns(user_path(self.wordnet))
