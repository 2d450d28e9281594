"""A text file of any size, read in blocks: its words counted, and its tokens as numbers."""

import codecs
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.errors import UserError
from tasks.reading import UNREADABLE, open_bytes, reason, to_utf8

BLOCK = 1 << 22  # bytes that are read together
Tokenizer = Callable[[str], list[str]]


class Block(NamedTuple):
    """Whole words of consecutive lines. number: of the first line, from 1. size: bytes."""

    lines: list[str]
    number: int
    size: int


def blocks(path: Path) -> Iterator[Block]:
    """The text, of files .gz unpacked, in blocks that end between two words, also where a line is longer than a block.

    Raises UserError where the file is missing, empty or not UTF-8.
    """
    try:
        with open_bytes(path) as file:
            rest, number, empty = b"", 1, True
            while (chunk := file.read(BLOCK)) or rest:
                data = rest + chunk
                data = data.removeprefix(codecs.BOM_UTF8) if empty else data
                end = max(data.rfind(b"\n"), data.rfind(b" ")) + 1 if chunk else len(data)
                data, rest = data[:end], data[end:]
                if not data:
                    continue
                lines = data.split(b"\n")
                yield Block(_decode(lines, path, number), number, len(data))
                empty = False
                number += len(lines) - 1
    except FileNotFoundError:
        raise UserError(f"There is no text file {path}; correct task.data.file.") from None
    except UNREADABLE as error:
        raise UserError(f"The text file {path} cannot be read ({reason(error)}); see task.data.file.") from None
    if empty:
        raise UserError(f"The text file {path} is empty; task.data.file needs one with words.")


def _decode(lines: list[bytes], path: Path, number: int) -> list[str]:
    try:
        return b"\n".join(lines).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        for k, line in enumerate(lines, start=number):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = f"{line[error.start]:#04x}"
                raise UserError(f"{path}, line {k}: byte {byte} is not UTF-8; {to_utf8(error.object)}.") from None
        raise


def count_words(
    path: Path, tokenizer: Tokenizer, lower: bool, progress: Callable[[int], object]
) -> Counter[str]:
    """How often each word occurs. progress: called with the number of bytes after each block."""
    counts: Counter[str] = Counter()
    for block in blocks(path):
        counts.update(itertools.chain.from_iterable(_tokens(block, tokenizer, lower)))
        progress(block.size)
    return counts


def word_numbers(
    path: Path, tokenizer: Tokenizer, lower: bool, index: dict[str, int], progress: Callable[[int], object]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each block the numbers of its words (n,) and their lines (n,), both int64; words without one are left out."""
    for block in blocks(path):
        ids, lines = [], []
        for k, words in enumerate(_tokens(block, tokenizer, lower), start=block.number):
            numbers = [index[word] for word in words if word in index]
            ids += numbers
            lines += [k] * len(numbers)
        yield np.array(ids, dtype=np.int64), np.array(lines, dtype=np.int64)
        progress(block.size)


def _tokens(block: Block, tokenizer: Tokenizer, lower: bool) -> Iterator[list[str]]:
    return (tokenizer(line.lower() if lower else line) for line in block.lines)
