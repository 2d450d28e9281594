"""A column "split" of a user's table, which says of each row whether it is for training, validation or test."""

from collections.abc import Container
from pathlib import Path

from tasks.errors import UserError
from tasks.reading import Fault, brief

SPLIT = {"split": ("split",)}  # a field of `name_tables.read_names`
WORDS = {  # that say a split there, in small letters
    "train": "train", "training": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "test": "test", "testing": "test",
}  # fmt: skip


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
