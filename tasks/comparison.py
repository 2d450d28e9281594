"""Runs of one task on the same data side by side: settings that differ, means over seeds, a ranking, paired tests."""

import hashlib
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tasks.comparison_labels import ABSENT, Choices, Record, cut, labels_of, unlabelled
from tasks.comparison_notes import cuts, in_parts, on_packages, on_shares, on_versions, versions_of
from tasks.errors import readable

_OF_THE_MODEL = ("cut", "in_train", "tokens", "unknown", "unseen", "words")  # counts by a vocabulary, or by limits
_RANKS = (("data", "known"), ("data", "without_self"), ("module", "ties"))  # settings of what a rank counts
MOST_IN_TITLE, MOST_IN_NOTE = 3, 6  # settings that tell tables apart, and those without a label
DIGITS = 6  # of a fingerprint
FEW = 5  # pairs of seeds below which a test says little
TRAINING_DATA = "training data"  # the label of runs that differ in nothing else
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
        tests = [name for name in names if name.startswith("test/") and (grouped or name.count("/") == 1)]
        return sorted(tests, key=lambda name: (name != self.tested, in_parts(name)))

    @property
    def reference(self) -> int:
        """The place of the setting that the others are tested against: the first of two seeds or more, or the first."""
        several = (k for k, setting in enumerate(self.settings) if len(setting.values(self.tested)) > 1)
        return next(several, 0)

    def tests(self) -> list[PairedTest | None]:
        """Each setting against that of `reference`, by the test metric, p with Holm's correction; None in its place."""
        values = [setting.values(self.tested) for setting in self.settings]
        against = values.pop(self.reference)
        tests: list[PairedTest | None] = [*holm([paired_test(other, against) for other in values])]
        return [*tests[: self.reference], None, *tests[self.reference :]]


def compare(records: Mapping[Path, Record], choices: Choices = lambda _: {}) -> list[Comparison]:
    """The comparisons that finished trainings make, by their files: one for each task with the same validation and test
    data and the same selecting metric, in the order in which the first run of each comes.

    Runs are of one setting where all agrees, the contents of the training data too, but the seed and what has no effect
    on results. Of runs with one setting and seed the last one counts (folders of runs begin with the time). Comparisons
    of one title have in it as well the settings in which they differ, and if that says nothing, a fingerprint of their
    data.

    choices: gives the names of the files that a run chose, by group, for the file of its record, as far as they are
    known, as {"encoder": "gru"}.
    """
    groups: dict[str, dict[Path, Record]] = defaultdict(dict)
    for file, record in records.items():
        groups[_evaluation(record)][file] = record
    comparisons = [_comparison(group, choices) for group in groups.values()]
    several = list(groups.values())
    by_settings = _apart(several, [each.title for each in comparisons], choices)
    by_data = [[_part(group, split) for group in several] for split in ("test", "dev")]
    for ends in (by_settings, *by_data, map(_digest, groups)):
        different = defaultdict(set)
        pairs = [(each, end) for each, end in zip(comparisons, ends, strict=True)]
        for each, end in pairs:
            different[each.title].add(end)
        comparisons = [replace(c, title=f"{c.title}{end}") if len(different[c.title]) > 1 else c for c, end in pairs]
    return comparisons


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


def _comparison(records: Mapping[Path, Record], choices: Choices) -> Comparison:
    first = next(iter(records.values()))
    metric, mode = _selection(first)
    labels = labels_of(records, choices)
    besides = unlabelled([*records.values()], labels)
    if apart := _other_training(records.values(), labels):
        pairs = zip(labels, records.values(), strict=True)
        labels = [own | {TRAINING_DATA: _training_label(record, apart)} for own, record in pairs]
    runs: dict[str, dict[int, tuple[Path, Record]]] = defaultdict(dict)
    again = 0
    for (file, record), label in sorted(zip(records.items(), labels, strict=True), key=lambda run: _time(run[0][0])):
        same = runs[json.dumps(label)]
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
    if besides:
        more = f", and {len(besides) - MOST_IN_NOTE} more" if len(besides) > MOST_IN_NOTE else ""
        notes.append(f"The runs differ besides in {', '.join(besides[:MOST_IN_NOTE])}{more}.")
    if again:
        notes.append(f"Of runs with the same settings and seed the last one counts; {again} earlier left out.")
    if apart:
        notes.append(
            f"Runs that agree in their settings were trained on different data ({', '.join(apart)}), and have rows of "
            f"their own; {TRAINING_DATA}: how data.sha256 in their records begins."
        )
    elif len(training := {_training_label(r, ["train"]) for r in records.values() if "train" in _training(r)}) > 1:
        notes.append(
            f"The runs were trained on different data ({'; '.join(sorted(training))}: how data.sha256 in their "
            "records begins): what differs between their settings may be of the data."
        )
    if sizes := sum(len({str(r.get("parameters")) for r in each.records.values()}) > 1 for each in settings):
        notes.append(f"Runs of {sizes} settings have different numbers of parameters from seed to seed.")
    notes += on_versions([versions_of(r) for r in records.values()])
    notes += [*on_packages(records.values()), *on_shares(records.values())]
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
    return f"{place}/{name}" if place not in ("", name) else name


def _apart(groups: Sequence[Mapping[Path, Record]], titles: Sequence[str], choices: Choices) -> list[str]:
    """For the title of each group the settings that tell it from others of this title: those that have one value in
    each of these groups, and not the same in all."""
    ends = [""] * len(groups)
    for title in dict.fromkeys(titles):
        places = [k for k, other in enumerate(titles) if other == title]
        alike = {file: record for k in places for file, record in groups[k].items()}
        labels = dict(zip(alike, labels_of(alike, choices), strict=True))
        labels = {file: own | {"seed": str(alike[file]["seed"])} for file, own in labels.items()}
        keys = next(iter(labels.values()))
        values = {key: [{labels[file][key] for file in groups[k]} for k in places] for key in keys}
        telling = [key for key, own in values.items() if {*map(len, own)} == {1} and len(set.union(*own)) > 1]
        for key in telling[:MOST_IN_TITLE]:
            for k, (value,) in zip(places, values[key], strict=True):
                ends[k] += f", {key}={cut(value)}"
    return ends


def _part(records: Mapping[Path, Record], split: str) -> str:
    """How the fingerprint of a split begins in the records, for a title; of a split that is one file, that of the
    file."""
    sha256 = next(iter(records.values()))["data"]["sha256"]
    own = sha256.get(split) if isinstance(sha256, dict) else None
    return f" (data.sha256.{split} {str(own)[:DIGITS]})" if own else ""


def _digest(evaluation: str) -> str:
    """A short fingerprint of what `_evaluation` gave, for a title that nothing else tells apart."""
    return f" (settings of the evaluation {hashlib.sha256(evaluation.encode()).hexdigest()[:DIGITS]})"


def _time(file: Path) -> tuple[str, str]:
    return file.parent.name, file.name


def _selection(record: Record) -> tuple[str, str]:
    """The selecting metric and its mode; of a mean of the last epochs' weights, what would have selected."""
    module, chosen = record["config"]["task"].get("module"), record["selection"]
    module = module if isinstance(module, dict) else {}
    chosen = chosen if isinstance(chosen, dict) and chosen.get("metric") else {}
    metric = chosen.get("metric") or module.get("select") or "val/loss"
    return str(metric), str(chosen.get("mode") or module.get("select_mode") or "min")


def _training(record: Record) -> dict[str, str]:
    """The fingerprints of what a run was trained with, by part."""
    sha256 = record["data"]["sha256"]
    parts = sha256 if isinstance(sha256, dict) else {"data": sha256}
    return {part: str(own) for part, own in parts.items() if part not in ("dev", "test")}


def _other_training(records: Iterable[Record], labels: Sequence[Mapping[str, str]]) -> list[str]:
    """The parts of the training data, as train and vectors, in which runs with the same labels differ."""
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for record, label in zip(records, labels, strict=True):
        for part, own in _training(record).items():
            values[json.dumps(label), part].add(own)
    return sorted({part for (_, part), several in values.items() if len(several) > 1})


def _training_label(record: Record, parts: Sequence[str]) -> str:
    own = _training(record)
    return ", ".join(f"{part} {own.get(part, ABSENT)[:DIGITS]}" for part in parts)


def _evaluation(record: Record) -> str:
    """What must be the same for metrics to be compared: the kind of data, how they are split, what of them is used,
    what selects, and what a rank counts."""
    data, splits = record["data"], ("dev", "test")
    sha256, counts = (data[key] if isinstance(data[key], dict) else {} for key in ("sha256", "counts"))
    sizes = {
        split: {k: v for k, v in own.items() if k not in _OF_THE_MODEL} if isinstance(own, dict) else own
        for split in splits
        if (own := counts.get(split)) is not None
    }
    kind = record["config"]["task"]["data"].get("_target_")
    own = {split: sha256.get(split) for split in splits}
    task = record["config"]["task"]
    ranks = {key: value for node, key in _RANKS if (value := (task.get(node) or {}).get(key)) is not None}
    if isinstance(known := ranks.get("known"), dict):
        ranks["known"] = {split: sorted(of) if isinstance(of, list) else of for split, of in known.items()}
    return json.dumps([kind, _selection(record), own, sizes, cuts(record), ranks], sort_keys=True)
