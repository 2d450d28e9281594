"""What checkpoints keep besides a state: where it comes from, numbers, and which validation was the best."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from tasks.checkpoint_reader import MOST_DEPTH
from tasks.reading import brief
from tasks.sizes import KEYS

MOST_VALUES = 100_000  # of a configuration, and of counts; ours have some hundred
MOST_LETTERS = 200  # of a metric's name


@dataclass(frozen=True)
class Origin:
    """Where a state of a task comes from; every checkpoint keeps it, and it alone rebuilds the task.

    experiment: its name, or None. name: of the folder of its runs. config: the resolved configuration as plain values
    (`configs.stored` says how). data: what the model's rows stand for (`TaskData.identity`). sha256: of the data that a
    run trains with, by split (`TaskData.fingerprint`); empty where nothing is trained. code: the versions that trained
    it, one after the other (`record.code`); the keys of an unknown one are None. auto: the settings whose values
    follow from the size of the data (`tasks.sizes`).
    """

    experiment: str | None = None
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    code: list[dict[str, Any]] = field(default_factory=list)
    auto: list[str] = field(default_factory=list)


def numbers_by_name(values: Any, what: str) -> dict[str, Any]:
    """A copy of what a checkpoint holds as `what`. Raises ValueError where these are no numbers by name."""
    if not isinstance(values, dict):
        raise ValueError(f"its {what} are a {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, (int, float)):
            raise ValueError(f"its {what} hold a {type(value).__name__}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError(f"its {what} hold an integer of {value.bit_length()} bits")
        if not name.isprintable() or len(name) > MOST_LETTERS:
            raise ValueError(f"its {what} have the name {brief(name)}")
    return dict(values)


def counts_by_name(values: Any, what: str) -> dict[str, Any]:
    """As :func:`numbers_by_name`, of finite numbers from 0 on."""
    numbers = numbers_by_name(values, what)
    for name, value in numbers.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"its {what} hold {name}={value}")
    return numbers


def selection(values: Any) -> dict[str, Any]:
    """What a checkpoint says of the best state, "value", "epoch" and "step", and of newer runs "loss", where there is
    one; empty before there is one. Raises ValueError where it is something else."""
    best = numbers_by_name(values, "best value, epoch and step")
    if best and best.keys() - {"loss"} != {"value", "epoch", "step"}:
        raise ValueError("its best value, epoch and step are not all there")
    if any(math.isnan(value) for value in best.values()):
        raise ValueError("its best value, epoch or step is NaN")
    return best


def _is_bounded(node: Any, leaves: Any = object) -> bool:
    """Whether a node has at most MOST_VALUES values in all, MOST_DEPTH deep, of the types `leaves` where they hold no
    others, and no integer beyond 64 bits. Those that stand in several places are counted again: nested, a few lists
    that are shared stand for more than any time is enough for."""
    nodes, count = [(node, 0)], 0
    while nodes:
        node, depth = nodes.pop()
        if isinstance(node, (Mapping, list, tuple)):
            count += len(node)
            if count > MOST_VALUES or depth > MOST_DEPTH:
                return False
            nodes.extend((each, depth + 1) for each in (node.values() if isinstance(node, Mapping) else node))
        elif not isinstance(node, leaves) or (isinstance(node, int) and abs(node) >= 2**63):
            return False
    return True


def _is_code(code: Any) -> bool:
    """Whether it is what `Origin.code` is."""
    kinds = {"commit": (str, NoneType), "dirty": (bool, NoneType), "versions": (dict, NoneType)}
    return (
        isinstance(code, list)
        and _is_bounded(code)
        and all(isinstance(own, dict) and own.keys() == kinds.keys() for own in code)
        and all(isinstance(own[key], kind) for own in code for key, kind in kinds.items())
        and all(isinstance(text, str) for own in code for pair in (own["versions"] or {}).items() for text in pair)
    )


def has_parts(checkpoint: Mapping[str, Any]) -> bool:
    """Whether weights, configuration, data and metrics are there, of the kinds and sizes that they must have."""
    texts: Any = checkpoint.get("data")
    auto: Any = checkpoint.get("auto", [])
    shas: Any = checkpoint.get("sha256", {})  # which checkpoints from before lack
    metrics: Any = checkpoint.get("metrics")
    parts = (checkpoint.get("state_dict"), checkpoint.get("config"), texts, shas, metrics)
    if not all(isinstance(part, dict) for part in parts):
        return False
    if not isinstance(auto, list) or not all(isinstance(key, str) and key in KEYS for key in auto):
        return False
    if not _is_bounded(checkpoint["config"], (str, int, float, NoneType)) or not _is_code(checkpoint.get("code", [])):
        return False
    try:
        numbers_by_name({**metrics, "global_step": checkpoint.get("global_step", 0)}, "metrics")
    except ValueError:
        return False
    return all(isinstance(text, str) for pair in [*texts.items(), *shas.items()] for text in pair)


def check_counts(loops: Any) -> None:
    """Raises ValueError unless the state of loops holds, at whatever depth, whole numbers from 0 on, nothing else."""
    if not _is_bounded(loops):
        raise ValueError(f"its counts are more than {MOST_VALUES:,}, or deeper than {MOST_DEPTH}, or too large")
    nodes = [loops]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Mapping):
            loaders = node.get("combined_loader", [])  # a list of them
            nodes.extend(value for key, value in node.items() if key != "combined_loader")
            nodes.extend(loaders if isinstance(loaders, list) else [loaders])
        elif not isinstance(node, int) or not 0 <= node < 2**63:
            raise ValueError(f"its counts hold a {type(node).__name__}, or a number that is none")


def check_kinds(state: Any, like: Any) -> None:
    """Raises ValueError where a value of `state` is of another kind than the one at its place in `like`, is NaN, or
    where that one is finite, or not negative, alone; what only one of them has is left out."""
    pairs = [(state, like)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(other, Mapping) and isinstance(one, Mapping):
            pairs.extend((one[key], other[key]) for key in other if key in one)
        elif isinstance(other, (list, tuple)) and isinstance(one, (list, tuple)) and len(one) == len(other):
            pairs.extend(zip(one, other, strict=True))
        elif _kind(one) is not _kind(other) or isinstance(other, (Mapping, list, tuple)) or one != one:
            raise ValueError(f"its schedules hold a {type(one).__name__} in the place of a {type(other).__name__}")
        elif _kind(other) is float and math.isfinite(other) and (math.isinf(one) or one < 0 <= other):
            raise ValueError(f"its schedules hold {one} in the place of {other}")


def _kind(value: Any) -> type:
    """Its type, of all numbers that of a float."""
    return float if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)
