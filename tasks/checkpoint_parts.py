"""What checkpoints keep besides a state: where it comes from, numbers, and which validation was the best."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

MOST_VALUES = 100_000  # of a configuration; ours have some hundred


@dataclass(frozen=True)
class Origin:
    """Where a state of a task comes from; every checkpoint keeps it, and it alone rebuilds the task.

    experiment: its name, or None. name: of the folder of its runs. config: the resolved configuration as plain values
    (`configs.stored` says how). data: what the model's rows stand for (`TaskData.identity`).
    """

    experiment: str | None = None
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)


def numbers_by_name(values: Any, what: str) -> dict[str, Any]:
    """A copy of what a checkpoint holds as `what`. Raises ValueError where these are no numbers by name."""
    if not isinstance(values, dict):
        raise ValueError(f"its {what} are a {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, (int, float)):
            raise ValueError(f"its {what} hold a {type(value).__name__}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError(f"its {what} hold an integer of {value.bit_length()} bits")
    return dict(values)


def selection(values: Any) -> dict[str, Any]:
    """What a checkpoint says of the best state, "value", "epoch" and "step"; empty before there is one. Raises
    ValueError where it is something else."""
    best = numbers_by_name(values, "best value, epoch and step")
    if best and best.keys() != {"value", "epoch", "step"}:
        raise ValueError("its best value, epoch and step are not all there")
    return best


def load(file: Path, device: torch.device | str) -> Any:
    """What `torch.save` put into a file, of tensors and plain values; nothing is executed. Raises RuntimeError, among
    others, for a sparse tensor whose indices lie outside of it, which would be read and written there."""
    with torch.sparse.check_sparse_tensor_invariants():
        return torch.load(file, map_location=device, weights_only=True)


def _is_bounded(node: Any) -> bool:
    """Whether a node has at most MOST_VALUES values in all, those counted again that stand in several places: nested,
    a few lists that are shared stand for more than any time is enough for."""
    nodes, count = [node], 0
    while nodes:
        node = nodes.pop()
        if isinstance(node, (Mapping, list, tuple)):
            count += len(node)
            if count > MOST_VALUES:
                return False
            nodes.extend(node.values() if isinstance(node, Mapping) else node)
    return True


def has_parts(checkpoint: Mapping[str, Any]) -> bool:
    """Whether weights, configuration, data and metrics are there, of the kinds and sizes that they must have."""
    texts: Any = checkpoint.get("data")
    metrics: Any = checkpoint.get("metrics")
    parts = (checkpoint.get("state_dict"), checkpoint.get("config"), texts, metrics)
    if not all(isinstance(part, dict) for part in parts):
        return False
    if not _is_bounded(checkpoint["config"]):
        return False
    return all(isinstance(text, str) for pair in texts.items() for text in pair) and all(
        isinstance(name, str) and isinstance(value, (int, float)) for name, value in metrics.items()
    )
