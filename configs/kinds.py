"""Whether values are of the kind that annotations ask for, and which names are meant by mistyped ones."""

import difflib
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

# What other programs call settings that have another name here; of several names the one that there is.
SYNONYMS = {
    "learning_rate": "lr", "step_size": "lr", "epochs": "max_epochs", "n_epochs": "max_epochs",
    "num_epochs": "max_epochs", "num_train_epochs": "max_epochs", "steps": "max_steps", "n_steps": "max_steps",
    "batch": "batch_size", "bs": "batch_size", "l2": "weight_decay", "grad_clip": "max_grad_norm",
    "gradient_clip_val": "max_grad_norm", "optimizer": "rule", "gpus": "devices",
    "early_stopping": "patience", "scheduler": "schedule", "warmup": "warmup_steps", "curvature": "c",
    "hidden_size": "d_hidden", "hidden_dim": "d_hidden", "embedding_dim": "d_word", "dim": "d",
}  # fmt: skip


def nearest(key: str, names: list[str]) -> list[str]:
    """The names that a mistyped key may mean, at most three, the likeliest first."""
    synonym = SYNONYMS.get(key.lower())
    return [synonym] if synonym in names else difflib.get_close_matches(key, names, n=3, cutoff=0.5)


def unknown_key(full: str, key: str, names: list[str]) -> str:
    """The sentence that says that a key does not exist, and which ones do, the nearest first."""
    near = nearest(key, names)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no key {full}.{hint} There are: {', '.join(sorted(names)) or 'none'}."


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of the kind that an annotation asks for; annotations of other kinds fit anything."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, a) for a in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool):
        return isinstance(value, hint)
    if origin in (dict, Mapping) or hint is dict:
        return isinstance(value, Mapping) and (not arguments or all(fits(v, arguments[1]) for v in value.values()))
    if origin in (list, Sequence) or hint is list:
        return isinstance(value, (list, tuple)) and (not arguments or all(fits(v, arguments[0]) for v in value))
    return isinstance(value, Mapping) if _is_node(hint) else True


def _is_node(hint: Any) -> bool:
    """Whether an annotation is a class of this project, of which a configuration has a node of settings."""
    return inspect.isclass(hint) and hint.__module__.partition(".")[0] in ("tasks", "hyperbolic")


def described(hint: Any) -> str:
    """What an annotation asks for, in words."""
    names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", type(None): "null"}
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return " or ".join(names.get(p) or _described_group(p) for p in parts)


def _described_group(hint: Any) -> str:
    if _is_node(hint):
        return f"a node of settings (each with its own key: {', '.join(inspect.signature(hint).parameters)})"
    return "a list, [..., ...]," if typing.get_origin(hint) in (list, Sequence) else str(hint)
