"""Mistakes of a user: one paragraph that names the culprit and the remedy, an exit code, and nothing half-written."""

import re
from pathlib import Path

import pytest
import torch

from tests.cli import QUIET, Result, call, command, short, toy


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "logger=csv", "seed=5")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("task=nothing", "There is no task named nothing"),
        ("geometry=nothing", "There is no geometry named nothing"),
        ("experiment=nothing", "There is no experiment named nothing"),
        ("nothing=1", "There is no key nothing"),
        ("skip_finished=tru", "skip_finished=tru: true or false is needed here"),
        ("data.dir=mine", "data.dir=mine is for tasks that read a folder of your own"),
        ("optim.lr=fast", "optim.lr=fast"),
        ("geometry.parts.clasifier=euclidean", "sentence, ffnn, classifier"),
        ("geometry.parts.classifier=euclid", "geometry.parts.classifier"),
        ("geometry.c=0", "c must be a positive number"),
        ("geometry.c=-1", "c must be a positive number"),
        ("encoder.cell=lstm", "rnn, gru"),
        ("encoder.nonlinearity=cosine", "cosine"),
        ("task.data.batch_size=0", "task.data.batch_size must be a whole number of at least 1"),
        ("task.data.batch_size=1.5", "task.data.batch_size=1.5: a whole number is needed"),
        ("task.model.d_hidden=0", "task.model.d_hidden"),
        ("task.model.init_norm=-1.0", "task.model.init_norm"),
        ("--optim.lr=0.1", "--optim.lr: a setting is written without dashes"),
        ("optim.lr=-1", "lr must not be negative"),
        ("optim.rule=newton", "rule must be"),
        ("task.data.files.dev=nowhere.tsv", "There is no data file nowhere.tsv"),
        ("mode=test", "mode=test needs checkpoint="),
        ("mode=test checkpoint=nowhere output=a.csv", "output=a.csv: predictions are lines of JSON"),
        ("mode=test checkpoint=nowhere", "there is no checkpoint nowhere"),
        ("trainer.resume=nowhere", "there is no checkpoint nowhere"),
        ("trainer.max_epochs=0", "trainer.max_epochs must be at least 1"),
        ("trainer.limit_train_batches=0", "trainer.limit_train_batches must be more than 0"),
        ("trainer.limit_test_batches=0", "trainer.limit_test_batches must be more than 0"),
        ("trainer.limit_test_batches=0.5", "trainer.limit_test_batches=0.5 is a share of the test, which has 1 batch, and comes"),
        ("trainer.limit_test_batches=0.5 task.data.eval_batch_size=2 trainer.devices=2 trainer.accelerator=cpu", "which has 1 batch"),
        ("trainer.max_steps=0", "trainer.max_steps must be at least 1"),
        ("trainer.patience=0", "trainer.patience must be a whole number of at least 1"),
        ("trainer.precision=31", "trainer.precision must be one of 32-true, 64-true"),
        ("trainer.accelerator=abacus", "abacus"),
        ("trainer.devices=0", "trainer.devices must be at least 1, or auto, and it is 0"),
        ("trainer.val_check_interval=0", "trainer.val_check_interval=0 must be a whole number of batches, or a share"),
        ("trainer.val_check_interval=1.5", "trainer.val_check_interval=1.5 must be a whole number of batches, or a share"),
        ("task.module.select=val/f1", "val/accuracy, val/loss"),
        ("trainer.check_val_every_n_epoch=0", "trainer.check_val_every_n_epoch must be at least 1, and it is 0"),
        ("trainer.check_val_every_n_epoch=-1", "trainer.check_val_every_n_epoch must be at least 1, and it is -1"),
        ("trainer.accumulate_grad_batches=0", "trainer.accumulate_grad_batches must be at least 1, and it is 0"),
        ("trainer.accumulate_grad_batches=-3", "trainer.accumulate_grad_batches must be at least 1, and it is -3"),
        ("geometry.parts.classifier=hype_han", "hype_han.yaml has parts, which the geometry of one component does not take"),
        ("--experimental-rerun=FILE", "--experimental-rerun: a setting is written without dashes"),
        ("trainer.accumulate_grad_batches=9223372036854775808", "trainer.accumulate_grad_batches=9223372036854775808: take a whole"),
        ("paths.output_dir=", "paths.output_dir=: the folder has no name"),
        ("paths.cache_dir=''", "the folder has no name; give one, or leave the setting out"),
        ("encoder=[[1]]", "name one file of configs/encoder"),
        ("optim=null", "optim=null: the name of a file is needed here"),
        ("task=[prefix_toy]", "name one file of configs/task"),
        ("seed=-1", "seed must be a whole number of at least 0"),
        ("checkpoint=RUN input=FILE", "mode=fit does not use checkpoint and input. Did you mean mode=predict?"),
        ("output=FILE", "Did you mean mode=predict?"),
        ("checkpoint=RUN", "Did you mean mode=test or mode=predict? To go on with a training, take trainer.resume="),
        ("mode=test checkpoint=RUN input=FILE task=prefix_toy", "mode=test does not use input"),
        ("optim.lr=0,01", "optim.lr=[0,01]. A number has a point: optim.lr=0.01."),
        ("seed=1,2", "seed=1,2 has several values. Run each with -m, or give all as one list with seed=[1,2]."),
        ("optim.learning_rate=1", "There is no key optim.learning_rate. Did you mean optim.lr?"),
        ("trainer.devices=999", "asks for 999 processes, and this machine has"),
        ("logger=nothing", "There is no logger named nothing"),
        ("logger.project=mine", "logger.project"),
        ("+logger.mine.level=3", "logger.mine names no class"),
    ],
)
def test_a_mistake_is_told_in_one_paragraph_and_leaves_nothing(tmp_path, words, said):
    result = toy(tmp_path, "task.data.sizes={train: 20, dev: 4, test: 4}", *words.split())
    assert result.code == 1
    assert said in result.err
    assert result.err.startswith("error: ")
    assert result.err.strip().count("\n") == 0, "one paragraph"
    assert "Traceback" not in result.err
    assert "Error in call to target" not in result.err, "Hydra's words"
    assert "record:" not in result.out
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file() and ".cache" not in f.parts] == []


@pytest.mark.long
def test_the_interval_of_hnn_is_refused_for_short_epochs_with_one_that_works(tmp_path):
    few = ("task.data.sizes={train: 20, dev: 4, test: 4}", "trainer=hnn", "trainer.max_epochs=1")
    result = toy(tmp_path, *few)
    assert result.code == 1
    assert "trainer.val_check_interval=2000 validates after so many batches, and an epoch has 1." in result.err
    assert "check_val_every_n_epoch" not in result.err, "Lightning's words"
    (word,) = re.findall(r"Set (\S+=\S+),", result.err)
    assert toy(tmp_path, *few, word).code == 0


@pytest.mark.parametrize("line", ["1 2\t1\t2", "1 99\t1\t1", "1 2\t1"])
def test_a_faulty_data_file_stops_the_run(tmp_path, line):
    (tmp_path / "dev.tsv").write_text(f"1 2\t1\t1\n{line}\n")
    result = toy(tmp_path, f"task.data.files.dev={tmp_path}/dev.tsv")
    assert result.code == 1
    assert "dev.tsv, line 2:" in result.err
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file() and ".cache" not in f.parts] == []


def test_an_output_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = call("task=prefix_toy", *QUIET, f"paths.output_dir={tmp_path}/file/out")
    assert result.code == 1
    assert f"{tmp_path}/file/out" in result.err
    assert "paths.output_dir=..." in result.err


def test_an_empty_variable_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERBOLIC_CACHE", "")
    result = toy(tmp_path)
    assert result.code == 1
    assert "paths.cache_dir is empty (the variable HYPERBOLIC_CACHE sets it, too)" in result.err


def test_the_switch_shows_where_an_error_happened(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERBOLIC_FULL_ERROR", "1")
    with pytest.raises(ValueError, match="batch_size"):
        toy(tmp_path, "task.data.batch_size=0")


@pytest.mark.long
def test_a_checkpoint_of_another_task_is_refused(finished, tmp_path):
    _, result = finished
    best = result.record_path.parent / "checkpoints" / "best.ckpt"
    other = call("task=prefix10", *QUIET, "mode=test", f"checkpoint={best}", f"paths.output_dir={tmp_path}")
    assert other.code == 1
    assert "task.name='prefix_toy', not 'prefix10'" in other.err
    other = short(tmp_path, "mode=test", f"checkpoint={best}", "geometry=euclidean")
    assert other.code == 1
    assert "geometry.name='poincare', not 'euclidean'" in other.err
    other = call("mode=test", *QUIET, f"checkpoint={best}", "encoder=gru", "geometry=poincare", f"paths.output_dir={tmp_path}")
    assert other.code == 1
    assert "encoder and geometry: with this and no task all settings" in other.err
    assert "task.name='prefix_toy', not 'prefix10'" in other.err


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "foreign"])
def test_a_damaged_checkpoint_is_refused(finished, tmp_path, damage):
    _, result = finished
    data = (result.record_path.parent / "checkpoints" / "last.ckpt").read_bytes()
    bad = tmp_path / "bad.ckpt"
    if damage == "foreign":
        torch.save({"weights": torch.zeros(2)}, bad)
    else:
        bad.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "text": b"no checkpoint"}[damage])
    for words in (("mode=test", f"checkpoint={bad}"), (f"trainer.resume={bad}",)):
        refused = short(tmp_path, "seed=5", *words)
        assert refused.code == 1
        assert "bad.ckpt is " in refused.err
        assert refused.err.strip().count("\n") == 0


@pytest.mark.long
def test_the_program_itself_reports_mistakes_by_its_exit_code():
    done = command("task=nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("error: There is no task named nothing.")
    assert done.stderr.count("\n") == 1
