"""The record of a run: everything a result table needs to know about it, in one JSON file."""

import contextlib
import fcntl
import functools
import hashlib
import importlib.metadata
import json
import logging
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_only

from tasks.base import Task, TaskData
from tasks.errors import Diverged, UserError
from tasks.fingerprints import other_parts
from tasks.folders import write_text
from tasks.local_paths import portable, portable_word
from tasks.outcome import Outcome
from tasks.processes import is_first
from tasks.settings import WITHOUT_EFFECT, flat, is_under

PACKAGES = ("torch", "geoopt", "pytorch-lightning", "hydra-core", "numpy")
ROOT = Path(__file__).resolve().parent.parent
# Paths, as git takes them, of what a run is made of; a folder of outputs in the checkout is none,
# nor what a multirun or a launcher is described by.
CODE = (
    ":(glob)*.py", "configs", ":(exclude)configs/sweep", ":(exclude)configs/hydra",
    "hyperbolic", "tasks", "scripts", "pyproject.toml", "constraints.txt",
)  # fmt: skip


def write(path: Path, record: dict[str, Any]) -> Path:
    """Write the record whole or not at all."""
    text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
    return write_text(path, text)


@functools.cache
def commit() -> tuple[str | None, bool | None]:
    """The commit of the source tree, and whether files of CODE differ from it; (None, None) outside a repository.

    Asked once in a process, when it starts: what is committed during a run is not what ran.
    """

    def git(*words: str) -> str:
        run = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=20)
        return run.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != ROOT:
            return None, None
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.SubprocessError):
        return None, None


def code(modules: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The version of the code that runs, for `Origin.code`. modules: of the user, which count as packages do."""
    sha, dirty = commit()
    return {"commit": sha, "dirty": dirty, "versions": versions() | dict(modules or {})}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}


def device(root: torch.device, processes: int) -> dict[str, Any]:
    """What the run trained on."""
    name = torch.cuda.get_device_name(root) if root.type == "cuda" else platform.processor() or platform.machine()
    return {"type": root.type, "name": name, "processes": processes, "threads": torch.get_num_threads()}


def forget_peak_memory() -> None:
    """Let `peak_memory_bytes` begin anew, for a run that others of a multirun went before; on a CPU on Linux alone."""
    if torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes(root: torch.device) -> int:
    """Most memory in use since `forget_peak_memory`: of the device on a GPU, of the process elsewhere."""
    if root.type == "cuda":
        return torch.cuda.max_memory_allocated(root)
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def config_sha256(config: dict[str, Any]) -> str:
    """Fingerprint of all settings of a run but those of WITHOUT_EFFECT. Where they lie under one of its `paths`, files
    count by their place there; other paths as they were given."""
    paths = {name: str(path) for name, path in config.get("paths", {}).items()}
    places = sorted(paths.items(), key=lambda place: -len(place[1]))

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(each) for each in value]
        under = (f"<{name}>{value[len(path) :]}" for name, path in places if f"{value}/".startswith(f"{path}/"))
        return next(under, value) if isinstance(value, str) else value

    settings = {key: placed(value) for key, value in flat(config).items() if not is_under(key, WITHOUT_EFFECT)}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def finished(runs: Path, config: dict[str, Any], sha256: Mapping[str, str]) -> Path | None:
    """The newest record with these settings and data in the folders of `runs`; None where there is none, and then one
    line says where the settings are those of a record and the data are not.

    sha256: of the data by part, as `TaskData.fingerprint` gives it; parts that an older record lacks are not compared.
    A damaged record, or one without data or with a selection that is none, is none.
    """
    settings, remark = config_sha256(config), None
    for path in sorted(runs.glob("*/record.json"), reverse=True):  # the names of folders begin with the time
        with contextlib.suppress(OSError, ValueError, RecursionError):
            record = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(record, dict) or record.get("config_sha256") != settings or not _is_whole(record):
                continue
            if not (parts := other_parts(sha256, record["data"]["sha256"])):
                return path
            remark = remark or f"{path} has the same settings and other data ({', '.join(parts)}), so it does not count"
    if remark:
        rank_zero_only(print)(remark, flush=True)
    return None


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether the parts of a record that `finished` and `report.pass_over` read are of their kinds."""
    data, selection = record.get("data"), record.get("selection")
    value = selection.get("value") if isinstance(selection, dict) else None
    shas = data.get("sha256") if isinstance(data, dict) else None
    is_number = value is None or (isinstance(value, (int, float)) and abs(value) < 1e300)
    return isinstance(shas, dict) and isinstance(selection, (dict, NoneType)) and is_number


def fingerprint(data: TaskData) -> dict[str, Any]:
    """`TaskData.fingerprint`. Raises UserError where it lacks a key that records need."""
    facts = data.fingerprint()
    if lacking := [key for key in ("files", "counts", "sha256") if key not in facts]:
        raise UserError(
            f"{type(data).__name__}.fingerprint lacks {', '.join(lacking)}: a record needs files, counts and sha256, "
            "each by split (tasks.base.TaskData.fingerprint)."
        )
    return facts


def build(config: dict[str, Any], overrides: list[str], data: TaskData, task: Task, outcome: Outcome) -> dict[str, Any]:
    """The record of a run that ended well. config: the resolved one. overrides: the words on the command line.

    Raises Diverged where a number of it is not finite."""
    config_hash, ran_on = config_sha256(config), task.origin.code or [code()]
    config = portable({**config, "paths": {"data_dir": "data", "output_dir": "outputs", "cache_dir": "outputs/.cache"}})
    record = {
        "experiment": task.origin.experiment,
        "config": config,
        "config_sha256": config_hash,
        "overrides": [portable_word(word) for word in overrides if not word.lstrip("+~").startswith("paths.")],
        "metrics": outcome.metrics,
        "selection": outcome.selection,
        "diagnostics": outcome.diagnostics,
        "data": {**portable(fingerprint(data) if data.adopted is None else data.adopted), "share": outcome.share},
        "seed": config["seed"],
        "fidelity": config["fidelity"],
        **ran_on[-1],
        "device": device(outcome.device, outcome.processes),
        "wall_s": round(outcome.wall_s, 3),
        "test_s": None if outcome.test_s is None else round(outcome.test_s, 3),
        "examples_per_s": outcome.examples_per_s,
        "peak_memory_bytes": peak_memory_bytes(outcome.device),
        "parameters": sum(p.numel() for p in task.parameters() if p.requires_grad),
    }
    if len(ran_on) > 1:  # it went on with another one than it began with
        dirty = [each["dirty"] for each in ran_on]
        record |= {"code": ran_on, "dirty": True if any(dirty) else None if None in dirty else False}
    if task.origin.auto:
        record["auto"] = task.origin.auto
    if measures := task.measures:
        record["measures"] = measures
    if outcome.prediction:
        record["prediction"] = portable(outcome.prediction)
    for key, value in flat(record).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(
                f"The run has no result, because {key} is {value}. Weights that are too large give such numbers: use "
                "another checkpoint, or train with a smaller optim.lr or with trainer.precision=64-true."
            )
    return record


def check_place(folder: Path) -> None:
    """Raises UserError where a run came to its end in this folder, as in one hydra.run.dir for two runs."""
    if (folder / "record.json").exists():
        raise UserError(
            f"{folder} has the record of a run that came to its end, which this one would overwrite. Give it another "
            "folder (hydra.run.dir, or hydra.sweep.dir of a multirun), or name none."
        )


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While it lasts, no other run writes into the folder. The lock, which leaves no file, ends with its process; the
    first of several processes has it, and where the file system has no such locks, as NFS, none has.

    Raises UserError where another run is at work there.
    """
    with contextlib.ExitStack() as stack:
        try:
            if is_first():
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"Another run is at work in {folder}, and each would overwrite the other's files. Wait for its end, or "
                "give this one another folder (hydra.run.dir, or hydra.sweep.dir of a multirun), or name none."
            ) from error
        except OSError:
            pass
        yield


def is_in_use(folder: Path) -> bool:
    """Whether a run is at work in the folder, as `alone_in` knows it."""
    try:
        with alone_in(folder):
            return False
    except UserError:
        return True


def remove_if_empty(folder: Path) -> None:
    """Remove the folder of a run that failed before it made anything: what is left are settings and logs."""
    left = [f for f in folder.rglob("*") if f.is_file() and ".hydra" not in f.parts and f.suffix != ".log"]
    if folder.is_dir() and not left:
        for handler in [h for h in logging.root.handlers if isinstance(h, logging.FileHandler)]:
            if Path(handler.baseFilename).is_relative_to(folder.absolute()):  # it would write into the folder
                logging.root.removeHandler(handler)
                handler.close()
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # that of all runs of this name, if there is no other
