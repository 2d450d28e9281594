"""`make collect`: what is kept, under which name, and what is refused."""

import json
import os

import pytest

from scripts.collect import main

KEPT = "hnn_prefix10_gru_hyp-seed0-01234567.json"
TABLE = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
protocol: P
columns: {A: {}, B: {overrides: [task.model.d_hidden=7, geometry.parts.ffnn=euclidean]}}
rows: {GRU: {experiment: hnn_prefix10_gru_hyp, published: [0.1, 0.2]}}
"""
B = {"config.task.model.d_hidden": 7, "config.geometry.parts": {"ffnn": "euclidean"}}
KEPT_B = "hnn_prefix10_gru_hyp-d_hidden=7-ffnn=euclidean-seed0-01234567.json"


@pytest.fixture
def collect(tmp_path, write_record):
    """A function that runs the command on the folder tmp_path and returns its exit code."""
    write_record(tmp_path / "published/hnn_table1.yaml", TABLE)

    def run(*arguments: str) -> int:
        runs, published = tmp_path / "results" / "runs", tmp_path / "published"
        return main(list(arguments), root=tmp_path, runs=runs, published=published)

    return run


@pytest.fixture
def kept(tmp_path):
    """A function that lists the kept files by name."""
    return lambda: sorted(os.listdir(tmp_path / "results" / "runs")) if (tmp_path / "results").exists() else []


def test_a_record_is_copied_and_a_second_time_left_alone(tmp_path, collect, kept, make_record, write_record, capsys):
    write_record(tmp_path / "outputs/a/record.json", make_record())
    assert collect() == 0
    assert kept() == [KEPT]
    path = tmp_path / "results/runs" / KEPT
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert json.loads(before[0])["metrics"] == make_record()["metrics"]
    assert collect() == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert "1 unchanged" in capsys.readouterr().out


def test_folders_of_several_runs_are_read(tmp_path, collect, kept, make_record, write_record):
    write_record(tmp_path / "outputs/hnn_prefix10_gru_hyp/job0/record.json", make_record())
    write_record(tmp_path / "outputs/hnn_prefix10_gru_hyp/job1/record.json", make_record({"seed": 1}))
    assert collect() == 0
    assert kept() == [KEPT, "hnn_prefix10_gru_hyp-seed1-01234567.json"]


def test_the_text_does_not_depend_on_the_order_of_keys(tmp_path, collect, make_record, write_record):
    record = make_record()
    write_record(tmp_path / "a/record.json", record)
    write_record(tmp_path / "b/record.json", dict(reversed(record.items())))
    assert collect(str(tmp_path / "a")) == 0
    assert collect(str(tmp_path / "b")) == 0


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"experiment": None}, "no experiment"),
        ({"experiment": "quickstart"}, "quickstart"),
        ({"config.mode": "test"}, "not a training run"),
    ],
)
def test_what_is_no_result_is_skipped_and_counted(
    tmp_path, collect, kept, make_record, write_record, capsys, changes, word
):
    write_record(tmp_path / "outputs/a/record.json", make_record(changes))
    assert collect() == 0
    assert f"1 skipped ({word})" in capsys.readouterr().out
    assert kept() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metrics.test/accuracy": float("nan")}, "NaN is no number"),
        ({"metrics": {}}, "no test/... value"),
        ({"experiment": "../escape"}, "cannot name a file"),
        ({"commit": "/../../x"}, "'commit' is '/../../x', no commit of git"),
        ({"commit": ""}, "no commit of git"),
        ({"commit": None}, "outside a git clone"),
        ({"dirty": True}, "not committed"),
        ({"dirty": None}, "not committed"),
    ],
)
def test_a_bad_record_is_refused_and_the_good_ones_kept(
    tmp_path, collect, kept, make_record, write_record, capsys, changes, words
):
    bad = write_record(tmp_path / "outputs/a/record.json", make_record({"seed": 1, **changes}))
    write_record(tmp_path / "outputs/b/record.json", make_record())
    assert collect() == 1
    error = capsys.readouterr().err
    assert words in error
    assert str(bad) in error
    assert kept() == [KEPT]


def test_a_run_of_uncommitted_code_is_kept_on_demand_under_a_name_that_says_so(
    tmp_path, collect, kept, make_record, write_record
):
    write_record(tmp_path / "outputs/a/record.json", make_record({"dirty": True}))
    assert collect("--allow-dirty") == 0
    assert kept() == ["hnn_prefix10_gru_hyp-seed0-01234567-dirty.json"]


def test_two_runs_of_one_experiment_and_seed_are_both_refused(
    tmp_path, collect, kept, make_record, write_record, capsys
):
    paths = [
        write_record(tmp_path / f"outputs/{n}/record.json", make_record({"metrics.test/accuracy": 0.9 + n / 100}))
        for n in range(2)
    ]
    assert collect() == 1
    error = capsys.readouterr().err
    assert all(str(path) in error for path in paths)
    assert kept() == []
    assert collect(str(paths[1])) == 0
    assert kept() == [KEPT]


@pytest.mark.parametrize("changes", [{"metrics.test/accuracy": 0.99}, {"commit": "f" * 40}])
def test_another_result_is_not_overwritten_without_force(
    tmp_path, collect, kept, make_record, write_record, capsys, changes
):
    write_record(tmp_path / "a/record.json", make_record())
    write_record(tmp_path / "b/record.json", make_record(changes))
    assert collect(str(tmp_path / "a")) == 0
    before = (tmp_path / "results/runs" / KEPT).read_text()
    assert collect(str(tmp_path / "b")) == 1
    assert KEPT in capsys.readouterr().err
    assert (tmp_path / "results/runs" / KEPT).read_text() == before
    assert collect("--force", str(tmp_path / "b")) == 0
    [name] = kept()
    assert (tmp_path / "results/runs" / name).read_text() != before


def test_cells_of_one_experiment_have_names_of_their_own(tmp_path, collect, kept, make_record, write_record):
    write_record(tmp_path / "outputs/a/record.json", make_record())
    write_record(tmp_path / "outputs/b/record.json", make_record(B))
    assert collect() == 0
    assert kept() == [KEPT_B, KEPT]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config.optim.lr": 0.5}, "The nearest is 'GRU, A' of hnn_table1; the run has optim.lr=0.5, not 0.01."),
        ({**B, "config.optim.lr": 0.5}, "The nearest is 'GRU, B' of hnn_table1; the run has optim.lr=0.5, not 0.01."),
        ({"config.trainer.max_epochs": 2}, "the run has trainer.max_epochs=2, not 10."),
        ({"config.fidelity": "code"}, "the run has fidelity=code, not paper."),
        ({"config.task.data.noise": 30}, "the run has task.data.noise=30, not 10."),
        ({"config.task.data.files": {"train": "mine.tsv"}}, "the run has task.data.files.train=mine.tsv, not None."),
        ({"config.task.data.sizes": None}, "task.data.sizes.train=None, not 500000; "),
    ],
)
def test_a_record_whose_settings_are_those_of_no_cell_is_refused(
    tmp_path, collect, kept, make_record, write_record, capsys, changes, words
):
    path = write_record(tmp_path / "outputs/a/record.json", make_record(changes))
    assert collect() == 1
    assert f"refused: {path}: fits no cell of a table. " in (error := capsys.readouterr().err)
    assert words in error
    assert kept() == []


def test_a_record_whose_experiment_is_in_no_table_is_kept_whatever_its_settings(tmp_path, collect, kept, make_record, write_record):
    write_record(tmp_path / "outputs/a/record.json", make_record({"experiment": "mine", "config.optim.lr": 0.5}))
    assert collect() == 0
    assert kept() == ["mine-seed0-01234567.json"]


def test_the_record_that_an_experiment_left_under_its_old_name_is_a_rival(tmp_path, collect, kept, make_record, write_record, capsys):
    old = write_record(tmp_path / "results/runs/hnn_old_b-seed0-00000000.json", make_record({**B, "experiment": "hnn_old_b"}))
    write_record(tmp_path / "outputs/a/record.json", make_record({**B, "metrics.test/accuracy": 0.99}))
    assert collect() == 1
    assert f"{old} is already kept for {KEPT_B.removesuffix('-01234567.json')}, and it differs" in capsys.readouterr().err
    assert collect("--force") == 0
    assert kept() == [KEPT_B]


def test_seed_1_and_seed_10_are_different_results(tmp_path, collect, kept, make_record, write_record):
    for seed in (10, 1):
        write_record(tmp_path / f"outputs/{seed}/record.json", make_record({"seed": seed}))
    assert collect() == 0
    assert len(kept()) == 2


@pytest.mark.parametrize("arguments", [(), ("nowhere",)])
def test_nothing_to_collect_is_an_error(collect, capsys, arguments):
    assert collect(*arguments) == 1
    assert "error: no" in capsys.readouterr().err
