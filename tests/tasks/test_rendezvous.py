"""Processes that torchrun or Slurm started for one run have one folder, and end with one record."""

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tasks import rendezvous
from tasks.errors import UserError
from tests.cli import QUIET, ROOT, places

SMALL = (
    "run.py", "task=prefix_toy", *QUIET, "trainer=ddp", "trainer.accelerator=cpu", "trainer.max_epochs=1",
    "trainer.limit_train_batches=1", "task.data.sizes={train: 40, dev: 20, test: 20}", "task.data.batch_size=10",
)  # fmt: skip


def slurm(number: int, size: int = 2) -> dict[str, str]:
    """What srun sets for one of the tasks of a job on one node."""
    names = {"NTASKS": size, "NTASKS_PER_NODE": size, "PROCID": number, "LOCALID": number, "NODEID": 0, "NNODES": 1}
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


@pytest.mark.slow
def test_srun_starts_two_processes(tmp_path):
    ends([[*SMALL, "trainer.devices=2"]] * 2, [slurm(0), slurm(1)], tmp_path)
