"""`make reproduce TABLE=...`: every distinct cell once, a failure listed at the end, and nothing run of a faulty table."""

import pytest

from scripts import reproduce

TABLE = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
protocol: P
columns: {A: {}, B: {overrides: [task=prefix30]}, C: {overrides: [task=prefix30]}}
rows: {GRU: {experiment: hnn_prefix10_gru_hyp, published: [0.1, 0.2, 0.3]}, BERT: {published: [0.1, 0.2, 0.3]}}
"""
RUNS = [
    ["run.py", "-m", "experiment=hnn_prefix10_gru_hyp", "seed=0,1", "logger=none"],
    ["run.py", "-m", "experiment=hnn_prefix10_gru_hyp", "task=prefix30", "seed=0,1", "logger=none"],
]


@pytest.fixture
def make(tmp_path, monkeypatch, write_record):
    """A function that runs the command with a table, and returns its exit code and what it would have run."""
    runs: list[list[str]] = []

    def ended(run: list[str]) -> int:
        runs.append(run)
        return int("task=prefix30" not in run)

    monkeypatch.setattr(reproduce, "ended", ended)

    def call(text: str, *arguments: str) -> tuple[int, list[list[str]]]:
        write_record(tmp_path / "published/hnn_table1.yaml", text)
        return reproduce.main(list(arguments), published=tmp_path / "published"), runs

    return call


def test_every_distinct_cell_is_run_once_and_a_failure_stops_no_other(make, capsys):
    assert make(TABLE, "hnn_table1", "0,1", "logger=none") == (1, RUNS)
    assert capsys.readouterr().err == "failed: python run.py -m experiment=hnn_prefix10_gru_hyp seed=0,1 logger=none\n"
    assert make(TABLE.replace("A: {}", "A: {overrides: [task=prefix30]}"), "hnn_table1")[0] == 0


def test_words_without_seeds_before_them_are_of_the_runs(make):
    assert make(TABLE, "hnn_table1", "logger=none") == (1, [[*run[:-2], "seed=0", "logger=none"] for run in RUNS])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tune", "3,4"), "--tune takes its seeds from `tuning` of the table; leave out 3,4."),
        (("3,4", "--tune"), "leave out 3,4."),
        (("--seeds", "0,1"), "'--seeds' is no setting, as logger=none; seeds are whole numbers"),
        (("--seeds=0,1",), "'--seeds=0,1' is no setting"),
        (("",), "'' is no setting"),
        (("0,1,",), "'0,1,' is no setting"),
        (("0", "1"), "'1' is no setting"),
        (("logger=none", "0,1"), "'0,1' is no setting"),
    ],
)
def test_a_word_that_is_neither_seeds_nor_a_setting_is_refused(make, capsys, words, said):
    assert make(f"{TABLE}tuning: [optim.lr=0.01]\n", "hnn_table1", *words) == (1, [])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "the same command with skip_finished=true runs what is missing."), (("--tune",), "the same command goes on.")],
)
def test_what_failed_before_it_was_stopped_is_said(make, capsys, monkeypatch, words, said):
    def ended(run: list[str]) -> int:
        if "task=prefix30" in run:
            raise KeyboardInterrupt
        return 1

    monkeypatch.setattr(reproduce, "ended", ended)
    assert make(f"{TABLE}tuning: [optim.lr=0.01]\n", "hnn_table1", *words)[0] == 130
    error = capsys.readouterr().err
    assert f"It was stopped; {said}\n" in error
    assert error.count("failed: python run.py -m ") == 1


def test_a_run_that_is_stopped_has_the_time_to_save(tmp_path, write_record, monkeypatch):
    """It gets the Ctrl-C as well, and needs longer than the quarter of a second for which subprocess.run waits."""
    write_record(tmp_path / "published/hnn_table1.yaml", TABLE)
    saved = tmp_path / "saved"
    child = f"import os, pathlib, signal, time; os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); pathlib.Path({str(saved)!r}).touch()"
    monkeypatch.setattr(reproduce, "commands", lambda *_: [["-c", child]])
    assert reproduce.main(["hnn_table1"], published=tmp_path / "published") == 130
    assert saved.exists()


@pytest.mark.parametrize(
    ("text", "table", "words"),
    [
        (TABLE, "hnn_table9", "there is no table hnn_table9. There are: hnn_table1."),
        (TABLE.replace("[task=prefix30]", "[task=prefix31]", 1), "hnn_table1", "'GRU, B' do not compose: There is no task named prefix31"),
        (TABLE.replace("GRU: {experiment: hnn_prefix10_gru_hyp,", "GRU: {"), "hnn_table1", "none of its rows has an experiment"),
    ],
)
def test_nothing_is_run_of_a_table_that_is_faulty(make, capsys, text, table, words):
    assert make(text, table) == (1, [])
    assert words in capsys.readouterr().err
