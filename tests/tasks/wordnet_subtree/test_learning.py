"""On the made-up tree the hyperbolic classifier finds the subtree, and the flat ones do not; a run from end to end."""

import functools
import json
from collections.abc import Callable

import numpy as np
import pytest

from tasks.points_files import write_points
from tests.cli import QUIET, call, places
from tests.tasks.wordnet_subtree.conftest import NAMES, PARENTS

SHARE = 120 / 1092  # of the nodes that are below the root
ALL = 2 * SHARE / (1 + SHARE)  # F1 of calling every node positive; the majority class has 0


WORDS = {
    "hyp": (),
    "eucl": ("geometry=euclidean",),
    "log0": ("geometry.parts.classifier=euclidean",),
    "lorentz": ("geometry=lorentz",),
}


@pytest.fixture(scope="module")
def f1(tmp_path_factory) -> Callable[[str], float]:
    @functools.cache
    def of(name: str) -> float:
        result = call("task=wordnet_subtree_toy", *WORDS[name], *QUIET, *places(tmp_path_factory.mktemp(name)))
        assert result.code == 0, result.err
        return result.record["metrics"]["test/f1"]

    return of


@pytest.mark.parametrize("name", ["hyp", pytest.param("lorentz", marks=pytest.mark.long)])
def test_hyperbolic_classifiers_find_the_subtree(f1, name):
    assert f1(name) > ALL + 0.6
    assert f1(name) > 0.9


@pytest.mark.parametrize("name", ["eucl", pytest.param("log0", marks=pytest.mark.long)])
def test_flat_classifiers_are_far_behind(f1, name):
    assert f1(name) < f1("hyp") - 0.2


@pytest.mark.long
def test_a_table_of_edges_and_its_points(tmp_path):
    (tmp_path / "tree.tsv").write_text("".join(f"{child}\t{parent}\n" for child, parent in PARENTS.items()))
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (len(NAMES), 3))
    write_points(tmp_path / "points.npz", NAMES, points, "PoincareBall", 1.0)
    words = (
        "task=wordnet_subtree", f"task.data.file={tmp_path}/tree.tsv", f"task.embeddings={tmp_path}/points.npz",
        "task.dim=3", "task.root=animal", "task.data.train_share=0.5", *QUIET, *places(tmp_path),
    )  # fmt: skip
    result = call(*words, "trainer.max_epochs=5")
    assert result.code == 0, result.err
    record = result.record
    assert record["selection"]["metric"] == "val/loss"
    assert record["data"]["files"]["points"] == "points.npz"
    assert record["parameters"] == 12, "two points and two normals"
    (tmp_path / "nodes.txt").write_text("dog\nfir\n")
    outcome = call(
        "mode=predict", f"checkpoint={result.record_path.parent}", f"input={tmp_path}/nodes.txt",
        f"output={tmp_path}/said.jsonl", *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [line["node"] for line in lines] == ["dog", "fir"]
    assert {line["label"] for line in lines} <= {"subtree", "rest"}
    write_points(tmp_path / "points.npz", NAMES, points[::-1], "PoincareBall", 1.0)
    other = call("mode=test", f"checkpoint={result.record_path.parent}", *QUIET, *places(tmp_path))
    assert other.code == 1
    assert "points" in other.err
    assert "sha256" in other.err


def test_missing_points_are_reported_with_the_command_that_makes_them(tmp_path):
    (tmp_path / "tree.tsv").write_text("".join(f"{child}\t{parent}\n" for child, parent in PARENTS.items()))
    result = call(
        "task=wordnet_subtree", f"task.data.file={tmp_path}/tree.tsv", "task.root=animal", *QUIET, *places(tmp_path)
    )
    assert result.code == 1
    assert "task=poincare_embeddings task.dim=2" in result.err
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file()] == []
