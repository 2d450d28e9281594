"""What became of the jobs of a multirun, whichever launcher ran them and in whatever process."""

import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf


class Failure(float):
    """What a job that failed returns to its sweeper: not a number, and why."""

    reason: str

    def __new__(cls, reason: str) -> "Failure":
        value = super().__new__(cls, "nan")
        value.reason = reason
        return value

    def __reduce__(self) -> tuple[type["Failure"], tuple[str]]:
        return Failure, (self.reason,)


class Jobs(Callback):
    """Notes what becomes of each job, where it runs; `conclude` lists those that failed, where the command ran.

    Launchers hand this object to the processes of the jobs, so in a multirun a note is a file, in a folder that exists
    until the end.
    """

    latest: ClassVar["Jobs | None"] = None  # that of this process's command

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.notes: dict[int, dict[str, Any]] = {}
        Jobs.latest = Jobs.latest or self

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        place = Path(config.hydra.sweep.dir)
        place.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=".multirun-", dir=place)).resolve()

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        self._note(config, "it ended without a word: it was killed, or the command was ended")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if job_return.status is JobStatus.COMPLETED:  # otherwise Hydra raises its error
            value = job_return.return_value
            self._note(config, value.reason if isinstance(value, Failure) else None)

    def _note(self, config: DictConfig, reason: str | None) -> None:
        number = OmegaConf.select(config, "hydra.job.num") or 0
        note = {"words": list(config.hydra.overrides.task), "reason": reason}
        if self.folder is None:
            self.notes[number] = note
        else:
            (self.folder / f"{number}.json").write_text(json.dumps(note), encoding="utf-8")

    def conclude(self) -> int:
        """List the jobs of a multirun that failed; the exit code, 0 or 1."""
        if self.folder is not None:
            files = sorted(self.folder.glob("*.json"), key=lambda file: int(file.stem))
            self.notes = {int(file.stem): json.loads(file.read_text(encoding="utf-8")) for file in files}
            shutil.rmtree(self.folder, ignore_errors=True)
        failed = [note for note in self.notes.values() if note["reason"]]
        if self.folder is not None and failed:
            print(f"{len(failed)} of {len(self.notes)} jobs failed:", file=sys.stderr)
            for note in failed:
                print(f"failed: python run.py {shlex.join(note['words'])}: {note['reason']}", file=sys.stderr)
        return 1 if failed else 0
