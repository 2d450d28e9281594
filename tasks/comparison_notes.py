"""What a reader of compared runs has to know of their code and of how much of the data they used."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.comparison_labels import Record

Version = tuple[str | None, bool]  # a commit, and whether files differed from it: these make another version


def versions_of(record: Record) -> list[Version]:
    """The versions of the code that a run had, several where it went on with another one than it began with."""
    return [(own.get("commit"), bool(own.get("dirty"))) for own in _parts(record)]


def _parts(record: Record) -> list[Mapping[str, Any]]:
    """The record, or what it has of each version of the code that a run had."""
    code = record.get("code")
    return [own for own in code if isinstance(own, dict)] if isinstance(code, list) else [record]


def in_parts(name: str) -> list[tuple[int, str]]:
    """A name as it is sorted, its numbers by their size: (number of digits, digits) of every second part."""
    parts = re.split(r"(\d+)", name)
    return [(len(part.lstrip("0")), part.lstrip("0")) if k % 2 else (0, part) for k, part in enumerate(parts)]


def on_versions(runs: Sequence[Sequence[Version]], what: str = "runs") -> list[str]:
    """What a reader has to know of the code of the runs, given the versions of each."""
    notes = []
    if (n := len({version for own in runs for version in own})) > 1:
        notes.append(f"The {what} are of {n} versions of the code.")
    if changed := sum(any(is_dirty for _, is_dirty in own) for own in runs):
        notes.append(f"{changed} of {len(runs)} {what} had changes in their code that were not committed.")
    if several := sum(len({*own}) > 1 for own in runs):
        notes.append(f"{several} of {len(runs)} {what} went on with another version than they began with.")
    return notes


def on_packages(records: Iterable[Record], what: str = "runs") -> list[str]:
    """What a reader has to know of the packages, and of the user's own modules, that the runs used: of which there are
    several versions."""
    of: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for part in _parts(record):
            for name, version in (part.get("versions") or {}).items():
                of[name].add(str(version))
    listed = "; ".join(f"{name} {', '.join(sorted(each, key=in_parts))}" for name, each in of.items() if len(each) > 1)
    return [f"The {what} are of several versions of {listed}."] if listed else []


def cuts(record: Record) -> dict[str, Any]:
    """The settings that cut validation or test to a part of their batches, and the size of these; empty where none
    did. Of a limit 1 is a batch, and 1.0 the whole; without any validation the test is whole all the same."""
    settings, whole = record["config"]["trainer"], (None, 0)
    limits = {f"trainer.{key}": settings.get(key) for key in ("limit_val_batches", "limit_test_batches")}
    cut = {key: n for key, n in limits.items() if n not in whole and not (isinstance(n, float) and n == 1)}
    size = record["config"]["task"]["data"].get("eval_batch_size")
    return cut | ({"task.data.eval_batch_size": size} if cut and size is not None else {})


def on_shares(records: Iterable[Record]) -> list[str]:
    """What a reader has to know of runs that used a part of their data; all have the same cuts of the evaluation."""
    each = list(records)
    shares = {share for record in each if (share := record["data"].get("share", 1.0)) < 1}
    notes = []
    if common := cuts(each[0]):
        listed = ", ".join(f"{key}={value}" for key, value in common.items())
        notes.append(f"The evaluation was cut ({listed}): metrics are of a part of the data.")
    if shares:
        some = " to ".join(f"{share:.3g}" for share in sorted({min(shares), max(shares)}))
        notes.append(f"Runs used a part of their training or test data only; the share (data.share) is {some}.")
    return notes
