"""The best state, patience and the mean of states of a run that goes on."""

import csv
from pathlib import Path

import pytest
import torch

from tasks.base import Task
from tasks.prefix.task import PrefixTask
from tests.cli import short
from tests.test_resume import same_end, signalled


@pytest.fixture
def scores(monkeypatch):
    """A function that gives the validation after each epoch an accuracy of a list."""

    def give(*values: float) -> None:
        plain = PrefixTask.summary

        def summary(self, sums):
            validates = self.trainer.state.stage == "validate"
            return plain(self, sums) | ({"accuracy": values[self.trainer.current_epoch]} if validates else {})

        monkeypatch.setattr(PrefixTask, "summary", summary)

    return give


@pytest.mark.long
def test_the_validation_after_the_last_step_is_not_that_of_a_run_that_goes_on(tmp_path, scores):
    """It would select a state that the same run in one go never measures."""
    words = ("optim.schedule=constant",)
    scores(0.5, 0.9, 0.9)
    part = short(tmp_path / "part", *words, "trainer.max_steps=6")
    assert part.record["selection"]["step"] == 6
    scores(0.5, 0.4, 0.3)
    longer = short(tmp_path / "longer", *words, f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=3")
    assert longer.record["selection"] == {"metric": "val/accuracy", "mode": "max", "value": 0.5, "epoch": 1, "step": 4}


def test_the_best_state_is_the_same_whether_it_is_written_at_once_or_kept(tmp_path, scores):
    scores(0.5, 0.9, 0.4)
    assert same_end(*(short(tmp_path / s, f"trainer.checkpoint_every_s={s}") for s in ("0", "1000")))


def broken_in(patch: pytest.MonkeyPatch, epoch: int, folder: Path, *words: str) -> Path:
    """The folder of a run that an error ends in an epoch, counted from 1; its last.ckpt is of the first one."""
    plain = Task.training_step

    def step(self, *arguments):
        if self.trainer.current_epoch == epoch - 1:
            raise RuntimeError("of the device")
        return plain(self, *arguments)

    with patch.context() as within:
        within.setattr(Task, "training_step", step)
        with pytest.raises(RuntimeError, match="of the device"):
            short(folder, *words, "trainer.max_epochs=6", "trainer.checkpoint_every_s=1000")
    (states,) = folder.glob("out/*/*/checkpoints")
    assert torch.load(states / "last.ckpt")["global_step"] == 4
    return states.parent


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("trainer.average_last=2", "trainer.limit_val_batches=0")], ids=["best", "mean"])
def test_states_ahead_of_the_last_checkpoint_are_of_a_run_that_is_as_long(tmp_path, monkeypatch, scores, words):
    """After an error in epoch 5, best.ckpt is of epoch 4, or the files of the last epochs are of 3 and 4."""
    scores(0.5, 0.4, 0.4, 0.9, 0.3, 0.3)
    home = broken_in(monkeypatch, 5, tmp_path / "broken", *words)
    refused = short(tmp_path / "shorter", *words, f"trainer.resume={home}", "trainer.max_epochs=2")
    assert refused.code == 1
    assert "is of epoch 4" in refused.err
    assert "trainer.max_epochs=2 does not reach" in refused.err
    assert refused.err.count("\n") == 1
    for end in (4, 6):
        whole = short(tmp_path / "whole", *words, f"trainer.max_epochs={end}")
        resumed = short(tmp_path / "resumed", *words, f"trainer.resume={home}", f"trainer.max_epochs={end}")
        assert resumed.record["metrics"] == whole.record["metrics"]
        assert resumed.record["selection"] == whole.record["selection"]


def test_a_record_says_of_which_validation_its_state_is(tmp_path, monkeypatch, scores):
    """The best state is ahead of last.ckpt, and the run that goes on does not find so good a one again."""
    scores(0.5, 0.4, 0.4, 0.9, 0.3, 0.3)
    home = broken_in(monkeypatch, 5, tmp_path)
    scores(0.5, 0.4, 0.4, 0.4, 0.3, 0.3)
    record = short(tmp_path / "resumed", f"trainer.resume={home}", "trainer.max_epochs=6").record
    assert record["selection"] == {"metric": "val/accuracy", "mode": "max", "value": 0.9, "epoch": 4, "step": 16}
    assert record["metrics"]["val/accuracy"] == 0.9


@pytest.mark.long
def test_no_mean_is_of_epochs_that_another_attempt_had(tmp_path, monkeypatch, scores):
    """Files of epochs 3 and 4, and a run that goes on after the first and is stopped early in the third."""
    words = ("trainer.average_last=2", "trainer.patience=2")
    scores(0.5, 0.6, 0.7, 0.8, 0.9, 0.9)
    home = broken_in(monkeypatch, 5, tmp_path, *words)
    scores(0.5, 0.4, 0.4, 0.4, 0.4, 0.4)
    result = short(tmp_path / "resumed", *words, f"trainer.resume={home}", "trainer.max_epochs=6")
    names = sorted(file.name for file in (result.record_path.parent / "checkpoints").glob("epoch-*"))
    assert names == ["epoch-000002.ckpt", "epoch-000003.ckpt"]


@pytest.mark.long
@pytest.mark.parametrize("content", [b"no checkpoint", None], ids=["damaged", "foreign"])
def test_a_state_of_the_mean_that_cannot_be_read_is_noticed_before_training_goes_on(tmp_path, content):
    words = ("trainer.average_last=2", "trainer.limit_val_batches=0", "optim.schedule=constant")
    home = short(tmp_path, *words, "trainer.max_epochs=2").record_path.parent
    file = home / "checkpoints" / "epoch-000002.ckpt"
    if content is None:
        state = torch.load(file)
        torch.save(state | {"state_dict": dict(list(state["state_dict"].items())[1:])}, file)
    else:
        file.write_bytes(content)
    result = short(tmp_path, *words, f"trainer.resume={home}", "trainer.max_epochs=3")
    assert result.code == 1
    assert "epoch-000002.ckpt" in result.err
    assert result.err.count("\n") == 1, result.err
    assert len(list(tmp_path.rglob("history.csv"))) == 1, "no other run has begun"


@pytest.mark.long
def test_patience_that_ends_before_the_least_epochs_stops_within_a_step_and_goes_on_exactly(
    tmp_path, monkeypatch, scores
):
    """It is used up after epoch 2 of at least 4, though validations are better later; a signal in epoch 3."""
    scores(0.5, 0.4, 0.6, 0.7, 0.8, 0.9)
    words = ("trainer.max_epochs=6", "trainer.min_epochs=4", "trainer.patience=1")
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, 10, "SIGTERM")
        broken = short(tmp_path / "broken", *words)
    assert (broken.code, len(steps)) == (130, 10), broken.err
    whole, resumed = short(tmp_path / "whole", *words), short(tmp_path / "broken", *words, "trainer.resume=auto")
    assert same_end(whole, resumed)
    assert torch.load(whole.record_path.parent / "checkpoints" / "last.ckpt")["global_step"] == 16
    again = short(tmp_path / "again", *words, f"trainer.resume={whole.record_path.parent}", "trainer.max_epochs=9")
    assert "stopped early, by its trainer.patience); to train it further, begin anew, with a larger" in again.out


def test_points_are_looked_at_as_steps_grow_by_half_before_and_after_an_interruption(tmp_path):
    words = ("trainer.limit_train_batches=1",)
    whole = short(tmp_path / "whole", *words, "trainer.max_epochs=10")
    with (whole.record_path.parent / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["diagnostics/sentences/dist0_mean"]] == ["1", "2", "3", "4", "6", "9"]
    assert short(tmp_path / "parts", *words, "trainer.max_epochs=3").code == 0
    again = short(tmp_path / "parts", *words, "trainer.max_epochs=10", "trainer.resume=auto")
    assert "last.ckpt: after step 3, in epoch 4\n" in again.out
    assert same_end(whole, again)


@pytest.mark.long
def test_a_run_that_its_patience_ends_says_so(tmp_path):
    result = short(tmp_path, "trainer.patience=2", "optim.lr=0")
    line = "training ended in epoch 3: val/accuracy was not better in 2 validations (trainer.patience=2)\n"
    assert result.code == 0
    assert line in result.out
