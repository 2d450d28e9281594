"""The nodes of a tree with their points, and which of them are below the root of a subtree."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only

from tasks.base import TaskData
from tasks.batches import Split, TensorSplit
from tasks.edges import Edges, descendants
from tasks.errors import UserError, number, sizes_of, toy_recipe, whole
from tasks.hierarchies import Hierarchy
from tasks.local_paths import user_path
from tasks.names import Names
from tasks.points_files import PointsFile, read_points
from tasks.reading import Fault
from tasks.rows import read_examples
from tasks.vocabularies import check_floats, check_names
from tasks.wordnet_subtree.toy import SOURCE, toy_points

POINTS = "points"
CLASSES = ("rest", "subtree")


class SubtreeData(TaskData):
    """All nodes of a tree but one, the root of a subtree: positive below it, negative elsewhere.

    wordnet, file, toy: the tree, see `hierarchies.Hierarchy`; toy has also the length of an edge, with which its points
    are made (see `toy`). embeddings: file of points for exactly the nodes of another tree; WordNet's,
    `wordnet_nouns-<geometry>-<dim>d.npz`, stands for those of `Hierarchy.source`. subtree: name of the root.
    dim: dimension the points must have.

    Each node is drawn into the training part with the probability train_share, by split_seed alone (None: by seed), so
    the parts are the same for every subtree of a tree. The others are the test part. Nothing else is held out, as in
    the paper: dev is the training part again. sizes: {train: n}, the first n training nodes only; null: all. The rest
    are TaskData's.
    """

    def __init__(
        self,
        wordnet: str | None,
        file: str | None,
        toy: dict[str, float] | None,
        embeddings: str,
        subtree: str,
        dim: int,
        train_share: float,
        split_seed: int | None,
        sizes: dict[str, int | None],
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        whole("task.dim", dim, 1)
        split_seed = self.seed if split_seed is None else whole("task.data.split_seed", split_seed, 0)
        if not 0 < train_share < 1:
            raise UserError(f"task.data.train_share must be between 0 and 1, and it is {train_share}.")
        if toy is not None:
            toy_recipe(toy, depth=1, branching=1, length=None)
        self.hierarchy, self.embeddings = Hierarchy(wordnet, file, toy), embeddings
        self.subtree, self.dim, self.limit = str(subtree), dim, sizes_of(sizes, ("train",))["train"]
        self.train_share, self.split_seed = train_share, split_seed
        self._nodes: dict[str, TensorSplit] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all nodes, in the order of the rows."""
        return self._tree[0].names

    @property
    def model_sizes(self) -> dict[str, Any]:
        rows, labels = (self.nodes()["train"].columns[name] for name in ("rows", "labels"))
        counts = tuple(torch.bincount(labels, minlength=2).tolist())
        return {"embedded": self._tree[1], "classes": CLASSES, "class_counts": counts, "below": rows[labels == 1]}

    @property
    def identity(self) -> dict[str, str]:
        tree, points, root = self._tree
        return {
            POINTS: f"{len(tree.names)} in {points.points.shape[1]} coordinates with sha256 {points.sha256[:12]}",
            "subtree": tree.names[root],
        }

    def vocabulary(self) -> dict[str, Any]:
        """The tree and its points."""
        points = self._tree[1]
        known = {"points": points.points, "manifold": points.manifold, "c": points.c, "sha256": points.sha256}
        return {"tree": self.hierarchy.kept(), "points": known}

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        self.hierarchy.adopt(vocabulary["tree"])
        tree, fields = self.hierarchy.edges, vocabulary["points"]
        points = check_floats(fields["points"], len(tree.names)).double().numpy()
        manifold, sha256 = check_names([fields["manifold"], fields["sha256"]], different=False)
        table = PointsFile(tree.names, points, manifold, number("c of the points", fields["c"]), sha256)
        self.__dict__["_tree"] = tree, table, tree.names.index(self.subtree)

    def load(self) -> dict[str, Split]:
        return {**self.nodes()}

    def nodes(self) -> dict[str, TensorSplit]:
        """The nodes of each split, drawn the first time they are needed: rows of the table of points, and labels, 1
        below the root."""
        if self._nodes:
            return self._nodes
        tree, _, root = self._tree
        below = descendants(tree.child, tree.parent, len(tree.names), root)
        drawn = np.random.default_rng(self.split_seed).random(len(tree.names)) < self.train_share
        examples = np.arange(len(tree.names)) != root
        train, test = (np.flatnonzero(part & examples) for part in (drawn, ~drawn))
        used, others = _label(train[: self.limit], below), _label(test, below)
        for part, nodes in (("training", used), ("test", others)):
            if (count := int(nodes.columns["labels"].sum())) in (0, len(nodes)):
                raise UserError(
                    f"task.root={self.subtree}: {count} of the {len(nodes)} {part} nodes are below it, and both kinds "
                    f"are needed; it has {int(below.sum())} nodes below it, of {len(tree.names)}. Take another root"
                    f"{'' if self.limit is None else ' or a larger task.data.sizes.train'}."
                )
        self._nodes = {"train": used, "dev": used, "test": others}
        return self._nodes

    def fingerprint(self) -> dict[str, Any]:
        counts, digests = {}, {}
        for split, nodes in self.nodes().items():
            positive = int(nodes.columns["labels"].sum())
            counts[split] = {"positive": positive, "negative": len(nodes) - positive}
            digests[split] = hashlib.sha256(torch.stack([*nodes.columns.values()]).numpy().tobytes()).hexdigest()
        tree, points, _ = self._tree
        file = SOURCE if self.hierarchy.toy else self._points_path.name
        return {
            "files": dict.fromkeys(counts, tree.source) | {POINTS: file},
            "counts": counts,
            "sha256": digests | {"tree": tree.sha256, POINTS: points.sha256},
        }

    @property
    def input_keys(self) -> tuple[str, ...]:
        return ("node",)

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[tuple[str, int]]:
        """Names of nodes, one a line."""
        nodes = self._node_names()

        def parse(line: str) -> tuple[str, int]:
            node = line.strip()
            return node, nodes.number_of(node)

        return read_examples(lines, name, parse, "nodes", "Each line is the name of a node", self.input_keys)

    def test_inputs(self) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        columns = self.nodes()["test"].columns
        for row, label in zip(columns["rows"].tolist(), columns["labels"].tolist(), strict=True):
            yield (self.names[row], row), {"gold": CLASSES[label]}

    def encode(self, inputs: Sequence[tuple[str, int]]) -> Split:
        rows = torch.tensor([row for _, row in inputs])
        return TensorSplit({"rows": rows, "labels": torch.zeros_like(rows)})

    def describe(self, example: tuple[str, int]) -> dict[str, Any]:
        return {"node": example[0], "root": self.subtree}

    @functools.cached_property
    def _tree(self) -> tuple[Edges, PointsFile, int]:
        """The tree, the points in the order of its nodes, and the row of the root; read once."""
        tree = self.hierarchy.edges
        try:
            root = self._node_names().number_of(self.subtree)
        except Fault as fault:
            raise UserError(f"task.root={self.subtree}: {fault}.") from None
        return tree, self._read_points(tree), root

    def _node_names(self) -> Names:
        return Names(self.hierarchy.edges.names, "node", self.hierarchy.edges.source)

    @property
    def _points_path(self) -> Path:
        """The file of points: of a table of the user's the one of its own name, in the place of WordNet's."""
        path = user_path(self.embeddings)
        is_wordnets = re.fullmatch(r"wordnet_nouns(-\w+-\d+d\.npz)", path.name)
        return path.with_name(self.hierarchy.source + is_wordnets[1]) if is_wordnets else path

    def _read_points(self, tree: Edges) -> PointsFile:
        if self.hierarchy.toy is not None:
            return toy_points(tree, self.hierarchy.toy["length"], self.dim)
        path = self._points_path
        if not path.is_file():
            source = f" task.data.file={self.hierarchy.file}" if self.hierarchy.file is not None else ""
            raise UserError(
                f"There are no points {path} (task.embeddings). `python run.py task=poincare_embeddings "
                f"task.dim={self.dim}{source}` makes such a file; or name another one."
            )
        points = read_points(path, "task.embeddings")
        d = points.points.shape[1] - (points.manifold == "Lorentz")
        if d != self.dim:
            raise UserError(f"{path} (task.embeddings) has points of {d} dimensions, and task.dim is {self.dim}.")
        description = f"{len(points.names):,} of {points.manifold}, c = {points.c:g}"
        rank_zero_only(print)(f"points: {path} ({description})", flush=True)
        return _order(points, tree.names, path)


def _label(rows: np.ndarray, below: np.ndarray) -> TensorSplit:
    return TensorSplit({"rows": torch.from_numpy(rows), "labels": torch.from_numpy(below[rows].astype(np.int64))})


def _order(points: PointsFile, names: tuple[str, ...], path: Path) -> PointsFile:
    """The points in the order of `names`. Raises UserError unless they are of exactly these nodes."""
    if points.names == names:
        return points
    index = {name: row for row, name in enumerate(points.names)}
    expected = set(names)
    missing, extra = [n for n in names if n not in index], [n for n in points.names if n not in expected]
    if missing or extra:
        parts = [f"it lacks {len(missing)}, first {missing[0]}"] if missing else []
        parts += [f"it has {len(extra)} that the tree has not, first {extra[0]}"] if extra else []
        raise UserError(
            f"{path} (task.embeddings) has {len(points.names)} points, and the tree {len(names)} nodes: "
            f"{'; '.join(parts)}. Take points that were trained on this tree."
        )
    order = np.array([index[name] for name in names])
    return PointsFile(names, points.points[order], points.manifold, points.c, points.sha256)
