"""`python run.py -m sweep=...`: trials of a search, launched in batches, ranked by validation; the best is tested."""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from configs import checks, files, samplers, spaces
from configs.errors import ConfigError
from configs.samplers import SEARCH
from tasks import search
from tasks.comparison_table import show_grid
from tasks.errors import UserError, one_of, positive, whole
from tasks.record import WITHOUT_EFFECT

TEST = "test"  # the folder of the best trial's test, beside those of the trials
TRIED = 20  # trials that are looked into before the first is trained, until each key has come


def register() -> str:
    """Make the sweeper known to Hydra, which takes plugins from packages of its own name alone; returns its name."""
    Plugins.instance().class_name_to_class[SEARCH] = SearchSweeper
    return SEARCH


class SearchSweeper(Sweeper):
    """The settings are those of configs/hydra/sweeper/search.yaml.

    Everything lies in the folder of the search: a run folder for each trial, without a test, `search.json`, tables, and
    the test of the best trial. What is there is not run again.
    """

    def __init__(
        self, n_trials: int, sampler: str, startup: int, pruner: str | None, seed: int, timeout: float | None,
        n_jobs: int | None, folder: str | None, params: Mapping[str, Any], where: Mapping[str, Any],
    ):  # fmt: skip
        self.n_trials, self.timeout = n_trials, timeout
        self.sampler, self.startup, self.pruner, self.seed = sampler, startup, pruner, seed
        self.n_jobs, self.folder, self.params, self.where = n_jobs, folder, params, where

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.function, self.master = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Run the trials that are missing, and show what came out of all."""
        self._check()
        node = self.master.hydra.sweeper
        space = spaces.read(files.plain(node.params), files.plain(node.where), arguments, self.context.config_loader)
        metric, mode = self._look_at(space)
        identity = self._identity(space)
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        place = Path(self.folder) if self.folder else self._place(digest)
        summary = search.Search(
            place.name, self._command(arguments), list(space.words), self.sampler, self.seed, self.n_trials, identity,
            digest, metric, mode, trials=[], best={},
        )  # fmt: skip
        with _alone(place):
            _check_same(place, summary)
            search.write(summary, place) if not (place / search.SUMMARY).exists() else None
            with open_dict(self.master):
                self.master.hydra.sweep.dir = str(place)
            self.launcher = Plugins.instance().instantiate_launcher(
                hydra_context=self.context, task_function=self.function, config=self.master
            )
            Trials(self, space, summary, place).run()

    def compose(self, words: Sequence[str]) -> DictConfig:
        """The configuration of a job, as a launcher composes it."""
        return self.context.config_loader.load_sweep_config(self.master, list(words))

    def batch_size(self) -> int:
        """How many jobs the launcher runs at once."""
        launcher = self.master.hydra.launcher
        n = self.n_jobs or launcher.get("n_jobs") or launcher.get("array_parallelism") or 1
        return int(n) if int(n) > 0 else os.cpu_count() or 1

    def _command(self, arguments: Sequence[str]) -> list[str]:
        """The words of the command line."""
        own = [word for word in self.master.hydra.overrides.hydra if not word.startswith("hydra.mode=")]
        return ["-m", *arguments, *own]

    def _check(self) -> None:
        whole("hydra.sweeper.n_trials", self.n_trials, 1)
        whole("hydra.sweeper.startup", self.startup, 1)
        whole("hydra.sweeper.seed", self.seed, 0)
        one_of("hydra.sweeper.sampler", self.sampler, samplers.SAMPLERS)
        if self.pruner is not None:
            one_of("hydra.sweeper.pruner", self.pruner, ("median",))
            if self.sampler != "tpe":
                raise ConfigError(f"hydra.sweeper.pruner={self.pruner} needs hydra.sweeper.sampler=tpe.")
        if self.timeout is not None:
            positive("hydra.sweeper.timeout", self.timeout)
        if self.n_jobs is not None:
            whole("hydra.sweeper.n_jobs", self.n_jobs, 1)

    def _look_at(self, space: spaces.Space) -> tuple[str, str]:
        """The selecting metric and its mode. Raises ConfigError where a trial cannot be composed or its settings are
        wrong: the first, and of those after it as many as it takes to see each key."""
        unseen, selections = set(space.dimensions), set()
        sampler = samplers.Random(space, self.compose, self.seed)
        for number in range(min(self.n_trials, TRIED)):
            drawn = sampler.drawn(number)
            if number and not unseen.intersection(drawn):
                continue
            unseen.difference_update(drawn)
            cfg = self.compose(space.job(spaces.separate(drawn)))
            with open_dict(cfg):
                del cfg["hydra"]
            values = checks.check(cfg)
            module = values["task"]["module"]
            if not {"select", "select_mode"} <= set(module):
                name = values["task"]["name"]
                raise ConfigError(f"task={name} has no task.module.select, by which trials are ranked.")
            selections.add((str(module["select"]), str(module["select_mode"])))
            if not unseen:
                break
        for key, dimension in space.dimensions.items():  # a file that does not exist, though its trial is not yet due
            if isinstance(dimension, spaces.Choice) and (files.FOLDER / key).is_dir():
                names = self.context.config_loader.get_group_options(key)
                for name in set(dimension.values).difference(names):
                    self.compose(space.job({key: name}))
        if len(selections) > 1:
            raise ConfigError(f"The trials of a search are ranked by one metric, and here by {sorted(selections)}.")
        return selections.pop()

    def _identity(self, space: spaces.Space) -> dict[str, Any]:
        """What makes two searches the same one; how many trials, and how they are launched, does not."""
        dimensions = {
            key: list(each.values) if isinstance(each, spaces.Choice) else [each.low, each.high, each.log, each.whole]
            for key, each in space.dimensions.items()
        }
        words = [word for word in space.words if not _has_no_effect(word)]
        return {
            "words": sorted(words), "space": dimensions, "where": space.where, "sampler": self.sampler,
            "startup": self.startup, "pruner": self.pruner, "seed": self.seed,
        }  # fmt: skip

    def _place(self, digest: str) -> Path:
        choices = self.master.hydra.runtime.choices
        data = Path(self.master.data.dir).resolve().name if self.master.data.dir else None
        names = [choices.get("sweep") or "search", choices.get("experiment") or choices.get("task"), data]
        return Path(self.master.paths.output_dir) / "search" / "-".join([*filter(None, names), digest[:8]])


class Trials:
    """The trials of one search, whose folder is `place`."""

    def __init__(self, sweeper: SearchSweeper, space: spaces.Space, summary: search.Search, place: Path):
        self.sweeper, self.space, self.summary, self.place = sweeper, space, summary, place
        if sweeper.sampler == "tpe":
            self.sampler: samplers.Random | samplers.Tpe = samplers.Tpe(
                space, sweeper.compose, sweeper.seed, sweeper.startup, summary.mode, place
            )
        else:
            self.sampler = samplers.Random(space, sweeper.compose, sweeper.seed)
        self.trials: dict[int, search.Trial] = {}
        self.launched = 0

    def run(self) -> None:
        """Run what is missing, test the best, and show all. Raises UserError where no trial has a result."""
        self._take_finished()
        if self.trials:
            print(f"{len(self.trials)} of {self.sweeper.n_trials} trials are there already, in {self.place}")
        try:
            self._train()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"Interrupted; the same command goes on in {self.place}.") from None
        finally:
            self._write({})
        ranked = self.summary.ranked()
        if ranked and ranked[0].value is None:
            reasons = "; ".join(dict.fromkeys(f"{t.state}: {t.reason}" for t in ranked))
            show_grid(search.grid(self.summary))
            raise UserError(f"No trial has a result. {reasons}")
        if not ranked:
            raise UserError("No trial came to its end before hydra.sweeper.timeout; allow more seconds.")
        show_grid(search.grid(self.summary))
        self._conclude(ranked[0])

    def _train(self) -> None:
        start, options = time.monotonic(), self.sweeper
        at_once = options.batch_size()
        is_one_by_one = at_once == 1 or options.sampler == "tpe" or options.timeout is not None
        missing = [number for number in range(options.n_trials) if number not in self.trials]
        first = True
        while missing and (options.timeout is None or time.monotonic() - start < options.timeout):
            # a first batch shows whether trials run at all; at random the others then need not wait for each other
            size = at_once if first or is_one_by_one else len(missing)
            batch, missing = missing[:size], missing[size:]
            new = self._launch(batch)
            self._write({})
            self._say(new)
            if first and not self._any_runs():
                break
            first = False

    def _any_runs(self) -> bool:
        return any(trial.state != search.FAILED for trial in self.trials.values())

    def _launch(self, numbers: Sequence[int]) -> list[search.Trial]:
        jobs, settings = [], {}
        for number in numbers:
            settings[number] = self.sampler.settings(number)
            if (twin := self._twin(number, settings)) is not None:
                print(f"trial {number} would have the settings of trial {twin}, and is not trained.")
                del settings[number]
                if twin in self.trials:
                    self.sampler.note(dataclasses.replace(self.trials[twin], number=number))
                continue
            name = self._folder(number)
            shutil.rmtree(self.place / name, ignore_errors=True)  # of a trial that was killed
            jobs.append([*self.space.job(settings[number]), *self._in(name)])
        if jobs:
            self._call(jobs)
        new = []
        for number in settings:
            folder = self.place / self._folder(number)
            trial = search.outcome(folder, number, settings[number], self.summary.metric) or search.Trial(
                number, settings[number], search.FAILED, folder.name, reason="it ended without a word"
            )
            self.sampler.note(trial)
            self.trials[number] = trial
            new.append(trial)
        return new

    def _twin(self, number: int, settings: Mapping[int, Mapping[str, str]]) -> int | None:
        """Another trial, before or in the same batch, with the settings of this one."""
        earlier = {n: trial.settings for n, trial in self.trials.items()} | dict(settings)
        return next((n for n, own in earlier.items() if n != number and own == settings[number]), None)

    def _call(self, jobs: list[list[str]]) -> None:
        """Launch jobs. Raises what ended one that is no mistake of its settings."""
        for job in self.sweeper.launcher.launch(jobs, initial_job_idx=self.launched):  # type: ignore[union-attr]
            _ = job.return_value
        self.launched += len(jobs)

    def _take_finished(self) -> None:
        """Those of an earlier command, but the ones that failed."""
        for number in range(self.sweeper.n_trials):
            folder = self.place / self._folder(number)
            if (folder / "record.json").exists() or (folder / search.FAILURE).exists():
                settings = self.sampler.settings(number)
                trial = search.outcome(folder, number, settings, self.summary.metric)
                if trial and trial.state != search.FAILED:
                    self.trials[number] = trial
                    self.sampler.note(trial)

    def _conclude(self, best: search.Trial) -> None:
        """Test the best trial, once, and say where it is and how it is trained again."""
        folder, test = self.place / best.folder, self.place / TEST
        earlier = search.tested(test, folder)
        if earlier is None:
            shutil.rmtree(test, ignore_errors=True)
            words = [*self.space.job(best.settings), "mode=test", f"checkpoint={quoted(folder)}", *self._in(TEST)]
            self._call([words])
            earlier = search.tested(test, folder)
        if earlier is None:
            raise UserError(f"The best trial, {folder}, was not tested; the reason is above.")
        file = test / "record.json"
        metrics = {name: value for name, value in earlier["metrics"].items() if name.startswith("test/")}
        self._write({"trial": best.number, "folder": best.folder, "record": f"{TEST}/record.json", "metrics": metrics})
        tested = "test/" + self.summary.metric.partition("/")[2]
        shown = f", {tested} {metrics[tested]:.4f}" if tested in metrics else ""
        print(f"best: {folder}, {self.summary.metric} {best.value:.4f}{shown} (tested once)")
        print(f"again over seeds: {search.again_over_seeds(self.summary, best)}")
        print(f"search: {self.place / search.SUMMARY}, search.csv, search.md")
        print(f"record: {file}", flush=True)

    def _say(self, new: Sequence[search.Trial]) -> None:
        best = self.summary.ranked()[0]
        for trial in new:
            value = trial.state if trial.value is None else f"{trial.value:.4f}"
            so_far = f"; the best so far {best.value:.4f}, trial {best.number}" if best.value is not None else ""
            print(f"trial {trial.number}: {self.summary.metric} {value}{so_far}", flush=True)

    def _write(self, best: Mapping[str, Any]) -> None:
        self.summary.trials[:] = [self.trials[number] for number in sorted(self.trials)]
        self.summary.best.update(best)
        search.write(self.summary, self.place)

    def _in(self, folder: str) -> list[str]:
        return [f"hydra.sweep.dir={quoted(self.place)}", f"hydra.sweep.subdir={folder}"]

    def _folder(self, number: int) -> str:
        return f"{search.PREFIX}{number:03d}"


def quoted(path: Path) -> str:
    """A path as the value of a word, whatever its characters."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _has_no_effect(word: str) -> bool:
    key = word.lstrip("+~").partition("=")[0]
    return any(key == name or key.startswith(f"{name}.") for name in WITHOUT_EFFECT)


def _check_same(place: Path, summary: search.Search) -> None:
    """Raises ConfigError where the folder belongs to another search."""
    if not (place / search.SUMMARY).exists():
        return
    earlier = search.read(place)
    if earlier.digest != summary.digest:
        own, now = earlier.identity, json.loads(json.dumps(summary.identity))
        different = [key for key in now if key != "words" and own.get(key) != now[key]] or ["words"]
        raise ConfigError(
            f"{place} holds another search: it differs in {', '.join(different)}. Name another folder "
            "(hydra.sweeper.folder=...), or leave it out."
        )


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """While it lasts, no other process searches in the folder. Raises ConfigError where one does."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"Another process is at the search in {place}; wait for it, or end it.") from error
        yield
