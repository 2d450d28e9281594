"""Files and folders that appear whole or not at all, and what is kept in folders to be read the next time."""

import contextlib
import csv
import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

META = "meta.json"
LONGEST_NAME = 255  # bytes of the name of a file or folder: the most that file systems have
# What reading a folder that is not whole may raise.
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError)
Value = TypeVar("Value")
Record = TypeVar("Record", bound=Any)  # a named tuple


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The path of a new file beside `path`, to write into; it becomes `path` where all went well, and is removed where
    not. So a reader sees the file that stood there before or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        name_place(error, part, path)
        raise
    finally:
        part.unlink(missing_ok=True)


def name_place(error: OSError, part: Path, place: Path) -> None:
    """An error of a write, as of a full disk, names the place that was to be written, and not a part that is gone, nor
    what was to be copied to it."""
    names = (error.filename, error.filename2)
    if error.filename is None or any(str(name).startswith(str(part)) for name in names):
        reason = error.strerror or str(error)
        error.errno, error.strerror, error.filename = error.errno or errno.EIO, reason, str(place)
        del error.filename2  # None would be printed


def write_text(path: Path, text: str) -> Path:
    """A text in UTF-8, which appears whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A table with commas and a line for each row, which appears whole or not at all."""
    with whole_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """While it lasts, no other process is inside for the same folder. The lock, a file beside the folder, ends with its
    process in any case. Raises OSError where the file cannot be written."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that prepares {place.name}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """A new folder to write into; it becomes `place` where all went well, and is removed where not.

    What stood there before is replaced: where several processes may make the folder, they hold its lock (`locked`), so
    that none removes what another one reads. Others may read the folder.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.{secrets.token_hex(4)}.part")
    part.mkdir()  # with the user's umask, so that a group may share it
    try:
        yield part
        if place.exists():
            shutil.rmtree(place, ignore_errors=True)
        os.replace(part, place)
    except OSError as error:
        name_place(error, part, place)
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def cached_folder(place: Path, read: Callable[[], Value], write: Callable[[Path], object]) -> Value:
    """What `read` makes of the folder `place`, into which `write` puts it where there is none.

    Of several processes that start together one writes, and the others wait for it. A folder of which `read` raises one
    of DAMAGED is made again, with a warning; what an interrupted process left is removed. Raises OSError where the
    folder cannot be written.
    """
    if place.exists():
        with contextlib.suppress(*DAMAGED):
            return read()  # whole, and so never replaced: no lock is needed
    with locked(place):
        if place.exists():
            try:
                return read()
            except DAMAGED as error:
                warnings.warn(f"{place} is damaged ({error}); it is made again.", stacklevel=2)
        for rest in place.parent.glob(f"{place.name}.*.part"):
            shutil.rmtree(rest, ignore_errors=True)
        with whole_folder(place) as part:
            write(part)
        return read()


def cached(
    place: Path,
    read: Callable[[], Value],
    make: Callable[[], Value],
    write: Callable[[Path, Value], object],
    what: str,
) -> Value:
    """What `make` makes, kept with `cached_folder` by `write` and taken from there by `read` the next time; where it
    cannot be kept, it is used without, with a warning that calls it `what`."""
    values: list[Value] = []

    def fill(folder: Path) -> None:
        values.append(make())
        write(folder, values[0])

    try:
        return cached_folder(place, read, fill)
    except OSError as error:  # of the cache: what is read to make the value raises UserError
        warnings.warn(
            f"The {what} could not be kept in {place.parent} ({error.strerror or error}), so every run makes them "
            f"again; paths.cache_dir=... names another folder.",
            stacklevel=2,
        )
        return values[0] if values else make()


def cached_record(
    place: Path, make: Callable[[], Record], record: type[Record], arrays: type[Any], settings: Any, what: str
) -> Record:
    """What `make` makes, by `cached`: a `record`, named tuple whose field `arrays` is one of the type `arrays`, of
    arrays, and whose other fields have values that JSON has. settings: what it is made with."""

    def write(folder: Path, value: Record) -> None:
        facts = value._asdict()
        write_arrays(folder, facts.pop("arrays")._asdict(), settings, facts)

    def read() -> Record:
        stored, facts = read_arrays(place, settings)
        return record(arrays=arrays(**stored), **facts)

    return cached(place, read, make, write, what)


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray], settings: Any, facts: Any) -> None:
    """Write a file for each array, and `write_meta`."""
    for name, array in arrays.items():
        array.tofile(folder / f"{name}.bin")
    write_meta(folder, {name: [str(a.dtype), list(a.shape)] for name, a in arrays.items()}, settings, facts)


def write_meta(folder: Path, forms: Mapping[str, Sequence[Any]], settings: Any, facts: Any) -> None:
    """Write what is to know about the arrays in the files <name>.bin of a folder, in values that JSON has.

    forms: type and shape of each array. settings: what they were made with. facts: what else was made.
    """
    text = json.dumps({"forms": forms, "settings": settings, "facts": facts})
    sha256 = hashlib.sha256(text.encode("ascii")).hexdigest()
    (folder / META).write_text(json.dumps({"sha256": sha256, "meta": text}), encoding="ascii")


def read_arrays(folder: Path, settings: Any) -> tuple[dict[str, np.ndarray], Any]:
    """The arrays of a folder, mapped into memory (changes of them are not written back), and the `facts`.

    Raises one of DAMAGED where something is not whole, or was made with other settings.
    """
    outer = json.loads((folder / META).read_text(encoding="ascii"))
    if hashlib.sha256(outer["meta"].encode("ascii")).hexdigest() != outer["sha256"]:
        raise ValueError(f"{META} was changed")
    meta = json.loads(outer["meta"])
    if meta["settings"] != json.loads(json.dumps(settings)):
        raise ValueError("it is of another recipe")
    arrays = {}
    for name, (dtype, shape) in meta["forms"].items():
        file = folder / f"{name}.bin"
        if file.stat().st_size != np.dtype(dtype).itemsize * math.prod(shape):
            raise ValueError(f"{file.name} is not whole")
        # as a plain array: indexing a memmap object is slower
        arrays[name] = np.memmap(file, dtype, "c", shape=tuple(shape)).view(np.ndarray)
    return arrays, meta["facts"]
