"""A run that was interrupted or killed goes on to the same end, to the last bit."""

import csv
import gzip
import json
import math
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from tasks import record, resume
from tasks.base import Task
from tasks.checkpoint_parts import Origin
from tasks.checkpoints import Checkpoints
from tasks.entity_typing.hyfi import PARTS
from tasks.entity_typing.task import EntityTypingTask
from tasks.prefix.task import PrefixTask
from tasks.settings import CONTINUED, TAKEN_UP, TESTED
from tests.cli import QUIET, Result, call, places, short


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "logger=csv", "seed=5")


WHERE = ("trainer.val_check_interval=2", "task.data.shuffle=examples")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Result:
    return short(tmp_path_factory.mktemp("uninterrupted"), *WHERE)


def same_end(one: Result, other: Result) -> bool:
    """Whether two runs have the same weights, optimiser, metrics, selection and history, to the last bit."""
    ends = []
    for result in (one, other):
        assert result.code == 0, result.err
        folder = result.record_path.parent
        last = torch.load(folder / "checkpoints" / "last.ckpt")
        best = torch.load(folder / "checkpoints" / "best.ckpt")
        with (folder / "history.csv").open() as file:
            timeless = [
                {k: v for k, v in row.items() if k not in ("seconds", "examples_per_s")} for row in csv.DictReader(file)
            ]
        ends.append((last["state_dict"], last["optimizer_states"], best["state_dict"], timeless, result.record))
    (*states, rows, record), (*other_states, other_rows, other_record) = ends
    equal = all(_equal(a, b) for a, b in zip(states, other_states, strict=True))
    same = [record[k] == other_record[k] for k in ("metrics", "selection", "diagnostics")]
    return equal and rows == other_rows and all(same)


def _equal(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b


@pytest.mark.parametrize(("steps", "accumulate"), [(6, 1), (2, 3)])
def test_a_run_that_its_steps_ended_within_an_epoch_goes_on_in_it(tmp_path, steps, accumulate):
    words = ("seed=5", "optim.schedule=constant", f"trainer.accumulate_grad_batches={accumulate}")
    part = short(tmp_path / "part", *words, f"trainer.max_steps={steps}")
    assert part.record["selection"]["step"] == steps
    home = f"trainer.resume={part.record_path.parent}"
    longer = short(tmp_path / "longer", *words, home, "trainer.max_epochs=4")
    assert longer.code == 0, longer.err
    whole = short(tmp_path / "whole", *words, "trainer.max_epochs=4")
    assert same_end(whole, longer)


def test_the_validation_after_the_last_step_is_not_that_of_a_run_that_goes_on(tmp_path, scores):
    """It would select a state that the same run in one go never measures."""
    words = ("optim.schedule=constant",)
    scores(0.5, 0.9, 0.9)
    part = short(tmp_path / "part", *words, "trainer.max_steps=6")
    assert part.record["selection"]["step"] == 6
    scores(0.5, 0.4, 0.3)
    longer = short(tmp_path / "longer", *words, f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=3")
    assert longer.record["selection"] == {"metric": "val/accuracy", "mode": "max", "value": 0.5, "epoch": 1, "step": 4}


def test_a_run_that_its_steps_ended_at_a_validation_within_an_epoch_does_not_go_on(tmp_path):
    words = ("optim.schedule=constant", *WHERE)
    part = short(tmp_path / "part", *words, "trainer.max_steps=6")
    assert part.code == 0, part.err
    longer = short(tmp_path / "longer", *words, f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=4")
    assert longer.code == 1
    assert "trainer.max_steps ended that run within an epoch, at a validation" in longer.err


def test_a_state_of_patience_from_before_is_taken_over(tmp_path, monkeypatch):
    """Its key in a checkpoint is that of Lightning's callback."""
    words = ("trainer.patience=3", "optim.lr=0", "optim.schedule=constant")
    part = short(tmp_path / "part", *words, "trainer.max_epochs=2")
    file = part.record_path.parent / "checkpoints" / "last.ckpt"
    state = torch.load(file)
    (key,) = [key for key in state["callbacks"] if "Stopping" in key]
    assert key.startswith("EarlyStopping{")
    longer = short(tmp_path / "longer", *words, f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=9")
    assert "training ended in epoch 4: " in longer.out
    for name, value in (("wait_count", -1), ("wait_count", "a"), ("best_score", 3), ("best_score", torch.tensor(math.nan))):
        torch.save(state | {"callbacks": state["callbacks"] | {key: state["callbacks"][key] | {name: value}}}, file)
        damaged = short(tmp_path / "damaged", *words, f"trainer.resume={file}", "trainer.max_epochs=9")
        assert damaged.code == 1
        assert "is damaged" in damaged.err, damaged.err


@pytest.mark.long
def test_a_finished_run_is_not_resumed_unless_it_may_go_on(finished, tmp_path):
    _, result = finished
    home = result.record_path.parent
    again = short(tmp_path, "seed=5", f"trainer.resume={home}")
    assert again.code == 0, again.err
    assert "finished before (3 epochs of trainer.max_epochs=3); to train it further, raise trainer.max_epochs" in again.out
    assert again.record_path == result.record_path
    assert not list(tmp_path.glob("out/[!.]*/*")), "nothing is left of the attempt"
    other = short(tmp_path, "seed=5", f"trainer.resume={home}", "optim.lr=0.02", "trainer.max_epochs=4")
    assert other.code == 1
    assert "optim.lr=0.01, not 0.02" in other.err
    weights = short(tmp_path, "seed=5", f"trainer.resume={home / 'checkpoints' / 'best.ckpt'}", "trainer.max_epochs=4")
    assert weights.code == 1
    assert "holds weights only" in weights.err
    longer = short(tmp_path, "seed=5", f"trainer.resume={home}", "trainer.max_epochs=4")
    assert longer.code == 0, longer.err
    whole = short(tmp_path, "seed=5", "trainer.max_epochs=4")
    assert same_end(whole, longer)


def test_a_command_that_is_given_again_when_its_run_went_on_and_finished_does_nothing(tmp_path, monkeypatch):
    """As Slurm does with a job that was pre-empted. The first attempt stays unfinished for ever."""
    words = ("logger=csv", "trainer.resume=auto")
    with monkeypatch.context() as patch:
        signalled(patch, PrefixTask, 3, "SIGTERM")
        assert short(tmp_path, *words).code == 130
    finished = short(tmp_path, *words)
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, 0, "SIGTERM")
        again = short(tmp_path, *words)
    assert again.code == 0, again.err
    assert not steps
    assert "finished before, with the same settings" in again.out
    assert again.record_path == finished.record_path
    assert len(list(tmp_path.glob("out/[!.]*/*"))) == 2


def test_resuming_starts_anew_where_no_run_has_the_same_settings(finished, tmp_path):
    folder, _ = finished
    result = short(folder, "trainer.resume=auto", "seed=77", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    assert result.record["metrics"] == short(tmp_path, "seed=77", "trainer.max_epochs=1").record["metrics"]


def signalled(patch: pytest.MonkeyPatch, task: type[Task], at: int, by: str) -> list[int]:
    """Let step `at` of the task send its process a signal. Returns a list that has an entry for each step."""
    steps, plain = [], task.training_step

    def interrupted(self, *arguments):
        steps.append(1)
        if len(steps) == at:
            os.kill(os.getpid(), getattr(signal, by))
        return plain(self, *arguments)

    patch.setattr(task, "training_step", interrupted)
    return steps


@pytest.mark.parametrize(("at", "by"), [(1, "SIGINT"), (2, "SIGINT"), (4, "SIGINT"), (7, "SIGINT"), (5, "SIGTERM")])
def test_an_interrupted_run_goes_on_exactly(tmp_path, monkeypatch, uninterrupted, at, by):
    """A signal in step `at`; epochs end after 4 steps, validations come after 2."""
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, at, by)
        broken = short(tmp_path, *WHERE)
    assert broken.code == 130
    assert "Interrupted at step" in broken.err
    assert "trainer.resume=" in broken.err
    assert len(steps) <= at + 2
    assert not list(tmp_path.rglob("record.json"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = short(tmp_path, *WHERE, "trainer.resume=auto")
    assert same_end(uninterrupted, resumed)


def test_a_run_that_adds_up_batches_stops_after_a_step_and_goes_on_exactly(tmp_path, monkeypatch):
    """A signal in the second of three batches of a step; of the four of an epoch the last is a step of its own."""
    words = ("trainer.accumulate_grad_batches=3", "trainer.checkpoint_every_n_steps=1")
    saved, save_last = [], Checkpoints.save_last
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, 2, "SIGTERM")
        patch.setattr(Checkpoints, "save_last", lambda self, trainer: saved.append(1) or save_last(self, trainer))
        broken = short(tmp_path / "broken", *words)
    assert broken.code == 130, broken.err
    assert "Interrupted at step 1; go on with trainer.resume=" in broken.err
    assert (len(steps), len(saved)) == (3, 1)
    assert same_end(short(tmp_path / "whole", *words), short(tmp_path / "broken", *words, "trainer.resume=auto"))


@pytest.mark.long
def test_a_run_that_was_trained_and_not_tested_is_only_tested(tmp_path, monkeypatch):
    """It ended after its last epoch, and by its patience: interrupted in the test."""
    for name, words in {
        "complete": ("trainer.max_epochs=1",),
        "early": ("trainer.max_epochs=9", "trainer.patience=1", "optim.lr=1e-12"),
    }.items():
        home = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr(PrefixTask, "test_step", interrupted_by_hand)
            broken = short(home, *words)
        assert (broken.code, broken.err.count("Interrupted")) == (130, 1), broken.err
        assert "go on with trainer.resume=" in broken.err
        with monkeypatch.context() as patch:
            steps = signalled(patch, PrefixTask, 0, "SIGINT")
            resumed = short(home, *words, "trainer.resume=auto")
        assert not steps
        whole = short(tmp_path / "whole", *words)
        assert whole.record["metrics"] == resumed.record["metrics"]
        assert whole.record["diagnostics"] == resumed.record["diagnostics"]


def interrupted_by_hand(*_) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_run_of_two_processes_goes_on_in_one_with_the_metrics_of_both(tmp_path, monkeypatch, uninterrupted):
    """Only their sums are shared out anew: random numbers are not those of one process alone."""
    with monkeypatch.context() as patch:
        signalled(patch, PrefixTask, 3, "SIGINT")
        short(tmp_path, *WHERE)
    file = next(tmp_path.glob("out/*/*/checkpoints/last.ckpt"))
    last = torch.load(file)
    (alone,) = last["processes"]
    shares = [{**alone, "sums": {k: v * share for k, v in alone["sums"].items()}} for share in (0.25, 0.75)]
    torch.save(last | {"processes": shares}, file)
    resumed = short(tmp_path, *WHERE, "trainer.resume=auto")
    assert last["global_step"] == 3
    assert resumed.record["metrics"] == pytest.approx(uninterrupted.record["metrics"])


def test_a_run_that_goes_on_and_is_interrupted_at_once_names_the_checkpoint_it_came_from(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        signalled(patch, PrefixTask, 2, "SIGINT")
        short(tmp_path, *WHERE)
    (file,) = tmp_path.glob("out/*/*/checkpoints/last.ckpt")
    with monkeypatch.context() as patch:
        patch.setattr(PrefixTask, "on_train_start", interrupted_by_hand)
        patch.setattr(Checkpoints, "on_train_start", lambda *_: None)  # the signal is not noted for later
        again = short(tmp_path, *WHERE, f"trainer.resume={file}")
    assert again.code == 130
    assert f"; go on with trainer.resume={file}." in again.err


@pytest.mark.parametrize("kept", [True, False])
def test_a_record_has_the_commits_of_all_attempts(tmp_path, monkeypatch, kept):
    first, second = "a" * 40, "b" * 40
    for sha, dirty in ((first, True), (second, False)):
        monkeypatch.setattr(record, "commit", lambda sha=sha, dirty=dirty: (sha, dirty))
        resumed = [f"trainer.resume={file}" for file in tmp_path.glob("out/*/*/checkpoints/last.ckpt")]
        with monkeypatch.context() as patch:
            if not resumed:
                signalled(patch, PrefixTask, 2, "SIGINT")
            result = short(tmp_path, *WHERE, *resumed)
        if not resumed and not kept:  # as those from before
            (file,) = tmp_path.glob("out/*/*/checkpoints/last.ckpt")
            torch.save({k: v for k, v in torch.load(file).items() if k != "code"}, file)
    assert result.code == 0, result.err
    began = (first, True) if kept else (None, None)
    made = result.record
    assert [(own["commit"], own["dirty"]) for own in made["code"]] == [began, (second, False)]
    assert (made["commit"], made["dirty"]) == (second, True if kept else None), "the start is not forgotten"
    last = torch.load(result.record_path.parent / "checkpoints" / "last.ckpt")
    assert last["code"] == made["code"]


def typing(folder: Path, *words: str) -> Result:
    """Two epochs of six steps: two over all mentions, and two in each of two further passes."""
    return call(
        "task=entity_typing_toy", *QUIET, "task.data.sizes={train: 30, dev: 20, test: 20}", "task.data.batch_size=16",
        "task.data.crowd_cycles=2", "trainer.max_epochs=2", *places(folder), *words,
    )  # fmt: skip


@pytest.mark.long
def test_a_typing_run_goes_on_exactly_within_the_further_passes_of_an_epoch(tmp_path, monkeypatch):
    """A signal in step 3: the second of three passes over the mentions has just begun."""
    with monkeypatch.context() as patch:
        steps = signalled(patch, EntityTypingTask, 3, "SIGINT")
        broken = typing(tmp_path / "broken")
    assert broken.code == 130, broken.err
    assert len(steps) == 3
    last = torch.load(next(tmp_path.glob("broken/out/*/*/checkpoints/last.ckpt")))
    assert (last["global_step"], last["epoch"]) == (3, 0)
    resumed = typing(tmp_path / "broken", "trainer.resume=auto")
    assert same_end(typing(tmp_path / "whole"), resumed)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("trainer.limit_val_batches=1", "trainer.limit_val_batches=1.0, not 1."),  # the whole, and a batch
        ("trainer.limit_val_batches=0.5", "trainer.limit_val_batches=1.0, not 0.5."),
        ("trainer.average_last=2", "trainer.average_last=None, not 2."),
    ],
)
def test_what_the_best_state_is_chosen_by_stays(finished, word, message):
    folder, run = finished
    result = short(folder, f"trainer.resume={run.record_path.parent}", "trainer.max_epochs=9", "seed=5", word)
    assert result.code == 1
    assert message in result.err


def test_a_setting_that_came_later_is_what_was_done_before():
    old = {"config": {"task": {"name": "wn18rr"}}, "data": {}}

    def origin(**model) -> Origin:
        task = {"name": "wn18rr", "model": {"loop_bias": False} | model, "module": {"self_share": 0.0}}
        return Origin(config={"task": task})

    assert resume.differences(old, origin(), TESTED) == []
    assert resume.differences(old, origin(), CONTINUED) == []
    differences = resume.differences(old, origin(loop_bias=True), TESTED)
    assert differences == ["task.model.loop_bias=False, not True"]
    assert resume.differences(old, Origin(config=old["config"]), CONTINUED) == [], "tasks without the setting"
    typed = {"task": {"name": "ultrafine", "model": {"hyfi": {"midpoint": "encoder", "order": list(PARTS)}}}}
    assert resume.differences({**old, "config": {"task": {"name": "ultrafine"}}}, Origin(config=typed), TESTED) == []
    columns = {"fidelity": {"paper": {}, "code": {"layers": {"mobius": {"RNN": {"margin": 1e-5}}}}}, "epochs": 10}
    later = Origin(config={"task": old["config"]["task"] | columns})
    assert resume.differences(old, later, CONTINUED) == [], "what settings take their values from"


def test_validations_that_follow_from_the_length_of_a_run_may_be_others_of_a_longer_one():
    def config(epochs: int) -> dict:
        return {"task": {"name": "kg"}, "trainer": {"max_epochs": epochs, "check_val_every_n_epoch": epochs // 10}}

    key = "trainer.check_val_every_n_epoch"
    old = {"config": config(20), "data": {}, "auto": [key]}
    assert resume.differences(old, Origin(config=config(40), auto=[key]), TAKEN_UP) == []
    assert resume.differences(old, Origin(config=config(40)), TAKEN_UP) == [f"{key}=2, not 4"]
    assert resume.differences(old, Origin(config=config(40)), CONTINUED) == [], "of a run that is named"


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


@pytest.mark.long
def test_points_are_looked_at_every_four_steps_before_and_after_an_interruption(tmp_path):
    words = ("trainer.limit_train_batches=1",)
    whole = short(tmp_path / "whole", *words, "trainer.max_epochs=10")
    with (whole.record_path.parent / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["diagnostics/sentences/dist0_mean"]] == ["1", "5", "9"]
    assert short(tmp_path / "parts", *words, "trainer.max_epochs=3").code == 0
    again = short(tmp_path / "parts", *words, "trainer.max_epochs=10", "trainer.resume=auto")
    assert "last.ckpt: after step 3, in epoch 4\n" in again.out
    assert same_end(whole, again)


def test_a_run_that_its_patience_ends_says_so(tmp_path):
    result = short(tmp_path, "trainer.patience=2", "optim.lr=0")
    line = "training ended in epoch 3: val/accuracy was not better in 2 validations (trainer.patience=2)\n"
    assert result.code == 0
    assert line in result.out


def write_graph(folder: Path, last: dict[str, str]) -> tuple[str, ...]:
    """A graph of 12 entities, where `last` replaces the last triple of a split; the words that train on it."""
    folder.mkdir(exist_ok=True)
    for split, step in (("train", 1), ("dev", 2), ("test", 3)):
        triples = [f"e{i}\tr\te{(i + step) % 12}\n" for i in range(12)]
        (folder / f"{split}.txt").write_text("".join(triples[:-1]) + last.get(split, triples[-1]))
    return "task=kg", f"data.dir={folder}", "optim.schedule=constant", *QUIET, *places(folder.parent)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_run_does_not_go_on_with_other_data(tmp_path, split):
    """The files have the same entities and relations as before, in other triples."""
    words = write_graph(tmp_path / "graph", {})
    first = call(*words, "trainer.max_epochs=1")
    assert first.code == 0, first.err
    write_graph(tmp_path / "graph", {split: "e11\tr\te5\n"})
    again = call(*words, "trainer.max_epochs=2", f"trainer.resume={first.record_path.parent}")
    assert again.code == 1
    assert f"was trained with sha256.{split}=" in again.err
    assert "These are other data than it was trained with" in again.err
    both = call(*words, "trainer.max_epochs=2", "optim.lr=0.5", f"trainer.resume={first.record_path.parent}")
    assert "Give this run the settings and the data of the checkpoint" in both.err


@pytest.mark.parametrize("word", ["skip_finished=true", "trainer.resume=auto"])
def test_a_finished_run_of_other_data_is_made_again(tmp_path, word):
    words = (*write_graph(tmp_path / "graph", {}), "trainer.max_epochs=1", word)
    first, same = call(*words), call(*words)
    assert same.record_path == first.record_path
    write_graph(tmp_path / "graph", {"dev": "e11\tr\te5\n"})
    other = call(*words)
    assert other.code == 0, other.err
    assert f"{first.record_path} has the same settings and other data (dev), so it does not count" in other.out
    assert other.record_path != first.record_path
    assert call(*words).record_path == other.record_path
    own = [each for each in words if each != word]
    tested = [call(*own, "mode=test", f"checkpoint={run.record_path.parent}") for run in (first, other)]
    assert [result.code for result in tested] == [0, 0], tested[0].err
    assert "note: dev: these are other data than those of the run that trained the model" in tested[0].out
    assert "note: dev:" not in tested[1].out


@pytest.mark.parametrize("damage", [
    {"selection": 5}, {"selection": [1]}, {"selection": {"value": 10**400}}, {"selection": {"value": "abc"}},
    {"data": "a"}, {"data": {}}, {"data": {"sha256": ["a"]}},
])  # fmt: skip
def test_a_damaged_record_is_none(tmp_path, damage):
    config = {"task": {"name": "x"}}
    whole = {"config_sha256": record.config_sha256(config), "selection": None, "data": {"sha256": {"train": "a"}}}
    (tmp_path / "run").mkdir()
    for text, path in ((whole, tmp_path / "run" / "record.json"), (whole | damage, None)):
        (tmp_path / "run" / "record.json").write_text(json.dumps(text))
        assert record.finished(tmp_path, config, {"train": "a", "vectors": "b"}) == path


def test_a_hostile_checkpoint_among_the_runs_is_passed_over(tmp_path):
    """And what it says of its data is printed as one line."""
    words = (*write_graph(tmp_path / "graph", {}), "trainer.max_epochs=1", "trainer.resume=auto")
    first = call(*words)
    first.record_path.unlink()
    last = first.record_path.parent / "checkpoints" / "last.ckpt"
    whole, deep, limit = torch.load(last), {}, sys.getrecursionlimit()
    for _ in range(3000 if sys.version_info < (3, 12) else 600):  # Python 3.12 pickles nothing deeper
        deep = {"node": deep}
    for hostile in (
        {"config": whole["config"] | {"optim": {"lr": torch.zeros(2)}}}, {"config": deep}, {"config": {"seed": 10**5000}}, {"sha256": {"train": ["a"]}},
        {"data": {"a\n\x1b[31m": "b"}},
    ):  # fmt: skip
        sys.setrecursionlimit(20_000)  # to write what is nested so deep
        torch.save(whole | hostile, last)
        sys.setrecursionlimit(limit)
        again = call(*words)
        assert again.code == 0, again.err
        assert "goes on from" not in again.out
        assert "\x1b" not in again.out
        again.record_path.unlink()
        (again.record_path.parent / "checkpoints" / "last.ckpt").unlink()


def test_an_unfinished_run_of_other_data_is_begun_anew(tmp_path):
    words = (*write_graph(tmp_path / "graph", {}), "trainer.max_epochs=1", "trainer.resume=auto")
    first = call(*words)
    first.record_path.unlink()
    write_graph(tmp_path / "graph", {"test": "e11\tr\te5\n"})
    other = call(*words)
    assert other.code == 0, other.err
    assert "begins anew, as" in other.out
    assert "was trained with other data (test)" in other.out
    assert "goes on from" not in other.out


def test_a_run_goes_on_with_files_that_were_packed(tmp_path):
    """And a checkpoint from before data were compared is of any."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    lines = [f"a small dog{i} runs\tan animal{i} moves\t{label}\n" for i in range(8) for label in ("yes", "no")]
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text("".join(["premise\thypothesis\tlabel\n", *lines]))
    words = ("task=nli", f"data.dir={folder}", "optim.schedule=constant", *QUIET)
    first = call(*words, "trainer.max_epochs=1", *places(tmp_path))
    assert first.code == 0, first.err
    text = (folder / "train.tsv").read_bytes()
    (folder / "train.tsv").unlink()
    (folder / "train.tsv.gz").write_bytes(gzip.compress(text))
    more = ("trainer.max_epochs=2", f"trainer.resume={first.record_path.parent}", *places(tmp_path))
    again = call(*words, *more)
    assert again.code == 0, again.err
