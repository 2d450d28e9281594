"""The mistakes that a user can make, as errors of their own.

`whole`, `number`, `positive`, `share`, `rate`, `one_of` and `toy_recipe` give back the value of a setting that is as it
must be, and raise UserError, which names the setting, where it is not.
"""

import contextlib
import math
import os
import re
import select
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

LONGEST = 2000  # characters of a message
# The scripts that are commands of `hyperbolic`, as scripts/package/console.py has them; others are in a checkout alone.
SCRIPTS = ("compare", "figures", "export", "errors", "download", "graph_statistics", "random_graph")
# What the installed command `hyperbolic` calls the programs of the checkout, which messages name.
_COMMANDS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"python run\.py -m sweep="), "hyperbolic sweep "),
    (re.compile(r"python run\.py -m\b"), "hyperbolic sweep"),
    (re.compile(r"python run\.py"), "hyperbolic train"),
    (re.compile(rf"(?:python )?\bscripts/({'|'.join(SCRIPTS)})\.py"), r"hyperbolic \1"),
    (
        re.compile(r"pip install (?:-c constraints\.txt )?(?:-e )?'\.\["),  # of the wheel, for the name is on no index
        lambda _: f"pip install 'hyperbolic_language-{metadata.version('hyperbolic-language')}-py3-none-any.whl[",
    ),
)


def called(text: str) -> str:
    """A text with commands as the user has them: those of the checkout, or those of `hyperbolic` where that is what was
    called (its console sets the environment variable HYPERBOLIC_COMMAND)."""
    for pattern, command in _COMMANDS if os.environ.get("HYPERBOLIC_COMMAND") else ():
        text = pattern.sub(command, text)
    return text


def readable(text: str) -> str:
    """A text that may quote what a file holds, as one line that a terminal can show: ends of lines are blanks, other
    characters that cannot be printed are escaped, and what is too long loses its middle."""
    text = _cut(text)
    return text if text.isprintable() else _cut("".join(map(_printable, text)))


def _printable(c: str) -> str:
    return c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 4 :]}"


def quoted(text: str) -> str:
    """A text in the quotes in which Hydra reads it as a value, as `configs.words.quoted` has them: for messages that
    name a word of the command line."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)  # a backslash counts in front of a quote alone,
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)  # as of the last one
    return f'"{escaped}"'


@contextlib.contextmanager
def ends_with_its_reader() -> Iterator[None]:
    """Where what reads standard output ends first, as `head` does, the program ends without a word, with code 1. Raises
    the BrokenPipeError of another pipe."""
    try:
        replace_closed_output()
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        poll = select.poll()
        poll.register(1, 0)  # errors alone, as that of a pipe without a reader
        if not poll.poll(0):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains when it ends
        sys.exit(1)


def replace_closed_output() -> bool:
    """Whether standard output was closed when the program began; what is printed then goes nowhere."""
    if sys.stdout is not None:
        return False
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the program ends
    return True


class UserError(ValueError):
    """What was asked for cannot be done; the message names the culprit and the remedy in one paragraph."""

    def __init__(self, message: str):
        super().__init__(readable(message))


class Diverged(UserError):
    """The numbers of a training are not finite, so it has no result."""


class Pruned(UserError):
    """A training was ended because others were better at the same time."""


def _require(is_right: bool, name: str, value: object, requirement: str) -> None:
    if not is_right:
        raise UserError(f"{name} must be {requirement}, and it is {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int) -> int:
    """`value` if it is a whole number of at least `least`."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    _require(is_whole and value >= least, name, value, f"a whole number of at least {least}")
    return value


def number(name: str, value: Any, least: float = 0.0) -> float:
    """`value` if it is a number of at least `least`."""
    requirement = f"a number of at least {least:g}, and not infinite"
    _require(_is_number(value) and least <= value < math.inf, name, value, requirement)
    return value


def finite(name: str, value: Any) -> float:
    """`value` if it is a number, and finite."""
    _require(_is_number(value) and math.isfinite(value), name, value, "a number, and not infinite")
    return value


def positive(name: str, value: Any) -> float:
    """`value` if it is a number above 0, and finite."""
    _require(_is_number(value) and 0 < value < math.inf, name, value, "a positive number")
    return value


def share(name: str, value: Any) -> float:
    """`value` if it is a number from 0 to 1."""
    _require(_is_number(value) and 0 <= value <= 1, name, value, "from 0 to 1")
    return value


def rate(name: str, value: Any) -> float:
    """`value` if it is at least 0 and less than 1, as the probability of a dropout."""
    _require(_is_number(value) and 0 <= value < 1, name, value, "at least 0 and less than 1")
    return value


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`."""
    _require(value in choices, name, value, f"one of {', '.join(choices)}")
    return value


def toy_recipe(values: Any, **least: int | None) -> dict[str, Any]:
    """`values`, of generated data, if they are a node with exactly the keys of `least`: whole numbers of at least so
    much and below 2^32; what belongs to None is checked where it is used."""
    name = "task.data.toy"
    own = list(values) if isinstance(values, Mapping) else []
    _require(isinstance(values, Mapping), name, values, f"a node with the keys {', '.join(least)}")
    if wrong := [key for key in own if key not in least] or [key for key in least if key not in own]:
        fault = "is none of its keys" if wrong[0] in own else "is missing"
        raise UserError(f"{name}.{wrong[0]} {fault}: {name} needs {', '.join(least)}, and nothing else.")
    for key, smallest in least.items():
        if smallest is not None:
            _require(whole(f"{name}.{key}", values[key], smallest) < 2**32, f"{name}.{key}", values[key], "below 2^32")
    return dict(values)


def known_splits(name: str, splits: Iterable[str], known: tuple[str, ...]) -> None:
    """Raises UserError, which names the setting, where one of `splits` is not among those `known`."""
    for split in splits:
        if split not in known:
            raise UserError(f"{name}.{split}: the splits are {', '.join(known)}.")


def held_out_shares(name: str, shares: Mapping[str, float], examples: str) -> None:
    """Raises UserError, which names the setting, unless `shares` are of the splits dev and test, each at least 0, and
    leave some of the `examples` for train."""
    known_splits(name, shares, ("dev", "test"))
    for split, part in shares.items():
        rate(f"{name}.{split}", part)
    if sum(shares.values()) >= 1:
        raise UserError(f"{name}={dict(shares)} leaves no {examples} for train.")


def sizes_of(sizes: Mapping[str, int | None], splits: tuple[str, ...]) -> dict[str, int | None]:
    """`sizes` by split: how many examples are used, at least 1; None: all.

    Raises UserError, which names the setting, for another split or no such number.
    """
    known_splits("task.data.sizes", sizes, splits)
    return {s: None if sizes.get(s) is None else whole(f"task.data.sizes.{s}", sizes[s], 1) for s in splits}


def plain_warnings() -> None:
    """Warnings of the tasks about a user's data are printed as one line, without the place in the source."""
    usual, folder = warnings.formatwarning, str(Path(__file__).parent)

    def formatted(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **more: Any) -> str:
        if category is UserWarning and filename.startswith(folder):
            return f"warning: {readable(str(message))}\n"
        return usual(message, category, filename, *rest, **more)

    warnings.formatwarning = formatted
