"""Processes that torchrun or Slurm started for one run have one folder, and end with one record."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from tasks import rendezvous
from tasks.errors import UserError
from tasks.trainer import make_trainer
from tests.cli import QUIET, ROOT, places

SMALL = (
    "run.py", "task=prefix_toy", *QUIET, "trainer=ddp", "trainer.accelerator=cpu", "trainer.max_epochs=1",
    "trainer.limit_train_batches=1", "task.data.sizes={train: 40, dev: 20, test: 20}", "task.data.batch_size=10",
)  # fmt: skip


def slurm(number: int, size: int = 2) -> dict[str, str]:
    """What srun sets for one of the tasks of a job on one node."""
    names = {
        "NTASKS": size, "NTASKS_PER_NODE": size, "STEP_NUM_TASKS": size, "PROCID": number, "LOCALID": number, "NODEID": 0,
        "NNODES": 1,
    }  # fmt: skip
    return {f"SLURM_{key}": str(value) for key, value in names.items()} | {
        "SLURM_JOB_ID": str(10000 + os.getpid() % 5000), "SLURM_JOB_NAME": "run", "SLURM_NODELIST": "localhost",
    }  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_process_alone_shares_nothing(monkeypatch):
    assert rendezvous.same_for_all(lambda: "mine") is None
    for key, value in slurm(0, 1).items():
        monkeypatch.setenv(key, value)
    assert rendezvous.same_for_all(lambda: "mine") is None


def batch_script(size: int = 4) -> dict[str, str]:
    """What a script for sbatch finds that starts nothing with srun: the variables of the job, and none of a step."""
    return {k: v for k, v in slurm(0, size).items() if k != "SLURM_STEP_NUM_TASKS"}


@pytest.mark.parametrize("told", [("NTASKS", "NTASKS_PER_NODE"), ("NTASKS",)])
def test_the_process_of_a_batch_script_is_one_alone(monkeypatch, told):
    for key, value in batch_script().items():
        if key not in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE") or key[6:] in told:
            monkeypatch.setenv(key, value)
    assert rendezvous.same_for_all(lambda: "mine") is None
    assert make_trainer([], [], False, accelerator="cpu", devices=1, num_nodes=1).world_size == 1
    for devices, nodes in ((2, 1), (1, 2)):
        with pytest.raises(UserError, match=rf"devices={devices} and .* ask for 2 .*: srun --ntasks-per-node={devices} python"):
            make_trainer([], [], False, accelerator="cpu", devices=devices, num_nodes=nodes)


def test_srun_has_to_be_told_how_many_processes_a_machine_has(monkeypatch):
    for key, value in slurm(0).items():
        if key != "SLURM_NTASKS_PER_NODE":
            monkeypatch.setenv(key, value)
    with pytest.raises(UserError, match=r"Slurm: You set `--ntasks=2` .* Use `--ntasks-per-node=2` instead"):
        rendezvous.same_for_all(lambda: "mine")


def test_processes_that_do_not_come_are_missed(monkeypatch):
    for key, value in (slurm(1) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(rendezvous, "TIMEOUT", timedelta(seconds=0.5))
    with pytest.raises(
        UserError, match=r"2 processes belong to this run, as SLURM says, and number 1 did not meet .* srun"
    ):
        rendezvous.same_for_all(lambda: "mine")


def ends(commands: list[list[str]], environments: list[dict[str, str]], folder: Path) -> None:
    """Run the commands at once; they must leave one folder with one record of two processes."""
    started = [
        subprocess.Popen(
            [sys.executable, *words, *places(folder)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        for words, environment in zip(commands, environments, strict=True)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), "\n".join(outputs)
    assert "".join(outputs).count("record: ") == 1
    (home,) = folder.glob("out/[!.]*/*")
    assert json.loads((home / "record.json").read_text())["device"]["processes"] == 2
    assert (home / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.slow
def test_torchrun_starts_two_processes(tmp_path):
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *SMALL, "trainer.devices=2"]
    ends([words], [{}], tmp_path)


@pytest.mark.slow
def test_torchrun_starts_a_process_on_each_of_two_machines(tmp_path):
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "7"]
    words = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *place, *SMALL]
    ends([[*words, "trainer.devices=1", "trainer.num_nodes=2"]] * 2, [{}, {}], tmp_path)


def training(folder: Path, commands: list[list[str]], environments: list[dict[str, str]]) -> list[subprocess.Popen]:
    """The commands, started at once, as soon as their run trains."""
    started = [
        subprocess.Popen(
            [sys.executable, *words, "trainer.max_epochs=100000", "trainer.checkpoint_every_n_steps=1", *places(folder)],
            cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        for words, environment in zip(commands, environments, strict=True)
    ]  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(folder.glob("out/[!.]*/*/checkpoints/last.ckpt")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return started


@pytest.mark.slow
@pytest.mark.parametrize(
    ("receiver", "number", "message"),
    [
        (None, signal.SIGTERM, "Interrupted at step"), (1, signal.SIGTERM, "Interrupted at step"),
        (0, signal.SIGKILL, "Another process of the run is gone"), (1, signal.SIGKILL, "Another process of the run is gone"),
    ],
)  # fmt: skip
def test_processes_of_torchrun_end_together_with_one_line(tmp_path, receiver, number, message):
    """The signal goes to torchrun, or to one of the processes; torchrun adds a report of its own."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *SMALL, "trainer.devices=2"]
    (process,) = training(tmp_path, [words], [{}])
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(process.pid if receiver is None else int(workers[receiver]), number)
    _, err = process.communicate(timeout=30)
    own = err[: err.find("Traceback (most recent call last):")]  # torchrun's is the last thing
    assert process.returncode == 1
    assert err.count(message) == own.count(message) == 1, err
    assert err.count("Traceback (most recent call last):") == 1, err
    assert own.count("; go on with trainer.resume=") == 1, err
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    last = next(tmp_path.glob("out/[!.]*/*/checkpoints/last.ckpt"))
    assert len(torch.load(last)["processes"]) == 2


@pytest.mark.slow
def test_srun_starts_two_processes(tmp_path):
    ends([[*SMALL, "trainer.devices=2"]] * 2, [slurm(0), slurm(1)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("receivers", "number", "codes", "message"),
    [
        ((0, 1), signal.SIGTERM, [130, 130], "Interrupted at step"),
        ((1,), signal.SIGTERM, [130, 130], "Interrupted at step"),
        ((0,), signal.SIGKILL, [-9, 1], "Another process of the run is gone"),
        ((1,), signal.SIGKILL, [1, -9], "Another process of the run is gone"),
    ],
)
def test_processes_of_srun_end_together_with_one_line(tmp_path, receivers, number, codes, message):
    processes = training(tmp_path, [[*SMALL, "trainer.devices=2"]] * 2, [slurm(0), slurm(1)])
    for k in receivers:
        processes[k].send_signal(number)
    errors = "".join(process.communicate(timeout=30)[1] for process in processes)
    assert [process.returncode for process in processes] == codes
    assert errors.count(message) == errors.count("; go on with trainer.resume=") == 1, errors
    assert "Traceback" not in errors
