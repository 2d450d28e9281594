"""What checkpoints keep besides a state: where it comes from, numbers, and which validation was the best."""

import math
import pickletools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from tasks.reading import brief

MOST_VALUES = 100_000  # of a configuration, and of counts; ours have some hundred
MOST_LETTERS = 200  # of a metric's name
MOST_DEPTH = 100  # of their nodes; ours have ten
TOO_DEEP = f"its nodes are nested more than {MOST_DEPTH} deep"


@dataclass(frozen=True)
class Origin:
    """Where a state of a task comes from; every checkpoint keeps it, and it alone rebuilds the task.

    experiment: its name, or None. name: of the folder of its runs. config: the resolved configuration as plain values
    (`configs.stored` says how). data: what the model's rows stand for (`TaskData.identity`). sha256: of the data that a
    run trains with, by split (`TaskData.fingerprint`); empty where nothing is trained.
    """

    experiment: str | None = None
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)


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
    if not all(math.isfinite(value) for value in best.values()):
        raise ValueError("its best value, epoch or step is not finite")
    return best


def load(file: str | Path, device: torch.device | str) -> Any:
    """What `torch.save` put into a file, of tensors and plain values; nothing is executed.

    Mappings are `dict`, sequences `list` and `tuple`: attributes that the file gives them or a tensor, which may be in
    the place of their methods, are left out. Raises ValueError where nodes are nested more than MOST_DEPTH deep, and
    RuntimeError, among others, for a sparse tensor whose indices lie outside of it, which would be read and written
    there.
    """
    _check_tuples(torch._C.PyTorchFileReader(str(file)).get_record("data.pkl"))
    with torch.sparse.check_sparse_tensor_invariants():
        values = torch.load(file, map_location=device, weights_only=True)
    return _plain(values, {}, 0)


def _plain(node: Any, known: dict[int, Any], depth: int) -> Any:
    """A node without attributes of its own; known: what was made of the nodes that stand in several places."""
    if depth > MOST_DEPTH:
        raise ValueError(TOO_DEEP)
    if isinstance(node, Tensor):
        vars(node).clear()
    elif isinstance(node, (dict, list, tuple)) and id(node) not in known:
        if isinstance(node, dict):
            made: Any = {key: _plain(value, known, depth + 1) for key, value in dict.items(node)}
        else:
            values = list.__iter__(node) if isinstance(node, list) else tuple.__iter__(node)
            made = (list if isinstance(node, list) else tuple)(_plain(value, known, depth + 1) for value in values)
        known[id(node)] = made
    return known.get(id(node), node)


def _check_tuples(pickled: bytes) -> None:
    """Raises ValueError where tuples are nested more than MOST_DEPTH deep: one that is the key of a mapping is hashed,
    which takes the interpreter's own stack and ends the process where that is too small."""
    stack: list[int | None] = []  # of each value how deep its tuples are; None: a mark
    memo: dict[int, int] = {}

    def pop(count: int | None) -> list[int]:
        """So many values, or, with None, all down to the mark."""
        if count is None:
            place = len(stack) - 1 - stack[::-1].index(None)
            values = stack[place + 1 :]
            del stack[place:]
        else:
            values = stack[len(stack) - count :]
            del stack[len(stack) - count :]
        return [value or 0 for value in values]

    for operation, argument, _ in pickletools.genops(pickled):
        name, before = operation.name, operation.stack_before
        if name == "MARK":
            stack.append(None)
        elif name in _TUPLES:
            stack.append(1 + max(pop(_TUPLES[name]), default=0))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = (stack and stack[-1]) or 0
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo.get(argument or 0, 0))
        else:
            marked = pickletools.markobject in before
            taken = pop(None) if marked else []
            taken += pop(before.index(pickletools.markobject) if marked else len(before))
            stack.extend([max(taken, default=0) if name == "DUP" else 0] * len(operation.stack_after))
        if stack and (stack[-1] or 0) > MOST_DEPTH:
            raise ValueError(TOO_DEEP)


_TUPLES = {"TUPLE": None, "EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}  # how many values each takes


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


def has_parts(checkpoint: Mapping[str, Any]) -> bool:
    """Whether weights, configuration, data and metrics are there, of the kinds and sizes that they must have."""
    texts: Any = checkpoint.get("data")
    shas: Any = checkpoint.get("sha256", {})  # which checkpoints from before lack
    metrics: Any = checkpoint.get("metrics")
    parts = (checkpoint.get("state_dict"), checkpoint.get("config"), texts, shas, metrics)
    if not all(isinstance(part, dict) for part in parts):
        return False
    if not _is_bounded(checkpoint["config"], (str, int, float, NoneType)):
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
    """Raises ValueError where a value of `state` is of another kind than the one at its place in `like`, or is NaN;
    what only one of them has is left out."""
    pairs = [(state, like)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(other, Mapping) and isinstance(one, Mapping):
            pairs.extend((one[key], other[key]) for key in other if key in one)
        elif isinstance(other, (list, tuple)) and isinstance(one, (list, tuple)) and len(one) == len(other):
            pairs.extend(zip(one, other, strict=True))
        elif _kind(one) is not _kind(other) or isinstance(other, (Mapping, list, tuple)) or one != one:
            raise ValueError(f"its schedules hold a {type(one).__name__} in the place of a {type(other).__name__}")
        elif (isinstance(other, int) and one < 0 <= other) or (_kind(other) is float and _beyond(one, other)):
            raise ValueError(f"its schedules hold {one} in the place of {other}")


def _beyond(one: float, other: float) -> bool:
    """Whether the first alone is infinite."""
    return math.isinf(one) and not math.isinf(other)


def _kind(value: Any) -> type:
    """Its type, of all numbers that of a float."""
    return float if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)
