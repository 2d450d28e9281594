"""The mistakes that a user can make, as errors of their own."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """What was asked for cannot be done; the message names the culprit and the remedy in one paragraph."""


def whole(name: str, value: object, least: int) -> int:
    """`value` if it is a whole number of at least `least`.

    Raises UserError, which names the setting, otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name} must be a whole number of at least {least}, and it is {value!r}.")
    return value


def number(name: str, value: Any, least: float = 0.0) -> float:
    """`value` if it is a number of at least `least`.

    Raises UserError, which names the setting, otherwise.
    """
    if not _is_number(value) or not value >= least:
        raise UserError(f"{name} must be a number of at least {least:g}, and it is {value!r}.")
    return value


def share(name: str, value: Any) -> float:
    """`value` if it is a number from 0 to 1.

    Raises UserError, which names the setting, otherwise.
    """
    if not _is_number(value) or not 0 <= value <= 1:
        raise UserError(f"{name} must be from 0 to 1, and it is {value!r}.")
    return value


def rate(name: str, value: Any) -> float:
    """`value` if it is at least 0 and less than 1, as the probability of a dropout.

    Raises UserError, which names the setting, otherwise.
    """
    if not _is_number(value) or not 0 <= value < 1:
        raise UserError(f"{name} must be at least 0 and less than 1, and it is {value!r}.")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`.

    Raises UserError, which lists the choices, otherwise.
    """
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}, and it is {value!r}.")
    return value


def known_splits(name: str, splits: Iterable[str], known: tuple[str, ...]) -> None:
    """Raises UserError, which names the setting, where one of `splits` is not among those `known`."""
    for split in splits:
        if split not in known:
            raise UserError(f"{name}.{split}: the splits are {', '.join(known)}.")


def sizes_of(
    sizes: Mapping[str, int | None], splits: tuple[str, ...], least: int = 1, needed: bool = False
) -> dict[str, int | None]:
    """`sizes` by split: how many examples are used, at least `least`; None: all, where no number is `needed`.

    Raises UserError, which names the setting, for another split or no such number.
    """
    known_splits("task.data.sizes", sizes, splits)
    used = {split: sizes.get(split) for split in splits}
    for split, size in used.items():
        if needed or size is not None:
            whole(f"task.data.sizes.{split}", size, least)
    return used


def plain_warnings() -> None:
    """Warnings of the tasks about a user's data are printed as one line, without the place in the source."""
    usual, folder = warnings.formatwarning, str(Path(__file__).parent)

    def formatted(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **more: Any) -> str:
        if category is UserWarning and filename.startswith(folder):
            return f"warning: {message}\n"
        return usual(message, category, filename, *rest, **more)

    warnings.formatwarning = formatted
