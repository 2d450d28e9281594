"""Whether values are of the kind that annotations ask for, and which names are meant by mistyped ones."""

import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any


def unknown_key(full: str, key: str, names: list[str]) -> str:
    """The sentence that says that a key does not exist, and which ones do, the nearest first."""
    near = difflib.get_close_matches(key, names, n=3, cutoff=0.5)
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
    return True


def described(hint: Any) -> str:
    """What an annotation asks for, in words."""
    names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", type(None): "null"}
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return " or ".join(names.get(p, str(p)) for p in parts)
