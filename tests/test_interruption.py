"""Runs that signals end: how they say so, and that those of several processes end together and go on exactly."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import run
from tasks import prediction, processes
from tasks.base import TaskData
from tasks.interruption import Interrupted, Interruption, ends_with_a_message, postponed
from tasks.prefix.task import PrefixTask
from tests.cli import QUIET, ROOT, Result, call, places, short
from tests.forks import two_processes
from tests.test_resume import same_end

# Steps that take 0.1 s and leave a file for each process; Lightning starts the other process with the same words.
SLOW = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT)!r})
import run
from tasks.base import Task
plain = Task.training_step
def step(self, *arguments):
    open(f"{{os.environ['STEPS']}}/{{self.trainer.global_rank}}-{{os.getpid()}}", "w").close()
    time.sleep(0.1)
    return plain(self, *arguments)
Task.training_step = step
if __name__ == "__main__":
    sys.exit(run.main())
"""
# Two epochs of 19 batches, in 10 steps, with dropout.
TWO = (
    "task=entity_typing_toy", *QUIET, "trainer.accelerator=cpu", "trainer.devices=2", "trainer.max_epochs=2",
    "task.data.sizes={train: 150, dev: 20, test: 20}", "task.data.batch_size=8", "trainer.accumulate_grad_batches=2",
    "trainer.val_check_interval=6", "trainer.checkpoint_every_n_steps=2",
)  # fmt: skip
LIMIT_S = 30
LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def start(folder: Path, *words: str) -> subprocess.Popen:
    (folder / "steps").mkdir(parents=True, exist_ok=True)
    (folder / "slow.py").write_text(SLOW)
    return subprocess.Popen(
        [sys.executable, folder / "slow.py", *words, *places(folder)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "STEPS": str(folder / "steps")},
    )  # fmt: skip


def ranks(folder: Path) -> list[int]:
    """The process ids of both processes, as soon as they train."""
    deadline = time.monotonic() + 120
    while len(files := sorted((folder / "steps").iterdir())) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(path.name.split("-")[1]) for path in files]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal itself."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Result:
    folder = tmp_path_factory.mktemp("uninterrupted")
    return two_processes(folder / "out" / "two" / "whole", *TWO, *places(folder))


KINDS = [
    ("SIGTERM", (0, 1)), ("SIGTERM", (0,)), ("SIGTERM", (1,)), ("SIGINT", (0, 1)), ("SIGINT", (1,)),
    ("SIGKILL", (0,)), ("SIGKILL", (1,)),
]  # fmt: skip


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize("trial", range(21))
def test_two_processes_end_together_and_go_on_exactly(tmp_path, uninterrupted, trial):
    name, receivers = KINDS[trial % len(KINDS)]
    process = start(tmp_path, *TWO)
    pids = ranks(tmp_path)
    time.sleep(random.Random(trial).uniform(0, 2.5))
    for rank in receivers:
        os.kill(pids[rank], getattr(signal, name))
    sent = time.monotonic()
    _, err = process.communicate(timeout=LIMIT_S)  # both have closed standard output
    while not all(map(gone, pids)):
        assert time.monotonic() - sent < LIMIT_S, "a process is left"
        time.sleep(0.05)
    assert process.returncode == {"SIGKILL": 1 if receivers == (1,) else -signal.SIGKILL}.get(name, 130), err
    assert "Traceback" not in err
    message = "Interrupted at step" if name != "SIGKILL" else ("first process of the run", "Process 2 of 2")[receivers[0]]
    assert err.count(message) == 1, err
    assert err.count("; go on with trainer.resume=") + err.count("; nothing was saved yet") == 1, err
    last = next(tmp_path.glob("out/*/*/checkpoints/last.ckpt"), None)
    assert last is not None or name == "SIGKILL"
    assert last is None or len(torch.load(last)["processes"]) == 2
    resume = "null" if last is None else last
    again = two_processes(tmp_path / "out" / "again", *TWO, *places(tmp_path), f"trainer.resume={resume}")
    assert same_end(uninterrupted, again)


@LINUX
@pytest.mark.parametrize(("number", "after_s"), [(signal.SIGINT, 0), (signal.SIGINT, 0.5), (signal.SIGTERM, 0.2)])
def test_a_signal_during_imports_is_one_line(number, after_s):
    process = subprocess.Popen([sys.executable, "run.py"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not catches(process.pid, signal.SIGTERM):  # Python has started
        time.sleep(0.01)
    time.sleep(after_s)
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (130, "\nInterrupted.\n")


@pytest.mark.parametrize(
    ("mode", "owner", "method"),
    [("test", TaskData, "splits"), ("test", PrefixTask, "test_step"), ("predict", prediction, "_examples")],
    ids=["while data are read", "in a test", "in predictions"],
)
def test_all_else_ends_at_once_with_one_line(tmp_path, monkeypatch, trained, mode, owner, method):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(owner, method, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    words = (f"mode={mode}", f"checkpoint={trained}", "input=run.py", f"output={tmp_path / 'predictions'}")
    result = call(*words[: 4 if mode == "predict" else 2], *QUIET, *places(tmp_path))
    assert (result.code, result.err) == (130, "\nInterrupted.\n")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert not list(tmp_path.glob("*predictions*"))


def test_other_processes_are_started_with_the_words_that_were_typed(monkeypatch, tmp_path, trained):
    """Not with those that stand for a checkpoint within this process."""
    started = []
    monkeypatch.setattr(run.training, "test", lambda *_, **__: started.append(sys.argv[1:]) or 1 / 0)
    words = ["mode=test", f"checkpoint={trained}", *QUIET, *places(tmp_path)]
    with pytest.raises(ZeroDivisionError):
        call(*words)
    assert started == [words]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return short(tmp_path_factory.mktemp("trained"), "trainer.max_epochs=1").record_path.parent


def test_what_lightning_makes_of_an_interrupt_is_one():
    """It goes on to end its loops, which may fail where they have hardly begun."""
    end = ends_with_a_message(lambda: "go on")

    @end
    def fail() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("no loop was begun")

    with pytest.raises(Interrupted, match=r"^go on$"):
        fail()
    for error in (RuntimeError("another"), OSError("no space left")):
        with pytest.raises(type(error), match=str(error)), ends_with_a_message(lambda: "go on"):
            raise error from KeyboardInterrupt()


def test_a_signal_waits_for_the_end_of_what_is_short():
    steps = []

    @postponed()
    def end(*signals: int) -> None:
        for number in signals:
            os.kill(os.getpid(), number)
        steps.append(signals)

    end()
    at_once = (signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)  # as a launcher hands them on
    for signals in ((signal.SIGINT,), *at_once):
        with pytest.raises(KeyboardInterrupt):
            end(*signals)
    assert steps == [(), (signal.SIGINT,), *at_once]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_signal_is_another_only_from_the_keyboard_and_later(monkeypatch):
    interruption, now = Interruption(), [10.0]
    monkeypatch.setattr("tasks.interruption.time.monotonic", lambda: now[0])
    interruption._note(signal.SIGINT, None)
    now[0] += 0.5
    interruption._note(signal.SIGINT, None)
    now[0] += 5
    interruption._note(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        interruption._note(signal.SIGINT, None)


@pytest.mark.parametrize(("device", "asked"), [("cuda", [10, 20, 30]), ("cpu", list(range(1, 31)))])
def test_processes_on_gpus_do_not_wait_for_their_devices_after_every_step(monkeypatch, device, asked):
    trainer = SimpleNamespace(world_size=2, strategy=SimpleNamespace(root_device=torch.device(device)))
    answers, cpu = [], torch.zeros((), dtype=torch.int32)
    monkeypatch.setattr("tasks.interruption.torch.tensor", lambda *_, **__: cpu)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_, **__: answers.append(1))
    interruption, steps = Interruption(), []
    for step in range(1, 31):
        assert not interruption.agreed_after_step(trainer)
        steps += [step] * bool(answers)
        answers.clear()
    assert steps == asked


def ended(code: str) -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-S", "-c", f"import os; {code}"])
    child.wait()
    return child


def test_the_first_process_sees_how_another_one_ended():
    assert lost("os._exit(0)") is None
    assert lost("os._exit(1)") == ("", 1), "it has said why"
    assert lost("os._exit(7)") == ("Process 2 of 2 ended with exit code 7", 1)
    assert lost("os._exit(130)") == ("Interrupted", 130)
    assert lost("os.kill(os.getpid(), 9)") == ("Process 2 of 2 was ended by SIGKILL", 1)


def lost(code: str) -> tuple[str, int] | None:
    return processes.Watch([ended(code)], first=0, hint=str).lost()


def test_a_process_ends_with_another_one_where_nobody_reads_its_message(monkeypatch):
    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    sys.stderr.close()
    with pytest.raises(SystemExit, match="1"):
        processes.Watch([ended("os.kill(os.getpid(), 9)")], first=0, hint=str).run()


def test_of_the_other_processes_one_says_that_the_first_is_gone(monkeypatch):
    here, elsewhere = (processes.Watch([], first=pid, hint=str) for pid in (os.getppid(), 1 << 30))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert here.lost() is None
    assert elsewhere.lost() == ("The first process of the run is gone", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert elsewhere.lost() == ("", 1)
