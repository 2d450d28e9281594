"""The trials of a search: launched in batches, what is there not again; their ranking, and the test of the best."""

import dataclasses
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.plugins.launcher import Launcher

from configs.errors import ConfigError
from configs.own import with_folder
from configs.samplers import DATABASE, Random, Tpe
from configs.spaces import KEYS, Space
from configs.words import quoted
from tasks import search
from tasks.comparison_table import show_grid
from tasks.errors import UserError, called
from tasks.local_paths import portable_word

TEST = "test"  # the folder of the best trial's test, beside those of the trials


def _clear(folder: Path) -> None:
    """Remove the folder of a run. Raises UserError, and leaves it, where it holds files and is none."""
    is_run = (folder / ".hydra").is_dir() or (folder / search.FAILURE).is_file()
    if folder.exists() and any(folder.iterdir()) and not is_run:
        raise UserError(
            f"{folder} is where a run of this search would be, and it holds files of something else. Name another "
            "folder with hydra.sweeper.folder, or move it away."
        )
    shutil.rmtree(folder, ignore_errors=True)


class Trials:
    """The trials of one search, whose folder is `place`. at_once: how many are launched
    together. in_steps: whether the next ones wait for these. timeout: seconds after which no further one starts."""

    def __init__(
        self, space: Space, sampler: Random | Tpe, summary: search.Search, place: Path, launcher: Launcher,
        at_once: int, in_steps: bool, timeout: float | None,
    ):  # fmt: skip
        self.space, self.sampler, self.summary, self.place = space, sampler, summary, place
        self.launcher, self.at_once, self.in_steps, self.timeout = launcher, at_once, in_steps, timeout
        self.trials: dict[int, search.Trial] = {}
        self.launched = 0

    def run(self) -> None:
        """Run what is missing, test the best, and show all. Raises UserError where no trial has a result."""
        self._take_finished()
        if self.trials:
            print(f"{len(self.trials)} of {self.summary.n_trials} trials are there already, in {self.place}")
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
        end = time.monotonic() + (math.inf if self.timeout is None else self.timeout)
        missing = [number for number in range(self.summary.n_trials) if number not in self.trials]
        first = True
        while missing and time.monotonic() < end:
            # a first batch shows whether trials run at all; at random the others then need not wait for each other
            size = self.at_once if first or self.in_steps else len(missing)
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
            if (same := self._same_as(number, settings)) is not None:
                print(f"trial {number} would have the settings of trial {same}, and is not trained.")
                del settings[number]
                if same in self.trials:
                    self.sampler.note(dataclasses.replace(self.trials[same], number=number))
                continue
            name = self._folder(number)
            _clear(self.place / name)  # of a trial that was killed
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

    def _same_as(self, number: int, settings: Mapping[int, Mapping[str, str]]) -> int | None:
        """Another trial, before or in the same batch, with the settings of this one."""
        earlier = {n: trial.settings for n, trial in self.trials.items()} | dict(settings)
        return next((n for n, own in earlier.items() if n != number and own == settings[number]), None)

    def _call(self, jobs: list[list[str]]) -> None:
        """Launch jobs. Raises what ended one that is no mistake of its settings."""
        for job in self.launcher.launch(jobs, initial_job_idx=self.launched):
            _ = job.return_value
        self.launched += len(jobs)

    def _take_finished(self) -> None:
        """Those of an earlier command, but the ones that failed. Raises ConfigError where one was trained with other
        settings than the sampler says."""
        keys = {key for keys in self.space.dimensions for key in keys.split(KEYS)}
        for number in range(self.summary.n_trials):
            folder = self.place / self._folder(number)
            if (folder / "record.json").exists() or (folder / search.FAILURE).exists():
                settings = self.sampler.settings(number)
                trial = search.outcome(folder, number, settings, self.summary.metric)
                words = search.overrides(folder)
                own = {word for word in words or () if word.partition("=")[0] in keys}
                if trial and words is not None and own != {portable_word(f"{k}={v}") for k, v in settings.items()}:
                    raise ConfigError(
                        f"{folder} was trained with {' '.join(sorted(own)) or 'no settings of the space'}, and the "
                        f"{self.summary.sampler} sampler has others for trial {number}: this folder is of another "
                        f"search, or its {DATABASE} is. Start the search in another folder: hydra.sweeper.folder=..."
                    )
                if trial and trial.state != search.FAILED:
                    self.trials[number] = trial
                    self.sampler.note(trial)

    def _conclude(self, best: search.Trial) -> None:
        """Test the best trial, once, and say where it is and how it is trained again."""
        folder, test = self.place / best.folder, self.place / TEST
        earlier = search.record_of_test(test, folder)
        if earlier is None:
            _clear(test)
            words = [*self.space.job(best.settings), "mode=test", f"checkpoint={quoted(folder)}", *self._in(TEST)]
            self._call([words])
            earlier = search.record_of_test(test, folder)
        if earlier is None:
            raise UserError(f"The best trial, {folder}, was not tested; the reason is above.")
        file = test / "record.json"
        metrics = {name: value for name, value in earlier["metrics"].items() if name.startswith("test/")}
        self._write({"trial": best.number, "folder": best.folder, "record": f"{TEST}/record.json", "metrics": metrics})
        name = "test/" + self.summary.metric.partition("/")[2]
        shown = f", {name} {metrics[name]:.4f}" if name in metrics else ""
        same = sum(trial.value == best.value for trial in self.summary.trials)
        ties = f"; {same} trials have this value, of which it is the first" if same > 1 else ""
        print(f"best: {folder}, {self.summary.metric} {best.value:.4f}{shown} (tested once){ties}")
        print(f"again over seeds: {called(with_folder(search.again_over_seeds(self.summary, best)))}")
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
