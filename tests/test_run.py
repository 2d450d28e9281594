"""run.py from the command line to the record: results, several runs."""

import csv
import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from hyperbolic import switch
from scripts import records
from tasks.record import alone_in
from tests.cli import QUIET, SHORT, Result, call, places, short, toy


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "logger=csv", "seed=5")


def test_a_run_ends_with_its_record(finished):
    folder, result = finished
    assert result.code == 0, result.err
    assert "test/accuracy" in result.out
    home = result.record_path.parent
    assert home.parent == folder / "out" / "prefix_toy-poincare-gru"
    assert home.name.endswith("-seed5")
    names = {str(f.relative_to(home)) for f in home.rglob("*") if f.is_file() and ".hydra" not in f.parts}
    assert names >= {
        "record.json", "history.csv", "learning_curve.png", "log/metrics.csv", "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
    }  # fmt: skip
    assert not [n for n in names if "part" in n]
    counts = result.record["data"]["counts"]
    for split in ("train", "dev", "test"):
        assert f"\n{split}: {counts[split]['pairs']} pairs, {counts[split]['positive']} positive\n" in result.out
    with (home / "log" / "metrics.csv").open() as file:
        validations = [row for row in csv.DictReader(file) if row["val/accuracy"]]
    assert len(validations) == 3, "one row each"
    diagnostics = [name for name in validations[0] if name.startswith("diagnostics/")]
    assert diagnostics
    assert all(row[name] for row in validations for name in diagnostics)
    assert (home / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_record_says_everything(finished):
    _, result = finished
    record = result.record
    records.validate(record, result.record_path)
    assert record["experiment"] is None
    assert record["seed"] == 5
    assert record["fidelity"] == "paper"
    assert record["data"]["share"] == pytest.approx(4 / 13)
    assert record["data"]["counts"]["test"] == {"pairs": 60, "positive": 30}
    assert record["parameters"] == sum(
        v.numel() for v in torch.load(result.record_path.parent / "checkpoints" / "best.ckpt")["state_dict"].values()
    )
    assert record["selection"]["metric"] == "val/accuracy"
    assert record["selection"]["value"] == record["metrics"]["val/accuracy"]
    assert {"test/accuracy", "test/loss", "val/loss", "train/loss"} <= set(record["metrics"])
    assert all(0 <= record["metrics"][f"{s}/accuracy"] <= 1 for s in ("train", "val", "test"))
    assert record["versions"]["torch"] == version("torch")
    assert record["examples_per_s"] > 0
    assert record["peak_memory_bytes"] > 1e7
    assert str(finished[0]) not in json.dumps(record), "no path of this machine"
    assert any(name.startswith("diagnostics/sentences/") for name in record["diagnostics"])
    assert any(name.startswith("diagnostics/embedding.weight/") for name in record["diagnostics"])


def test_the_history_has_a_row_for_each_epoch(finished):
    _, result = finished
    with (result.record_path.parent / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [row["step"] for row in rows] == ["4", "8", "12"]
    best = max(float(row["val/accuracy"]) for row in rows)
    assert best == pytest.approx(result.record["selection"]["value"], rel=1e-6), "float32, as logged"
    assert float(rows[-1]["train/loss"]) < float(rows[0]["train/loss"])
    distances = [float(row["diagnostics/sentences/dist0_mean"]) for row in rows]
    last = result.record["diagnostics"]["diagnostics/sentences/dist0_mean"]
    assert distances[-1] == pytest.approx(last, rel=1e-6), "float32, as logged"
    assert len(set(distances)) == 3, "it is that of each epoch"
    best = max(rows, key=lambda row: float(row["val/accuracy"]))
    assert float(best["val/accuracy"]) == result.record["selection"]["value"]


def test_the_folder_of_a_run_that_came_to_its_end_is_no_place_for_another(finished):
    """One hydra.run.dir for two commands; the same command, given again by a cluster, finds its run there."""
    folder, result = finished
    home = result.record_path.parent
    files = [file for file in home.rglob("*") if file.is_file() and file.suffix != ".log"]
    before = [file.read_bytes() for file in files]
    place = f"hydra.run.dir={home}"
    for words in (("seed=6",), ("mode=test", f"checkpoint={home}")):
        again = short(folder, place, "logger=csv", *words)
        assert again.code == 1
        assert "which this one would overwrite. Give it another folder" in again.err
        assert again.err.count("\n") == 1
    assert short(folder, place, "logger=csv", "seed=5", "skip_finished=true").record_path == result.record_path
    resumed = short(folder, place, "logger=csv", "seed=5", f"trainer.resume={home}")
    assert (resumed.code, resumed.record_path) == (0, result.record_path)
    assert "finished before" in resumed.out
    assert [file.read_bytes() for file in files] == before


def test_the_folder_of_a_run_that_is_at_work_is_no_place_for_another(tmp_path):
    """Which leaves the settings and logs that are there alone, and goes on there when the first one is gone."""
    home = tmp_path / "run"
    (home / ".hydra").mkdir(parents=True)
    (home / ".hydra" / "config.yaml").write_text("seed: 5\n")
    place = f"hydra.run.dir={home}"
    with alone_in(home):
        other = short(tmp_path, place, "seed=6")
        assert (other.code, other.err.count("\n")) == (1, 1)
        assert other.err.startswith(f"error: Another run is at work in {home}, ")
        assert (home / ".hydra" / "config.yaml").read_text() == "seed: 5\n"
    assert short(tmp_path, place, "seed=6", "trainer.max_epochs=1").record_path == home / "record.json"


def test_the_same_seed_gives_the_same_numbers(finished, tmp_path):
    _, result = finished
    again, other = short(tmp_path, "seed=5"), short(tmp_path, "seed=6")
    assert again.record["metrics"] == result.record["metrics"]
    assert again.record["data"]["sha256"] == result.record["data"]["sha256"] == other.record["data"]["sha256"]
    assert other.record["metrics"] != result.record["metrics"]


def test_a_checkpoint_is_tested(finished, tmp_path):
    _, result = finished
    best = result.record_path.parent / "checkpoints" / "best.ckpt"
    tested = short(tmp_path, "mode=test", f"checkpoint={best}", "seed=9")
    assert tested.code == 0, tested.err
    assert tested.record["metrics"]["test/accuracy"] == result.record["metrics"]["test/accuracy"]
    none = short(tmp_path, "mode=test", f"checkpoint={best}", "trainer.limit_test_batches=0")
    assert "error: trainer.limit_test_batches must be more than 0" in none.err
    half = short(tmp_path, "mode=test", f"checkpoint={best}", "trainer.limit_test_batches=0.5")
    assert "error: trainer.limit_test_batches=0.5 is a share of the test, which has 1 batch, and comes to" in half.err


TABLE = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
protocol: P
columns:
  short: {overrides: ["task.data.sizes={train: 200, dev: 40, test: 40}", task.data.batch_size=50, trainer.max_epochs=1]}
  whole: {}
rows: {fully hyperbolic RNN: {experiment: hnn_prefix10_rnn_hyp, published: [0.9691, 0.25]}}
"""


@pytest.mark.long
def test_an_experiment_names_its_runs_and_shows_the_published_value_of_the_cell_that_it_fills(tmp_path, monkeypatch):
    (tmp_path / "hnn_table1.yaml").write_text(TABLE, encoding="utf-8")
    monkeypatch.setattr("configs.tables.PUBLISHED", tmp_path)
    result = call(
        "-m", "experiment=hnn_prefix10_rnn_hyp", *QUIET, "task.data.sizes={train: 200, dev: 40, test: 40}",
        "task.data.batch_size=50", "trainer.max_epochs=1", "trainer.kernels=plain", "optim.lr=0.01,0.02", *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["experiment"] == "hnn_prefix10_rnn_hyp"
    assert "paper" not in result.record
    assert "task.data.batch_size=50" in result.record["overrides"]
    assert not [w for w in result.record["overrides"] if w.startswith("paths.")]
    assert result.record_path.parent.parent.name == "hnn_prefix10_rnn_hyp"
    assert result.out.count("published (fully hyperbolic RNN, short)") == 1, "the other learning rate fills no cell"
    assert result.record["config"]["optim"]["lr"] == 0.02, "the second job is composed as if nothing had been in between"
    assert "whole" not in result.out
    records.validate(result.record, result.record_path)


@pytest.mark.long
def test_a_multirun_makes_a_record_in_a_folder_of_its_own_for_each_job(tmp_path):
    result = call(
        "-m", "task=prefix_toy", "geometry=poincare,euclidean", "seed=0,1", *QUIET, "trainer.max_epochs=1",
        "trainer.limit_train_batches=1", "task.data.sizes={train: 100, dev: 20, test: 20}",
        *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    results = [json.loads(f.read_text()) for f in tmp_path.glob("out/*/*/record.json")]
    assert sorted((r["config"]["geometry"]["name"], r["seed"]) for r in results) == [
        ("euclidean", 0), ("euclidean", 1), ("poincare", 0), ("poincare", 1),
    ]  # fmt: skip
    assert result.out.count("record: ") == 4 + 1  # of each job, and behind the comparison the last one's again


@pytest.mark.long
def test_a_failed_job_fails_the_multirun_and_the_others_are_run(tmp_path):
    result = call(
        "-m", "task=prefix_toy", "task.data.batch_size=0,20", *QUIET, "trainer.max_epochs=1",
        "task.data.sizes={train: 20, dev: 20, test: 20}", *places(tmp_path),
    )  # fmt: skip
    assert result.code == 1
    assert "task.data.batch_size must be a whole number of at least 1" in result.err
    assert len(list(tmp_path.glob("out/*/*/record.json"))) == 1


def test_a_multirun_without_jobs_is_an_error(tmp_path):
    result = call("-m", "experiment=glob(nothing_*)", f"paths.output_dir={tmp_path}")
    assert result.code == 1
    assert "no name matches" in result.err


def test_steps_can_end_a_run_between_two_validations(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_steps=3", "trainer.max_epochs=null")
    assert result.code == 0, result.err
    assert result.record["selection"]["step"] == 3
    assert "val/accuracy" in result.record["metrics"]


def test_without_validation_the_last_state_is_tested(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_epochs=1", "trainer.limit_val_batches=0")
    assert result.code == 0, result.err
    assert result.record["selection"] is None
    assert "test/accuracy" in result.record["metrics"]


def test_of_epochs_that_are_equally_good_the_one_with_the_lowest_loss_is_tested(tmp_path):
    """As with few examples in dev."""
    words = ("task=nli_toy", "task.data.sizes={dev: 4, train: 500}", "trainer.max_epochs=12")
    result = call(*words, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    with (result.record_path.parent / "history.csv").open() as file:
        rows = [{k: float(row[k]) for k in ("epoch", "val/accuracy", "val/loss")} for row in csv.DictReader(file)]
    best = max(row["val/accuracy"] for row in rows)
    equal = [row for row in rows if row["val/accuracy"] == best]
    lowest = min(equal, key=lambda row: row["val/loss"])
    assert lowest is not equal[0], "the example has no tie"
    assert result.record["selection"]["epoch"] == lowest["epoch"]


def test_training_stops_early(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_epochs=30", "trainer.patience=2", "optim.lr=0.0")
    assert result.code == 0, result.err
    with (result.record_path.parent / "history.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3
    again = toy(
        tmp_path, *SHORT, "trainer.max_epochs=30", "trainer.patience=2", "optim.lr=0.0",
        f"trainer.resume={result.record_path.parent}",
    )  # fmt: skip
    assert again.code == 0, again.err
    assert "finished before (it was stopped early, by its trainer.patience)" in again.out


def test_float64_is_a_setting(tmp_path):
    result = short(tmp_path, "trainer.precision=64-true", "optim=hnn", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    state = torch.load(result.record_path.parent / "checkpoints" / "best.ckpt")["state_dict"]
    assert {v.dtype for v in state.values()} == {torch.float64}


@pytest.mark.long
def test_a_test_has_the_kernels_that_are_asked_for(tmp_path, monkeypatch):
    trained = short(tmp_path, "trainer.max_epochs=1").record_path.parent
    modes = []
    monkeypatch.setattr("tasks.training.build_kernels", lambda trainer: modes.append(switch.mode()))
    for mode in ("plain", "fast"):
        assert toy(tmp_path, "mode=test", f"checkpoint={trained}", f"trainer.kernels={mode}").code == 0
    assert modes == ["plain", "fast"]


def test_the_program_prints_a_configuration():
    outcome = call("experiment=hnn_prefix10_gru_hyp_eucl_mlr", "task=prefix50", "--cfg", "job")
    assert not outcome.code, outcome.err
    assert re.search(r"parts:\n\s+classifier: euclidean", outcome.out)
    assert "name: prefix50" in outcome.out
