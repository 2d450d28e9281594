"""The trials of a search: what became of each, their ranking, how much each setting matters, and files of it all."""

import json
import shlex
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import rankdata

from tasks.comparison_labels import ABSENT
from tasks.comparison_notes import on_packages, on_versions
from tasks.comparison_table import Grid, as_markdown, number
from tasks.errors import UserError, readable
from tasks.folders import write_table, write_text
from tasks.local_paths import portable, portable_text, portable_word
from tasks.reading import brief
from tasks.rows import is_finite

COMPLETE, DIVERGED, PRUNED, FAILED = "complete", "diverged", "pruned", "failed"
STATES = (COMPLETE, PRUNED, DIVERGED, FAILED)  # from the best to the worst
PREFIX = "trial-"  # of the folders of trials
SUMMARY, FAILURE = "search.json", "failure.json"
BINS = 3  # of the values of an interval, when its importance is measured
FEWEST = 8  # trials that importance is measured of


@dataclass(frozen=True)
class Trial:
    """A training of a search. settings: words of the command line, by key. value: of the selecting metric, None unless
    it is complete, at the end of `epoch`. folder: of its run, in that of the search. modules: the user's own."""

    number: int
    settings: dict[str, str]
    state: str
    folder: str
    value: float | None = None
    epoch: float | None = None
    seed: int | None = None
    commit: str | None = None
    wall_s: float | None = None
    reason: str | None = None
    dirty: bool | None = None
    modules: dict[str, str] | None = None


@dataclass(frozen=True)
class Search:
    """name: of the space and what it is searched on. command: its words. words: of every trial. identity: what makes
    two searches the same one; digest: of it. metric, mode: what ranks trials, "max" or "min". best: of the best one
    `trial`, `folder`, `record` and `metrics` of its test; empty before that."""

    name: str
    command: list[str]
    words: list[str]
    sampler: str
    seed: int
    n_trials: int
    identity: dict[str, Any]
    digest: str
    metric: str
    mode: str
    trials: list[Trial]
    best: dict[str, Any]

    def ranked(self) -> list[Trial]:
        """The best first; then those that were pruned, that diverged, and that failed."""
        sign = -1 if self.mode == "max" else 1
        return sorted(self.trials, key=lambda t: (STATES.index(t.state), sign * (t.value or 0.0), t.number))

    def different(self) -> list[str]:
        """The settings of which trials have different values."""
        return [key for key in self.all_keys() if len({trial.settings.get(key) for trial in self.trials}) > 1]

    def all_keys(self) -> list[str]:
        """The settings that any trial has, in the order of the space."""
        order = [key for keys in self.identity.get("space", {}) for key in keys.split(", ")]
        names = dict.fromkeys(key for trial in self.trials for key in trial.settings)
        return sorted(names, key=lambda key: order.index(key) if key in order else len(order))


def outcome(folder: Path, number: int, settings: dict[str, str], metric: str) -> Trial | None:
    """What became of the trial whose run has this folder; None where it did not come to an end."""
    if failure := _read(folder / FAILURE):
        state, reason = failure.get("state"), failure.get("reason")
        return Trial(number, settings, state if state in STATES[1:] else FAILED, folder.name, reason=str(reason))
    record = _read(folder / "record.json")
    if not record:
        return None
    selection, metrics = (record.get(key) for key in ("selection", "metrics"))
    selection, metrics = (node if isinstance(node, dict) else {} for node in (selection, metrics))
    value = selection.get("value", metrics.get(metric))
    number_or_none = float(value) if value is not None and is_finite(value) else None
    is_number = number_or_none is not None
    epoch, wall_s = (size if is_finite(size) else None for size in (selection.get("epoch"), record.get("wall_s")))
    return Trial(
        number, settings, COMPLETE if is_number else DIVERGED, folder.name, number_or_none,
        epoch, record.get("seed"), record.get("commit"), wall_s,
        reason=None if is_number else f"it has no {metric}", dirty=record.get("dirty"), modules=_modules(record),
    )  # fmt: skip


def _modules(record: Mapping[str, Any]) -> dict[str, str] | None:
    versions = record.get("versions")
    named = versions.items() if isinstance(versions, dict) else ()
    return {str(name): str(version) for name, version in named if str(name).endswith(".py")} or None


def overrides(folder: Path) -> list[str] | None:
    """The words with which the trial was trained whose run has this folder; None where the folder does not say."""
    words = (_read(folder / FAILURE) or _read(folder / "record.json")).get("overrides")
    return [str(word) for word in words] if isinstance(words, list) else None


def note_failure(folder: Path, state: str, reason: str, words: Sequence[str]) -> None:
    """Leave in the folder of a trial with these words why it has no result."""
    note = {"state": state, "reason": portable_text(reason), "overrides": [portable_word(word) for word in words]}
    write_text(folder / FAILURE, json.dumps(note) + "\n")


def record_of_test(test: Path, folder: Path) -> Mapping[str, Any] | None:
    """The record in the folder `test`, if it is of the checkpoint of the run in `folder`, and not older."""
    record, file = _read(test / "record.json"), folder / "record.json"
    if not record or file.stat().st_mtime > (test / "record.json").stat().st_mtime:
        return None
    config = record.get("config")
    return record if isinstance(config, dict) and Path(str(config.get("checkpoint"))).name == folder.name else None


def write(search: Search, folder: Path) -> None:
    """search.json, search.csv and search.md in the folder of a search; absolute paths by their last part."""
    search = replace(search, trials=[_portable(trial) for trial in search.trials])
    values = asdict(search)
    values["identity"] = portable(values["identity"])
    for node, key in ((values, "command"), (values, "words"), (values["identity"], "words")):
        node[key] = [portable_word(word) for word in node[key]]
    write_text(folder / SUMMARY, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    write_table(folder / "search.csv", *rows(search))
    write_text(folder / "search.md", "\n".join(as_markdown(grid(search))))


def _portable(trial: Trial) -> Trial:
    settings = {key: portable_word(f"{key}={value}").partition("=")[2] for key, value in trial.settings.items()}
    return replace(trial, settings=settings, reason=trial.reason and portable_text(trial.reason))


def read(folder: Path) -> Search:
    """The search in a folder. Raises UserError where there is none, or its file is damaged."""
    file = folder / SUMMARY if folder.is_dir() else folder
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        search = Search(**{**values, "trials": [Trial(**trial) for trial in values["trials"]]})
        _check(search)
        return search
    except FileNotFoundError as error:
        raise UserError(f"There is no {file}; name the folder of a search, as outputs/search/NAME.") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        fault = brief(str(error))
        raise UserError(f"{file} is damaged ({fault}); start the command of the search again: it writes it.") from error


def _check(search: Search) -> None:
    """Raises ValueError where a value is none that `write` leaves."""
    texts = [search.name, search.sampler, search.digest, search.metric, *search.command, *search.words]
    nodes, numbers = [search.identity, search.identity.get("space", {}), search.best], [search.seed, search.n_trials]
    for trial in search.trials:
        texts += [trial.folder, *trial.settings, *trial.settings.values()]
        texts += [*(trial.modules or {}), *(trial.modules or {}).values()]
        nodes.append(trial.settings)
        numbers.append(trial.number)
        for size in (trial.value, trial.epoch, trial.wall_s):
            _require(size is None or is_finite(size), size)
        _require(trial.state in STATES and (trial.value is None) == (trial.state != COMPLETE), trial.state)
    for kind, values in ((str, texts), (dict, nodes), (int, numbers)):
        for value in values:
            _require(isinstance(value, kind), value)
            str(value).encode("utf-8")  # raises ValueError for half of a surrogate pair
    _require(search.mode in ("max", "min"), search.mode)


def _require(is_right: bool, value: object) -> None:
    if not is_right:
        raise ValueError(f"{brief(value)} is not what stands there")


def rows(search: Search) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of a table for programs, a row for each trial, the best first."""
    keys = search.all_keys()
    header = ["rank", "trial", "state", search.metric, *keys, "epoch", "wall_s", "seed", "commit", "folder", "reason"]
    return header, [
        [
            rank, t.number, t.state, t.value, *(t.settings.get(key) for key in keys),
            t.epoch, t.wall_s, t.seed, t.commit, t.folder, t.reason,
        ]
        for rank, t in enumerate(search.ranked(), start=1)
    ]  # fmt: skip


def grid(search: Search) -> Grid:
    """The ranking as a table to read."""
    keys = search.different()
    names = short_names(keys)
    header = ["rank", "trial", search.metric, *names, "epoch", "seconds"]
    body = [
        [
            [str(rank)], [str(t.number)], [t.state if t.value is None else number(t.value)],
            *([readable(t.settings.get(key, ABSENT))] for key in keys),
            ["" if t.epoch is None else f"{t.epoch:g}"], ["" if t.wall_s is None else f"{t.wall_s:.0f}"],
        ]
        for rank, t in enumerate(search.ranked(), start=1)
    ]  # fmt: skip
    better = "higher" if search.mode == "max" else "lower"
    notes = [f"Ranked by {search.metric}, the {better} the better; of validation data alone."]
    if any(key not in trial.settings for trial in search.trials for key in keys):
        notes.append(f"{ABSENT}: the setting is that of the task (as in trial 0), or it does not count.")
    notes += on_versions([[(t.commit, bool(t.dirty))] for t in search.trials if t.commit], "trials")
    notes += on_packages(({"versions": t.modules or {}} for t in search.trials), "trials")
    if weights := importance(search):
        listed = ", ".join(f"{key} {value:.2f}" for key, value in weights.items() if value >= 0.005) or "none above 0"
        notes.append(f"Importance, as the share of the variance of ranks that a setting explains (epsilon²): {listed}.")
    numeric = [True, True, True, *[False] * len(keys), True, True]
    return Grid(f"{search.name}: {len(search.trials)} of {search.n_trials} trials", header, body, numeric, notes)


def importance(search: Search) -> dict[str, float]:
    """How much each setting matters, the most first: the share of the variance of the trials' ranks that lies between
    the values of the setting,

        epsilon² = 1 - (SS_within / (n - k)) / (SS_total / (n - 1)),  at least 0,

    for n trials with k values; intervals are cut into three parts with as many trials each. Ranks, so that one trial
    that diverged counts no more than the last place; equal trials share the mean of theirs. It sees each setting alone,
    not what two do together. Empty for fewer than 8 trials.
    """
    trials = [trial for trial in search.ranked() if trial.state != FAILED]
    if len(trials) < FEWEST:
        return {}
    sign = -1 if search.mode == "max" else 1
    ends = [(STATES.index(trial.state), sign * (trial.value or 0.0)) for trial in trials]
    ranks = rankdata([sorted(set(ends)).index(end) for end in ends])
    place = {trial.number: float(rank) for trial, rank in zip(trials, ranks, strict=True)}
    result = {}
    for key in search.different():
        groups = defaultdict(list)
        having = [trial for trial in trials if key in trial.settings]
        for label, trial in zip(_groups([trial.settings[key] for trial in having]), having, strict=True):
            groups[label].append(place[trial.number])
        result[key] = _epsilon_squared(list(groups.values()))
    return dict(sorted(result.items(), key=lambda item: -item[1]))


def _groups(values: Sequence[str]) -> list[Any]:
    """For each value its group: itself, or which third it lies in where there are many numbers."""
    numbers = [float_or_none(value) for value in values]
    known = [value for value in numbers if value is not None]
    if len(known) < len(values) or len(set(known)) <= 2 * BINS:
        return list(values)
    order = {k: rank for rank, k in enumerate(sorted(range(len(known)), key=known.__getitem__))}
    return [BINS * order[k] // len(known) for k in range(len(known))]


def _epsilon_squared(groups: Sequence[Sequence[float]]) -> float:
    every = [value for group in groups for value in group]
    n, k = len(every), len(groups)
    if k < 2 or n <= k:
        return 0.0
    mean = statistics.fmean(every)
    total = sum((value - mean) ** 2 for value in every)
    within = sum((value - statistics.fmean(group)) ** 2 for group in groups for value in group)
    return max(0.0, 1 - (within / (n - k)) / (total / (n - 1))) if total else 0.0


def float_or_none(value: str) -> float | None:
    """The number that a word is."""
    try:
        return float(value)
    except ValueError:
        return None


def again_over_seeds(search: Search, trial: Trial) -> str:
    """The command that trains the settings of a trial with three seeds."""
    words = [word for word in search.words if word.partition("=")[0] not in ("sweep", "seed", "hydra/launcher")]
    settings = [f"{key}={value}" for key, value in trial.settings.items()]
    return f"python run.py -m {shlex.join([*words, *settings, 'seed=1,2,3'])}"


def short_names(keys: Sequence[str]) -> list[str]:
    """The last parts of keys, as many as tell them apart."""
    names = []
    for key in keys:
        parts = key.lstrip("+").split(".")
        length = next(
            (n for n in range(1, len(parts)) if sum(_ends_in(k, parts[-n:]) for k in keys) == 1),
            len(parts),
        )
        names.append(".".join(parts[-length:]))
    return names


def _ends_in(key: str, parts: Sequence[str]) -> bool:
    return key.lstrip("+").split(".")[-len(parts) :] == list(parts)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
