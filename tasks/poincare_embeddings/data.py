"""A hierarchy as pairs to learn from: WordNet's nouns, or any list of edges."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only

from tasks.base import TaskData
from tasks.batches import Split
from tasks.edges import Edges, closure, read_edges
from tasks.errors import UserError, whole
from tasks.poincare_embeddings.pairs import Above, EvaluationNodes, TrainPairs
from tasks.poincare_embeddings.toy import toy_tree
from tasks.wordnet import read_nouns


class HierarchyData(TaskData):
    """All pairs of a node and one above it; all of them are trained on, and the nodes are tested by finding theirs.

    wordnet: the folder of WordNet's files. file: a text file of edges, child <tab> parent, in its place. toy: recipe of
    a made-up tree instead of both. closure: pairs over several edges, too; false: the edges alone. eval_nodes: so many
    nodes, drawn with eval_seed, are measured during training; at the end all are. sizes: {train: n}, the first n
    pairs only; null: all. The others are TaskData's.
    """

    def __init__(
        self,
        wordnet: str | None,
        file: str | None,
        toy: dict[str, int] | None,
        closure: bool,
        eval_nodes: int,
        eval_seed: int,
        sizes: dict[str, int | None],
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        self.eval_nodes = whole("task.data.eval_nodes", eval_nodes, 1)
        self.eval_seed = whole("task.data.eval_seed", eval_seed, 0)
        self.limit = sizes.get("train")
        if self.limit is not None:
            whole("task.data.sizes.train", self.limit, 1)
        if wordnet is None and file is None and toy is None:
            raise UserError("task=poincare_embeddings needs task.data.wordnet, a folder, or task.data.file, edges.")
        self.wordnet, self.file, self.toy, self.closure = wordnet, file, toy, closure
        self._edges: Edges | None = None
        self._pairs: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def edges(self) -> Edges:
        """The hierarchy, read the first time it is asked for."""
        if self._edges is None:
            if self.toy is not None:
                self._edges = toy_tree(**self.toy)
            elif self.file is not None:
                self._edges = read_edges(Path(self.file).expanduser(), "task.data.file")
            else:
                self._edges = read_nouns(Path(self.wordnet).expanduser())
        return self._edges

    @property
    def source(self) -> str:
        """What the hierarchy is called in the name of a file."""
        return "toy" if self.toy is not None else "wordnet_nouns" if self.file is None else Path(self.file).stem

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """children and parents, int32 (M,), sorted by child."""
        if self._pairs is None:
            edges = self.edges
            if self.closure:
                child, parent, turning = closure(edges.child, edges.parent, len(edges.names))
                if turning:
                    rank_zero_only(print)(
                        f"{edges.source}: {turning} of {len(edges.names)} nodes lie on cycles; nodes of one cycle are "
                        "above each other.",
                        flush=True,
                    )
            else:
                order = np.lexsort((edges.parent, edges.child))
                child, parent = edges.child[order], edges.parent[order]
            self._pairs = child, parent
        return self._pairs

    @property
    def above(self) -> Above:
        child, parent = self.pairs
        offsets = np.searchsorted(child, np.arange(len(self.edges.names) + 1))
        return Above(torch.from_numpy(offsets), torch.from_numpy(parent.astype(np.int64)))

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"edges": self.edges, "above": self.above, "source": self.source}

    @property
    def identity(self) -> dict[str, str]:
        names = self.edges.names
        return {"names": f"{len(names)} with sha256 {hashlib.sha256(chr(10).join(names).encode()).hexdigest()[:12]}"}

    def load(self) -> dict[str, Split]:
        child, parent = self.pairs
        nodes = torch.from_numpy(np.unique(child).astype(np.int64))
        drawn = np.random.default_rng(self.eval_seed).permutation(len(nodes))[: self.eval_nodes]
        return {
            "train": TrainPairs(torch.from_numpy(child[: self.limit]), torch.from_numpy(parent[: self.limit])),
            "dev": EvaluationNodes(nodes[torch.from_numpy(np.sort(drawn))]),
            "test": EvaluationNodes(nodes),
        }

    def fingerprint(self) -> dict[str, Any]:
        edges, (child, parent) = self.edges, self.pairs
        digest = hashlib.sha256(np.ascontiguousarray(np.stack([child, parent]), dtype="<i4").tobytes())
        digest.update("\n".join(edges.names).encode())
        counts = {"nodes": len(edges.names), "edges": len(edges.child), "pairs": len(child[: self.limit])}
        splits = self.splits()
        return {
            "files": dict.fromkeys(("train", "dev", "test"), edges.source),
            "counts": {"train": counts, **{name: {"nodes": len(splits[name])} for name in ("dev", "test")}},
            "sha256": dict.fromkeys(("train", "dev", "test"), digest.hexdigest()),
        }
