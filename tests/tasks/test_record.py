"""Records are written whole; folders of failed runs go."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import time

import pytest
import torch

from tasks import record
from tasks.errors import UserError
from tasks.settings import flat
from tests.forks import exit_code, fork


def test_a_record_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "record.json"
    record.write(path, {"a": 1.5})
    assert json.loads(path.read_text()) == {"a": 1.5}
    with pytest.raises(ValueError, match="nan"):
        record.write(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1.5}
    assert [f.name for f in tmp_path.iterdir()] == ["record.json"]


def test_a_folder_without_results_is_removed(tmp_path):
    folder = tmp_path / "runs" / "one"
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("")
    (folder / "run.log").write_text("")
    (tmp_path / "runs" / "two").mkdir()
    record.remove_if_empty(folder)
    assert not folder.exists()
    kept = tmp_path / "runs" / "two"
    (kept / "nan_state.pt").write_text("")
    record.remove_if_empty(kept)
    assert kept.exists()


def enter(folder) -> None:
    with record.alone_in(folder):
        pass


def test_a_folder_is_for_one_run_at_a_time_and_free_when_its_process_is_gone(tmp_path, monkeypatch):
    with record.alone_in(tmp_path):
        with pytest.raises(UserError, match=rf"Another run is at work in {tmp_path}, .* another folder \(hydra\.run\.dir"):
            enter(tmp_path)
        assert record.is_in_use(tmp_path)
        monkeypatch.setenv("LOCAL_RANK", "1")
        enter(tmp_path)  # a process of the same run
        monkeypatch.delenv("LOCAL_RANK")
    assert not record.is_in_use(tmp_path)

    read_end, write_end = os.pipe()

    def work() -> None:
        with record.alone_in(tmp_path):
            os.write(write_end, b"x")
            time.sleep(60)

    child = fork(work)
    assert os.read(read_end, 1)
    assert record.is_in_use(tmp_path)
    os.kill(child, signal.SIGKILL)
    assert exit_code(child) == -signal.SIGKILL
    enter(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_used_without(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    enter(tmp_path / "nowhere")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with record.alone_in(tmp_path):
        enter(tmp_path)
    with pytest.raises(OSError, match="of the run"), record.alone_in(tmp_path):
        raise OSError("of the run")


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="Linux forgets, where it may be told to")
def test_the_memory_of_an_earlier_run_is_forgotten():
    torch.ones(1 << 26)  # 256 MiB
    before = record.peak_memory_bytes(torch.device("cpu"))
    record.forget_peak_memory()
    assert record.peak_memory_bytes(torch.device("cpu")) < before - (1 << 27)


def test_the_commit_is_known_or_null():
    sha, dirty = record.commit()
    assert sha is None or len(sha) == 40
    assert (sha is None) == (dirty is None)


def test_outputs_in_the_checkout_are_no_change_of_the_code(tmp_path, monkeypatch):
    """And a module that is new is one."""
    monkeypatch.setattr(record, "ROOT", tmp_path)
    git = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)  # noqa: E731
    git("init", "-q")
    (tmp_path / "run.py").write_text("1\n")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "config.yaml").write_text("a: 1\n")
    assert record.commit.__wrapped__()[1] is False
    for name in ("configs/sweep/mine.yaml", "configs/hydra/launcher/mine.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a: 1\n")
    assert record.commit.__wrapped__()[1] is False
    for name in ("own.py", "tasks/new.py", "configs/task/mine.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
        assert record.commit.__wrapped__()[1] is True, name
        (tmp_path / name).unlink()
    (tmp_path / "run.py").write_text("2\n")
    assert record.commit.__wrapped__()[1] is True


def test_the_fingerprint_of_settings_does_not_depend_on_where_files_and_notes_lie():
    def sha256(home: str, file: str = "data/a.txt", **trainer) -> str:
        paths = {"data_dir": f"{home}/data", "output_dir": f"{home}/out", "cache_dir": f"{home}/out/.cache"}
        data = {"files": [f"{home}/{file}"], "cache": f"{home}/out/.cache/x"}
        return record.config_sha256({"paths": paths, "task": {"data": data}, "trainer": {"max_epochs": 3} | trainer})

    one = sha256("/home/me")
    assert one == sha256("/mnt") == sha256("/mnt", checkpoint_every_s=0)
    assert len({one, sha256("/mnt", "data/b.txt"), sha256("/mnt", "data2/a.txt"), sha256("/mnt", max_epochs=4)}) == 4


def test_nested_settings_are_flattened():
    assert flat({"a": {"b": 1, "c": [1, 2]}, "d": None}) == {"a.b": 1, "a.c": [1, 2], "d": None}
