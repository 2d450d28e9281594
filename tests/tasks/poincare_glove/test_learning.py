"""On a text with known topics the vectors of a topic come to lie together, and counts of unseen pairs are predicted."""

from pathlib import Path

import pytest
import torch

from hyperbolic.manifolds import Euclidean, PoincareBall
from tasks.word_vectors import read_vectors
from tests.cli import QUIET, call, places

CHANCE = 0.25  # four topics of equal size


@pytest.mark.parametrize("geometry", ["poincare", *(pytest.param(name, marks=pytest.mark.long) for name in ("euclidean", "lorentz"))])
def test_nearest_neighbours_are_of_the_same_topic(tmp_path, geometry):
    result = call(
        "task=poincare_glove_toy", f"geometry={geometry}", "optim.lr=0.05", "trainer.max_epochs=8", *QUIET,
        *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    metrics = result.record["metrics"]
    assert metrics["test/explained"] > 0.5, "0 is a constant, which has the loss of the variance"
    (line,) = [line for line in result.out.splitlines() if line.startswith("vectors: ")]
    path = Path(line.removeprefix("vectors: "))
    assert path.parent == result.record_path.parent
    words = read_vectors([path], tmp_path, "auto", 1.0, None, "fail")
    manifold = Euclidean() if geometry == "euclidean" else PoincareBall()
    points = words.points(manifold)[2:]
    distances = manifold.dist(points.unsqueeze(0), points.unsqueeze(1)).fill_diagonal_(torch.inf)
    topics = [word.rstrip("0123456789") for word in words.index]
    same = [topics[i] == topics[j] for i, j in enumerate(distances.argmin(1).tolist()) if topics[i] != "common"]
    assert sum(same) / len(same) >= CHANCE + 0.5


def test_dense_gradients_and_a_learned_curvature_train_too(tmp_path):
    result = call(
        "task=poincare_glove_toy", "trainer.max_epochs=1", "task.model.sparse=false", "task.module.lazy=false",
        "geometry.parts.vectors=lorentz", "trainer.limit_train_batches=2", "geometry.learn_c=true", *QUIET,
        *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "vectors.poincare.5d.txt" in result.out


def test_the_text_must_be_named(tmp_path):
    result = call("task=poincare_glove", *QUIET, *places(tmp_path))
    assert result.code == 1
    message = "error: task=poincare_glove learns from a text file; name one with task.data.file=corpus.txt."
    assert result.err.startswith(message)
