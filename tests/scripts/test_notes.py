"""The notes under a table: which cells they list, by which names, and what they say of searches and of L-BFGS."""

from dataclasses import replace

import pytest

from configs.tables import PUBLISHED, Layout, make_layout
from configs.tuning import Tuning
from scripts.budgets import edge_lines
from scripts.cells import settings_line
from scripts.listing import listing

NODE = {
    "name": "hnn", "table": 1, "title": "T", "source": "S", "measure": "accuracy", "metric": "test/accuracy",
    "protocol": "P", "columns": {"A": {}, "B": {"overrides": ["task.model.d_hidden=7"]}},
    "tuning": ["hydra.sweeper.n_trials=3", "optim.lr=0.001,0.01,0.1", "seed=9"],
    "rows": {
        row: {"experiment": "hnn_prefix10_gru_hyp", "overrides": [f"task.dim={n}"], "published": [0.5, 0.5]}
        for n, row in enumerate(("DAN", "GRU"), 2)
    },
}  # fmt: skip


@pytest.fixture
def layout() -> Layout:
    return make_layout(PUBLISHED / "x.yaml", NODE, None)


def named(layout: Layout, *names: str, remark: str = "") -> dict:
    return {place: remark for name, place in layout.places if name in names}


ALL = ("A DAN", "B DAN", "A GRU", "B GRU")


@pytest.mark.parametrize(
    ("of", "among", "words"),
    [
        (ALL, ALL, "all cells"),
        (("A DAN", "B DAN"), ALL, "DAN, all columns"),
        (("A DAN", "B GRU"), ALL, "A DAN; B GRU"),
        (("A DAN", "B DAN", "A GRU"), ALL, "DAN, all columns; A GRU"),
        (("A DAN", "A GRU"), ("A DAN", "A GRU"), "all cells"),
        (("A DAN", "A GRU"), ("A DAN", "A GRU", "B GRU"), "A DAN; A GRU"),
        (("A DAN", "B GRU"), ("A DAN", "B GRU", "B DAN"), "A DAN; B GRU"),
        (("A DAN",), ("A DAN",), "A DAN"),
    ],
)
def test_cells_have_one_name_where_they_are_all_or_a_row(layout, of, among, words):
    assert listing(layout, named(layout, *of), named(layout, *among, remark="runs")) == words


def test_a_remark_of_all_stands_once(layout):
    three = named(layout, "A DAN", "B DAN", "A GRU", remark=" (seeds 0, 1)")
    assert listing(layout, three, named(layout, *ALL, remark="runs")) == "DAN, all columns; A GRU (seeds 0, 1 each)"
    three[("DAN", "B")] = " (seed 0)"
    assert listing(layout, three, named(layout, *ALL, remark="runs")) == "A DAN (seeds 0, 1); A GRU (seeds 0, 1); B DAN (seed 0)"
    assert listing(layout, named(layout, *ALL, remark=" (seed 0)"), named(layout, *ALL, remark="runs")) == "all cells (seed 0)"


def test_rates_at_an_end_of_the_search_are_named(layout, make_record):
    """Those of the runs, as the first trial of a search may have the settings of the cell."""
    rates = {"A DAN": 0.1, "B DAN": 0.01, "A GRU": 0.001, "B GRU": 0.1}
    runs = {place: [make_record({"config.optim.lr": rates[name]})] for name, place in layout.places}
    tuned = replace(layout, cells=tuple(replace(cell, tuning=Tuning((), "tuned")) for cell in layout.cells))
    assert edge_lines(tuned, runs) == [
        "The lowest learning rate of the search, 0.001, beyond which none was tried: A GRU",
        "The highest learning rate of the search, 0.1, beyond which none was tried: A DAN; B GRU",
    ]
    runs[("GRU", "B")] = []  # not run
    assert edge_lines(tuned, runs)[1].endswith(": A DAN")
    assert edge_lines(layout, runs) == []  # not tuned
    assert edge_lines(replace(tuned, tuning=()), runs) == []
    of_trials = [replace(cell, tuning=Tuning((), "tuned", (0.01, 0.1, 0.05))) for cell in layout.cells]
    same = [replace(cell, tuning=Tuning((), "tuned", (0.1, 0.1))) for cell in layout.cells]
    assert edge_lines(replace(tuned, tuning=(), cells=tuple(same)), runs) == []
    assert edge_lines(replace(tuned, tuning=(), cells=tuple(of_trials)), runs) == [
        "The lowest learning rate of the search, 0.01, beyond which none was tried: B DAN",
        "The highest learning rate of the search, 0.1, beyond which none was tried: A DAN",
    ]


def test_epochs_of_lbfgs_are_called_starts(make_record):
    line = settings_line(make_record({"config.trainer.max_epochs": 3, "config.optim.rule": "lbfgs"}))
    assert "3 starts" in line
    assert "epochs" not in line
    assert "3 epochs" in settings_line(make_record({"config.trainer.max_epochs": 3}))
