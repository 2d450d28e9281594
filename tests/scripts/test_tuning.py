"""`make tune`: the same search for every cell, its trials kept by `make collect`, and the cell with the best one's settings."""

from dataclasses import replace

import pytest

from configs.cells import TableError
from configs.errors import ConfigError
from configs.tables import PUBLISHED, load_layouts
from configs.tuning import read_tuning
from scripts import collect, reproduce
from tasks import search

TABLE = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
protocol: P
overrides: [trainer.max_epochs=3]
tuning: [hydra.sweeper.n_trials=2, "optim.lr=0.01,0.03", trainer.max_epochs=1, seed=9]
columns: {A: {}, B: {overrides: [task.model.d_hidden=7]}}
rows: {GRU: {experiment: hnn_prefix10_gru_hyp, published: [0.1, 0.2]}}
"""
NAME = "hnn_prefix10_gru_hyp-max_epochs=3-d_hidden=7"


@pytest.fixture
def published(tmp_path, write_record):
    write_record(tmp_path / "published/hnn_table1.yaml", TABLE)
    return tmp_path / "published"


@pytest.fixture
def searched(tmp_path, make_record, write_record):
    """A function that leaves the search of column B, with two trials, in the folder of outputs."""

    def leave(
        n_trials: int = 2, dirty: bool = False, key: str = "optim.lr", ended: bool = False, state: str = "complete",
        baseline: float | None = None, rates: tuple[str, str] = ("0.01", "0.03"), place: str = "outputs/tuning",
        best: float = 0.7,
    ) -> None:  # fmt: skip
        folder = tmp_path / place / NAME
        trials = []
        for number, (lr, value) in enumerate(((None if baseline else rates[0], baseline or 0.6), (rates[1], best))):
            settings = {key: lr} if lr else {}
            selection = {"metric": "val/accuracy", "mode": "max", "value": value, "epoch": 1}
            overrides = [f"{key}={lr}" for key in settings]
            record = make_record({"seed": 9, "dirty": dirty, "selection": selection, "overrides": overrides})
            del record["metrics"]["test/accuracy"]
            write_record(folder / f"trial-00{number}/record.json", record)
            trials.append(search.outcome(folder / f"trial-00{number}", number, settings, "val/accuracy"))
        trials = [trial if state == "complete" else replace(trial, state=state, value=None) for trial in trials]
        identity = {"words": [], "space": {"optim.lr": ["0.01", "0.03"]}}
        summary = search.Search(
            NAME, [], [], "random", 0, n_trials, identity, "", "val/accuracy", "max", trials, {"trial": 1} if ended else {}
        )
        search.write(summary, folder)

    return leave


def keep(tmp_path, *arguments: str) -> int:
    return collect.main(list(arguments), root=tmp_path, runs=tmp_path / "runs", published=tmp_path / "published")


def cells(published):
    return {cell.column: cell for cell in load_layouts(published)[0].cells}


def test_every_cell_is_searched_by_the_words_of_its_table(published, monkeypatch):
    runs: list[list[str]] = []
    monkeypatch.setattr(reproduce, "ended", lambda run: runs.append(run) or 0)
    assert reproduce.main(["hnn_table1", "--tune", "logger=none"], published=published) == 0
    tuning = ["hydra.sweeper.n_trials=2", "optim.lr=0.01,0.03", "trainer.max_epochs=1", "seed=9"]
    start = ["run.py", "-m", "hydra/sweeper=search", "experiment=hnn_prefix10_gru_hyp", "trainer.max_epochs=3"]
    folder = "hydra.sweeper.folder='${paths.output_dir}/tuning/"
    assert runs == [
        [*start, *tuning, f"{folder}hnn_prefix10_gru_hyp-max_epochs=3'", "logger=none"],
        [*start, "task.model.d_hidden=7", *tuning, f"{folder}{NAME}'", "logger=none"],
    ]


def test_a_table_that_does_not_say_how_is_not_searched(published):
    (published / "hnn_table1.yaml").write_text(TABLE.replace("tuning:", "#"))
    with pytest.raises(TableError, match="has no `tuning`"):
        reproduce.searches(load_layouts(published)[0], [])


def test_a_cell_has_the_settings_of_the_best_trial(tmp_path, published, searched, capsys):
    searched()
    assert keep(tmp_path) == 0
    assert "1 searches kept" in capsys.readouterr().out
    assert (tmp_path / "tuning" / f"{NAME}.csv").read_text().splitlines()[:2] == [
        "rank,trial,state,val/accuracy,optim.lr,epoch,wall_s,seed,commit",
        "1,1,complete,0.7,0.03,1,600.0,9,0123456789abcdef0123456789abcdef01234567",
    ]
    published_text = (published / "hnn_table1.yaml").read_text()
    both = published_text.replace("published: [0.1, 0.2]", 'published: [0.1, 0.2], tuned: "c of two values"')
    (published / "hnn_table1.yaml").write_text(both)
    assert load_layouts(published)[0].tuned == {"GRU": "c of two values"}
    assert cells(published)["A"].tuning is None
    tuned = cells(published)["B"]
    assert tuned.words[-2:] == ("task.model.d_hidden=7", "optim.lr=0.03")
    assert tuned.name == NAME  # so that records keep their names
    assert tuned.tuning.note == "tuned by us, 2 trials of optim.lr by val/accuracy, seed 9 (results/tuning/)"
    assert reproduce.searches(load_layouts(published)[0], [])[1].count("optim.lr=0.01,0.03") == 1


def test_a_cell_whose_own_settings_were_best_keeps_them(tmp_path, published, searched):
    searched(baseline=0.8)
    assert keep(tmp_path) == 0
    tuned = cells(published)["B"]
    assert tuned.words == ("experiment=hnn_prefix10_gru_hyp", "trainer.max_epochs=3", "task.model.d_hidden=7")
    assert tuned.tuning.note.startswith("tuned by us, 2 trials, the first with the settings of the cell, of optim.lr by")


def test_a_search_that_drew_settings_twice_and_came_to_its_end_is_kept(tmp_path, published, searched):
    searched(n_trials=3, ended=True)
    file = published / "hnn_table1.yaml"
    file.write_text(file.read_text().replace("n_trials=2", "n_trials=3"))
    assert keep(tmp_path) == 0
    assert cells(published)["B"].tuning.note.startswith("tuned by us, 2 trials of optim.lr")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_trials": 3}, "2 of 3 trials have ended"),
        ({"state": "diverged"}, "no trial has a result, so there is no best one"),
        ({"dirty": True}, "has trials of code that was not committed"),
        ({"key": "paths.output_dir"}, "has paths.output_dir='0.01', which `tuning` of the cell's table does not search"),
        ({"key": "seed"}, "has seed='0.01', which `tuning`"),
        ({"n_trials": 3, "ended": True}, "a search of 3 trials, and `tuning` of the cell's table has 2"),
        ({"rates": ("0.01", "0.02")}, "trial 1 has optim.lr='0.02', which `tuning`"),
    ],
)
def test_a_search_that_cannot_be_kept_is_refused(tmp_path, published, searched, capsys, arguments, words):
    searched(**arguments)
    assert keep(tmp_path) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "tuning").exists()


def test_another_search_does_not_take_the_place_of_the_one_that_is_kept(tmp_path, published, searched, capsys):
    searched()
    assert keep(tmp_path) == 0
    kept = (tmp_path / "tuning" / f"{NAME}.csv").read_text()
    assert keep(tmp_path) == 0, "the same again"
    searched(place="outputs/another", best=0.8)
    assert keep(tmp_path) == 1
    assert capsys.readouterr().err.count("is a search of the same cell; name one of them") == 2
    assert keep(tmp_path, str(tmp_path / "outputs/another")) == 1
    assert "keeps other trials of this cell. Replace them: make collect ARGS='--force" in capsys.readouterr().err
    assert (tmp_path / "tuning" / f"{NAME}.csv").read_text() == kept
    assert keep(tmp_path, "--force", str(tmp_path / "outputs/another")) == 0
    assert "0.8" in (tmp_path / "tuning" / f"{NAME}.csv").read_text()


@pytest.mark.parametrize("text", ["", "rank\n", "rank,trial,state,val/accuracy,optim.lr,epoch\n1,0,failed,,0.1,\n"])
def test_a_file_that_is_no_ranking_is_named(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"x\.csv: is no ranked table"):
        read_tuning(tmp_path / "x.csv")


def test_a_chosen_setting_that_is_no_setting_is_refused(tmp_path, published, searched):
    searched()
    keep(tmp_path)
    file = tmp_path / "tuning" / f"{NAME}.csv"
    file.write_text(file.read_text().replace("0.03", "${oc.env:HOME}"))
    with pytest.raises(TableError, match="must set a value"):
        load_layouts(published)


def test_what_is_kept_belongs_to_cells():
    names = {cell.name for layout in load_layouts() for cell in layout.cells}
    assert {file.stem for file in (PUBLISHED.parent / "tuning").glob("*.csv")} <= names
