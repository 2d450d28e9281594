"""A small tree can be read off its points, better than off those of a flat plane; and what a user gets wrong is reported."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tasks import edges
from tasks.poincare_embeddings.task import EmbeddingTask
from tasks.points_files import read_points
from tests.cli import QUIET, call, places

LONG = ("trainer.max_epochs=50", "trainer.check_val_every_n_epoch=50")


def distortion(points: np.ndarray, names: tuple[str, ...], hyperbolic: bool) -> float:
    """Mean of |s d(u, v) / t(u, v) - 1| over pairs, t the length of the way in the tree, s the best factor."""
    gap = np.square(points[:, None] - points).sum(-1)
    if hyperbolic:
        room = 1 - np.square(points).sum(-1)
        distance = np.arccosh(1 + 2 * gap / (room[:, None] * room))
    else:
        distance = np.sqrt(gap)
    ways = [name.split(".") for name in names]
    common = [[sum(a == b for a, b in zip(u, v, strict=False)) for v in ways] for u in ways]
    deep = np.array([len(way) for way in ways])
    pairs = np.triu_indices(len(ways), 1)
    ratio = distance[pairs] / (deep[:, None] + deep - 2 * np.array(common))[pairs]
    return min(float(np.abs(ratio / (scale * ratio.mean()) - 1).mean()) for scale in np.linspace(0.5, 1.5, 101))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    results = {}
    for geometry in ("poincare", "euclidean"):
        folder = tmp_path_factory.mktemp(geometry)
        result = call("task=poincare_embeddings_toy", f"geometry={geometry}", *LONG, *QUIET, *places(folder))
        assert result.code == 0, result.err
        (line,) = [line for line in result.out.splitlines() if line.startswith("embeddings: ")]
        results[geometry] = result, read_points(Path(line.removeprefix("embeddings: ")), "x")
    return results


def test_a_tree_is_reconstructed_in_two_dimensions(runs):
    result, file = runs["poincare"]
    metrics, flat = result.record["metrics"], runs["euclidean"][0].record["metrics"]
    assert metrics["test/map"] > 0.85, "chance is about 0.1"
    assert metrics["test/mean_rank"] < 2
    assert metrics["test/map"] > flat["test/map"] + 0.1
    assert file.manifold == "PoincareBall"
    assert file.c == 1.0
    assert file.points.shape == (40, 2)


def test_distances_are_those_of_the_tree_up_to_a_factor(runs):
    curved = distortion(runs["poincare"][1].points.astype(float), runs["poincare"][1].names, True)
    flat = distortion(runs["euclidean"][1].points.astype(float), runs["euclidean"][1].names, False)
    assert curved < 0.35
    assert curved < flat - 0.05


def test_what_the_metrics_and_scores_are_worth_is_said(runs):
    assert "note: val/... and test/... are of the pairs that were trained on" in runs["poincare"][0].out

    def said(share: float) -> list[str]:
        model = SimpleNamespace(share_farther_out=lambda ancestors: share)
        return EmbeddingTask.remarks(SimpleNamespace(model=model, ancestors=None))

    assert len(said(0.04)) == 1
    assert said(0.13)[1].startswith("13% of what is above a node lies farther from the origin than the node itself")


def test_tables_are_read_as_those_of_edges(runs, tmp_path):
    folder = runs["poincare"][0].record_path.parent
    (tmp_path / "pairs.csv").write_text("id,parent,child\n7,0,0.1\n8,,0.0\n")
    output = tmp_path / "answers.jsonl"
    words = ("mode=predict", f"checkpoint={folder}", f"input={tmp_path / 'pairs.csv'}", f"output={output}", *QUIET)
    result = call(*words, *places(tmp_path))
    assert result.code == 0, result.err
    pair, node = map(json.loads, output.read_text().splitlines())
    assert (pair["node"], pair["above"], pair["id"], node["node"], node["id"]) == ("0.1", "0", "7", "0.0", "8")
    assert pair["distance"] > 0
    assert node["nearest"]


def test_the_record_counts_nodes_and_pairs(runs):
    counts = runs["poincare"][0].record["data"]["counts"]
    assert counts["train"] == {"nodes": 40, "edges": 39, "pairs": 3 * 1 + 9 * 2 + 27 * 3}
    assert counts["test"] == {"nodes": 39}


def test_a_number_of_steps_may_be_given_in_the_place_of_epochs(tmp_path):
    """With the burn-in, which is a number of epochs."""
    words = ("trainer.max_epochs=-1", "trainer.max_steps=3", "task.module.burn_in_epochs=1")
    result = call("task=poincare_embeddings_toy", *words, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err


def test_a_closure_that_is_too_large_is_refused_and_its_edges_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(edges, "MOST_PAIRS", 5)
    (tmp_path / "ring.tsv").write_text("a\tb\nb\tc\nc\ta\n")
    words = ("task=poincare_embeddings", f"task.data.file={tmp_path / 'ring.tsv'}", "trainer.max_steps=1", *QUIET)
    result = call(*words, *places(tmp_path))
    assert result.code == 1
    assert "ring.tsv: 3 nodes are above each other, as they lie on cycles, among them 'a'. So there are" in result.err
    assert call(*words, "task.data.closure=false", *places(tmp_path)).code == 0
