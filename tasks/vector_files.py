"""Text files of word vectors, plain or .gz: a word and its numbers a line, maybe after word2vec's first line `V d`."""

import codecs
import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tasks.errors import UserError
from tasks.folders import whole_file
from tasks.reading import UNREADABLE, UTF16, brief, is_number, open_bytes, reason, to_utf8

BLOCK = 1 << 24  # bytes that are read and parsed together
HEADER_DIGITS = 9  # of a number in word2vec's first line
IRREGULAR = re.compile(rb"  |[\t\v\f]|\r(?! |\Z)")  # where several blanks, or others, may separate numbers
QUOTED = 40  # bytes of a faulty line that a message quotes


@dataclass
class VectorFile:
    """What a file holds. words: V of them, as written; vectors (V, d) float32; norms (V,) of the numbers as they are
    in the file, float64; faults: how many lines were skipped, by reason; first_fault: the first of them."""

    words: list[str]
    vectors: np.ndarray
    norms: np.ndarray
    sha256: str
    faults: Counter = field(default_factory=Counter)
    first_fault: str = ""


class _Fault(Exception):
    """reason: what is wrong, the same words for every such line. detail: what is wrong with this one."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


def parse(path: Path, on_error: str) -> VectorFile:
    """The words and numbers of a text file, unpacked where its name ends in .gz; sha256 is of the text.

    A line is a word, blanks, and d numbers; d is what most of the first lines have. A "word" may hold blanks (GloVe's
    840B file has such lines) as long as its later parts are no numbers. Faulty are lines with another count of numbers,
    with something that is no number or not finite, that are not UTF-8, empty, or whose word came before.

    Raises UserError, which names file and line, for a missing or empty file, and on_error="fail" for the first faulty
    line; with "skip" such lines are left out and counted.
    """
    try:
        with open_bytes(path) as file:
            return _Reader(path, on_error).read(file)
    except UNREADABLE as error:
        raise UserError(f"The vectors {path} cannot be read ({reason(error)}).") from None


def dimension(path: Path) -> int:
    """The dimension of a file, from its name (`100d`) or else from its first lines; 0 where there is none."""
    if named := re.search(r"(?<![0-9a-z])(\d+)d(?![0-9a-z])", path.name.lower()):
        return int(named[1])
    try:
        with open_bytes(path) as file:
            lines = file.readlines(1 << 16)[:100]
    except UNREADABLE:  # `parse` says why
        return 0
    return _shape(lines)[1] if lines else 0


def write_vectors(path: Path, words: Sequence[str], vectors: np.ndarray) -> None:
    """A file with one word and its numbers a line, with 9 digits, which is exact for float32; whole or not at all."""
    form = " ".join(["%.9g"] * vectors.shape[1])
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for word, vector in zip(words, vectors.tolist(), strict=True):
            file.write(f"{word} {form % tuple(vector)}\n")


def _shape(lines: list[bytes]) -> tuple[int | None, int]:
    """The number of words in word2vec's first line (None without one), and d."""
    fields = [line.split() for line in lines]
    first = fields[0]
    numbers = len(first) == 2 and all(f.isdigit() and len(f) <= HEADER_DIGITS for f in first)
    if numbers and len(fields) > 1 and len(fields[1]) != 2:
        return int(first[0]), int(first[1])
    return None, Counter(len(f) - 1 for f in fields).most_common(1)[0][0]


class _Reader:
    def __init__(self, path: Path, on_error: str):
        self.path, self.on_error = path, on_error
        self.line = 0  # lines of the blocks that are done
        self.index: dict[str, int] = {}  # line of each word
        self.faults: Counter = Counter()
        self.first_fault = ""

    def read(self, file: BinaryIO) -> VectorFile:
        digest, words, vectors, norms, rest = hashlib.sha256(), [], [], [], b""
        header_count, d = None, 0
        while (block := file.read(BLOCK)) or rest:
            digest.update(block)
            block, rest = rest + block, b""
            if len(block) >= BLOCK:
                end = block.rfind(b"\n") + 1
                block, rest = block[:end], block[end:]
                if not end:
                    raise UserError(f"{self.path}, line {self.line + 1}: longer than {BLOCK} bytes; no word vectors.")
            lines = block.split(b"\n")
            if not d:
                if block.startswith(UTF16):
                    raise UserError(f"{self.path} is not UTF-8; {to_utf8(block)}.")
                lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
            if not lines[-1]:
                lines.pop()
            if not d:
                header_count, d = _shape(lines[:100])
                if d < 1:
                    raise UserError(f"{self.path}, line 1: {lines[0][:QUOTED]!r} is not a word followed by numbers.")
                if header_count is not None:
                    lines, self.line = lines[1:], 1
            new, numbers = self._block(lines, d)
            words += new
            with np.errstate(over="ignore"):  # whether float32 can hold them is seen by who uses them
                vectors.append(numbers.astype(np.float32))
                norms.append(np.sqrt(np.einsum("ij,ij->i", numbers, numbers)))
            self.line += len(lines)
        if not words:
            raise UserError(f"The vectors {self.path} hold no word; every line needs a word and its numbers.")
        count = len(words) + sum(self.faults.values())
        if header_count is not None and count != header_count:
            raise UserError(
                f"{self.path}: its first line promises {header_count} words, and {count} follow; the file may have "
                "been cut off, fetch it again."
            )
        return VectorFile(
            words, np.concatenate(vectors), np.concatenate(norms), digest.hexdigest(), self.faults, self.first_fault
        )

    def _block(self, lines: list[bytes], d: int) -> tuple[list[str], np.ndarray]:
        """All lines at once where nothing is wrong with any of them, else one by one."""
        parts = [line.partition(b" ") for line in lines]
        if all(word and rest.count(b" ") == d - 1 for word, _, rest in parts):
            joined = b" ".join([rest for _, _, rest in parts])
            numbers = np.empty(0) if IRREGULAR.search(joined) else _numbers(joined)
            words = _decode([word for word, _, _ in parts])
            new = len(set(words)) == len(lines) and self.index.keys().isdisjoint(words)
            if new and len(numbers) == len(lines) * d and np.isfinite(numbers).all():
                self.index.update(zip(words, range(self.line + 1, self.line + 1 + len(words)), strict=True))
                return words, numbers.reshape(-1, d)
        return self._lines(lines, d)

    def _lines(self, lines: list[bytes], d: int) -> tuple[list[str], np.ndarray]:
        words, rows = [], []
        for number, line in enumerate(lines, start=self.line + 1):
            try:
                word, row = _line(line, d)
                if word in self.index:
                    detail = f"the word {brief(word)} stands in line {self.index[word]} too"
                    raise _Fault("words that came before", detail)
            except _Fault as fault:
                where = f"{self.path}, line {number}: {fault}"
                if self.on_error == "fail":
                    raise UserError(
                        f"{where}. Repair the file, or leave such lines out with task.data.on_error=skip."
                    ) from None
                self.faults[fault.reason] += 1
                self.first_fault = self.first_fault or f"line {number}: {fault}"
                continue
            self.index[word] = number
            words.append(word)
            rows.append(row)
        return words, np.array(rows, dtype=np.float64).reshape(-1, d)


def _numbers(text: bytes) -> np.ndarray:
    """The numbers of a text; none where something else stands between them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # what numpy says then, an error in later versions
        try:
            return np.fromstring(text, sep=" ")
        except (ValueError, DeprecationWarning):
            return np.empty(0)


def _decode(words: list[bytes]) -> list[str]:
    try:
        return b"\n".join(words).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return []


def _line(line: bytes, d: int) -> tuple[str, list[float]]:
    fields = line.split()
    if len(fields) < d + 1:
        raise _Fault("lines with too few numbers", f"{max(len(fields) - 1, 0)} numbers instead of {d}")
    try:
        row = [float(f) for f in fields[-d:]]
    except ValueError:
        detail = f"{line[:QUOTED]!r} is not a word and {d} numbers"
        raise _Fault("lines with something that is no number", detail) from None
    if any(map(is_number, fields[1:-d])):
        raise _Fault("lines with too many numbers", f"{len(fields) - 1} numbers instead of {d}")
    if not np.isfinite(row).all():
        raise _Fault("lines with numbers that are not finite", "a number is not finite")
    try:
        return b" ".join(fields[:-d]).decode("utf-8"), row
    except UnicodeDecodeError:
        raise _Fault("lines that are not UTF-8", f"the word {fields[0][:QUOTED]!r} is not UTF-8") from None
