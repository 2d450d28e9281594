"""Runs of one task on the same data side by side: settings that differ, means over seeds, a ranking, paired tests."""

import hashlib
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tasks.errors import readable
from tasks.record import WITHOUT_EFFECT
from tasks.resume import IRRELEVANT, LATER, current, flat

Record = Mapping[str, Any]

_SEED = re.compile(r"(^|\.)seed$")
# What changes no more than the last bits of a result, and what is no setting of a training.
_NO_SETTING = (
    "mode", "checkpoint", "input", "output", "explain", "paper", "hydra", "check_points",
    *(f"trainer.{key}" for key in ("accelerator", "kernels", "devices", "num_nodes", "strategy", "threads")),
)  # fmt: skip
_FOLLOWS = re.compile(r"^geometry\.(parts\.\w+\.)?(manifold|layers)$")  # from the geometry's name
_OPEN = ("geometry.parts.", "geometry.options.", "geometry.settings.")  # where a key that is absent is a setting, too
_OF_THE_MODEL = ("cut", "in_train", "tokens", "unknown", "unseen", "words")  # counts by a vocabulary, or by limits
ABSENT = "–"
FEW = 5  # pairs of seeds below which a test says little
ALMOST_EQUAL = 1e-9  # differences of metrics that vary by no more than this are the same


class PairedTest(NamedTuple):
    """The differences of two settings over n common seeds: their mean, their standard deviation (None of a single
    one), and the two-sided p of Student's paired t-test (None where there is none)."""

    n: int
    mean: float
    deviation: float | None
    p: float | None


@dataclass(frozen=True)
class Setting:
    """Runs that differ in the seed alone. labels: what they have of the settings that differ among those compared, by
    key. name: of the experiment or the folder. records, files: by seed."""

    labels: dict[str, str]
    name: str
    records: dict[int, Record]
    files: dict[int, Path]

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.labels.items()) or self.name

    def values(self, metric: str) -> dict[int, float]:
        """The metric by seed, of the runs that have it."""
        return {seed: r["metrics"][metric] for seed, r in self.records.items() if metric in r["metrics"]}


@dataclass(frozen=True)
class Comparison:
    """Settings of one task on the same validation and test data, the best by the selecting metric first.

    title: of the task and its data. metric: that selects, as "val/accuracy". mode: "max" or "min". notes: what a reader
    has to know besides.
    """

    title: str
    metric: str
    mode: str
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """The settings that differ."""
        return list(self.settings[0].labels)

    @property
    def tested(self) -> str:
        """The test metric of the same name as the selecting one."""
        return "test/" + self.metric.partition("/")[2]

    def test_metrics(self, grouped: bool = False) -> list[str]:
        """The test metrics that any run has, that of the selecting one first; with those of groups, as
        test/coarse/macro_f1, where `grouped`."""
        names = {name for setting in self.settings for r in setting.records.values() for name in r["metrics"]}
        tests = [name for name in sorted(names) if name.startswith("test/") and (grouped or name.count("/") == 1)]
        return sorted(tests, key=lambda name: name != self.tested)

    def tests(self) -> list[PairedTest]:
        """Each setting but the first against the first, by the test metric; p with Holm's correction."""
        first, *others = (setting.values(self.tested) for setting in self.settings)
        return holm([paired_test(other, first) for other in others])


def compare(records: Mapping[Path, Record]) -> list[Comparison]:
    """The comparisons that finished trainings make, by their files: one for each task with the same validation and test
    data and the same selecting metric, in the order in which the first run of each comes.

    Runs are of one setting where all agrees but the seed and what has no effect on results. Of runs with one setting
    and seed the last one counts (folders of runs begin with the time).
    """
    groups: dict[str, dict[Path, Record]] = defaultdict(dict)
    for file, record in records.items():
        groups[_evaluation(record)][file] = record
    comparisons = [_comparison(group) for group in groups.values()]
    titles = Counter(each.title for each in comparisons)
    return [
        each if titles[each.title] == 1 else replace(each, title=f"{each.title} (sha256 {_digest(group)})")
        for each, group in zip(comparisons, groups, strict=True)
    ]


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float | None]:
    """Mean and standard deviation (n - 1) of values; of a single one the deviation is None."""
    numbers = list(values)
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def paired_test(a: Mapping[int, float], b: Mapping[int, float]) -> PairedTest:
    """Student's paired t-test of a - b over the seeds that both have: ``t = mean / (sd / sqrt(n))`` with n - 1 degrees
    of freedom. No p of fewer than two pairs, or where all differences are the same."""
    differences = [a[seed] - b[seed] for seed in a if seed in b]
    if not differences:
        return PairedTest(0, math.nan, None, None)
    mean, deviation = mean_and_deviation(differences)
    n, p = len(differences), None
    if deviation is not None and deviation > ALMOST_EQUAL:
        from scipy.special import stdtr

        p = 2 * float(stdtr(n - 1, -abs(mean) / (deviation / math.sqrt(n))))
    return PairedTest(n, mean, deviation, p)


def holm(tests: Sequence[PairedTest]) -> list[PairedTest]:
    """The tests with Holm's (1979) correction of p for their number: the k-th smallest of m times m + 1 - k, at most 1
    and at least the one before."""
    order = sorted((test.p, k) for k, test in enumerate(tests) if test.p is not None)
    corrected, least = list(tests), 0.0
    for rank, (p, k) in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p))
        corrected[k] = tests[k]._replace(p=least)
    return corrected


def _comparison(records: Mapping[Path, Record]) -> Comparison:
    first = next(iter(records.values()))
    metric, mode = _selection(first)
    labels = _labels(list(records.values()))
    runs: dict[str, dict[int, tuple[Path, Record]]] = defaultdict(dict)
    again = 0
    trained_on: defaultdict[str, set[str]] = defaultdict(set)
    for (file, record), label in sorted(zip(records.items(), labels, strict=True), key=lambda run: _time(run[0][0])):
        same = runs[json.dumps(label)]
        trained_on[json.dumps(label)].add(_training(record))
        again += record["seed"] in same
        same[record["seed"]] = file, record
    settings = []
    for text, several in runs.items():
        by_seed = sorted((seed, file, record) for seed, (file, record) in several.items())
        _, file, record = by_seed[0]
        name = record["experiment"] or file.resolve().parent.parent.name
        own, files = {seed: record for seed, _, record in by_seed}, {seed: file for seed, file, _ in by_seed}
        settings.append(Setting(json.loads(text), name, own, files))
    sign = -1 if mode == "max" else 1

    def place(setting: Setting) -> float:
        values = setting.values(metric).values()
        return sign * statistics.fmean(values) if values else math.inf

    notes = []
    if again:
        notes.append(f"Of runs with the same settings and seed the last one counts; {again} earlier left out.")
    if apart := sum(len(each) > 1 for each in trained_on.values()):
        notes.append(f"Runs of {apart} settings were trained on different data, and count as seeds of one.")
    if len(commits := {record["commit"] for record in records.values()}) > 1:
        notes.append(f"The runs are of {len(commits)} versions of the code.")
    title = f"{_task(first)}, {_files(first)}"
    return Comparison(readable(title), metric, mode, tuple(sorted(settings, key=place)), tuple(notes))


def _task(record: Record) -> str:
    return str(record["config"]["task"].get("name") or "task")


def _files(record: Record) -> str:
    files = record["data"].get("files")
    test = files.get("test") if isinstance(files, dict) else files
    name = str(test if isinstance(test, str) else ", ".join(map(str, test or [])) or "its data")
    data = record["config"]["task"]["data"]
    folder = data.get("folder") or (data.get("release") or {}).get("root")
    place = Path(folder).name if isinstance(folder, str) and "/" not in name else ""
    return f"{place}/{name}" if place else name


def _digest(evaluation: str) -> str:
    """A short fingerprint of what `_evaluation` gave."""
    return hashlib.sha256(evaluation.encode()).hexdigest()[:6]


def _time(file: Path) -> tuple[str, str]:
    return file.parent.name, file.name


def _selection(record: Record) -> tuple[str, str]:
    """The selecting metric and its mode; of a mean of the last epochs' weights, what would have selected."""
    module, chosen = record["config"]["task"].get("module"), record["selection"]
    module = module if isinstance(module, dict) else {}
    chosen = chosen if isinstance(chosen, dict) and chosen.get("metric") else {}
    metric = chosen.get("metric") or module.get("select") or "val/loss"
    return str(metric), str(chosen.get("mode") or module.get("select_mode") or "min")


def _training(record: Record) -> str:
    """The fingerprints of what a run was trained with."""
    sha256 = record["data"]["sha256"]
    parts = {k: v for k, v in sha256.items() if k not in ("dev", "test")} if isinstance(sha256, dict) else sha256
    return json.dumps(parts, sort_keys=True)


def _evaluation(record: Record) -> str:
    """What must be the same for metrics to be compared: the kind of data, how they are split, what selects."""
    data, splits = record["data"], ("dev", "test")
    sha256, counts = (data[key] if isinstance(data[key], dict) else {} for key in ("sha256", "counts"))
    sizes = {
        split: {k: v for k, v in own.items() if k not in _OF_THE_MODEL} if isinstance(own, dict) else own
        for split in splits
        if (own := counts.get(split)) is not None
    }
    kind = record["config"]["task"]["data"].get("_target_")
    return json.dumps([kind, _selection(record), {split: sha256.get(split) for split in splits}, sizes], sort_keys=True)


def _labels(records: Sequence[Record]) -> list[dict[str, str]]:
    """What each record has of the settings that differ: by the words of the command line where these say the same, as
    they are fewer, else by the keys of the configuration."""
    settings = _different([_settings(record) for record in records], _is_open)
    if len({record["commit"] for record in records}) == 1:  # else the same words may mean other settings
        words = _different([_words(record) for record in records], lambda key: True)
        if _partition(words) == _partition(settings):
            return [
                {key: _shown(key, value) if value is not None else _unnamed(record, key) for key, value in own.items()}
                for own, record in zip(words, records, strict=True)
            ]
    named = [{key: value for key, value in own.items() if not _FOLLOWS.search(key)} for own in settings]
    settings = named if _partition(named) == _partition(settings) else settings
    return [{key: _shown(key, value) for key, value in own.items()} for own in settings]


def _settings(record: Record) -> dict[str, Any]:
    """The settings of a run that have an effect on results, by dotted key, seeds left out."""
    return LATER | {key: value for key, value in current(flat(record["config"])).items() if _counts(key)}


def _words(record: Record) -> dict[str, Any]:
    pairs = (str(word).lstrip("+~").partition("=") for word in record.get("overrides") or ())
    return {key: value for key, _, value in pairs if _counts(key)}


def _counts(key: str) -> bool:
    names = (*WITHOUT_EFFECT, *IRRELEVANT, *_NO_SETTING)
    return not _SEED.search(key) and not any(key == name or key.startswith(f"{name}.") for name in names)


def _unnamed(record: Record, key: str) -> str:
    """What a run has that did not name the key on its command line."""
    config = flat(record["config"])
    return _shown(key, config[key]) if key in config else "default"


def _different(settings: Sequence[Mapping[str, Any]], absent_counts: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Of each the settings that differ: those of which two have different values. What one lacks (None) belongs to a
    class that it does not use, or is newer than it, and is no difference in itself unless `absent_counts`. A node that
    one has and that is null in another one differs as a whole."""
    different = []
    for key in dict.fromkeys(key for own in settings for key in own):
        values = {json.dumps(own[key], sort_keys=True) for own in settings if key in own}
        is_lacking = any(key not in own for own in settings)
        if len(values) > 1 or (is_lacking and (absent_counts(key) or any(_node(key, own) for own in settings))):
            different.append(key)
    return [{key: own.get(key, _node(key, own)) for key in different} for own in settings]


def _node(key: str, own: Mapping[str, Any]) -> str | None:
    """A word for a node with settings, where the key is that of one."""
    return "given" if any(name.startswith(f"{key}.") for name in own) else None


def _is_open(key: str) -> bool:
    return key.startswith(_OPEN)


def _partition(labels: Sequence[Mapping[str, Any]]) -> list[int]:
    """The number of the first that is equal to each."""
    texts = [json.dumps(own, sort_keys=True) for own in labels]
    return [texts.index(text) for text in texts]


def _shown(key: str, value: Any) -> str:
    """A value as on the command line, a class by its name."""
    if value is None:
        return ABSENT
    text = value if isinstance(value, str) else json.dumps(value)
    return readable(text.rpartition(".")[2] if key.endswith("_target_") else text)
