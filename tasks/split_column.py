"""A column "split" of a user's table, which says of each row whether it is for training, validation or test."""

import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path

from tasks.errors import UserError
from tasks.reading import Example, Fault, brief

SPLIT = {"split": ("split",)}  # a field of `name_tables.read_names`
WORDS = {  # that say a split there, in small letters
    "train": "train", "training": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "test": "test", "testing": "test",
}  # fmt: skip

Row = tuple[str, str, Example | Fault]  # split, "" for none, the place in a file, and what stands there


def named_split(word: str) -> str:
    """The split that a word in the column says. Raises Fault for any other than WORDS."""
    if (split := WORDS.get(word.strip().lower())) is None:
        raise Fault(
            f"{brief(word)} is no split; write train, dev or test, leave it empty, or give the column another name"
        )
    return split


def split_of(path: Path, line: int, word: str) -> str | None:
    """As `named_split`, or None where nothing stands there. Raises UserError, which names file and line."""
    try:
        return named_split(word) if word else None
    except Fault as fault:
        raise UserError(f"{path}, line {line}: {fault}.") from None


def require_train(path: Path, splits: Container[str]) -> None:
    """Raises UserError where no row is for training."""
    if "train" not in splits:
        raise UserError(
            f"{path}: nothing that can be used has the split train; give it to some, or remove the column."
        )


def warn_without(path: Path, n: int, unit: str) -> None:
    """Warns of rows of no split. n: how many. unit: what they are called in the plural."""
    if n:
        warnings.warn(f"{path}: {n:,} {unit} have no split and are left out.", stacklevel=3)


def rows_with_splits(
    path: Path, records: Iterable[tuple[int, dict[str, str] | Fault]], make: Callable[[Mapping[str, str]], Example]
) -> Iterator[Row[Example]]:
    """A row for each record of a file, by the number of its line, with the field "split"; one that says no split, or
    that could not be read, is one of train with a fault."""
    for number, record in records:
        place = f"{path}, line {number}"
        if isinstance(record, Fault):
            yield "train", place, record
            continue
        try:
            yield named_split(record["split"]) if record["split"] else "", place, make(record)
        except Fault as fault:
            yield "train", place, fault


def train_first(path: Path, read: Callable[[], Iterator[Row[Example]]], unit: str) -> Iterator[Row[Example]]:
    """The rows of a file, which is read twice: those of train, then the others. Raises UserError where none is of
    train, and warns of those of no split, which are left out. unit: what they are called in the plural."""
    counts = Counter[str]()
    for row in read():
        counts[row[0]] += 1
        if row[0] == "train":
            yield row
    require_train(path, counts)
    warn_without(path, counts[""], unit)
    yield from (row for row in read() if row[0] not in ("", "train"))
