"""A file of triples, as tab-separated lines or a table with commas or named columns, read into numbers."""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.fingerprints import contents_sha256
from tasks.name_tables import Row, read_names
from tasks.reading import LONGEST, UNREADABLE, open_bytes, other_separator, reason, to_utf8
from tasks.separators import DOUBLED, is_csv
from tasks.split_column import SPLIT, require_train, split_of

FIELDS = {
    "head": ("head", "subject", "source", "from"),
    "relation": ("relation", "predicate", "rel", "label", "type"),
    "tail": ("tail", "object", "target", "to"),
}
FORM = "head <tab> relation <tab> tail"
BLOCK = 1 << 23  # bytes that are read at once
ROWS = 1 << 16  # and rows of a .csv
TAB, NEWLINE = 9, 10
BLANK = "is blank; blank lines are allowed at the end of a file only"


class TripleReader:
    """Reads one file in blocks of whole lines. The dictionaries give every new name the next number.

    given_splits: whether a column split says of which split a row is. `parts` then has after `read` the places of each
    split's rows, and `unused` is the number of rows of no split, which are left out; it is empty without that column.
    """

    def __init__(
        self, path: Path, entities: defaultdict[bytes, int], relations: defaultdict[bytes, int], *, given_splits: bool
    ) -> None:
        self.path, self.entities, self.relations, self.given_splits = path, entities, relations, given_splits
        self.parts: dict[str, np.ndarray] = {}
        self.unused = 0
        self.lines = 0  # before the present block
        self.blank = 0  # of them, blank ones at the end
        self.note = ""  # of a first line that names the columns

    def read(self) -> tuple[np.ndarray, str]:
        """int32 (N, 3), and the SHA-256 of the whole file."""
        table = read_names(self.path, FIELDS, FORM, further=SPLIT if self.given_splits else None)
        if is_csv(self.path) or table.header is not None:
            self.note = table.note(Path(self.path.name))
            rows = table.rows if len(table.header or FIELDS) == len(FIELDS) else self._rows_of_splits(table.rows)
            parts = [self._numbers(some) for some in iter(lambda: [*itertools.islice(rows, ROWS)], [])]
            return np.concatenate(parts), contents_sha256(self.path)
        digest, parts, n = hashlib.sha256(), [], 0
        try:
            for block in self._blocks(digest):
                parts.append(self._block(block))
                n += len(parts[-1])
        except UNREADABLE as error:
            raise UserError(f"{self.path} cannot be read ({reason(error)}).") from None
        if not n:
            raise UserError(f"{self.path} is empty; it needs rows {FORM}.")
        return np.concatenate(parts), digest.hexdigest()

    def _rows_of_splits(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows that have a split, without it; notes which one."""
        splits: list[str] = []
        for k, (*names, word) in rows:
            if (split := split_of(self.path, k, word)) is None:
                self.unused += 1
                continue
            splits.append(split)
            yield k, names
        require_train(self.path, splits)
        places = {split: [place for place, own in enumerate(splits) if own == split] for split in SPLITS}
        self.parts = {split: np.array(some) for split, some in places.items() if some}

    def _numbers(self, rows: Sequence[Row]) -> np.ndarray:
        """int32 (N, 3) of rows of names."""
        names = (map(str.encode, columns) for _, columns in rows)
        numbers = [(self.entities[h], self.relations[r], self.entities[t]) for h, r, t in names]
        return np.array(numbers, dtype=np.int32)

    def _blocks(self, digest: "hashlib._Hash") -> Iterator[bytes]:
        """Whole lines that end with a newline, without a byte-order mark and carriage returns."""
        rest = b""
        with open_bytes(self.path) as file:
            start = file.read(3)
            digest.update(start)
            rest = b"" if start == b"\xef\xbb\xbf" else start
            while data := file.read(BLOCK):
                digest.update(data)
                lines, newline, last = data.rpartition(b"\n")
                if newline:
                    yield (rest + lines + newline).replace(b"\r\n", b"\n")
                    rest = b""
                rest += last
        if rest:
            yield (rest + b"\n").replace(b"\r\n", b"\n")

    def _block(self, block: bytes) -> np.ndarray:
        text = block.rstrip(b"\n")
        if not text:
            self.blank += len(block)
            self.lines += len(block)
            return np.empty((0, 3), dtype=np.int32)
        if self.blank:
            raise self._fault(-self.blank, BLANK)
        self.blank = len(block) - len(text) - 1
        self._check(text)
        names = text.replace(b"\n", b"\t").split(b"\t")
        if b'""' in text:  # of columns that a program has put in quotes
            names = [_without_quotes(name) for name in names]
        n, sizes = len(names) // 3, (len(self.entities), len(self.relations))
        triples = np.empty((n, 3), dtype=np.int32)
        triples[:, 1] = np.fromiter(map(self.relations.__getitem__, names[1::3]), np.int32, n)
        del names[1::3]
        triples[:, ::2] = np.fromiter(map(self.entities.__getitem__, names), np.int32, 2 * n).reshape(n, 2)
        for numbers, before in zip((self.entities, self.relations), sizes, strict=True):
            for name in itertools.islice(reversed(numbers), len(numbers) - before):
                self._check_name(name, text)
        self.lines += block.count(b"\n")
        return triples

    def _check(self, text: bytes) -> None:
        """That every line has three columns and none is empty."""
        marks = np.frombuffer(text + b"\n", dtype=np.uint8)
        places = np.flatnonzero((marks == TAB) | (marks == NEWLINE))
        kinds = marks[places]
        if len(kinds) % 3 == 0 and (kinds.reshape(-1, 3) == (TAB, TAB, NEWLINE)).all():
            empty = np.flatnonzero(np.diff(places, prepend=-1) == 1)
            if not len(empty):
                return
            row, column = divmod(int(empty[0]), 3)
            part = ("head", "relation", "tail")[column]
            raise self._fault(row, f"has an empty {part}; fill it, or leave the line out")
        lines = text.split(b"\n")
        k, columns = next((k, line.count(b"\t") + 1) for k, line in enumerate(lines) if line.count(b"\t") != 2)
        what = f"has {columns} column{'s' * (columns > 1)} instead of 3 ({FORM})"
        hint = other_separator(lines[k].decode("utf-8", "replace"), 3, 3)
        raise self._fault(k, (what if lines[k] else BLANK) + (f".{hint.removesuffix('.')}" if hint else ""))

    def _check_name(self, name: bytes, text: bytes) -> None:
        try:
            fault = None if name.decode("utf-8").strip() else "has a name of blanks only"
            if b"\0" in name:
                text.decode("utf-8")  # not possible of UTF-16, where names may be
                fault = "has a NUL character, so it is no text"
        except UnicodeDecodeError:
            raise self._undecodable(text) from None
        if fault is None and len(name) > LONGEST:
            fault = f"has a name of more than {LONGEST:,} bytes"
        if fault:
            lines = text.split(b"\n")
            names = (map(_without_quotes, line.split(b"\t")) for line in lines)
            raise self._fault(next(k for k, here in enumerate(names) if name in here), fault)

    def _undecodable(self, text: bytes) -> UserError:
        """Of a text with a name that is not UTF-8 the first line that is not."""
        for row, line in enumerate(text.split(b"\n")):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return self._fault(row, f"is not UTF-8 ({error.reason}); {to_utf8(b'' if self.lines else text)}")
        raise AssertionError("each of its lines is UTF-8")

    def _fault(self, row: int, what: str) -> UserError:
        return UserError(f"{self.path}, line {self.lines + row + 1} {what}.")


def _without_quotes(name: bytes) -> bytes:
    """A name as `separators.tab_columns` reads it."""
    return name[1:-1].replace(b'""', b'"') if DOUBLED.fullmatch(name.decode("utf-8", "replace")) else name
