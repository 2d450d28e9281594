"""Words of the command line, `key=value`, as Hydra's grammar has them: what it cannot read unquoted is quoted.

Only words that the user gave come here; nothing that was read from a file does.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

# What no plain value has: signs of sweeps, lists, nodes, functions and interpolations, characters that cannot be
# printed, quotes in front, and a home in front, which the shell leaves as it is behind an equals sign.
_NOT_PLAIN = re.compile(r"[,(){}\[\]\x00-\x1f\x7f\ud800-\udfff]|\A\s*['\"~]")
# Keys of files and folders, whose names may look like numbers: 2024_05_01 is 20240501 to Hydra, 1.10 is 1.1.
_PLACE = re.compile(
    r"\+*(data\.dir|paths\.\w+|(probe\.)?checkpoint|input|output|trainer\.resume|hydra\.(run|sweep)\.\w+"
    r"|hydra\.sweeper\.folder|task\.data\.(file|folder|files\.\w+|vectors\.root))"
)
_ATOM = re.compile(r"[^\s,(){}\[\]:]([^,(){}\[\]:]*[^\s,(){}\[\]:])?")  # of a sweep, a list or a node


def with_quotes(words: Sequence[str]) -> list[str]:
    """The words, in which a plain value that Hydra cannot read, as `task.root=Säugetier`, is in quotes, and so is any
    that names a file or folder and would be a number, or several values though such a file is there. Other words,
    flags among them, stay as they are."""
    return [_readable(word) for word in words]


def quoted(text: object) -> str:
    """A text as a value, whatever its characters; but ``${`` begins an interpolation even so."""
    return QuotedString(str(text), Quote.double).with_quotes()


def working_form(word: str) -> str | None:
    """A word that Hydra cannot read in the form in which it can; None where no quotes help, as of a wrong key."""
    key, equals, value = word.partition("=")
    if not equals or not word.isprintable() or "${" in value:
        return None
    value = os.path.expanduser(value.strip())
    atoms = _ATOM.sub(lambda atom: atom[0] if _read(f"k={atom[0]}") else quoted(atom[0]), value)
    return next((form for each in (atoms, quoted(value)) if _read(form := f"{key}={each}")), None)


def value_of(word: str) -> str:
    """The value of a word as a text: as Hydra reads it, or as it stands where that is more than a text."""
    parsed = _read(word)
    value: Any = None if parsed is None or parsed.is_sweep_override() else parsed.value()
    return value if isinstance(value, str) else word.partition("=")[2]


def _readable(word: str) -> str:
    key, equals, value = word.partition("=")
    if _PLACE.fullmatch(key) and not re.search(r"[(){}\[\]'\"\\]", value):
        names = [value] if os.path.exists(value) else value.split(",")
        value = ",".join(quoted(name.strip()) if "," in name or _is_number(name) else name for name in names)
        word = f"{key}={value}"
    if not equals or word.startswith("-") or _read(word) or (_NOT_PLAIN.search(value) and not os.path.exists(value)):
        return word
    form = f"{key}={quoted(value if os.path.exists(value) else value.strip())}"
    return form if _read(form) else word


def _is_number(value: str) -> bool:
    """Whether Hydra reads a value as a number or a truth value."""
    parsed = _read(f"k={value}")
    return parsed is not None and isinstance(parsed.value(), int | float)


def _read(word: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException:
        return None
