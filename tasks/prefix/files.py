"""Pairs on disk: the cache of generated ones, and tab files of ids."""

import json
import os
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np

from tasks.errors import UserError
from tasks.folders import damaged, not_kept
from tasks.prefix.pairs import PAD, Pairs, generate


def generated(path: Path, n: int, recipe: dict) -> Pairs:
    """The pairs that `generate(n, **recipe)` makes, kept in the file `path` and read from there the next time.

    A file that is damaged or was made by another recipe is made again, with a warning. The file is written whole or
    not at all; where it cannot be written, the pairs are used without keeping them.
    """
    stamp = json.dumps({"pairs": n, **recipe}, sort_keys=True)
    if path.exists():
        try:
            return _read(path, stamp)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            warnings.warn(damaged(path, error), stacklevel=2)
    pairs = generate(n, **recipe)
    try:
        _write(path, pairs, stamp)
    except OSError as error:
        setting = "paths.data_dir=... (or the environment variable HYPERBOLIC_DATA)"
        warnings.warn(not_kept("generated pairs", path, error, "generates them", setting), stacklevel=2)
    return pairs


def _read(path: Path, stamp: str) -> Pairs:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        if str(stored["recipe"]) != stamp:
            raise ValueError("it holds pairs of another recipe")
        pairs = Pairs(stored["words"], stored["lengths"], stored["labels"])
        if str(stored["sha256"]) != pairs.sha256():
            raise ValueError("its contents do not have the fingerprint it was written with")
    return pairs


def _write(path: Path, pairs: Pairs, stamp: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(
                file, words=pairs.words, lengths=pairs.lengths, labels=pairs.labels,
                recipe=np.array(stamp), sha256=np.array(pairs.sha256()),
            )  # fmt: skip
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_tab_file(path: Path, vocabulary: int) -> Pairs:
    """Pairs from a text file with lines `ids <tab> ids <tab> label`, ids separated by blanks, label 0 or 1.

    Raises UserError, which names file, line and remedy, where the file is missing, empty or not of this form.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"There is no data file {path}; correct task.data.files, or give null to generate.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The data file {path} cannot be read as text ({error}); see task.data.files.") from None
    if not lines:
        raise UserError(f"The data file {path} is empty; it needs lines of the form: ids <tab> ids <tab> label.")

    rows = [_row(line, path, k, vocabulary) for k, line in enumerate(lines, start=1)]
    longest = max(max(len(first), len(second)) for first, second, _ in rows)
    words = np.full((2, len(rows), longest), PAD, dtype=np.uint8 if vocabulary < 256 else np.uint16)
    lengths = np.empty((2, len(rows)), dtype=np.uint16)
    for k, (*sentences, _) in enumerate(rows):
        for side, sentence in enumerate(sentences):
            words[side, k, : len(sentence)] = sentence
            lengths[side, k] = len(sentence)
    return Pairs(words, lengths, np.array([label for *_, label in rows], dtype=np.uint8))


def _row(line: str, path: Path, number: int, vocabulary: int) -> tuple[list[int], list[int], int]:
    where = f"{path}, line {number}"
    columns = line.split("\t")
    if len(columns) != 3:
        raise UserError(
            f"{where}: {len(columns)} columns instead of 3 (ids <tab> ids <tab> label). "
            "If it is the last line, the file may have been cut off; fetch it again."
        )
    if columns[2].strip() not in ("0", "1"):
        raise UserError(f"{where}: the label is {columns[2]!r} and must be 0 (no prefix) or 1 (prefix).")
    return _ids(columns[0], where, vocabulary), _ids(columns[1], where, vocabulary), int(columns[2])


def _ids(text: str, where: str, vocabulary: int) -> list[int]:
    try:
        ids = [int(word) for word in text.split()]
    except ValueError:
        raise UserError(f"{where}: {text[:40]!r} is not a list of word ids separated by blanks.") from None
    if not ids:
        raise UserError(f"{where}: a sentence is empty; every sentence needs at least one word id.")
    for word in ids:
        if not 0 <= word <= vocabulary:
            raise UserError(
                f"{where}: the word id {word} is out of range: with task.data.vocabulary={vocabulary} "
                f"ids go from 0 to {vocabulary}."
            )
    return ids
