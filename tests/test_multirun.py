"""Several runs from one command: a failure ends no other and is listed at the end; what is finished is not run again."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

import run
from configs import multirun, overview
from configs.errors import ConfigError
from configs.multirun import Failure
from tasks import processes
from tasks.errors import UserError
from tests.cli import QUIET, ROOT, call, command, places
from tests.configurations import checked

SMALL = (
    "task=prefix_toy", *QUIET, "trainer.max_epochs=1", "trainer.limit_train_batches=1",
    "task.data.sizes={train: 40, dev: 20, test: 20}",
)  # fmt: skip


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """A function that calls a multirun of seeds, in which a seed does what `run` is given to do."""

    def start(behaviour, *words: str):
        monkeypatch.setattr(run, "run", lambda cfg: behaviour(cfg.seed))
        return call("-m", f"paths.output_dir={tmp_path}/out", *words)

    return start


def test_failed_jobs_are_listed_at_the_end_and_stop_no_other(jobs, tmp_path):
    seeds = []

    def behaviour(seed: int) -> float:
        seeds.append(seed)
        if seed == 1:
            raise UserError("this\ncannot be done.")
        if seed == 2:
            raise RuntimeError("nobody thought of it")
        return 0.5

    result = jobs(behaviour, "seed=0,1,2,3", "task.data.sizes={train: 9}")
    assert result.code == 1
    assert seeds == [0, 1, 2, 3]
    assert "Traceback" in result.err, "of the error that is no user's"
    assert result.err.startswith("error in job 1: this cannot be done.\n"), "at once"
    assert result.err.splitlines()[-3:] == [
        "2 of 4 jobs failed:",
        f"failed: python run.py paths.output_dir={tmp_path}/out seed=1 'task.data.sizes={{train:9}}': this cannot be done.",
        f"failed: python run.py paths.output_dir={tmp_path}/out seed=2 'task.data.sizes={{train:9}}': RuntimeError: nobody thought of it",
    ]
    assert not list((tmp_path / "out").glob(".multirun-*"))


@pytest.mark.long
def test_nothing_is_listed_where_all_went_well(jobs):
    result = jobs(lambda seed: None, "seed=0,1")
    assert result.code == 0
    assert not result.err


def test_an_interrupted_multirun_says_which_job_was_running(jobs):
    def behaviour(seed: int) -> None:
        if seed == 1:
            raise KeyboardInterrupt

    result = jobs(behaviour, "seed=0,1,2", "optim.lr=0.1,0.2")
    assert result.code == 130
    assert "1 of 6 jobs failed (3 were not begun):" in result.err
    assert result.err.splitlines()[-1].endswith("seed=1 optim.lr=0.1: it was interrupted")


@pytest.mark.long
def test_a_job_that_was_interrupted_after_its_record_has_not_failed(jobs, tmp_path):
    def behaviour(seed: int) -> None:
        if seed == 1:
            folder = Path(HydraConfig.get().runtime.output_dir)
            (folder / "record.json").write_text(json.dumps({"config": {"mode": "test"}}))
            raise KeyboardInterrupt

    result = jobs(behaviour, "seed=0,1,2")
    assert result.code == 130
    assert "failed" not in result.err


@pytest.mark.long
@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"config": {"mode": "fit"}}'])
def test_failed_jobs_are_listed_though_records_are_damaged(jobs, tmp_path, content):
    def behaviour(seed: int):
        if seed == 2:
            raise UserError("it went wrong")
        file = tmp_path / f"{seed}.json"
        file.write_text(content)
        return run.multirun.Result(0.5, file)

    result = jobs(behaviour, "seed=0,1,2")
    assert result.code == 1
    assert "1 of 3 jobs failed:" in result.err
    assert result.err.splitlines()[-1].endswith("seed=2: it went wrong")


def test_notes_of_jobs_go_also_where_the_command_ends_with_a_traceback(jobs, tmp_path, monkeypatch):
    """One of them is cut, as a kill leaves it."""

    def behaviour(seed: int) -> None:
        (folder,) = (tmp_path / "out").glob(".multirun-*")
        (folder / ".0-ab12.part.json").write_text("{")

    def fail(*_) -> int:
        raise IndexError("nobody thought of it")

    plain = run.job
    monkeypatch.setattr(run, "job", lambda: (plain(), fail()))
    monkeypatch.setattr(run.multirun, "report", fail)
    with pytest.raises(IndexError):
        jobs(behaviour, "seed=0")
    assert not list((tmp_path / "out").glob(".multirun-*"))
    assert run.multirun.Jobs.latest is None


def test_a_sweeper_takes_a_failure_for_a_number_that_is_none():
    failure = pickle.loads(pickle.dumps(Failure("why")))
    assert failure != failure
    assert failure.reason == "why"


RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}  # a busy machine takes more than its 30 s


def small(folder: Path, *words: str):
    return call("-m", *SMALL, *places(folder), "skip_finished=true", *words)


@pytest.mark.long
def test_only_what_is_missing_is_run_again(tmp_path):
    first = small(tmp_path, "seed=0,1")
    assert first.code == 0, first.err
    records = sorted(tmp_path.glob("out/*/*/record.json"))
    assert len(records) == 2
    shutil.rmtree(records[1].parent / "checkpoints")
    records[1].write_text(records[1].read_text()[:-9])  # cut short: not finished
    times = records[0].stat().st_mtime_ns
    again = small(tmp_path, "seed=0,1", "trainer.progress_every_n_steps=7")
    assert again.code == 0, again.err
    assert again.out.count("finished before, with the same settings") == 1
    assert f"\nrecord: {records[0]}\n" in again.out
    assert records[0].stat().st_mtime_ns == times
    assert len(list(tmp_path.glob("out/*/*/record.json"))) == 3
    assert len(list(tmp_path.glob("out/[!.]*/*"))) == 3, "a run that is passed over leaves no folder"
    assert "finished before" not in small(tmp_path, "seed=0", "optim.lr=0.02").out


def test_of_another_mode_nothing_is_finished():
    result = call("mode=predict", "skip_finished=true", "checkpoint=a", "task=prefix_toy")
    assert result.code == 1
    assert "skip_finished=true is for training" in result.err


@pytest.mark.long
def test_several_machines_are_no_multirun(tmp_path):
    result = call("-m", *SMALL, *places(tmp_path), "trainer.num_nodes=2,3")
    assert result.code == 1
    assert "trainer.num_nodes must be 1 in a multirun" in result.err


@pytest.mark.parametrize("launcher", ["local", "slurm"])
def test_a_launcher_composes(launcher):
    pytest.importorskip({"local": "hydra_plugins.hydra_joblib_launcher", "slurm": "submitit"}[launcher])
    assert checked(f"hydra/launcher={launcher}", "task=prefix_toy")["task"]["name"] == "prefix_toy"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "submitit_local", "ray"])
def test_a_launcher_runs_jobs_and_lists_the_failed(tmp_path, launcher):
    if launcher == "ray":
        pytest.importorskip("hydra_plugins.hydra_ray_launcher", reason="needs the extra ray, in an environment of its own")
    words = (f"hydra/launcher={launcher}", "task.data.batch_size=0,20,10")
    process = command("-m", *SMALL, *places(tmp_path), *words, **RAY)
    assert process.returncode == 1, process.stderr
    lines = process.stderr.splitlines()
    assert "1 of 3 jobs failed:" in lines, process.stderr
    (failed,) = [line for line in lines if line.startswith("failed: ")]  # Ray may print output of jobs after it
    assert "task.data.batch_size=0" in failed
    assert "must be a whole number of at least 1" in failed
    sizes = [
        json.loads(r.read_text())["config"]["task"]["data"]["batch_size"] for r in tmp_path.glob("out/*/*/record.json")
    ]
    assert sorted(sizes) == [10, 20]


@pytest.mark.slow
def test_a_killed_multirun_goes_on_with_what_is_missing(tmp_path):
    words = [
        "-m",
        *SMALL,
        *places(tmp_path),
        "seed=0,1,2,3",
        "skip_finished=true",
        "hydra/launcher=local",
        "hydra.launcher.n_jobs=1",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "run.py", *words], cwd=ROOT, env=environment, start_new_session=True
    ) as process:
        until = time.monotonic() + 200
        while not (before := list(tmp_path.glob("out/*/*/record.json"))) and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    assert before
    process = command(*words)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("finished before") == len(before)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("out/*/*/record.json")]
    assert sorted(record["seed"] for record in records) == [0, 1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("-m", "hydra.launcher.n_jobs=1")])
def test_a_command_that_runs_its_jobs_itself_outlives_its_parent(tmp_path, monkeypatch, words):
    monkeypatch.setattr(processes, "end_with_parent", lambda: pytest.fail("it would end with the shell"))
    result = call(*words, *SMALL, *places(tmp_path), "hydra/launcher=local")
    assert result.code == 0, result.err


@pytest.mark.slow
def test_workers_end_with_the_command_that_started_them(tmp_path):
    words = ["-m", *SMALL, *places(tmp_path), "seed=0,1", "hydra/launcher=local", "hydra.launcher.n_jobs=2"]
    words += ["trainer.max_epochs=100000", "trainer.checkpoint_every_s=0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "run.py", *words], cwd=ROOT, env=environment) as process:
        until = time.monotonic() + 200
        while len(list(tmp_path.glob("out/*/*/checkpoints/last.ckpt"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
    time.sleep(5)
    written = {file: file.stat().st_mtime_ns for file in tmp_path.glob("out/*/*/checkpoints/last.ckpt")}
    time.sleep(3)
    assert len(written) == 2
    assert written == {file: file.stat().st_mtime_ns for file in written}


def test_the_flag_may_stand_behind_settings():
    assert overview.many_first(["task=prefix_toy", "-m", "seed=0,1"]) == ["-m", "task=prefix_toy", "seed=0,1"]
    assert overview.many_first(["task=prefix_toy", "hydra.mode=MULTIRUN"]) == ["-m", "task=prefix_toy"]
    assert overview.many_first(["task=prefix_toy", "seed=0"]) == ["task=prefix_toy", "seed=0"]


def test_jobs_do_not_write_their_answers_into_one_file():
    predict = ["-m", "mode=predict", "checkpoint=RUN", "input=x.txt"]
    with pytest.raises(ConfigError, match=r"output=o\.txt: the jobs of task\.module\.top_k=1,2 would write it one after"):
        multirun.check_output([*predict, "task.module.top_k=1,2", "output=o.txt"])
    multirun.check_output([*predict, "task.module.top_k=1,2", "output=o${hydra:job.num}.txt"])
    multirun.check_output([*predict, "task.module.top_k=1,2"])
    multirun.check_output([*predict, "output=o.txt"])
    for nothing in ("-", "null", "/dev/stdout"):
        multirun.check_output([*predict, "task.module.top_k=1,2", f"output={nothing}"])
    multirun.check_output([*predict[1:], "task.module.top_k=1,2", "output=o.txt"])


def test_the_command_of_a_failed_job_of_a_checkpoint_can_be_given_again(capsys, monkeypatch):
    jobs = multirun.Jobs()
    words = ["experiment=checkpoint", "mode=predict", "checkpoint=RUN", "input=bad.txt"]
    jobs.notes = {0: {"words": words, "reason": "no", "record": None}}
    monkeypatch.setattr(multirun.Jobs, "latest", jobs)
    monkeypatch.setattr(jobs, "read_notes", lambda: None)
    monkeypatch.setattr(multirun, "show_results", lambda jobs: None)
    assert multirun.conclude(0, ["-m", *words]) == 1
    assert "failed: python run.py mode=predict checkpoint=RUN input=bad.txt: no" in capsys.readouterr().err
