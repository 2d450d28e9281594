"""python scripts/compare.py, and the table at the end of a multirun."""

import csv
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from configs import multirun
from configs.multirun import Jobs, Result
from scripts import compare
from tests import cli


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """Four small trainings of a multirun: two settings with two seeds each. Their folder, and what was printed."""
    folder = tmp_path_factory.mktemp("multirun")
    words = (*cli.QUIET, *cli.places(folder), *cli.SHORT, "trainer.max_epochs=2", "optim.lr=0.01,0.1", "seed=0,1")
    result = cli.call("-m", "task=prefix_toy", *words)
    assert result.code == 0, result.err
    return folder / "out", result.out


@pytest.fixture
def records(tmp_path, make_record, write_record):
    """A function that writes records with the changes of each into folders of runs."""

    def write(*changes: dict) -> Path:
        for k, change in enumerate(changes):
            seed = change.get("seed", 0)
            change = {"config.seed": seed, **change}
            write_record(tmp_path / "out" / "toy" / f"{k}-seed{seed}" / "record.json", make_record(change))
        return tmp_path / "out"

    return write


def command(*words: object) -> int:
    return compare.main([str(word) for word in words])


def table_of(text: str) -> list[str]:
    """The last table that was printed, with its notes."""
    lines = text.rstrip().splitlines()
    start = max(k for k, line in enumerate(lines) if line.startswith("┏")) - 1
    return [line.rstrip() for line in lines[start:] if not line.startswith("written: ")]


@pytest.mark.long
def test_a_multirun_ends_with_the_table_that_the_command_prints(trained, capsys):
    folder, printed = trained
    assert command(folder) == 0
    table = table_of(capsys.readouterr().out)
    *ours, last = table_of(printed)
    assert last.startswith("record: ")
    assert table == ours
    assert table[2].split() == [
        "┃",
        "rank",
        "┃",
        "optim.lr",
        "┃",
        "seeds",
        "┃",
        "val/accuracy",
        "┃",
        "test/accuracy",
        "┃",
        "test/loss",
        "┃",
        "difference",
        "from",
        "1",
        "┃",
    ]
    assert len([line for line in table if line.startswith("│")]) == 2


@pytest.mark.long
def test_files_have_what_the_records_have(trained, tmp_path, capsys):
    folder, _ = trained
    files = [tmp_path / "deep" / name for name in ("table.csv", "table.md", "curves.svg")]
    options = [word for pair in zip(("--csv", "--markdown", "--curves"), files, strict=True) for word in pair]
    assert command(*sorted(folder.glob("*/*")), *options) == 0
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    means: dict[str, list[float]] = {}
    for path in folder.rglob("record.json"):
        made = json.loads(path.read_text())
        means.setdefault(str(made["config"]["optim"]["lr"]), []).append(made["metrics"]["test/accuracy"])
    assert {row["optim.lr"]: float(row["test/accuracy mean"]) for row in rows} == {
        key: pytest.approx(sum(values) / 2) for key, values in means.items()
    }
    assert float(rows[0]["val/accuracy mean"]) >= float(rows[1]["val/accuracy mean"])
    assert "| rank | optim.lr |" in files[1].read_text()
    drawn = files[2].read_text()
    assert all(f"optim.lr={value} (2 seeds)" in drawn for value in ("0.01", "0.1"))
    assert "seed0" not in drawn.partition("prefix_toy")[0]
    assert capsys.readouterr().out.count("written: ") == 3


@pytest.mark.long
def test_curves_are_means_over_seeds(trained):
    from scripts.drawing.seed_bands import mean_curve
    from scripts.trained import read_run
    from tasks.comparison import Setting

    runs = [read_run(path.parent) for path in sorted(trained[0].rglob("record.json"))[:2]]
    curve = mean_curve(Setting({}, "both", {}, {}), runs, "val/loss")
    columns = [dict(run.column("val/loss")) for run in runs]
    assert [epoch for epoch, _ in curve.points] == [1, 2]
    for (epoch, mean), (low, high) in zip(curve.points, curve.band, strict=True):
        a, b = (column[epoch] for column in columns)
        assert mean == pytest.approx((a + b) / 2)
        assert high - low == pytest.approx(2 * abs(a - b) / 2**0.5)


def test_tasks_have_tables_and_curves_of_their_own(records, tmp_path, capsys):
    folder = records({"config.task.name": "one"}, {"config.task.name": "two", "data.sha256": {"test": "other"}})
    assert command(folder) == 0
    assert capsys.readouterr().out.count("┏") == 2
    for file in folder.rglob("record.json"):
        file.with_name("history.csv").write_text("epoch,step,train/loss\n1,2,0.5\n2,4,0.4\n")
    assert command(folder, "--csv", tmp_path / "c.csv", "--curves", tmp_path / "c.svg") == 0
    assert {file.name for file in tmp_path.glob("c*")} == {"c.csv", "c-one_train.svg", "c-two_train.svg"}
    assert "c-two_train.svg" in capsys.readouterr().out
    file.with_name("history.csv").unlink()
    assert command(folder, "--csv", tmp_path / "d.csv", "--curves", tmp_path / "d.svg") == 1
    assert not list(tmp_path.glob("d*")), "some were written before the one that cannot be drawn"


def test_data_of_one_name_are_told_apart(records, capsys):
    data = {"config.task.data.folder": "mine", "data.files": {"test": "test.txt"}}
    sums = [hashlib.sha256(text).hexdigest() for text in (b"one", b"other")]
    folder = records(*(data | {"data.sha256": {"test": sum_}} for sum_ in sums))
    assert command(folder) == 0
    titles = re.findall(r"\w+, \w+/test.txt(?: \(data.sha256.test \w+\))?", capsys.readouterr().out)
    assert {*titles} == {f"task, mine/test.txt (data.sha256.test {sum_[:6]})" for sum_ in sums}


def test_a_run_is_called_by_the_files_that_it_chose(records, capsys):
    other = {"config.encoder": {"_target_": "a.Transformer", "n_heads": 4}, "overrides": ["encoder=transformer"]}
    folder = records({"config.encoder": {"_target_": "a.RecurrentEncoder"}, "overrides": []}, other)
    notes = folder / "toy" / "0-seed0" / ".hydra" / "hydra.yaml"
    notes.parent.mkdir()
    known = "hydra: {runtime: {choices: {encoder: gru, sweep: null}}}"
    for text, name in ((known, "gru"), ("hydra: &a [*a]", "RecurrentEncoder")):
        notes.write_text(text)
        assert command(folder) == 0
        assert f"│ {name} " in capsys.readouterr().out


def test_patterns_and_files_name_runs_too(records, capsys):
    folder = records({"seed": 0}, {"seed": 1}, {"seed": 2, "config.optim.lr": 0.5})
    assert command(folder / "*" / "*-seed[12]", folder / "toy" / "1-seed1" / "record.json") == 0
    assert len([line for line in table_of(capsys.readouterr().out) if line.startswith("│")]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "There is no nowhere. Name folders of runs"),
        (["nowhere/*"], "There is no nowhere/*. Name folders"),
        (["{out}/empty"], "There is no record.json in"),
        (["{out}", "--curves", "c.txt"], "--curves c.txt: the name of the file ends in .png, .svg, .pdf."),
        (["{out}", "--curves", "c.png"], "has no history.csv"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_paragraph(records, words, message, capsys):
    folder = records({})
    (folder / "empty").mkdir()
    assert command(*(word.replace("{out}", str(folder)) for word in words)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_damaged_record_is_refused(records, capsys):
    folder = records({}, {"metrics": {"test/accuracy": "high"}})
    assert command(folder) == 1
    assert (
        "1-seed0/record.json: not the record of a finished run: metric 'test/accuracy' is 'high'"
        in capsys.readouterr().err
    )


def test_runs_that_are_no_finished_trainings_are_left_out(records, capsys):
    folder = records({}, {"config.mode": "predict"})
    (folder / "toy" / "2-seed2" / "checkpoints").mkdir(parents=True)
    assert command(folder) == 0
    notes = capsys.readouterr().err
    assert f"note: 1 run without a record left out, as {folder}/toy/2-seed2" in notes
    assert "note: 1 record left out that is of no training" in notes
    shutil.rmtree(folder / "toy" / "0-seed0")
    assert command(folder) == 1
    assert "is of mode=predict; name the folders of trainings" in capsys.readouterr().err


def test_a_search_does_not_tell_test_metrics(records, capsys):
    folder = records({}, {"config.optim.lr": 0.5})
    jobs = Jobs()
    files = [str(file) for file in sorted(folder.rglob("record.json"))]
    jobs.notes = {k: {"record": file} for k, file in enumerate([*files, str(folder / "gone.json"), None])}
    try:
        multirun.show_results(jobs)
        assert "test/accuracy" in capsys.readouterr().out
        jobs.searches = True
        multirun.show_results(jobs)
        printed = capsys.readouterr().out
        assert "val/accuracy" in printed
        assert "test/" not in printed
    finally:
        Jobs.latest = None


def test_a_result_is_a_number_for_sweepers_and_knows_its_record(tmp_path):
    import pickle

    result = pickle.loads(pickle.dumps(Result(0.5, tmp_path)))
    assert (result, result.record) == (0.5, tmp_path)
    assert multirun.result(None, tmp_path) != multirun.result(None, tmp_path), "nothing selects: not a number"
