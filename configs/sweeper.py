"""`python run.py -m sweep=...`: trials of a search, launched in batches, ranked by validation; the best is tested."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from configs import checks, choosing, files, samplers, spaces
from configs.build import make_data
from configs.composing import SEARCH
from configs.errors import ConfigError, paragraph
from configs.trials import Trials
from tasks import search
from tasks.errors import one_of, positive, whole
from tasks.fingerprints import joined_sha256
from tasks.local_paths import portable
from tasks.record import config_sha256
from tasks.settings import WITHOUT_EFFECT, is_under

TRIED = 20  # trials that are looked into before the first is trained, until each key has come
FEW = 5  # trials that TPE plans at once, of which it learns nothing from each other
ORDER = tuple(f"task.data.{key}" for key in ("batch_size", "eval_batch_size", "batch_tokens", "shuffle", "seed"))


def register() -> None:
    """Make the sweeper known to Hydra, which takes plugins from packages of its own name alone."""
    Plugins.instance().class_name_to_class[SEARCH] = SearchSweeper


class SearchSweeper(Sweeper):
    """The settings are those of configs/hydra/sweeper/search.yaml.

    Everything lies in the folder of the search: a run folder for each trial, without a test, `search.json`, tables, and
    the test of the best trial. What is there is not run again.
    """

    def __init__(
        self, n_trials: int, sampler: str, startup: int, pruner: str | None, seed: int, timeout: float | None,
        n_jobs: int | None, folder: str | None, params: Mapping[str, Any], where: Mapping[str, Any], baseline: bool,
    ):  # fmt: skip
        self.n_trials, self.timeout = n_trials, timeout
        self.sampler, self.startup, self.pruner, self.seed = sampler, startup, pruner, seed
        self.n_jobs, self.folder, self.params, self.where, self.baseline = n_jobs, folder, params, where, baseline

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.function, self.master = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Run the trials that are missing, and show what came out of all."""
        self._check()
        node = self.master.hydra.sweeper
        params, where = files.plain(node.params), files.plain(node.where)
        space = spaces.read(params, where, arguments, self.context.config_loader, self.baseline)
        space = space.in_numbers(self.compose)
        metric, mode = self._look_at(space)
        identity = self._identity(space) | {"configuration": self._configuration(space), "data": self._data(space)}
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
            launcher = Plugins.instance().instantiate_launcher(
                hydra_context=self.context, task_function=self.function, config=self.master
            )
            sampler: samplers.Random | samplers.Tpe = samplers.Random(space, self.compose, self.seed)
            if self.sampler == "tpe":
                sampler = samplers.Tpe(space, self.compose, self.seed, self.startup, mode, place)
            Trials(space, sampler, summary, place, launcher, *self.batches(), self.timeout).run()

    def compose(self, words: Sequence[str]) -> DictConfig:
        """The configuration of a job, as a launcher composes it."""
        return self.context.config_loader.load_sweep_config(self.master, list(words))

    def batches(self) -> tuple[int, bool]:
        """How many trials are launched together, and whether the next ones wait for these: at random only where there
        is one after the other anyway, or a timeout."""
        launcher = self.master.hydra.launcher
        if launcher._target_.endswith(".BasicLauncher"):
            return self.n_jobs or 1, True
        n = int(launcher.get("n_jobs") or launcher.get("array_parallelism") or -1)  # Ray's says nothing
        n = n if n > 0 else os.cpu_count() or 1
        if self.sampler == "tpe":
            return self.n_jobs or min(n, FEW), True
        return (n, False) if self.timeout is None else (self.n_jobs or n, True)

    def _command(self, arguments: Sequence[str]) -> list[str]:
        """The words of the command line."""
        own = [word for word in self.master.hydra.overrides.hydra if not word.startswith("hydra.mode=")]
        return ["-m", *arguments, *own]

    def _check(self) -> None:
        whole("hydra.sweeper.n_trials", self.n_trials, 1)
        whole("hydra.sweeper.startup", self.startup, 1)
        whole("hydra.sweeper.seed", self.seed, 0)
        if not isinstance(self.baseline, bool):
            raise ConfigError(f"hydra.sweeper.baseline must be true or false, not {self.baseline}.")
        one_of("hydra.sweeper.sampler", self.sampler, samplers.SAMPLERS)
        if self.pruner is not None:
            one_of("hydra.sweeper.pruner", self.pruner, samplers.PRUNERS)
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
            try:
                drawn = sampler.drawn(number)
                if number and not unseen.intersection(drawn):
                    continue
                values = self._values(space.job(spaces.separate(drawn)))[1]
            except (HydraException, OmegaConfBaseException, ConfigError) as error:
                name = self.master.hydra.runtime.choices.get("sweep")
                if not (number and name):
                    raise
                raise ConfigError(f"{paragraph(error)} Is sweep={name}, which draws it, for this task?") from error
            unseen.difference_update(drawn)
            if values["trainer"]["limit_val_batches"] == 0:
                raise ConfigError("trainer.limit_val_batches=0: trials are ranked by their validation.")
            module = values["task"]["module"]
            if not {"select", "select_mode"} <= set(module):
                name = values["task"]["name"]
                raise ConfigError(f"task={name} has no task.module.select, by which trials are ranked.")
            selections.add((str(module["select"]), str(module["select_mode"])))
            if not unseen:
                break
        for key, choices in space.by_key().items():  # a file that does not exist, though its trial is not yet due
            if (files.FOLDER / key).is_dir():
                for name in choices.difference(self.context.config_loader.get_group_options(key)):
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
        words = [word for word in space.words if not is_under(word.lstrip("+~").partition("=")[0], WITHOUT_EFFECT)]
        return {
            "words": sorted(words), "space": dimensions, "where": space.where, "sampler": self.sampler,
            "startup": self.startup, "pruner": self.pruner, "seed": self.seed,
            **({"baseline": True} if self.baseline else {}),
        }  # fmt: skip

    def _configuration(self, space: spaces.Space) -> str:
        """The fingerprint of what trial 0, and each file that others choose, is composed to: files may be edited."""
        zero = space.job(samplers.Random(space, self.compose, self.seed).settings(0))
        shas = [config_sha256(self._values(zero)[1])]
        for key, choices in sorted(space.by_key().items()):
            for name in sorted(choices) if (files.FOLDER / key).is_dir() else ():
                node: Any = OmegaConf.to_container(self.compose(space.job({key: name})), resolve=False)
                shas.append(config_sha256({k: v for k, v in node.items() if k != "hydra"}))
        return joined_sha256(shas)

    def _values(self, words: Sequence[str]) -> tuple[DictConfig, dict[str, Any]]:
        """The configuration of a job, and its values. Raises ConfigError as `checks.check`."""
        cfg = self.compose(words)
        with open_dict(cfg):
            del cfg["hydra"]
        return cfg, checks.check(cfg)

    def _data(self, space: spaces.Space) -> str:
        """The sha256 of the data as trial 0 has them. Raises ConfigError where the trials have others to be ranked by,
        UserError where they cannot be read."""

        def fingerprint(words: Sequence[str]) -> Mapping[str, Any]:
            cfg, values = self._values(words)
            with contextlib.redirect_stdout(io.StringIO()):  # each run says it
                data = choosing.choose(cfg, values)[2] or make_data(values)
                return data.fingerprint()

        first = fingerprint(space.job(samplers.Random(space, self.compose, self.seed).settings(0)))
        for key, values in space.by_key().items():
            of_data = key.startswith("task.") and not key.startswith(("task.model.", "task.module."))
            if key in ORDER or not (of_data or key.startswith("task/data")):
                continue
            jobs = [space.job({key: value}) for value in sorted(values)]
            if len({json.dumps(self._values(job)[1]["task"]["data"], default=str) for job in jobs}) == 1:
                continue
            shas = {json.dumps(_to_rank_by(fingerprint(job))) for job in jobs}
            if len(shas) > 1:
                raise ConfigError(f"The trials of a search are ranked on one data set, and {key} gives several.")
        return hashlib.sha256(json.dumps(first, sort_keys=True, default=str).encode()).hexdigest()

    def _place(self, digest: str) -> Path:
        choices = self.master.hydra.runtime.choices
        data = Path(self.master.data.dir).resolve().name if self.master.data.dir else None
        names = [choices.get("sweep") or "search", choices.get("experiment") or choices.get("task"), data]
        return Path(self.master.paths.output_dir) / "search" / "-".join([*filter(None, names), digest[:8]])


def _to_rank_by(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """The sha256 of the parts of the data that are not learned from, or of all data, where there is nothing else."""
    sums = fingerprint["sha256"]
    return {part: sums[part] for part in sorted(sums) if part not in ("train", "vectors", "probed")} or dict(sums)


def _check_same(place: Path, summary: search.Search) -> None:
    """Raises ConfigError where the folder belongs to another search."""
    if not (place / search.SUMMARY).exists():
        return
    earlier = search.read(place)
    if earlier.digest != summary.digest:
        own, now = earlier.identity, portable(json.loads(json.dumps(summary.identity)))
        different = [key for key in now if key != "words" and own.get(key) != now[key]] or ["words"]
        edited = " A file of configs/ was edited since it began." if different == ["configuration"] else ""
        raise ConfigError(
            f"{place} holds another search: it differs in {', '.join(different)}.{edited} Name another folder "
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
