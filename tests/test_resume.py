"""A run that was interrupted or killed goes on to the same end, to the last bit."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tasks import resume
from tasks.base import Origin, Task
from tasks.entity_typing.task import EntityTypingTask
from tasks.prefix.task import PrefixTask
from tests.cli import QUIET, ROOT, SHORT, Result, call, places, short


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


def test_a_finished_run_is_not_resumed_unless_it_may_go_on(finished, tmp_path):
    _, result = finished
    home = result.record_path.parent
    again = short(tmp_path, "seed=5", f"trainer.resume={home}")
    assert again.code == 1
    assert "is finished (3 epochs of trainer.max_epochs=3)" in again.err
    assert "raise trainer.max_epochs" in again.err
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


def typing(folder: Path, *words: str) -> Result:
    """Two epochs of six steps: two over all mentions, and two in each of two further passes."""
    return call(
        "task=entity_typing_toy", *QUIET, "task.data.sizes={train: 30, dev: 20, test: 20}", "task.data.batch_size=16",
        "task.data.crowd_cycles=2", "trainer.max_epochs=2", *places(folder), *words,
    )  # fmt: skip


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


def test_a_killed_process_goes_on_exactly_from_its_last_checkpoint(tmp_path, uninterrupted):
    """SIGKILL, in a process of its own, some time after the first checkpoint within an epoch."""
    words = (
        "task=prefix_toy", *QUIET, *SHORT, *WHERE, "trainer.max_epochs=3", "trainer.checkpoint_every_n_steps=1",
        *places(tmp_path),
    )  # fmt: skip
    slow = "import time, run; from tasks.prefix.task import PrefixTask as T; f = T.training_step\n"
    slow += "T.training_step = lambda s, b, i: (time.sleep(0.3 * (s.global_step >= 5)), f(s, b, i))[1]\nrun.main()"
    process = subprocess.Popen([sys.executable, "-c", slow, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and process.poll() is None:
        last = next(iter(tmp_path.glob("out/*/*/checkpoints/last.ckpt")), None)
        if last is not None and torch.load(last)["global_step"] >= 5:
            break
        time.sleep(0.05)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    resumed = short(tmp_path, *WHERE, "trainer.checkpoint_every_n_steps=1", "trainer.resume=auto")
    assert "resume" not in resumed.err
    assert same_end(uninterrupted, resumed)


def test_a_setting_that_came_later_is_what_was_done_before():
    old = {"config": {"task": {"name": "wn18rr"}}, "data": {}}

    def origin(**model) -> Origin:
        task = {"name": "wn18rr", "model": {"loop_bias": False} | model, "module": {"self_share": 0.0}}
        return Origin(config={"task": task})

    assert resume.differences(old, origin(), resume.TESTED) == []
    assert resume.differences(old, origin(), resume.CONTINUED) == []
    differences = resume.differences(old, origin(loop_bias=True), resume.TESTED)
    assert differences == ["task.model.loop_bias=False, not True"]
    assert resume.differences(old, Origin(config=old["config"]), resume.CONTINUED) == [], "tasks without the setting"
