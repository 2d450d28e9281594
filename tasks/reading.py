"""Lines of text files, plain or gzipped; what is wrong with a line is a short sentence."""

import codecs
import gzip
import io
import re
import reprlib
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from tqdm import tqdm

from tasks.errors import UserError, readable

UNREADABLE = (OSError, EOFError, zlib.error)  # what reading a file may raise, plain or packed
NO_JSON = (
    " JSON is not read here: write columns with tabs between them into a file .tsv, as pandas does by "
    "to_csv(FILE, sep='\\t', index=False)."
)
TO_UTF8 = "`iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW` converts a whole file that is in Latin-1"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LONGEST = 1 << 24  # bytes of a line
ARRAYS = (".npy", ".npz")  # endings of files that are never packed
ON_ERROR = ("fail", "skip")  # what task.data.on_error may be, see `Faults`
Record = TypeVar("Record")
Example = TypeVar("Example")
_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 60
_shortened.maxlist = _shortened.maxdict = _shortened.maxlevel = 2


class Fault(ValueError):
    """A line that cannot be used; the message says why, as the end of a sentence."""


@dataclass
class Faults:
    """Lines that cannot be used: the first ends the reading (on_error="fail"), or all are counted ("skip")."""

    on_error: str
    count: int = 0
    first: str | None = None  # its line and what is wrong with it

    @property
    def remark(self) -> str:
        """How many were skipped, and the first, as the end of a sentence which says that nothing is left."""
        return f"; {self.count:,} were skipped, and the first is {self.first}" if self.count else ""

    def add(self, place: str, fault: Fault) -> None:
        """Count the fault of the line at `place`, "<file>, line 5". Raises UserError where it is not to be skipped."""
        if self.on_error == "fail":
            unit = "line" if ", line " in place else "file"
            raise UserError(
                f"{place}: {fault}. Correct the {unit}, or leave out such {unit}s with task.data.on_error=skip."
            ) from None
        self.count += 1
        self.first = self.first or f"{place.rpartition(', ')[2]}: {fault}"

    def parse(
        self, name: str | Path, records: Iterable[tuple[int, Record | Fault]], parse: Callable[[Record], Example]
    ) -> Iterator[Example]:
        """What `parse` makes of the numbered records of the file `name`, without those that have a Fault."""
        for number, example in parse_each(records, parse):
            if isinstance(example, Fault):
                self.add(f"{name}, line {number}", example)
            else:
                yield example


def progress_bar(size: int | None, description: str, start: int = 0) -> tqdm:
    """A progress bar over a file of `size` bytes (None: not known), of which there are `start`, in a terminal; to be
    updated with the bytes that were read."""
    return tqdm(
        total=size, initial=start, desc=description, unit="B", unit_scale=True, leave=False,
        disable=not sys.stderr.isatty(),
    )  # fmt: skip


def is_number(text: str | bytes) -> bool:
    """Whether Python reads a text as a number, "nan" and "inf" among them."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def brief(value: object) -> str:
    """`repr` of a value for a message, cut: 60 characters of a string, two elements of a list."""
    return _shortened.repr(value)


def is_json(line: str) -> bool:
    """Whether a line looks like an object of JSON with a key, or the beginning of one or of an array of them."""
    return re.match(r'\s*(\[\s*)?\{\s*("|$)', line) is not None


def other_separator(line: str, least: int, most: int | None = None, csv: bool = True) -> str:
    """Of a line without tabs that has the right number of columns, at least `least`, when it is cut at another
    character, a sentence that says so, and what to do; of one with too many columns, what leaves them out; else
    nothing. csv: files .csv, whose columns may be in quotes, are read too."""
    if is_json(line):
        return NO_JSON
    if "\t" in line:
        cut = f"cut -f1-{most} < FILE > NEW_FILE leaves them out"
        too_many = most is not None and line.count("\t") >= most
        return f" Further columns, such as weights, are not read: {cut}." if too_many else ""
    if least == 3 and line.startswith("<") and line.rstrip().endswith(" ."):
        command = "sed -E 's/ +\\.[[:space:]]*$//; s/ +/\\t/; s/ +/\\t/'"
        return f" It is a line of N-Triples, and tabs are needed: {command} < FILE > NEW_FILE makes them."
    for name, mark, command in (
        ("commas", ",", "tr ',' '\\t'"), ("semicolons", ";", "tr ';' '\\t'"), ("blanks", None, "tr -s ' ' '\\t'"),
    ):  # fmt: skip
        n = len(line.split(mark))
        if least <= n <= (most or n):
            if csv and mark:
                return f" Its columns are separated by {name}, as those of a file .csv may be: give it such a name."
            return f" Its columns are separated by {name}, and tabs are needed: {command} < FILE > NEW_FILE makes them."
    return ""


def to_utf8(beginning: bytes) -> str:
    """The command that makes UTF-8 of a file that begins so and is in another encoding, as the end of a sentence."""
    if beginning.startswith(UTF16):
        return "`iconv -f UTF-16 -t UTF-8 FILE > NEW` converts this file, which is in UTF-16"
    return TO_UTF8


def decode(line: bytes) -> str:
    """The text of a line, without its end and a byte-order mark. Raises Fault where it is too long or no text."""
    if len(line) > LONGEST:
        raise Fault(f"it has more than {LONGEST:,} bytes")
    try:
        text = str(line, "utf-8")
    except UnicodeDecodeError as error:
        raise Fault(f"it is not UTF-8 (byte {error.start + 1}); {to_utf8(error.object)}") from None
    if "\0" in text:
        raise Fault(f"it has a NUL character (column {text.index(chr(0)) + 1}), so it is no text")
    return text.removeprefix("\ufeff").rstrip("\r\n")


def decode_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, str | Fault]]:
    """The number of each line, from 1, and its text or what is wrong with it, see `decode`.

    Of a binary stream never more than LONGEST bytes are held.
    """
    for number, line in enumerate(bounded_lines(lines), start=1):
        text: str | Fault
        try:
            text = decode(line)
            if number == 1:
                check_beginning(text, line.endswith(b"\n"))
        except Fault as fault:
            text = Fault(*fault.args)  # the other one's traceback holds this frame: together they keep the file open
        yield number, text


def check_beginning(text: str, ended: bool) -> None:
    """Raises Fault where the first line of a file, which a line feed has `ended` or not, says that the file has to be
    converted: lines end as on old Macs, or it is Excel's line that names the separator."""
    if "\r" in text and not ended:
        raise Fault("its lines end with carriage returns alone; `tr '\\r' '\\n' < FILE > NEW` makes line feeds of them")
    if re.fullmatch("sep=.", text, re.IGNORECASE):
        raise Fault("it names a separator, for Excel; remove it (`tail -n +2 FILE > NEW`)")


def bounded_lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a binary stream, of those that are too long the beginning; of what is no stream all as they are."""
    if not isinstance(stream, io.BufferedIOBase):
        yield from stream
        return
    while line := stream.readline(LONGEST + 1):
        yield line
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = stream.readline(LONGEST + 1)


def is_packed(path: Path) -> bool:
    """Whether the name of a file ends in .gz."""
    return path.suffix.lower() == ".gz"


def open_bytes(path: Path) -> BinaryIO:
    """A file to be read, unpacked where its name ends in .gz. Opening and reading it raise one of UNREADABLE."""
    return cast(BinaryIO, gzip.open(path)) if is_packed(path) else path.open("rb")


def is_blank(line: tuple[int, str | Fault]) -> bool:
    """Whether a line of `decode_lines` is a text of blanks."""
    return isinstance(line[1], str) and not line[1].strip()


def header_caution(path: Path, first: Sequence[str], read_as: str) -> str:
    """That the first row of a file, of whose names no other row has any, may be a header."""
    names = " and ".join(map(brief, first))
    return (
        f"{path}: the names of the first row, {names}, are in no other. If it is a header, remove it: it was read as "
        f"{read_as}."
    )


def warn_of_header(path: Path, first: Sequence[str], read_as: str) -> None:
    """Warn of what `header_caution` says."""
    warnings.warn(header_caution(path, first, read_as), stacklevel=3)


def existing(path: Path) -> Path | None:
    """The path of a file that is there, plain or with .gz behind its name; None where there is neither."""
    return next((each for each in (path, path.with_name(f"{path.name}.gz")) if each.is_file()), None)


def unread_files(paths: Iterable[Path]) -> str:
    """Of files that may hold the same table, of which the first that is there, plain or packed, is read: which others
    are there, as a sentence; "" where none is."""
    forms = ((path, path.with_name(f"{path.name}.gz")) if path.suffix not in ARRAYS else (path,) for path in paths)
    there = [each for form in forms for each in form if each.is_file()]
    if len(there) < 2:
        return ""
    first, *others = (path.name for path in there)
    return readable(f"{there[0].parent}: {first} is read, and {', '.join(others)} not.")


def reason(error: Exception) -> str:
    """Why a file cannot be read, from one of UNREADABLE."""
    return getattr(error, "strerror", None) or str(error)


def read_lines(path: Path) -> Iterator[tuple[int, str | Fault]]:
    """`decode_lines` of a file, unpacked where its name ends in .gz. Raises UserError where it cannot be read."""
    try:
        with open_bytes(path) as file:
            yield from decode_lines(file)
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({reason(error)}).") from None


def parse_each(
    records: Iterable[tuple[int, Record | Fault]], parse: Callable[[Record], Example]
) -> Iterator[tuple[int, Example | Fault]]:
    """What `parse` makes of each record but blank lines, or its fault."""
    for number, record in records:
        if isinstance(record, Fault):
            yield number, record
        elif not isinstance(record, str) or record.strip():
            example: Example | Fault
            try:
                example = parse(record)
            except Fault as fault:
                example = Fault(*fault.args)  # as in `decode_lines`
            yield number, example
