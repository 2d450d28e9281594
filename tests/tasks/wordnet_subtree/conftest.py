"""A tree of nine nodes in a file, points for it, and data that read both."""

import numpy as np
import pytest

from tasks.points_files import write_points
from tasks.wordnet_subtree.data import SubtreeData

PARENTS = {
    "animal": "thing", "plant": "thing", "dog": "animal", "cat": "animal", "puppy": "dog", "kitten": "cat",
    "oak": "plant", "fir": "plant",
}  # fmt: skip
NAMES = ("animal", "thing", "plant", "dog", "cat", "puppy", "kitten", "oak", "fir")  # as the file names them
BELOW = {"dog", "cat", "puppy", "kitten"}
SETTINGS = {
    "wordnet": None, "toy": None, "subtree": "animal", "dim": 2, "train_share": 0.5, "split_seed": 0, "sizes": {},
    "shuffle": "examples", "batch_size": 4, "eval_batch_size": 4, "seed": 0,
}  # fmt: skip


@pytest.fixture
def points():
    """(9, 2) float32, a row for each of NAMES."""
    return np.random.default_rng(0).uniform(-0.6, 0.6, (len(NAMES), 2)).astype(np.float32)


@pytest.fixture
def make(tmp_path, points):
    """A function that makes the data, with some settings changed."""
    lines = [f"{child}\t{parent}\n" for child, parent in PARENTS.items()]
    (tmp_path / "tree.tsv").write_text("".join(lines), encoding="utf-8")
    write_points(tmp_path / "points.npz", NAMES, points, "PoincareBall", 1.0)
    files = {"file": str(tmp_path / "tree.tsv"), "embeddings": str(tmp_path / "points.npz")}

    def data(**changes) -> SubtreeData:
        return SubtreeData(**{**SETTINGS, **files, **changes})

    return data
