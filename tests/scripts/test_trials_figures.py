"""Figures of the trials of a search."""

import matplotlib.image
import pytest

from scripts import figures
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
    assert figures.main(["search", str(folder)]) == 0
    printed = capsys.readouterr().out
    for name in ("parallel.png", "importance.png"):
        assert f"figure: {folder / name}" in printed
        assert matplotlib.image.imread(folder / name).std() > 0.05, "not an empty page"


def test_another_format_in_another_place(folder, tmp_path):
    assert figures.main(["search", str(folder), "--format", "svg", "--out", str(tmp_path / "there")]) == 0
    text = (tmp_path / "there" / "parallel.svg").read_text()
    assert text.count("<path") > 12, "a line for each trial"


def test_what_is_no_search(tmp_path, capsys):
    assert figures.main(["search", str(tmp_path)]) == 1
    assert "name the folder of a search" in capsys.readouterr().err
    assert figures.main(["search"]) == 1


def test_one_trial_is_no_figure(folder, capsys):
    found = search.read(folder)
    del found.trials[1:]
    search.write(found, folder)
    assert figures.main(["search", str(folder)]) == 1
    assert "fewer than two trials with a value" in capsys.readouterr().err
