"""Paths of this machine: those in homes, and what records and checkpoints keep of them."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks.errors import UserError

OUTSIDE = "<outside>"  # begins what checkpoints keep of a path outside of the places of their run (configs.stored)
# What may be an absolute path, or one in a home, as a value or within one, in quotes or not.
_PATH = re.compile(r"""(?:(?<=[=,:;|'"\[{(\s])|(?<=file://))(?:/|~[\w.-]*/)[^\s'",\[\]{}/][^'",\[\]{}]*""")

_BEGINNING = re.compile(r"(?:(?<![\w/.~>-])|(?<=file://))(?:/|~[\w.-]*/)(?=\S)")  # of a path in a message
_END = re.compile(r"""[\s,;:'"()\[\]{}]|\Z""")


def user_path(text: str | Path) -> Path:
    """A path as a user writes it, with the home folder in the place of its ``~`` or ``~user``. Raises UserError where
    that is not known."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        home = Path(text).parts[0]
        raise UserError(f"{text}: the home folder {home} is not known on this machine; write the whole path.") from None


def is_local(text: str) -> bool:
    """Whether a text is a path in a home, or an absolute one whose first folder is here; "/film/actor" is a label."""
    parts = Path(text).parts
    return text.startswith("~") or (len(parts) > 1 and parts[0] in ("/", "//") and os.path.exists("/" + parts[1]))


def portable(node: Any) -> Any:
    """A configuration without paths of this machine: of one, and of one that a checkpoint calls OUTSIDE, the last
    part."""

    def last_part(text: str) -> str:
        if text.startswith("file://"):
            return "file://" + last_part(text.removeprefix("file://"))
        return Path(text).name if text.startswith(f"{OUTSIDE}/") or is_local(text) else text

    return map_texts(node, last_part)


def map_texts(node: Any, change: Callable[[str], str]) -> Any:
    """A configuration, in which each text is what `change` makes of it."""
    if isinstance(node, Mapping):
        return {key: map_texts(value, change) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [map_texts(value, change) for value in node]
    return change(node) if isinstance(node, str) else node


def portable_text(text: str) -> str:
    """A message without paths of this machine: of each the last part. One with blanks ends where a part of it is there,
    or at the first blank."""
    beginning = ""
    while match := _BEGINNING.search(text):
        beginning, rest = beginning + text[: match.start()], text[match.start() :]
        ends = [end.start() for end in _END.finditer(rest)]
        folders = [os.path.dirname(rest[:end]) for end in ends]
        there = [end for end, folder in zip(ends, folders, strict=True) if folder != "/" and os.path.isdir(folder)]
        end = (there or ends[:1])[-1]
        beginning, text = beginning + portable(rest[:end]), rest[end:]
    return beginning + text


def portable_word(word: str) -> str:
    """A word of a command line without paths of this machine, also within quotes, lists and nodes."""
    key, equals, value = word.partition("=")
    quote = value[:1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else ""
    text = value[len(quote) : len(value) - len(quote)]
    is_one = "," not in text if not quote else not re.search(rf"(?<!\\){quote}", text)
    if is_one and portable(text) != text:
        return f"{key}{equals}{quote}{portable(text)}{quote}"
    return _PATH.sub(lambda match: portable(match[0].rstrip()), word)
