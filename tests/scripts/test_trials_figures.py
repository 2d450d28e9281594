"""Figures of the trials of a search."""

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from scripts import figures as command
from scripts.drawing import trials
from tasks import search
from tasks.search import Search, Trial


@pytest.fixture
def folder(tmp_path):
    rates = [0.001 * 1.5**k for k in range(12)]
    trials = [
        Trial(k, {"encoder": "ab"[k % 2], "optim.lr": f"{rate:.4g}", **({"geometry.c": "2"} if k % 2 else {})}, "complete", f"trial-{k}", k / 12)
        for k, rate in enumerate(rates)
    ]  # fmt: skip
    trials.append(Trial(12, {"encoder": "a", "optim.lr": "9"}, "diverged", "trial-12"))
    found = Search("toy", [], [], "random", 0, 13, {"words": [], "space": {}}, "0", "val/mrr", "max", trials, {})
    search.write(found, tmp_path)
    return tmp_path


def test_both_figures_are_drawn_into_the_folder_of_the_search(folder, capsys):
    assert command.main(["search", str(folder)]) == 0
    printed = capsys.readouterr().out
    for name in ("parallel.png", "importance.png"):
        assert f"figure: {folder / name}" in printed
        assert matplotlib.image.imread(folder / name).std() > 0.05, "not an empty page"


def test_another_format_in_another_place(folder, tmp_path):
    assert command.main(["search", str(folder), "--format", "svg", "--out", str(tmp_path / "there")]) == 0
    text = (tmp_path / "there" / f"parallel-{folder.name}.svg").read_text()
    assert text.count("<path") > 12, "a line for each trial"


def test_the_files_have_the_name_that_is_given(folder, capsys):
    assert command.main(["search", str(folder), "--name", "mine"]) == 0
    assert (folder / "parallel-mine.png").exists()
    assert command.main(["search", str(folder), str(folder), "--name", "mine"]) == 1
    assert "--name names the files of one search" in capsys.readouterr().err
    assert command.main(["search", str(folder), "--name", "/mine"]) == 1
    assert "--name /mine: it is a part of the files' names" in capsys.readouterr().err


def test_what_is_no_search(tmp_path, capsys):
    assert command.main(["search", str(tmp_path)]) == 1
    assert "name the folder of a search" in capsys.readouterr().err
    assert command.main(["search"]) == 1


def test_one_trial_is_no_figure(folder, capsys):
    found = search.read(folder)
    del found.trials[1:]
    search.write(found, folder)
    assert command.main(["search", str(folder)]) == 1
    assert "fewer than two trials with a value" in capsys.readouterr().err


@pytest.mark.parametrize("count", [search.FEWEST - 1, search.FEWEST])
def test_too_few_trials_for_importance_are_said(folder, capsys, count):
    found = search.read(folder)
    del found.trials[count:]
    search.write(found, folder)
    assert command.main(["search", str(folder)]) == 0
    assert (folder / "importance.png").exists() == (count == search.FEWEST)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out importance: ")]
    assert len(lines) == (count < search.FEWEST)
    assert all("has fewer than 8 trials that did not fail" in line for line in lines)


def test_values_stand_on_white_over_the_lines(folder, figures):
    found = search.read(folder)
    trials.parallel(found, found.ranked()[:12], folder / "parallel.png")
    axis = figures[0].subfigs[0].axes[0]
    top = max(line.get_zorder() for line in axis.lines)
    assert {text.get_text() for text in axis.texts} >= {"a", "b", "0.001", "2"}
    for text in axis.texts:
        assert text.get_bbox_patch().get_facecolor()[:3] == (1, 1, 1)
        assert text.get_zorder() > top


def test_a_setting_that_is_not_there_stands_at_the_foot_of_its_axis():
    values = [trials.ABSENT, "b", "0.5", "a", "64", "-1"]
    heights = dict(zip(values, trials.places(values, Figure().subplots(), 0), strict=True))
    assert sorted(values, key=heights.get) == [trials.ABSENT, "-1", "0.5", "64", "a", "b"]
    many = [trials.ABSENT, "1", "2", "3", "4", "5"]
    assert trials.places(many, Figure().subplots(), 0)[0] == 0.0
