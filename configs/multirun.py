"""The jobs of a command: their mistakes in one paragraph, and in a multirun a table of the results and a list of those
that failed."""

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

from configs.build import MISTAKES
from configs.composing import SEARCH
from configs.errors import ConfigError, paragraph
from configs.files import CHOICE, choices
from configs.overview import MANY
from configs.own import with_folder
from configs.samplers import is_trial
from configs.words import value_of
from hyperbolic.diagnostics import NonFiniteError
from tasks import comparison, comparison_table, processes, record, search
from tasks.errors import Diverged, Pruned, called, plain_warnings
from tasks.folders import write_text

INTERRUPTED = 130  # the exit code upon Ctrl-C and SIGTERM
ENDED = "it ended without a word: it was killed, or the command was ended"  # of a job until it says otherwise


class Failure(float):
    """What a job that failed returns to its sweeper: not a number, and why. state: search.FAILED, or that the training
    diverged or was pruned."""

    reason: str
    state: str

    def __new__(cls, reason: str, state: str = search.FAILED) -> "Failure":
        value = super().__new__(cls, "nan")
        value.reason, value.state = reason, state
        return value

    def __reduce__(self) -> tuple[type["Failure"], tuple[str, str]]:
        return Failure, (self.reason, self.state)


class Result(float):
    """What a job that ended well returns to its sweeper: the selecting metric (not a number where nothing selects), and
    the file of its record."""

    record: Path

    def __new__(cls, value: float, record: Path) -> "Result":
        result = super().__new__(cls, value)
        result.record = record
        return result

    def __reduce__(self) -> tuple[type["Result"], tuple[float, Path]]:
        return Result, (float(self), self.record)


def result(selection: Mapping[str, Any] | None, record: Path) -> Result:
    """The result of a run by the `selection` of its record, and the file of that."""
    value = (selection or {}).get("value")
    return Result(math.nan if value is None else value, record.resolve())


class Jobs(Callback):
    """Notes what becomes of each job, where it runs, for `conclude`, where the command runs.

    Launchers hand this object to the processes of the jobs, so in a multirun a note is a file, in a folder that exists
    until the end.
    """

    latest: ClassVar["Jobs | None"] = None  # that of this process's command

    def __init__(self) -> None:
        self.command = os.getpid()  # the process of the command, which may have workers for its jobs
        self.folder: Path | None = None
        self.notes: dict[int, dict[str, Any]] = {}
        self.number = 0  # the jobs of the command, where that is known before they begin
        self.searches = False  # whether a sweeper chooses settings by results, which the test data must not tell it
        self.has_trials = False  # whether it is ours, which ranks them itself
        Jobs.latest = Jobs.latest or self

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        if any(word.lstrip("+").startswith("hydra.run.dir=") for word in config.hydra.overrides.hydra):
            HydraConfig.instance().set_config(config)  # which the folder's name may ask
            folder = Path(config.hydra.run.dir)
            if (folder / "record.json").exists() or record.is_in_use(folder):  # the settings of that run stay
                with read_write(config.hydra):
                    config.hydra.output_subdir = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        place = Path(config.hydra.sweep.dir)
        place.mkdir(parents=True, exist_ok=True)
        self.searches = not config.hydra.sweeper._target_.endswith(".BasicSweeper")
        self.has_trials = config.hydra.sweeper._target_ == SEARCH
        self.folder = Path(tempfile.mkdtemp(prefix=".multirun-", dir=place)).resolve()
        if not self.searches:
            self.number = _number_of_jobs(config)

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        if config.hydra.launcher._target_.endswith(".JoblibLauncher") and os.getpid() != self.command:
            processes.end_with_parent()
            plain_warnings()
        self._note(config, ENDED)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        if job_return.status is JobStatus.COMPLETED:  # otherwise Hydra raises its error
            value = job_return.return_value
            file = str(value.record) if isinstance(value, Result) else None
            reason = value.reason if isinstance(value, Failure) else None
            if isinstance(value, Failure) and self.has_trials:
                words = list(config.hydra.overrides.task)
                search.note_failure(Path(config.hydra.runtime.output_dir), value.state, value.reason, words)
                reason = reason if value.state == search.FAILED else None
            self._note(config, reason, file)

    def _note(self, config: DictConfig, reason: str | None, file: str | None = None) -> None:
        number = OmegaConf.select(config, "hydra.job.num") or 0
        folder = config.hydra.runtime.output_dir
        note = {"words": list(config.hydra.overrides.task), "reason": reason, "record": file, "folder": folder}
        if self.folder is None:
            self.notes[number] = note
        else:
            write_text(self.folder / f"{number}.json", json.dumps(note))  # the job may be killed at any time

    def read_notes(self) -> None:
        """Take the notes of all processes together, and remove their folder."""
        if self.folder is not None:
            files = sorted(self.folder.glob("[0-9]*.json"), key=lambda file: int(file.stem))
            self.notes = {int(file.stem): _read_note(file) for file in files}
            shutil.rmtree(self.folder, ignore_errors=True)


def _read_note(file: Path) -> dict[str, Any]:
    """What became of a job. One that was interrupted between its record and its last word ended well."""
    note: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    result = Path(note["folder"], "record.json")
    if note["reason"] == ENDED and result.exists() and result.stat().st_mtime_ns >= file.stat().st_mtime_ns:
        note |= {"reason": None, "record": str(result.resolve())}
    return note


def _number_of_jobs(config: DictConfig) -> int:
    """How many jobs the words of a multirun ask for; 0 where they cannot be read, which Hydra will say."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    own = (f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items())
    words = [*own, *config.hydra.overrides.task]
    with contextlib.suppress(HydraException):
        sweeps = [each for each in parser.parse_overrides(words) if each.is_sweep_override()]
        return math.prod(len(list(each.sweep_string_iterator())) for each in sweeps)
    return 0


def are_many(words: Sequence[str]) -> bool:
    """Whether the words of a command line ask for a multirun."""
    return bool(MANY.intersection(words))


def check_output(words: Sequence[str]) -> None:
    """Raises ConfigError where several jobs would write their answers into one file, each in the place of the last."""
    if not are_many(words):
        return
    sweeps, output = [], None
    for word in words:
        with contextlib.suppress(HydraException):  # which Hydra will say
            override = OverridesParser.create().parse_override(word)
            if override.key_or_group == "output":
                output = word
            elif override.is_sweep_override():
                sweeps.append(word)
    is_file = output and "${" not in output and not re.match(r"-?$|null$|/dev/", value_of(output))
    if is_file and sweeps:
        raise ConfigError(
            f"{output}: the jobs of {' '.join(sweeps)} would write it one after the other, so that the answers of the "
            "last alone are left. Give each job its own file, as in 'output=answers-${hydra:job.num}.txt'."
        )


def mistakes() -> tuple[type[Exception], ...]:
    """The errors that are reported in one paragraph; none with HYPERBOLIC_FULL_ERROR=1, which shows where they came."""
    return MISTAKES if os.environ.get("HYPERBOLIC_FULL_ERROR", "0") in ("", "0") else ()


def attempt(run: Callable[[DictConfig], float | None], cfg: DictConfig) -> float | None:
    """What a run returns, or a Failure. A single run ends the program with its mistake, a job of several does not."""
    one_of_many = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        return run(cfg)
    except mistakes() as error:
        folder = Path(HydraConfig.get().runtime.output_dir)
        if isinstance(error, OSError) and error.filename is None:  # a disk that is full
            error.filename = str(folder)
        if not record.is_in_use(folder):
            record.remove_if_empty(folder)
        if not one_of_many:
            _print(error)
            raise SystemExit(1) from None
        # at once, and again in the list at the end, which takes hours in long multiruns
        place, state = f"job {HydraConfig.get().job.num}", _state(error)
        if HydraConfig.get().sweeper._target_ == SEARCH:
            place = folder.name
            if state != search.FAILED:
                print(f"{place} {state}: {paragraph(error)}", flush=True)
                return Failure(paragraph(error), state)
        return Failure(_print(error, f" in {place}"), state)
    except Exception as error:
        if not one_of_many:
            raise
        traceback.print_exc()
        return Failure(f"{type(error).__name__}: {paragraph(error)}", _state(error))


def report(error: Exception, words: Sequence[str]) -> int:
    """Print an error that ended the command `words`, in one paragraph; the exit code. Others than mistakes are raised
    again, but those of Hydra about words that it cannot compose, and of a launcher that cannot start."""
    started = Jobs.latest is not None and bool(Jobs.latest.notes)
    if not isinstance(error, mistakes()) and (started or not (are_many(words) or isinstance(error, ValueError))):
        conclude(1, words)
        raise error
    _print(error)
    return 1


def conclude(code: int, words: Sequence[str]) -> int:
    """Compare the results of a multirun and list the jobs that failed; the exit code of the command, `code` where it is
    not 0 already."""
    jobs, Jobs.latest = Jobs.latest, None
    if not are_many(words) or jobs is None:
        return code
    jobs.read_notes()
    if not code and not jobs.notes and not jobs.has_trials:
        print("error: the multirun has no job: no name matches the glob(...). See configs/.", file=sys.stderr)
        return 1
    try:
        show_results(jobs)
    except Exception as error:  # of records that others wrote
        print(f"note: the results are not compared ({type(error).__name__}: {paragraph(error)}).", file=sys.stderr)
    failed = [note for note in jobs.notes.values() if note["reason"]]
    if failed:
        number = max(jobs.number, len(jobs.notes))
        missing = number - len(jobs.notes)
        not_begun = f" ({missing} {'was' if missing == 1 else 'were'} not begun)" if missing else ""
        print(f"{len(failed)} of {number} jobs failed{not_begun}:", file=sys.stderr)
    for note in failed:
        reason = "it was interrupted" if code == INTERRUPTED and note["reason"] == ENDED else note["reason"]
        chosen = f"experiment={CHOICE}"  # by a checkpoint, and no word of the command line
        own = [word for word in note["words"] if word != chosen and not (jobs.has_trials and word.startswith("sweep="))]
        print(called(with_folder(f"failed: python run.py {shlex.join(own)}: {reason}")), file=sys.stderr)
    return code or int(bool(failed))


def show_results(jobs: Jobs) -> None:
    """Print the trainings of a multirun, two or more, compared as `scripts/compare.py` does; of a search without test
    metrics."""
    records = {}
    for file in (Path(note["record"]) for note in jobs.notes.values() if note["record"]):
        with contextlib.suppress(OSError, ValueError):  # the folder is gone, or the file is damaged
            records[file] = json.loads(file.read_text(encoding="utf-8"))
    trainings = {file: record for file, record in records.items() if record["config"]["mode"] == "fit"}
    if len(trainings) > 1 and not jobs.has_trials:
        tested = any(name.startswith("test/") for record in trainings.values() for name in record["metrics"])
        comparison_table.show(comparison.compare(trainings, choices), with_test=tested and not jobs.searches)
        print(f"record: {list(trainings)[-1]}", flush=True)  # the line that every command ends with


@contextlib.contextmanager
def output_of(job: Any, folder: Path) -> Iterator[None]:
    """What a trial of a search prints of its data and at its end goes into its folder; the search says the rest."""
    if not is_trial(job):
        yield
        return
    with (folder / "output.log").open("a", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        yield


def _state(error: Exception) -> str:
    """What a trial has become that ended with this error."""
    if isinstance(error, NonFiniteError | Diverged):
        return search.DIVERGED
    return search.PRUNED if isinstance(error, Pruned) else search.FAILED


def _print(error: Exception, place: str = "") -> str:
    message = called(paragraph(error))
    print(f"error{place}: {message}", file=sys.stderr)
    return message
