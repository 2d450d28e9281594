"""optim=lbfgs: the optimum that another solver finds, class weights in it, and the best of several starts."""

import csv

import numpy as np
import pytest
from scipy.optimize import minimize

from tasks.points_files import write_points
from tests.cli import QUIET, call, places

SIZE = 200
LBFGS = ("optim=lbfgs", "trainer=lbfgs", "task.data.batch_size=10000")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tree of SIZE leaves below `left` and `right`, twice as many of the second, and points that overlap."""
    folder = tmp_path_factory.mktemp("tree")
    sides = ["left" if k % 3 == 0 else "right" for k in range(SIZE)]
    edges = [("left", "top"), ("right", "top"), *((f"n{k}", side) for k, side in enumerate(sides))]
    (folder / "tree.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in edges), encoding="utf-8")
    names = ["top", "left", "right", *(f"n{k}" for k in range(SIZE))]
    points = np.random.default_rng(1).normal(0, 0.25, (len(names), 2))
    points[3:][[side == "left" for side in sides]] += 0.2
    points /= np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True) / 0.9)
    write_points(folder / "points.npz", names, points, "PoincareBall", 1.0)
    return folder


def classify(folder, place, *words):
    result = call(
        "task=wordnet_subtree", f"task.data.file={folder}/tree.tsv", f"task.embeddings={folder}/points.npz",
        "task.root=left", *LBFGS, *words, *QUIET, *places(place),
    )  # fmt: skip
    assert result.code == 0, result.err
    with (result.record_path.parent / "history.csv").open(newline="", encoding="utf-8") as lines:
        return result.record, [float(row["val/loss"]) for row in csv.DictReader(lines)]


def training(folder, share=0.8, seed=0):
    """The training nodes' coordinates and labels, as the data have them."""
    from tasks.wordnet_subtree.data import SubtreeData

    data = SubtreeData(
        None, f"{folder}/tree.tsv", None, f"{folder}/points.npz", "left", 2, share, seed, {"train": None}, "examples",
        10000, 10000, 0,
    )  # fmt: skip
    columns = data.nodes()["train"].columns
    return data.model_sizes["embedded"].points[columns["rows"]], columns["labels"].numpy()


@pytest.mark.long
@pytest.mark.parametrize("weights", ["equal", "balanced"])
def test_the_flat_row_reaches_the_optimum_of_another_solver(files, tmp_path, weights):
    record, _ = classify(files, tmp_path, "geometry=euclidean", f"task.module.class_weights={weights}")
    x, y = training(files)
    share = np.where(y == 1, 1 / (2 * y.mean()), 1 / (2 * (1 - y.mean()))) if weights == "balanced" else np.ones(len(y))

    def loss(w):
        return float((share * np.logaddexp(0, -(2 * y - 1) * (x @ w[:2] + w[2]))).mean())

    least = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 9999})
    assert record["metrics"]["val/loss"] == pytest.approx(least.fun, rel=1e-6)


@pytest.mark.slow
def test_a_balanced_optimum_finds_more_of_the_rare_class(files, tmp_path):
    recalls = {
        weights: classify(files, tmp_path / weights, f"task.module.class_weights={weights}")[0]["metrics"]["val/recall"]
        for weights in ("equal", "balanced")
    }
    assert recalls["balanced"] > recalls["equal"]


def test_the_start_with_the_lowest_training_loss_is_tested(files, tmp_path):
    words = ("task.module.starts=4", "optim.lbfgs.max_iter=2", "task.model.start_scale=5")
    record, losses = classify(files, tmp_path, *words)
    assert len(losses) == 4
    assert len(set(losses)) == 4, "the starts differ"
    assert record["metrics"]["val/loss"] == min(losses)
    assert record["selection"]["epoch"] == losses.index(min(losses)) + 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("task.data.batch_size=50",), "task.data.batch_size"),
        (("optim.max_grad_norm=1",), "optim.max_grad_norm"),
        (("optim.biases.lr=0.1",), "optim.biases"),
        (("task.module.starts=2", "trainer.max_epochs=3"), "trainer.max_epochs"),
        (("task.module.starts=2", "optim=subtree"), "optim=lbfgs"),
        (("task.module.starts=2", "task.module.select=val/f1", "task.module.select_mode=max"), "val/loss"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(files, tmp_path, words, named):
    result = call(
        "task=wordnet_subtree", f"task.data.file={files}/tree.tsv", f"task.embeddings={files}/points.npz",
        "task.root=left", *LBFGS, *words, *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 1
    assert named in result.err
