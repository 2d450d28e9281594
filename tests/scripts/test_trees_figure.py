"""Recovered trees are drawn from the folder of a run, beside the gold trees."""

import numpy as np
import pytest

from scripts import figures
from scripts.drawing import canvas, trees
from scripts.trained import load, read_run
from tasks.errors import UserError
from tests.cli import QUIET, call, places


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probing")
    words = ("task=probing_toy", "task.data.sizes={train: 40, dev: 10, test: 12}", "trainer.max_steps=20", "optim.lr=0.05")
    result = call(*words, *QUIET, *places(folder))
    assert result.code == 0, result.err
    return result.record_path.parent


@pytest.mark.long
def test_the_figure_lies_in_the_folder_of_the_run(run, capsys):
    assert figures.main(["trees", str(run)]) == 0
    (path,) = (run / "figures").glob("trees-*.png")
    assert f"figure: {path}" in capsys.readouterr().out
    assert path.stat().st_size > 10_000


def test_dollars_of_a_text_are_no_formula(tmp_path):
    for format in ("png", "svg"):
        with canvas.canvas(2, 1, r"of $5_ or $\frac{", "a foot $x_1$") as body:
            pass
        canvas.save(body.figure, tmp_path / f"dollars.{format}")
    assert "$x_1$" in (tmp_path / "dollars.svg").read_text(encoding="utf-8")


@pytest.mark.long
def test_pictures_hold_both_trees(run):
    trained = load(read_run(run))
    sentences = trained.data.trees()["test"].sentences
    for number, picture in trees.pictures(trained, ["2", "5"]):
        sentence = sentences[number - 1]
        assert picture.words == sentence.words
        n = sum(not mark for mark in sentence.punctuation)
        assert len(picture.gold) == len(picture.predicted) == n - 1
        edges = {tuple(sorted(edge)) for edge in enumerate(sentence.heads) if edge[1] >= 0 and not sentence.punctuation[edge[0]]}
        assert {tuple(edge) for edge in picture.gold.tolist()} == edges, "the toy's full stop is a leaf"
        assert picture.roots[0] == sentence.heads.index(-1)
        shared = {tuple(edge) for edge in picture.predicted.tolist()} & edges
        assert picture.right.sum() == len(shared)


def test_words_do_not_overlap():
    places = trees._places(["a", "considerably", ",", "longer"])
    assert places[0] == 0
    assert np.diff(places).tolist() == [1.5 + 6 + 2, 6 + 1.5 + 2, 1.5 + 3 + 2]


@pytest.mark.long
@pytest.mark.parametrize("label", ["0", "13", "first"])
def test_a_sentence_that_is_not_there_is_named(run, label):
    with pytest.raises(UserError, match=f"--labels: '{label}' is no number of a sentence of test, from 1 to 12"):
        trees.pictures(load(read_run(run)), [label])
