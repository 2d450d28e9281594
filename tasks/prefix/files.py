"""Pairs on disk: the cache of generated ones, and tab files of ids."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tasks.errors import UserError
from tasks.folders import cached, read_arrays, write_arrays
from tasks.prefix.pairs import PAD, Pairs, generate, make_pairs
from tasks.reading import Fault, brief, read_lines


def generated(place: Path, n: int, recipe: dict[str, Any]) -> Pairs:
    """The pairs that `generate(n, **recipe)` makes, kept in the folder `place` and read from there the next time; see
    `folders.cached`."""
    settings = {"pairs": n, **recipe}

    def read() -> Pairs:
        arrays, sha256 = read_arrays(place, settings)
        pairs = make_pairs(**arrays)
        if sha256 != pairs.sha256():
            raise ValueError("its contents do not have the fingerprint it was written with")
        return pairs

    def write(folder: Path, pairs: Pairs) -> None:
        arrays = {name: tensor.numpy() for name, tensor in vars(pairs).items()}
        write_arrays(folder, arrays, settings, pairs.sha256())

    return cached(place, read, functools.partial(generate, n, **recipe), write, "generated pairs")


def read_tab_file(path: Path, vocabulary: int) -> Pairs:
    """Pairs from a text file with lines `ids <tab> ids <tab> label`, ids separated by blanks, label 0 or 1;
    empty lines are passed over.

    Raises UserError, which names file, line and remedy, where the file is missing, empty or not of this form.
    """
    if not path.is_file():
        raise UserError(f"There is no data file {path}; correct task.data.files, or give null to generate.")
    rows = []
    for number, line in read_lines(path):
        try:
            if isinstance(line, Fault):
                raise line
            if not line.strip():
                continue
            rows.append(_row(line, vocabulary))
        except Fault as fault:
            raise UserError(f"{path}, line {number}: {fault}; see task.data.files.") from None
    if not rows:
        raise UserError(f"The data file {path} is empty; it needs lines of the form: ids <tab> ids <tab> label.")
    return pad_rows(rows, vocabulary)


def pad_rows(rows: Sequence[tuple[list[int], list[int], int]], vocabulary: int) -> Pairs:
    """Pairs of sentences of ids with their label, at least one."""
    sentences = [torch.tensor(ids, dtype=torch.int32) for ids in [row[0] for row in rows] + [row[1] for row in rows]]
    words = torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD).view(2, len(rows), -1)
    lengths = torch.tensor([len(ids) for ids in sentences]).view(2, -1)
    labels = torch.tensor([label for *_, label in rows], dtype=torch.uint8)
    return Pairs(words.byte() if vocabulary < 256 else words, lengths, labels)


def _row(line: str, vocabulary: int) -> tuple[list[int], list[int], int]:
    columns = line.split("\t")
    if len(columns) != 3:
        raise Fault(
            f"{len(columns)} columns instead of 3 (ids <tab> ids <tab> label). "
            "If it is the last line, the file may have been cut off; fetch it again"
        )
    if columns[2].strip() not in ("0", "1"):
        raise Fault(f"the label is {brief(columns[2])} and must be 0 (no prefix) or 1 (prefix)")
    return parse_ids(columns[0], vocabulary), parse_ids(columns[1], vocabulary), int(columns[2])


def parse_ids(text: str, vocabulary: int) -> list[int]:
    """The word ids of a sentence, separated by blanks. Raises Fault unless there are some, from 0 to `vocabulary`."""
    try:
        ids = [int(word) for word in text.split()]
    except ValueError:
        raise Fault(f"{brief(text)} is not a list of word ids separated by blanks") from None
    if not ids:
        raise Fault("a sentence is empty; every sentence needs at least one word id")
    for word in ids:
        if not 0 <= word <= vocabulary:
            raise Fault(
                f"the word id {brief(word)} is out of range: with task.data.vocabulary={vocabulary} ids go from 0 to "
                f"{vocabulary}"
            )
    return ids
