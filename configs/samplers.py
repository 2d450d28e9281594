"""What a search tries next: settings at random, or what Optuna's TPE proposes after the trials so far."""

import contextlib
import math
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.types import RunMode

from configs.composing import SEARCH
from configs.errors import ConfigError
from configs.spaces import Choice, Compose, Interval, Space, random_draw, separate
from tasks.reading import brief
from tasks.search import FAILED, PREFIX, PRUNED, Trial

DATABASE, STUDY = "optuna.db", "search"
SAMPLERS, PRUNERS = ("random", "tpe"), ("median",)
WAIT_S = 20  # for another process that writes into the database
BELONGS_TO_ANOTHER = (
    "it is not that of these trials. Put the one of this search back, or start it anew in another folder: "
    "hydra.sweeper.folder=..."
)


class Random:
    """Settings by the seed and the number of the trial alone."""

    def __init__(self, space: Space, compose: Compose, seed: int):
        self.space, self.compose, self.seed = space, compose, seed

    def settings(self, number: int) -> dict[str, str]:
        """Those of a trial."""
        return separate(self.drawn(number))

    def drawn(self, number: int) -> dict[str, str]:
        """The same by dimension of the space."""
        return self.space.of_trial(number).drawn(random_draw(self.seed, number), self.compose)

    def note(self, trial: Trial) -> None:
        """Takes what became of a trial; nothing follows from it here."""


class Tpe:
    """The tree-structured Parzen estimator of Bergstra et al. (2011) in Optuna's implementation, which keeps its trials
    in a database of SQLite in the folder of the search. The first `startup` trials are those of Random.

    Raises ConfigError where Optuna is not installed, or the database is not that of this search.
    """

    def __init__(self, space: Space, compose: Compose, seed: int, startup: int, mode: str, folder: Path):
        optuna = _optuna()
        self.space, self.compose, self.seed, self.startup, self.mode = space, compose, seed, startup, mode
        self.random = Random(space, compose, seed)
        self.file = folder / DATABASE
        with _report(self.file):
            check_database(self.file)
            self.study = optuna.create_study(
                storage=_storage(optuna, self.file), study_name=STUDY, load_if_exists=True,
                direction="maximize" if mode == "max" else "minimize",
            )  # fmt: skip

    def settings(self, number: int) -> dict[str, str]:
        """Those of a trial: what it was given before, or a new proposal. Numbers are asked for one after the other."""
        optuna = _optuna()
        with _report(self.file):
            trials = self.study.get_trials(deepcopy=False)
            if number > len(trials):
                raise ConfigError(
                    f"{self.file} has {len(trials)} trials, and the folder has trial {number}: {BELONGS_TO_ANOTHER}"
                )
            if number < len(trials) and trials[number].state.is_finished():
                params = trials[number].params
                return separate({k: self._text(number, k, params[k]) for k in self.space.dimensions if k in params})
            if number == len(trials) < self.startup:
                drawn = self.random.drawn(number)
                self.study.enqueue_trial({key: self._value(key, text) for key, text in drawn.items()})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                # constant_liar: trials that run count as bad, so that several at once differ
                self.study.sampler = optuna.samplers.TPESampler(
                    seed=self.seed * 100_003 + number, n_startup_trials=0, constant_liar=True
                )
            begun = number < len(trials) and trials[number].state == optuna.trial.TrialState.RUNNING
            trial = optuna.trial.Trial(self.study, trials[number]._trial_id) if begun else self.study.ask()

            def draw(key: str, dimension: Choice | Interval) -> str:
                try:
                    return self._text(number, key, _suggested(trial, key, dimension))
                except ValueError as error:  # of Optuna, where the trial has another range
                    if isinstance(error, ConfigError):
                        raise
                    raise ConfigError(f"{self.file}: trial {number}, {key}: {BELONGS_TO_ANOTHER}") from error

            return separate(self.space.of_trial(number).drawn(draw, self.compose))

    def note(self, trial: Trial) -> None:
        """Tell Optuna what became of a trial; one that diverged is the worst there can be. Of one that failed it hears
        nothing, as the next command repeats it; until then it counts as one that runs."""
        if trial.state == FAILED:
            return
        optuna = _optuna()
        with _report(self.file):
            known = self.study.get_trials(deepcopy=False)[trial.number]
            if known.state.is_finished():
                return
            if trial.state == PRUNED:
                self.study.tell(trial.number, state=optuna.trial.TrialState.PRUNED)
            else:
                worst = -math.inf if self.mode == "max" else math.inf
                self.study.tell(trial.number, worst if trial.value is None else trial.value)

    def _value(self, key: str, text: str) -> str | int | float:
        """A word of the command line as Optuna has it."""
        dimension = self.space.dimensions[key]
        if isinstance(dimension, Choice):
            return text
        return int(text) if dimension.whole else min(max(float(text), dimension.low), dimension.high)

    def _text(self, number: int, key: str, value: Any) -> str:
        """What a trial in the database has, as a word of the command line. Raises ConfigError for what is not in the
        space: the database is a file, and its texts become words."""
        dimension = self.space.dimensions[key]
        if isinstance(dimension, Choice):
            is_known = isinstance(value, str) and value in dimension.values
        else:
            is_known = isinstance(value, int | float) and dimension.low <= value <= dimension.high
        if not is_known:
            raise ConfigError(
                f"{self.file}: trial {number} has {key}={brief(value)}, which is not in the space: {BELONGS_TO_ANOTHER}"
            )
        return dimension.text(value) if isinstance(dimension, Interval) else str(value)


def _suggested(trial: Any, key: str, dimension: Choice | Interval) -> Any:
    """A value of a dimension, from Optuna; of a trial that was begun with another range, one that may lie outside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that the range is another one
        if isinstance(dimension, Choice):
            return trial.suggest_categorical(key, dimension.values)
        low, high = dimension.low, dimension.high
        if dimension.whole:
            return trial.suggest_int(key, int(low), int(high), log=dimension.log)
        return trial.suggest_float(key, low, high, log=dimension.log)


def is_trial(job: Any) -> bool:
    """Whether a job, as Hydra has it, is a trial of a search."""
    is_search = job.mode == RunMode.MULTIRUN and job.sweeper.get("_target_") == SEARCH
    return is_search and str(job.sweep.subdir).startswith(PREFIX)


def judge(job: Any) -> Callable[[int, float], str | None] | None:
    """Why the trial that runs here, as `job`, shall end, by the number and the value of its validation; None where its
    search does not prune.

    Optuna's median rule: its best value so far is worse than the median of the other trials' at the same validation.
    """
    if not is_trial(job) or not job.sweeper.pruner:
        return None
    optuna = _optuna()
    file, number = Path(job.sweep.dir) / DATABASE, int(str(job.sweep.subdir).rpartition("-")[2])
    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
    with _report(file):
        study = optuna.load_study(
            study_name=STUDY, storage=_storage(optuna, file), sampler=optuna.samplers.RandomSampler(), pruner=pruner
        )
        trial = optuna.trial.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)

    def ends(validation: int, value: float) -> str | None:
        with _report(file):
            trial.report(value, validation)
            behind = trial.should_prune()
        return f"half of the other trials were better at validation {validation} ({value:.4g} here)" if behind else None

    return ends


def check_database(file: Path) -> None:
    """Raises ConfigError for a file that is no database of Optuna, sqlite3.Error where it cannot be read."""
    if not file.exists() or not file.stat().st_size:
        return
    place = f"{file.resolve().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(place, uri=True, timeout=WAIT_S)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and not {"studies", "trials", "trial_params"} <= tables:
            some = ", ".join(sorted(tables)[:3])
            raise ConfigError(
                f"{file} is a database of something else, with the tables {some}. Start the search in another "
                "folder: hydra.sweeper.folder=..."
            )
        database.execute("BEGIN IMMEDIATE")  # fails where another process holds it
        database.rollback()


def _storage(optuna: Any, file: Path) -> Any:
    def connect() -> sqlite3.Connection:  # a path in an address would have to do without ? % { and }
        return sqlite3.connect(file.resolve(), timeout=WAIT_S)

    return optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect})


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            "hydra.sweeper.sampler=tpe needs Optuna; pip install '.[sweep]' adds it, and sampler=random needs nothing."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextlib.contextmanager
def _report(file: Path) -> Iterator[None]:
    """Errors of the database become one paragraph that names its file."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        kinds: Mapping[str, str] = {kind.__name__: kind.__module__ for kind in type(error).__mro__}
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        if "locked" in text:
            raise ConfigError(
                f"{file} is locked by another process for more than {WAIT_S} s. End what has it open (another search, "
                "Optuna's dashboard), and start the same command again: it goes on."
            ) from error
        if any(module.partition(".")[0] in ("sqlalchemy", "sqlite3", "alembic") for module in kinds.values()) or (
            "version" in text and "storage" in text
        ):
            raise ConfigError(
                f"{file} cannot be read as the database of a search ({text[:300]}). Put a copy of it back, or "
                "start the search anew in another folder: hydra.sweeper.folder=..."
            ) from error
        raise
